"""Recipe of a training run, read from YAML and checked.

The sections are in `vocable.training.settings`, what belongs to a loss or regularizer in `vocable.objectives`. Before
the retrieval training come the stages of `vocable.adapt.stages`, each a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError, create_model, model_validator
from typing_extensions import TypedDict

from vocable.adapt.stages import Stage, stages
from vocable.encoder.pooling import PoolingName
from vocable.errors import RecipeError
from vocable.fingerprint import DERIVED
from vocable.objectives import Settings, first_mistake
from vocable.storage import RECIPE
from vocable.training.recipe_files import Values, assign, line_of, override, read_values, recipe_file
from vocable.training.settings import DataSettings, EvaluationSettings, HardNegatives, SavedSettings, TrainingSettings

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$")]  # also the name of a folder


class Variant(Settings):
    """Changed keys of a recipe, and the figures that a paper reports for it."""

    set: dict[str, object] = Field(default={}, description="dotted key: value; null removes a section")
    published: dict[str, float] = Field(default={}, description="measure or column: published figure")
    source: str = Field(default="", description="source of the figures")


class Backbone(Settings):
    """The first keys of a recipe. `about`, `needs` and `variants` describe it and are not saved with the model."""

    about: str = Field(default="", exclude=True)
    needs: list[str] = Field(default=[], exclude=True, description="what is not shipped, in words: data, devices, code")
    variants: dict[Name, Variant] = Field(default={}, exclude=True)
    model: str = Field(description="built-in name, folder, Hub id, or package:NAME/FOLDER")
    head: Literal["own", "new"] = Field(default="own", description="new: give an encoder without a head a new one")
    pooling: PoolingName = "max"
    activation: Literal["relu", "log1p_relu"] | None = Field(default=None, description="the model's own by default")
    seed: int = Field(default=0, ge=0, lt=1 << 32)
    trust_remote_code: bool = Field(default=False, description="run code that comes with the models")
    data_folder: str = Field(default="", description="relative places are looked up here")


def _key(one: Stage) -> Any:
    kind, default = (bool, False) if one.settings is bool else (one.settings | None, None)
    return kind, Field(default=default, description=one.about or None)


# One key per stage, in the order in which they are carried out.
Adapted: Any = create_model("Adapted", __base__=Backbone, **{one.name: _key(one) for one in stages()})


class Recipe(Adapted, Backbone):
    """One training run: its backbone, the stages that adapt it, and its retrieval training."""

    data: DataSettings
    training: TrainingSettings
    evaluation: EvaluationSettings | None = None
    saved: SavedSettings = SavedSettings()

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Recipe:
        if self.expand is not None and self.transfer is not None and self.transfer.head_only:
            raise ValueError("transfer.head_only and expand both replace the output terms: leave one of them out")
        teacher = self.training.teacher
        if self.data.topical and (teacher is None or not teacher.models):
            raise ValueError("data.topical needs a dense teacher: set training.teacher.models")
        if teacher is not None and not self.training.needs_scores and not self.data.topical:
            raise ValueError("training.teacher teaches nothing: add kl or margin_mse to training.losses")
        if self.training.needs_scores and teacher is None and not self.data.negatives:
            raise ValueError(
                "kl and margin_mse learn from training.teacher, or from the scores of the examples' own negatives: "
                "name a teacher, or set data.negatives"
            )
        return self

    def planned(self) -> list[tuple[Stage, Any]]:
        """Return the stages that the recipe has, each with its settings, in order."""
        return [(one, settings) for one in stages() if (settings := getattr(self, one.name))]

    def check_needs(self) -> None:
        """Raise `RecipeError` if the recipe needs data, devices or code that are not shipped."""
        if self.needs:
            raise RecipeError(f"this recipe needs {'; '.join(self.needs)}. Once these are at hand, override needs=[]")

    def place(self, place: str) -> str:
        """Return a source of the recipe, with a relative path in `data_folder`."""
        scheme, colon, rest = place.partition(":")
        if scheme in DERIVED and colon:
            return f"{scheme}:{self.place(rest)}"
        if colon and scheme not in ("beir", "file"):
            return place
        if scheme == "beir" and colon:
            return f"beir:{Path(self.data_folder) / rest}"
        return str(Path(self.data_folder) / place)

    def examples(self) -> list[str | HardNegatives]:
        """Return the sources of the examples, each with its paths in `data_folder`."""
        found: list[str | HardNegatives] = []
        for source in self.data.examples:
            if isinstance(source, HardNegatives):
                places = {name: getattr(source, name) for name in ("file", "corpus", "queries", "scores")}
                found.append(source.model_copy(update={k: value and self.place(value) for k, value in places.items()}))
            else:
                found.append(self.place(source))
        return found


def read_recipe(path: str | Path, overrides: Sequence[str] = (), variant: str | None = None) -> Recipe:
    """Read a YAML file or a shipped recipe by name; apply a variant, then overrides such as `seed=2`.

    Raises:
        RecipeError: the file or variant does not exist, the file is not YAML, or a key is unknown, missing, of a wrong
            type or in conflict with another; the message has the file, the line or variant, and the key's path.
    """
    path = recipe_file(path)
    values, name = read_values(path), str(path)
    changed = [text.partition("=")[0] for text in overrides]
    if variant is not None:
        known = make_recipe(values, name, path).variants
        if variant not in known:
            choices = f"choose from {', '.join(known)}" if known else "it has none"
            raise RecipeError(f"{name}: no variant {variant!r}: {choices}")
        name = f"{name}, variant {variant}"
        for key, value in known[variant].set.items():
            assign(values, key, value, f"{name}: {key}")
        changed += known[variant].set
        del values["variants"]
    for text in overrides:
        override(values, text)
    return make_recipe(values, name, path, changed)


def make_recipe(values: Values, name: str = "recipe", file: Path | None = None, changed: Sequence[str] = ()) -> Recipe:
    """Check a recipe of plain values; errors as in `read_recipe`.

    Messages have its `name`, and the line of the `file` except for `changed` keys.
    """
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        others = error.error_count() - 1
        keys, message = first_mistake(error, values)
        key = ".".join(map(str, keys))
        line = None
        if file is not None and not any(f"{key}.".startswith(f"{one}.") for one in changed):
            line = line_of(file, keys)
        where = ": ".join(filter(None, [name if line is None else f"{name}:{line}", key]))
        more = f" (and {others} more)" if others else ""
        raise RecipeError(f"{where}: {message}{more}") from error


class WorkSettings(TypedDict):
    """The arguments of `vocable.storage.resumable` and `finished` for the output of a recipe."""

    settings: dict[str, object]
    name: str


def work_settings(recipe: Recipe) -> WorkSettings:
    """Return the arguments of `vocable.storage.resumable` and `finished` for the output of a recipe."""
    return {"settings": recipe.model_dump(mode="json"), "name": RECIPE}
