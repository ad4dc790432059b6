"""Registry of the stages: steps that adapt a model before its retrieval training, and their settings.

The module does not import PyTorch, so that a recipe is checked without it. The module that a stage names carries it
out: its function `adapt` takes a model, the settings and the `Inputs`. Pre-training is the exception: all processes of
a training carry it out together. Recipes have one key per stage; `inspect`, the guard and the studies read the same
registry.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_type_hints

from pydantic import (
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from typing_extensions import Doc

from vocable.core.faults import placed
from vocable.errors import ArgumentError
from vocable.objectives import Settings, mistakes
from vocable.options import defaults
from vocable.training_options import OptimizerOptions, PretrainOptions

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

WordInit = Literal["mean", "semantic", "random"]
TokenInit = Literal["semantic", "subtoken", "mean", "random-new", "random-all"]
Bias = Literal["prior", "keep"]
Norm = Literal["keep", "target"]
Level = Literal["pooled", "token"]
RATE = 0.05  # activation rate of the advice to calibrate


class TransferSettings(Settings):
    """Transfer to another vocabulary (Geng and Yang 2026, sections 4.2.1 and 4.2.2)."""

    target: str = Field(description="model or tokenizer with the new vocabulary: built-in name, folder or Hub id")
    head_only: bool = Field(default=False, description="replace only the output terms")
    init: TokenInit = Field(default="semantic", description="initialization of a new token's row")
    bias: Bias = Field(default="prior", description="output bias: the target's, on the model's scale, or the model's")
    norm: Norm = Field(default="keep", description="norm of the output rows: the model's, or the target's")
    texts: list[str] = Field(default=[], description="sources of texts to count the target's tokens in, for the prior")


class ExpandSettings(Settings):
    """Output vocabulary of whole words: the most frequent of texts, or a list (Kim et al. 2026, B.1)."""

    texts: list[str] = Field(default=[], description="sources of texts with the words")
    size: PositiveInt = Field(default=100_000, description="with texts: number of the most frequent words")
    min_count: PositiveInt = Field(default=1, description="with texts: leave out words with fewer occurrences")
    words: str | None = Field(default=None, description="instead of texts: a file with a word per line")
    splitter: Literal["words", "whitespace"] = Field(default="words", description="words of a text")
    init: WordInit = Field(default="mean", description="initialization of the words' rows and biases")
    target: str | None = Field(default=None, description="with init semantic: a model that has words as tokens")

    @model_validator(mode="after")
    def _texts_or_words(self) -> ExpandSettings:
        if bool(self.texts) == (self.words is not None):
            raise ValueError("give either texts, whose most frequent words are taken, or words, a file of words")
        if (self.init == "semantic") != (self.target is not None):
            raise ValueError("init semantic and target go together")
        return self


class RescaleSettings(Settings):
    """Division of the output matrix, tied or not, by a constant (Jang et al. 2026, eq. 6)."""

    factor: Annotated[float, Field(gt=0)] | Literal["auto"]
    texts: str | None = Field(default=None, description="source of the probe texts of auto")

    @model_validator(mode="after")
    def _auto_needs_texts(self) -> RescaleSettings:
        if self.factor == "auto" and self.texts is None:
            raise ValueError("factor auto needs texts, the source of the probe texts")
        return self


def _keys(record: Any, base: Any) -> Any:
    """Return a section with the options of a record as keys, with their limits, defaults and descriptions."""
    usual, fields = defaults(record), dict[str, Any]()
    for name, hint in get_type_hints(record, include_extras=True).items():
        [about] = [part.documentation for part in hint.__metadata__ if isinstance(part, Doc)]
        about = (about[0].lower() + about[1:]).removesuffix(".").replace("None", "null")  # in YAML
        fields[name] = hint, Field(default=usual[name], description=about)
    return create_model(record.__name__, __base__=base, **fields)


class Steps(Settings):
    """The length of a training."""

    steps: PositiveInt = Field(description="optimizer steps")


OptimizerKeys: Any = _keys(OptimizerOptions, Steps)


class OptimizerSettings(OptimizerKeys, Steps):
    """Settings that pre-training and retrieval training share."""


WHOLE_TERMS = ("whole-word", "longest-span")  # kinds of masking that mask terms of an output vocabulary
PretrainKeys: Any = _keys(PretrainOptions, OptimizerSettings)


class PretrainSettings(PretrainKeys, OptimizerSettings):
    """Masked language modelling, or learning from a teacher, before the retrieval training."""

    model_config = ConfigDict(validate_default=True)
    texts: list[str] = Field(min_length=1, description="sources of the texts that the model learns from")

    @field_validator("masking_rate")
    @classmethod
    def _rate_of_the_masking(cls, value: float | None, others: ValidationInfo) -> float:
        return value or (0.15 if others.data.get("masking") in WHOLE_TERMS else 0.3)

    @field_validator("schedule_steps")
    @classmethod
    def _no_shorter_than_the_run(cls, value: int | None, others: ValidationInfo) -> int | None:
        steps = others.data.get("steps")
        if value is not None and steps is not None and value < steps:
            raise ValueError(f"schedule_steps must be at least steps, {steps}")
        return value

    @model_validator(mode="after")
    def _check(self) -> PretrainSettings:
        if self.teacher is not None and self.masking != "uniform":
            raise ValueError(f"teacher and masking {self.masking} exclude each other")
        if self.classes is not None and self.teacher is None:
            raise ValueError("classes needs a dense teacher")
        if self.labels and (self.teacher is not None or self.masking != "uniform" or self.margin):
            raise ValueError("labels exclude teacher, masking and margin")
        if self.margin and self.teacher is not None:
            raise ValueError("teacher and margin exclude each other")
        if self.train_bias and self.trainable != "embeddings":
            raise ValueError("train_bias needs trainable: embeddings")
        return self


def check_pretrain_settings(steps: int, settings: PretrainOptions) -> PretrainSettings:
    """Return the settings of `pretrain` as a record; `ArgumentError` for an unknown key or a value out of range."""
    given = {**settings, "steps": steps, "texts": ["-"]}
    try:
        return PretrainSettings.model_validate(given)
    except ValidationError as error:
        lines = [
            placed(": ".join(map(str, keys)), message) for keys, message in mistakes(error, given, PretrainSettings)
        ]
        raise ArgumentError("; ".join(lines)) from error


class CalibrateSettings(Settings):
    """Shift of the output bias before the retrieval training: to an activation rate, or by a number of logits."""

    texts: str = Field(description="source of the probe texts")
    activation_rate: float | None = Field(default=None, gt=0, lt=1, description="share of the terms to be active")
    shift: float | None = Field(default=None, description="instead of a rate: logits to lower the output bias by")
    level: Level = Field(default="pooled", description="count the active terms of a text, or of each token")
    max_length: PositiveInt = Field(default=128, description="tokens per probe text")
    count: PositiveInt = Field(default=256, description="number of probe texts")

    @model_validator(mode="after")
    def _one_of_two(self) -> CalibrateSettings:
        if (self.activation_rate is None) == (self.shift is None):
            raise ValueError("give either activation_rate or shift")
        return self


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


class Inputs(NamedTuple):
    """The inputs of a stage besides its model and settings."""

    seed: int
    locate: Callable[[str], str]  # a source named in the settings -> the source to read
    queries: Callable[[], Iterator[str]]  # the queries of the training examples

    def texts(self, sources: Sequence[str]) -> Iterator[str]:
        """Read the texts of several sources, one after the other."""
        from vocable.data import read_texts

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
    module: str = ""  # in this package; empty: carried out by `training.stages`
    about: str = ""  # description of the key
    sources: tuple[str, ...] = ("texts",)  # keys of the settings that name one or several sources of texts
    models: tuple[str, ...] = ()  # keys of the settings that name a model or tokenizer
    repair: Repair = NO_REPAIR

    def texts(self, settings: object) -> list[str]:
        """Return the sources of texts that these settings name."""
        values = [getattr(settings, key) for key in self.sources if not isinstance(settings, bool)]
        return [source for value in values if value for source in ([value] if isinstance(value, str) else value)]

    def adapt(self, model: SparseEncoder, settings: Any, inputs: Inputs) -> SparseEncoder:
        """Return the model after the stage."""
        return import_module(f"vocable.adapt.{self.module}").adapt(model, settings, inputs)

    def command(self, model: str, output: str, *more: str, **values: str) -> str:
        """Return the command line of the repair.

        >>> stage("rescale").command("answerdotai/ModernBERT-base", "rescaled", factor="8")
        'vocable rescale answerdotai/ModernBERT-base --factor 8 -o rescaled'
        """
        arguments = [argument.format(**values) for argument in self.repair.arguments]
        return shlex.join(["vocable", self.name, model, *arguments, *more, "-o", output])


RESCALING = Repair(("--factor", "{factor}"), "rescale.factor: {factor}", "rescaled")
TRANSFERRING = Repair(("--target", "{target}"), "transfer.target: {target}", "transferred")
CALIBRATING = Repair(("{texts}", "--activation-rate", f"{RATE:g}"), "calibrate:", "calibrated")
ABOUT_QUERIES = "by default queries are encoded as documents are"
# In the order that a recipe carries them out.
STAGES = (
    Stage("lowercase", bool, "lowercase", "the tokenizer lower-cases its input"),
    Stage("transfer", TransferSettings, "transfer", models=("target",), repair=TRANSFERRING),
    Stage("expand", ExpandSettings, "expand_vocabulary", models=("target",)),
    Stage("rescale", RescaleSettings, "rescale", repair=RESCALING),
    Stage("pretrain", PretrainSettings, models=("teacher",)),
    Stage("calibrate", CalibrateSettings, "calibrate", repair=CALIBRATING),
    Stage("queries", QuerySettings, "queries", ABOUT_QUERIES, sources=("corpus",), models=("model",)),
)


def stage(name: str) -> Stage:
    """Return the stage of this name."""
    return next(stage for stage in STAGES if stage.name == name)
