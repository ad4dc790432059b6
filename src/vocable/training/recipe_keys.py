"""Unknown and missing keys of a recipe, found before anything heavy is imported.

`recipes/keys.json` has the keys of the schema, `vocable.training.recipe`. After a change of the schema
`python -m vocable.training.recipe_keys` writes it again. A section has its `keys`, each with the section below or
null, and the `required` keys, each with its other names. A section of several kinds has `kinds` by name, and the
`default` name; `each` is the section of every value of a mapping.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

if TYPE_CHECKING:
    from vocable.objectives import Settings

KEYS_FILE = Path(str(files("vocable") / "recipes" / "keys.json"))

Tree: TypeAlias = dict[str, Any]
Mistake: TypeAlias = tuple[list[str | int], str]  # the path of a key, and what is wrong


@cache
def _keys() -> Tree:
    return json.loads(KEYS_FILE.read_text(encoding="utf-8"))


def key_mistakes(values: Any, section: Tree | None = None, path: tuple[str | int, ...] = ()) -> Iterator[Mistake]:
    """Yield each unknown key of a recipe's values, with the nearest known key, and each missing key."""
    section = _keys() if section is None else section
    if isinstance(values, list):
        for number, value in enumerate(values):
            yield from key_mistakes(value, section, (*path, number))
    if not isinstance(values, Mapping):
        return
    if (each := section.get("each")) is not None:
        for name, value in values.items():
            yield from key_mistakes(value, each, (*path, name))
        return
    if "kinds" in section:
        kind = values.get("name", section["default"])
        section = section["kinds"].get(kind if isinstance(kind, str) else "", {"keys": {}, "required": []})
        if not section["keys"]:  # an unknown kind, which the schema names
            return
    known = section["keys"]
    for key, value in values.items():
        if key not in known:
            meant = get_close_matches(str(key), known, 1) or _below(known, key)
            yield [*path, key], f"unknown key; did you mean {' or '.join(meant)}?" if meant else "unknown key"
        elif known[key] is not None:
            yield from key_mistakes(value, known[key], (*path, key))
    for first, *others in section["required"]:
        if not {first, *others} & values.keys():
            yield [*path, first], "this key is missing"


def _below(known: Tree, key: object) -> list[str]:
    """Return the paths of a key in the sections below."""
    return [f"{name}.{key}" for name, below in known.items() if below is not None and key in below.get("keys", ())]


def key_tree(section: type[Settings]) -> Tree:
    """Return the keys of a section of the schema."""
    tree: Tree = {"keys": {}, "required": []}
    for name, field in section.model_fields.items():
        alias = field.validation_alias
        names = [name] if alias is None else [str(choice) for choice in alias.choices]  # type: ignore[union-attr]
        tree["keys"] |= dict.fromkeys(names, _below_field(field.annotation))
        if field.is_required():
            tree["required"].append(names)
    return tree


def _below_field(annotation: Any) -> Tree | None:
    """Return the section, or the kinds of sections, of a field's values; None if these have no keys."""
    sections = [*_sections(annotation)]
    if annotation is not None and getattr(annotation, "__origin__", None) is dict:
        return {"each": key_tree(sections[0])} if sections else None
    named = {each.model_fields["name"].default: each for each in sections if "name" in each.model_fields}
    if named:
        return {"default": next(iter(named)), "kinds": {name: key_tree(each) for name, each in named.items()}}
    return key_tree(sections[0]) if sections else None


def _sections(annotation: Any) -> Iterator[type[Settings]]:
    from vocable.objectives import Settings

    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)


if __name__ == "__main__":
    from vocable.training.recipe import Recipe

    KEYS_FILE.write_text(json.dumps(key_tree(Recipe), indent=1) + "\n", encoding="utf-8")
