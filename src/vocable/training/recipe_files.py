"""Recipes as YAML files: the shipped recipes, bases, variants, and overrides of single keys.

The schema is imported only when a recipe is checked, so that listing the recipes takes no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml

from vocable.core.storage import regular
from vocable.core.tables import text_width
from vocable.errors import RecipeError

if TYPE_CHECKING:
    from vocable.training.recipe import Recipe

RecipeValues: TypeAlias = dict[str, Any]  # keys of a recipe, as YAML has them

LOADER = yaml.SafeLoader  # libyaml's loader overflows the stack on deep nesting, and ends the process
OWN_KEYS = ("about", "needs", "variants")  # not inherited from a base
SCHEMA = "recipe.schema.json"  # beside the shipped recipes
MAX_NODES = 100_000  # values of a recipe, a number that aliases could multiply


@dataclass(frozen=True)
class ShippedRecipe:
    """A recipe that comes with vocable; `str()` is its YAML, whose first line names its schema to editors."""

    name: str
    about: str
    text: str

    def __str__(self) -> str:
        return self.text.rstrip("\n")

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "recipe": self.text}


class RecipeList(dict[str, ShippedRecipe]):
    """The shipped recipes by name; `str()` lists them."""

    def __str__(self) -> str:
        lines = (f"{name}: {recipe.about}" for name, recipe in self.items())
        return "\n".join(fill(line, text_width(), subsequent_indent="  ", break_on_hyphens=False) for line in lines)

    def to_json(self) -> dict[str, object]:
        return {name: {"about": recipe.about} for name, recipe in self.items()}


def recipes(name: str | None = None) -> ShippedRecipe | RecipeList:
    """List the built-in recipes, or print one.

    They are starters: each runs as it is, and says in comments what to change.

    Args:
        name: the recipe to print; without it, all are listed.
    """
    if name is not None:
        return _described(_shipped(name))
    return RecipeList({name: _described(path) for name, path in _all_shipped().items()})


def recipe_file(recipe: str | Path) -> Path:
    """Return the path of a recipe's file, or of the shipped recipe of this name; otherwise raise `RecipeError`."""
    path = Path(recipe)
    return path if path.is_file() or path.suffix in (".yaml", ".yml") else _shipped(str(recipe))


def _shipped(name: str) -> Path:
    paths = _all_shipped()
    if name not in paths:
        raise RecipeError(f"no recipe {name!r}: name a YAML file, or one of {', '.join(paths)}")
    return paths[name]


def _all_shipped() -> dict[str, Path]:
    return {path.stem: path for path in sorted(Path(str(files("vocable") / "recipes")).glob("*.yaml"))}


def _described(path: Path) -> ShippedRecipe:
    text = path.read_text(encoding="utf-8")
    # A copy in another folder needs the whole path of the schema.
    text = text.replace(f"$schema={SCHEMA}", f"$schema={(path.parent / SCHEMA).as_posix()}")
    return ShippedRecipe(path.stem, read_values(path)["about"], text)


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


def make_recipe(
    values: RecipeValues, name: str = "recipe", file: Path | None = None, changed: Sequence[str] = ()
) -> Recipe:
    """Check a recipe of plain values, and name all of its mistakes at once.

    Errors have its `name`, and the line of the `file` except for `changed` keys.
    """

    from pydantic import ValidationError

    from vocable.core.faults import placed
    from vocable.objectives import mistakes
    from vocable.training.recipe import Recipe

    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        lines = list[str]()
        for keys, message in mistakes(error, values, Recipe):
            key, line = ".".join(map(str, keys)), None
            if file is not None and not any(f"{key}.".startswith(f"{prefix}.") for prefix in changed):
                line = line_of(file, keys)
            lines.append(f"{name if line is None else f'{name}:{line}'}: {placed(key, message)}")
        raise RecipeError("\n".join(lines)) from error


