"""A training run as one typed recipe, read from YAML: what it starts from, what it learns from, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    PositiveInt,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from vocable.encoder.precision import DType
from vocable.errors import RecipeError
from vocable.training.overlays import assign, override, read_values
from vocable.training.part import Part
from vocable.training.query_encoder import Queries
from vocable.training.settings import Training
from vocable.training.sources import HardNegatives, Source
from vocable.training.stages import Expansion, Rescaling, Transfer


class Pretraining(Part):
    """Masked language modelling before the retrieval training."""

    texts: list[str] = Field(min_length=1, description="places whose texts the model learns from")
    steps: PositiveInt
    batch_size: PositiveInt = 32
    gradient_accumulation: PositiveInt = 1
    max_length: int = Field(default=128, ge=8, description="tokens of a window, special tokens included")
    masking: Literal["uniform", "overlap-aware", "whole-word"] = "uniform"
    masking_rate: float = Field(
        default_factory=lambda given: 0.15 if given.get("masking") == "whole-word" else 0.3,
        gt=0,
        le=1,
        description="share of the tokens, or of the words, to be guessed",
    )
    new_token_weight: float = Field(
        default=2.0, gt=0, allow_inf_nan=False, description="overlap-aware: a new token is masked so often for a shared"
    )
    trainable: Literal["all", "embeddings"] = Field(default="all", description="embeddings: the rest is frozen")
    train_bias: bool = Field(default=False, description="with embeddings: the output bias learns, too")
    held_out: int = Field(default=256, ge=0, description="windows kept apart for the report, at most a tenth of all")
    passes: PositiveInt | None = Field(
        default=None, description="at most so often is a text seen, under other masks each time; null for no limit"
    )
    learning_rate: float = Field(default=3e-4, gt=0)
    schedule: Literal["cosine", "linear"] = "cosine"
    schedule_steps: PositiveInt | None = Field(
        default=None, description="steps in which the rate would fall to 0, if not those of the run: more of them"
    )
    weight_decay: float = Field(default=0.01, ge=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    warmup_share: float = Field(
        default=0.06, ge=0, lt=1, description="share of the steps of the schedule in which the rate rises"
    )
    dtype: DType = Field(default="auto", description="of products: auto is bfloat16 where native, else float32")
    log_every: PositiveInt = 10
    save_every: PositiveInt = 200

    @field_validator("schedule_steps")
    @classmethod
    def _no_shorter_than_the_run(cls, value: int | None, others: ValidationInfo) -> int | None:
        steps = others.data.get("steps")
        if value is not None and steps is not None and value < steps:
            raise ValueError(f"the schedule cannot be shorter than the run of {steps} steps")
        return value

    @model_validator(mode="after")
    def _bias_beside_embeddings(self) -> Pretraining:
        if self.train_bias and self.trainable == "all":
            raise ValueError("train_bias goes with trainable: embeddings, everything learns without it")
        return self


class Calibration(Part):
    """The shift of the output bias before the retrieval training: to a rate, or by a number of logits."""

    texts: str = Field(description="place of the probe texts; the first 256 are used")
    activation_rate: float | None = Field(default=None, gt=0, lt=1)
    shift: float | None = None
    level: Literal["pooled", "token"] = Field(default="pooled", description="what activation_rate is a share of")

    @model_validator(mode="after")
    def _one_of_two(self) -> Calibration:
        if (self.activation_rate is None) == (self.shift is None):
            raise ValueError("give either activation_rate or shift")
        return self


class Data(Part):
    """What the retrieval training learns from."""

    examples: list[Source] = Field(min_length=1, description="places of query, positive and negatives, or ids of them")
    negatives: int = Field(default=0, ge=0, description="hard negatives taken from each example")
    sampling: Literal["first", "random"] = Field(default="first", description="random: other negatives in every pass")
    false_negative_margin: float | None = Field(
        default=None, description="negatives whose teacher's score is above the positive's less this are left out"
    )
    size_exponent: float = Field(
        default=1.0, ge=0, le=1, description="a source of n examples is drawn in proportion to n to this power"
    )
    topical: bool = Field(default=False, description="batches of examples that the teacher finds near each other")

    @model_validator(mode="after")
    def _choice_of_negatives(self) -> Data:
        if not self.negatives and (self.sampling == "random" or self.false_negative_margin is not None):
            raise ValueError("sampling and false_negative_margin choose among negatives: say how many with negatives")
        if self.false_negative_margin is not None and any(
            isinstance(source, HardNegatives) and source.scores is None for source in self.examples
        ):
            raise ValueError("false_negative_margin needs the scores of every source")
        return self


class Evaluation(Part):
    """Quality by exact search over whole datasets, in training and of variants; `dataset: PLACE` will do for one."""

    datasets: Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)] = Field(
        min_length=1, validation_alias=AliasChoices("datasets", "dataset")
    )
    measures: list[str] = Field(default=["nDCG@10"], min_length=1)
    every: PositiveInt | None = Field(default=500, description="steps; null: not during the training")


class Saved(Part):
    """What the finished model carries."""

    query_length: PositiveInt = 64
    document_length: PositiveInt = 256
    query_terms: PositiveInt | None = Field(default=None, description="the heaviest terms of a query, all by default")
    document_terms: PositiveInt | None = Field(default=None, description="the heaviest terms of a document")
    dtype: Literal["float32", "bfloat16"] = "float32"


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$")]  # a folder's name, too


class Variant(Part):
    """A recipe that differs from another in some keys, and what a paper reports of it."""

    set: dict[str, Any] = Field(default={}, description="dotted key: value; null takes a part away")
    published: dict[str, float] = Field(default={}, description="measure or column: figure, as it is printed")
    source: str = Field(default="", description="where the figures are printed")


class Recipe(Part):
    """One run. The parts are carried out in the order in which they stand here; those left out are passed over.

    `about`, `needs` and `variants` describe and do nothing: they are not written down with the model.
    """

    about: str = Field(default="", exclude=True)
    needs: list[str] = Field(default=[], exclude=True, description="what is not shipped, in words: data, devices, code")
    variants: dict[Name, Variant] = Field(default={}, exclude=True)
    model: str = Field(description="built-in name, folder, Hub id, or package:NAME/FOLDER")
    head: Literal["own", "new"] = Field(default="own", description="new: give an encoder without a head a new one")
    pooling: Literal["max", "sum", "cls", "mean-before-head"] = "max"
    activation: Literal["relu", "log1p_relu"] | None = Field(default=None, description="the model's own by default")
    seed: int = 0
    data_folder: str = Field(default="", description="relative places are looked up here")
    lowercase: bool = Field(default=False, description="the tokenizer lower-cases its input")
    transfer: Transfer | None = None
    expand: Expansion | None = None
    rescale: Rescaling | None = None
    pretrain: Pretraining | None = None
    calibrate: Calibration | None = None
    queries: Queries | None = Field(default=None, description="by default they are encoded as documents are")
    data: Data
    training: Training
    evaluation: Evaluation | None = None
    saved: Saved = Saved()

    @model_validator(mode="after")
    def _one_output_vocabulary(self) -> Recipe:
        if self.expand is not None and self.transfer is not None and self.transfer.head_only:
            raise ValueError("transfer.head_only and expand both replace the output terms: leave one of them out")
        return self

    @model_validator(mode="after")
    def _topics_and_teachers(self) -> Recipe:
        teacher = self.training.teacher
        if self.data.topical and (teacher is None or not teacher.models):
            raise ValueError("data.topical needs training.teacher.models: a dense teacher says what is near")
        if teacher is not None and not self.training.taught and not self.data.topical:
            raise ValueError("training.teacher teaches nothing: add kl or margin_mse to training.losses")
        if self.training.taught and teacher is None and not self.data.negatives:
            raise ValueError(
                "kl and margin_mse learn from training.teacher, or from the scores of the examples' own negatives: "
                "name a teacher, or set data.negatives"
            )
        return self

    def check_needs(self) -> None:
        """Raise `RecipeError` if the recipe needs what is not shipped: it would silently be another experiment."""
        if self.needs:
            raise RecipeError(f"this recipe needs {'; '.join(self.needs)}. Once all is there, add --set needs=[]")

    def place(self, place: str) -> str:
        """A place of the recipe: a relative path is one inside `data_folder`."""
        scheme, colon, rest = place.partition(":")
        if colon and scheme not in ("beir", "file"):
            return place
        if scheme == "beir" and colon:
            return f"beir:{Path(self.data_folder) / rest}"
        return str(Path(self.data_folder) / place)


def read_recipe(path: str | Path, overrides: Sequence[str] = (), variant: str | None = None) -> Recipe:
    """Read a recipe from YAML, apply one of its variants, then overrides such as `training.learning_rate=2e-5`.

    Raises:
        RecipeError: no such file, not YAML, no such variant, or a key that is unknown, missing, of the wrong type or
            impossible together with another; the message names the file, the variant and the key's path.
    """
    values, name = read_values(Path(path)), str(path)
    if variant is not None:
        known = make_recipe(values, name).variants
        if variant not in known:
            raise RecipeError(f"{name}: no variant {variant!r}: {_choices(known)}")
        name = f"{name}, variant {variant}"
        for key, value in known[variant].set.items():
            assign(values, key, value, f"{name}: {key}")
        del values["variants"]
    for text in overrides:
        override(values, text)
    return make_recipe(values, name)


def make_recipe(values: dict[str, Any], name: str = "recipe") -> Recipe:
    """Check a recipe given as plain values; errors are those of `read_recipe`."""
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        first, *others = error.errors()
        where = ": ".join(filter(None, [name, ".".join(str(part) for part in first["loc"])]))
        more = f" (and {len(others)} more)" if others else ""
        raise RecipeError(f"{where}: {_explain(first)}{more}") from error


def _explain(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown key"
    if error["type"] == "missing":
        return "this key is missing"
    message = error["msg"].removeprefix("Value error, ")
    return message if isinstance(error["input"], dict) else f"{message}, not {error['input']!r}"


def _choices(variants: Mapping[str, Variant]) -> str:
    return f"choose from {', '.join(variants)}" if variants else "it has none"
