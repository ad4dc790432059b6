"""A training run as one typed recipe, read from YAML: what it starts from, what it learns from, and how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from vocable.errors import RecipeError


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pretraining(_Part):
    """Masked language modelling before the retrieval training."""

    texts: list[str] = Field(min_length=1, description="places whose texts the model learns from")
    steps: PositiveInt
    batch_size: PositiveInt = 32
    gradient_accumulation: PositiveInt = 1
    max_length: int = Field(default=128, ge=8, description="tokens of a window, special tokens included")
    masking_rate: float = Field(default=0.3, gt=0, le=1)
    learning_rate: float = Field(default=3e-4, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    warmup_share: float = Field(default=0.06, ge=0, lt=1, description="share of the steps in which the rate rises")
    log_every: PositiveInt = 10
    save_every: PositiveInt = 200


class Calibration(_Part):
    """The shift of the output bias before the retrieval training: to a rate, or by a number of logits."""

    texts: str = Field(description="place of the probe texts; the first 256 are used")
    activation_rate: float | None = Field(default=None, gt=0, lt=1)
    shift: float | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Calibration:
        if (self.activation_rate is None) == (self.shift is None):
            raise ValueError("give either activation_rate or shift")
        return self


class Data(_Part):
    """What the retrieval training learns from."""

    examples: list[str] = Field(min_length=1, description="places of query, positive and negatives")
    negatives: int = Field(default=0, ge=0, description="hard negatives taken from each example")
    size_exponent: float = Field(
        default=1.0, ge=0, le=1, description="a source of n examples is drawn in proportion to n to this power"
    )


class Regularizers(_Part):
    """FLOPS weights, ramped quadratically over the first third of the run."""

    query: float = Field(default=5e-5, ge=0)
    document: float = Field(default=3e-5, ge=0)


class Training(_Part):
    """InfoNCE over in-batch and hard negatives, with FLOPS."""

    steps: PositiveInt
    batch_size: int = Field(default=32, ge=2, description="one query alone has no in-batch negative")
    gradient_accumulation: PositiveInt = 1
    query_length: PositiveInt = 64
    document_length: PositiveInt = 128
    temperature: float = Field(default=1.0, gt=0)
    regularizers: Regularizers = Regularizers()
    learning_rate: float = Field(default=2e-5, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    warmup_share: float = Field(default=0.06, ge=0, lt=1)
    log_every: PositiveInt = 10
    save_every: PositiveInt = 200


class Evaluation(_Part):
    """Quality during training, by exact search over a whole dataset."""

    dataset: str
    measures: list[str] = Field(default=["nDCG@10"], min_length=1)
    every: PositiveInt = 500


class Saved(_Part):
    """What the finished model carries."""

    query_length: PositiveInt = 64
    document_length: PositiveInt = 256
    dtype: Literal["float32", "bfloat16"] = "float32"


class Recipe(_Part):
    """One run. The parts are carried out in the order in which they stand here; those left out are passed over."""

    model: str = Field(description="built-in name, folder, Hub id, or package:NAME/FOLDER")
    head: Literal["own", "new"] = Field(default="own", description="new: give an encoder without a head a new one")
    pooling: Literal["max", "sum", "cls"] = "max"
    seed: int = 0
    data_folder: str = Field(default="", description="relative places are looked up here")
    pretrain: Pretraining | None = None
    calibrate: Calibration | None = None
    data: Data
    training: Training
    evaluation: Evaluation | None = None
    saved: Saved = Saved()

    def place(self, place: str) -> str:
        """A place of the recipe: a relative path is one inside `data_folder`."""
        scheme, colon, rest = place.partition(":")
        if colon and scheme not in ("beir", "file"):
            return place
        if scheme == "beir" and colon:
            return f"beir:{Path(self.data_folder) / rest}"
        return str(Path(self.data_folder) / place)


def read_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe from YAML and apply overrides such as `training.learning_rate=2e-5`.

    Raises:
        RecipeError: no such file, not YAML, or a key that is unknown, missing, of the wrong type or impossible together
            with another; the message names the file and the key's path.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of keys, this is {type(values).__name__}")
    for override in overrides:
        _override(values, override)
    return make_recipe(values, str(path))


def make_recipe(values: dict[str, Any], name: str = "recipe") -> Recipe:
    """Check a recipe given as plain values; errors are those of `read_recipe`."""
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        first, *others = error.errors()
        key = ".".join(str(part) for part in first["loc"]) or "recipe"
        more = f" (and {len(others)} more)" if others else ""
        raise RecipeError(f"{name}: {key}: {_explain(first)}{more}") from error


def _explain(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown key"
    if error["type"] == "missing":
        return "this key is missing"
    return f"{error['msg'].removeprefix('Value error, ')}, not {error['input']!r}"


def _override(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals:
        raise RecipeError(f"--set {override}: expected key=value")
    *parents, last = key.split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise RecipeError(f"--set {override}: {parent} is not a part with keys of its own")
    try:
        values[last] = _scalar(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise RecipeError(f"--set {override}: the value is not YAML") from error


def _scalar(value: Any) -> Any:
    """YAML 1.1 reads 2e-5 as a string, since it has no point: people mean the number."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