def read_values(path: Path, derived: tuple[Path, ...] = ()) -> RecipeValues:
    """Read a YAML file over its base, a file in the same folder that the key `base` names.

    A relative `data_folder` is looked up in the folder of the file that names it. `derived` are the files whose base
    this file is, directly or not.
    """
    if path in derived:
        raise RecipeError(f"{path}: base: a recipe cannot be its own base")
    try:
        values = load_yaml(regular(path).read_text(encoding="utf-8"), str(path))
    except OSError as error:
        where = f"{derived[-1]}: base: {path}" if derived else path
        raise RecipeError(f"{where}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: not YAML: {error}") from error
    if not isinstance(values, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of keys, not {type(values).__name__}")
    # Paths are relative to the file that names them, not to the file that takes it as its base.
    folder = values.get("data_folder")
    if isinstance(folder, str) and folder:
        values["data_folder"] = str(path.parent / folder)  # so that a recipe can be moved with its data
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise RecipeError(f"{path}: base must be the name of a file, not {base!r}")
    inherited = read_values(path.parent / base, (*derived, path))
    return _merged({key: value for key, value in inherited.items() if key not in OWN_KEYS}, values)


def load_yaml(text: str, where: str) -> Any:
    """Return the values of a YAML text; errors begin with `where`, and name the line of a duplicate key."""
    try:
        root = _composed(text, where)
        return None if root is None else LOADER("").construct_document(root)
    except RecipeError:
        raise
    except Exception as error:  # PyYAML raises many types: for `!!bool maybe`, `!!int ''`, deep nesting
        raise RecipeError(f"{where}: not YAML: {' '.join(str(error).split())}") from error


@lru_cache(maxsize=8)  # a plan reads its recipe for each variant
def _composed(text: str, where: str) -> yaml.Node | None:
    root = LOADER(text).get_single_node()
    nodes = [] if root is None else [root]
    for node in nodes:  # the list grows by the nodes below, once for each alias
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        names: dict[str, yaml.Node] = {}
        for name, _ in pairs:
            if names.setdefault(str(name.value), name) is not name:
                raise RecipeError(f"{where}:{name.start_mark.line + 1}: duplicate key {name.value!r}")
        nodes += node.value if isinstance(node, yaml.SequenceNode) else [value for _, value in pairs]
        if len(nodes) > MAX_NODES:
            raise RecipeError(f"{where}: more than {MAX_NODES:,} values, aliases counted")
    return root


def line_of(path: Path, keys: Sequence[str | int]) -> int | None:
    """Return the line of a key in a recipe's file, from 1; None if the file lacks the key."""
    node = yaml.compose(regular(path).read_text(encoding="utf-8"), Loader=LOADER)
    line = None
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            pairs = {name.value: (name, value) for name, value in node.value}
        elif isinstance(node, yaml.SequenceNode):
            pairs = {str(i): (value, value) for i, value in enumerate(node.value)}
        else:
            return None
        if str(key) not in pairs:
            return None
        name, node = pairs[str(key)]
        line = name.start_mark.line + 1
    return line


def override(values: RecipeValues, text: str) -> None:
    """Change a key of `values` as a text such as `training.learning_rate=2e-5` says."""
    key, equals, value = text.partition("=")
    if not equals:
        raise RecipeError(f"override {text}: expected KEY=VALUE")
    parsed = load_yaml(value, f"override {text}")
    # YAML reads a source that ends in a colon, such as pydocs:, as a mapping with one key.
    plain = isinstance(parsed, dict) and not value.lstrip().startswith("{")
    assign(values, key, value if plain else scalar(parsed), f"override {text}")


def assign(values: RecipeValues, key: str, value: Any, where: str) -> None:
    """Change a key of `values`, a path with dots; missing and null sections are created.

    In a list the path has the position, counted from 0. Errors begin with `where`.

    >>> values = {"seed": 1, "calibrate": None, "losses": [{"weight": 1}]}
    >>> assign(values, "calibrate.shift", 5, "here")
    >>> assign(values, "losses.0.weight", 2, "here")
    >>> values
    {'seed': 1, 'calibrate': {'shift': 5}, 'losses': [{'weight': 2}]}
    """
    part: Any = values
    names = key.split(".")
    for depth, (above, name) in enumerate(zip(["recipe", *names[:-1]], names, strict=True), start=1):
        # The place in this section: a key, which may be missing, or a position.
        place: str | int = name
        if isinstance(part, list):
            if not (name.isdecimal() and int(name) < len(part)):
                expected = "expected a position from 0"
                raise RecipeError(f"{where}: {above} is a list of {len(part)}: {expected}, not {name!r}")
            place = int(name)
        elif not isinstance(part, dict):
            raise RecipeError(f"{where}: {above} has no keys")
        elif part.get(name) is None:
            part[name] = {}
        if depth == len(names):
            part[place] = value
        part = part[place]


def _merged(base: RecipeValues, overrides: RecipeValues) -> RecipeValues:
    merged = dict(base)
    for key, value in overrides.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def scalar(value: Any) -> Any:
    """Return the number in a string such as 2e-5: YAML 1.1 reads it as a number only with a decimal point."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
