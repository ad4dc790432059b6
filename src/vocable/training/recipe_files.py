"""Recipes as YAML: the shipped ones and their list, a base below a recipe, and single keys laid over it.

Nothing here needs more than YAML, so that recipes are listed at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from textwrap import fill, indent
from typing import Any

import yaml

from vocable.errors import RecipeError
from vocable.storage import regular
from vocable.tables import text_width

# libyaml, where PyYAML was built with it, is ten times as fast.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OWN_KEYS = ("about", "needs", "variants")  # what is said of one recipe, not of those that stand on it
NODES = 100_000  # of a recipe, keys aside


@dataclass(frozen=True)
class ShippedRecipe:
    """A recipe that comes with vocable; `str()` is its YAML."""

    name: str
    about: str
    needs: list[str]  # what is not shipped, in words
    variants: list[str]
    text: str

    def __str__(self) -> str:
        return self.text.rstrip("\n")

    def to_json(self) -> dict[str, Any]:
        """The recipe as JSON values."""
        return {"name": self.name, "recipe": self.text}


class RecipeList(dict[str, ShippedRecipe]):
    """The shipped recipes by their names; `str()` lists them with their variants."""

    def __str__(self) -> str:
        lines = []
        for name, recipe in self.items():
            lines.append(
                fill(f"{name}{' *' if recipe.needs else ''}: {recipe.about}", text_width(), subsequent_indent="  ")
            )
            details = [f"needs: {'; '.join(recipe.needs)}"] if recipe.needs else []
            details += [f"variants: {', '.join(recipe.variants)}"] if recipe.variants else []
            lines += [indent(fill(text, text_width() - 4, break_on_hyphens=False), "    ") for text in details]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the recipes as JSON values, without their YAML."""
        return {name: {"about": one.about, "needs": one.needs, "variants": one.variants} for name, one in self.items()}


def recipes(name: str | None = None) -> ShippedRecipe | RecipeList:
    """List the shipped recipes and their variants, those first that run with what is shipped; or give one of them.

    Raises:
        RecipeError: there is no recipe of that name.
    """
    if name is not None:
        return _described(_shipped(name))
    found = sorted(map(_described, _all_shipped().values()), key=lambda recipe: (bool(recipe.needs), recipe.name))
    return RecipeList({recipe.name: recipe for recipe in found})


def recipe_file(recipe: str | Path) -> Path:
    """Return a recipe's path: its own, or that of the shipped one with this name; `RecipeError` if there is neither."""
    path = Path(recipe)
    return path if path.is_file() or path.suffix in (".yaml", ".yml") else _shipped(str(recipe))


def _shipped(name: str) -> Path:
    found = _all_shipped()
    if name not in found:
        raise RecipeError(f"no recipe {name!r}: name a YAML file, or one of {', '.join(found)}")
    return found[name]


def _all_shipped() -> dict[str, Path]:
    return {path.stem: path for path in sorted(Path(str(files("vocable") / "recipes")).glob("*.yaml"))}


def _described(path: Path) -> ShippedRecipe:
    values = read_values(path)
    about, needs, variants = values.get("about", ""), values.get("needs", []), values.get("variants", {})
    return ShippedRecipe(path.stem, about, needs, list(variants), path.read_text(encoding="utf-8"))


def read_values(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a YAML file; `base: NAME.yaml` names a recipe beside it, whose keys hold where this one has none.

    The recipes `above` stand on this one, to notice a circle.
    """
    if path in above:
        raise RecipeError(f"{path}: base: a recipe cannot stand on itself")
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of keys, this is {type(values).__name__}")
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise RecipeError(f"{path}: base: the name of a file, not {base!r}")
    below = read_values(path.parent / base, (*above, path))
    return _laid_over({key: value for key, value in below.items() if key not in OWN_KEYS}, values)


def read_yaml(path: Path) -> Any:
    """Return the values of a YAML file; `RecipeError` for one that cannot be read, such as a device."""
    try:
        text = regular(path).read_text(encoding="utf-8")
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: not YAML: {error}") from error
    return load_yaml(text, str(path))


def load_yaml(text: str, where: str) -> Any:
    """Return the values of a YAML text; errors begin with `where`, and name the line of a key that is there twice."""
    try:
        loader = LOADER(text)
        root = loader.get_single_node()
        nodes = [] if root is None else [root]
        for node in nodes:  # and those below it, as often as an alias says
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            names: dict[str, Any] = {}
            for name, _ in pairs:
                if names.setdefault(str(name.value), name) is not name:
                    raise RecipeError(f"{where}:{name.start_mark.line + 1}: {name.value}: this key is there twice")
            nodes += node.value if isinstance(node, yaml.SequenceNode) else [value for _, value in pairs]
            if len(nodes) > NODES:
                raise RecipeError(f"{where}: not a recipe: more than {NODES:,} values, aliases counted")
        return None if root is None else loader.construct_document(root)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise RecipeError(f"{where}: not YAML: {' '.join(str(error).split())}") from error


def line_of(path: Path, keys: Sequence[str | int]) -> int | None:
    """Return the line of a recipe's file, from 1, in which a key stands; None if it is in none, or a base's."""
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


def override(values: dict[str, Any], text: str) -> None:
    """Change one key of `values` as `text` says: `training.learning_rate=2e-5`."""
    key, equals, value = text.partition("=")
    if not equals:
        raise RecipeError(f"--set {text}: expected key=value")
    given = load_yaml(value, f"--set {text}")
    # A source that ends in a colon, as pydocs: does, would be a part with one key.
    plain = isinstance(given, dict) and not value.lstrip().startswith("{")
    assign(values, key, value if plain else scalar(given), f"--set {text}")


def assign(values: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Change the `key` of `values`, its path with dots between; parts that are missing or null are made.

    Of a list, the path has the position, counted from 0.

    >>> values = {"seed": 1, "calibrate": None, "losses": [{"weight": 1}]}
    >>> assign(values, "calibrate.shift", 5, "here")
    >>> assign(values, "losses.0.weight", 2, "here")
    >>> values
    {'seed': 1, 'calibrate': {'shift': 5}, 'losses': [{'weight': 2}]}

    Errors begin with `where`.
    """
    *parents, last = key.split(".")
    part: Any = values
    above = "recipe"
    for parent in parents:
        if isinstance(part, dict) and part.get(parent) is None:
            part[parent] = {}
        part, above = part[_key_or_position(part, parent, above, where)], parent
    part[_key_or_position(part, last, above, where)] = value


def _key_or_position(part: Any, name: str, above: str, where: str) -> str | int:
    """Return what `name` is called in the part `above`: a key, or a position in a list."""
    if isinstance(part, dict):
        return name
    if not isinstance(part, list):
        raise RecipeError(f"{where}: {above} is not a part with keys of its own")
    if not (name.isdecimal() and int(name) < len(part)):
        raise RecipeError(f"{where}: {above} is a list of {len(part)}: give a position from 0 on, not {name!r}")
    return int(name)


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return both together, key by key where both have a part; elsewhere the one above counts."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = _laid_over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both


def scalar(value: Any) -> Any:
    """Return a value from YAML 1.1, which reads 2e-5 as a string, since it has no point: people mean the number."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
