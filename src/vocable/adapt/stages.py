"""Registry of the stages: steps that adapt a model before its retrieval training.

A stage is registered by the module that defines its settings, which also carries it out, except for pre-training, for
which all processes of a training work together. Recipes have one key per stage;
`inspect`, the guard and the studies read the same registry.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pkgutil import iter_modules
from typing import Any, NamedTuple

from sentence_transformers import SparseEncoder

import vocable.adapt as package
from vocable.data import read_texts


class Inputs(NamedTuple):
    """The inputs of a stage besides its model and settings."""

    seed: int
    locate: Callable[[str], str]  # a source named in the settings -> the source to read
    queries: Callable[[], Iterator[str]]  # the queries of the training examples

    def texts(self, sources: Sequence[str]) -> Iterator[str]:
        """Read the texts of several sources, one after the other."""
        return chain.from_iterable([read_texts(self.locate(source)) for source in sources])


@dataclass(frozen=True)
class Stage:
    """A step that a recipe may take before the retrieval training."""

    name: str  # the key of a recipe
    settings: Any  # the class of the key's value: bool, or a class of settings
    order: int  # stages with a lower number come first
    about: str = ""  # description of the key
    adapt: Callable[[SparseEncoder, Any, Inputs], SparseEncoder] | None = None  # None: carried out by `training.stages`
    sources: tuple[str, ...] = ("texts",)  # keys of the settings that name one or several sources of texts
    models: tuple[str, ...] = ()  # keys of the settings that name a model or tokenizer
    # As a repair that `inspect` and the guard advise:
    arguments: tuple[str, ...] = ()  # of the command, after the model
    key: str = ""  # of a recipe, with its value
    outcome: str = ""  # suffix of the output folder

    def texts(self, settings: object) -> list[str]:
        """Return the sources of texts that these settings name."""
        values = [getattr(settings, key) for key in self.sources if not isinstance(settings, bool)]
        return [source for value in values if value for source in ([value] if isinstance(value, str) else value)]

    def command(self, model: str, output: str, *more: str, **values: str) -> str:
        """Return the command line of the repair.

        >>> stage("rescale").command("answerdotai/ModernBERT-base", "rescaled", factor="8")
        'vocable rescale answerdotai/ModernBERT-base --factor 8 -o rescaled'
        """
        arguments = [argument.format(**values) for argument in self.arguments]
        return shlex.join(["vocable", self.name, model, *arguments, *more, "-o", output])


_stages: dict[str, Stage] = {}


def register(stage: Stage) -> None:
    """Add a stage to the registry."""
    _stages[stage.name] = stage


def stages() -> list[Stage]:
    """Return all stages in the order in which a recipe carries them out."""
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    return sorted(_stages.values(), key=lambda one: one.order)


def stage(name: str) -> Stage:
    """Return the stage of this name."""
    return next(one for one in stages() if one.name == name)
