"""Registry of the stages: steps that adapt a model before its retrieval training.

The module that defines the settings of a stage registers it and carries it out. Pre-training is the exception: all
processes of a training carry it out together. Recipes have one key per stage; `inspect`, the guard and the studies
read the same registry. The two stages without a verb are defined here: lower-cased input ("+ lowercase input" of Geng
and Yang 2026, tables 2, 7 and 8), and a separate encoder for queries.
"""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pkgutil import iter_modules
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator
from sentence_transformers import SparseEncoder
from tokenizers import normalizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

import vocable.adapt as package
from vocable.data import read_texts
from vocable.encoding.tokens import backend_of
from vocable.objectives import Settings
from vocable.torch_models.asymmetric import asymmetric
from vocable.torch_models.fuse import copy_with, parts
from vocable.torch_models.inference_free import make_inference_free
from vocable.torch_models.provenance import record
from vocable.torch_models.sparse_encoder import load_sparse_encoder


class Inputs(NamedTuple):
    """The inputs of a stage besides its model and settings."""

    seed: int
    locate: Callable[[str], str]  # a source named in the settings -> the source to read
    queries: Callable[[], Iterator[str]]  # the queries of the training examples

    def texts(self, sources: Sequence[str]) -> Iterator[str]:
        """Read the texts of several sources, one after the other."""
        return chain.from_iterable([read_texts(self.locate(source)) for source in sources])


class Repair(NamedTuple):
    """A stage as a repair that `inspect` and the guard advise."""

    arguments: tuple[str, ...]  # the command's arguments after the model
    key: str  # the recipe's key, with its value
    outcome: str  # suffix of the output folder


NO_REPAIR = Repair((), "", "")


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
    repair: Repair = NO_REPAIR

    def texts(self, settings: object) -> list[str]:
        """Return the sources of texts that these settings name."""
        values = [getattr(settings, key) for key in self.sources if not isinstance(settings, bool)]
        return [source for value in values if value for source in ([value] if isinstance(value, str) else value)]

    def command(self, model: str, output: str, *more: str, **values: str) -> str:
        """Return the command line of the repair.

        >>> stage("rescale").command("answerdotai/ModernBERT-base", "rescaled", factor="8")
        'vocable rescale answerdotai/ModernBERT-base --factor 8 -o rescaled'
        """
        arguments = [argument.format(**values) for argument in self.repair.arguments]
        return shlex.join(["vocable", self.name, model, *arguments, *more, "-o", output])


_stages: dict[str, Stage] = {}


def register(stage: Stage) -> None:
    """Add a stage to the registry."""
    _stages[stage.name] = stage


def stages() -> list[Stage]:
    """Return all stages, in the order that a recipe carries them out."""
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    return sorted(_stages.values(), key=lambda stage: stage.order)


def stage(name: str) -> Stage:
    """Return the stage of this name."""
    return next(stage for stage in stages() if stage.name == name)


def lowercased(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return a copy of `tokenizer` that lower-cases a text before any other normalization."""
    backend = copy.deepcopy(backend_of(tokenizer))
    normalizer = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *normalizer])
    # Not the tokenizer's own class: a BertTokenizer builds a new normalizer when it is loaded.
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        padding_side=tokenizer.padding_side,
        **tokenizer.special_tokens_map,
    )


def _lowercase(model: SparseEncoder, settings: bool, inputs: Inputs) -> SparseEncoder:
    model = copy_with(model, tokenizer=lowercased(parts(model).tokenizer))
    record(model, "lowercase")
    return model


class QuerySettings(Settings):
    """The query encoder, if it differs from the document encoder."""

    weights: Literal["idf", "mean", "ones"] | None = Field(
        default=None, description="weights of the tokens of a query, instead of an encoder; mean: from the examples"
    )
    corpus: str | None = Field(default=None, description="source of the texts of the IDF")
    trainable: bool = Field(default=False, description="train the weights, too")
    model: str | None = Field(default=None, description="query encoder with the same terms: folder or Hub id")
    learning_rate: float | None = Field(default=None, gt=0, description="rate of the query encoder or the weights")
    freeze_documents: bool = Field(default=False, description="do not train the document encoder")

    @model_validator(mode="after")
    def _one_kind(self) -> QuerySettings:
        if (self.weights is None) == (self.model is None):
            raise ValueError("queries have either weights or a model")
        if (self.weights == "idf") != (self.corpus is not None):
            raise ValueError("weights: idf needs a corpus, and a corpus is for weights: idf alone")
        if self.model is not None and self.trainable:
            raise ValueError("trainable is for weights: a separate model learns in any case")
        if self.weights is not None and not self.trainable:
            if self.learning_rate is not None:
                raise ValueError("weights that are not trainable have no learning_rate")
            if self.freeze_documents:
                raise ValueError("nothing would learn: freeze_documents needs trainable weights, or a model")
        return self


def _encode_queries(model: SparseEncoder, settings: QuerySettings, inputs: Inputs) -> SparseEncoder:
    if settings.model is not None:
        return asymmetric(load_sparse_encoder(settings.model), model)
    texts = None
    if settings.weights != "ones":
        texts = inputs.queries() if settings.corpus is None else inputs.texts([settings.corpus])
    return make_inference_free(model, texts, weights=settings.weights or "idf", trainable=settings.trainable)


ABOUT_QUERIES = "by default queries are encoded as documents are"
register(Stage("lowercase", bool, 10, "the tokenizer lower-cases its input", _lowercase))
register(Stage("queries", QuerySettings, 70, ABOUT_QUERIES, _encode_queries, sources=("corpus",), models=("model",)))
