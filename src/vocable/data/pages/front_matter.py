"""Front matter: fields at the start of a Markdown file, as YAML between two lines `---` or TOML between two `+++`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import NamedTuple

import yaml

from vocable.data.pages.blocks import Remark

FRONT_MATTER = re.compile(
    r"(?:(?P<yaml>---)[ \t]*\n(?P<fields>.*?\n)?(?:---|\.\.\.)|\+\+\+[ \t]*\n(?P<toml>.*?\n)?\+\+\+)[ \t]*(?:\n|\Z)",
    re.DOTALL,
)
MOST_FIELDS = 16_000  # characters of front matter, which each document of a page has as fields
TOML_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")  # ends a message of tomllib


class _Loader(yaml.SafeLoader):  # the loader of libyaml may overflow the stack
    """A loader that refuses aliases, which could multiply values."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not read", problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)


class FrontMatter(NamedTuple):
    """The fields at the start of a text, the text after them, its first line, and a remark on faulty fields."""

    fields: dict[str, object]
    text: str
    line: int = 1
    remark: Remark | None = None


def front_matter(text: str) -> FrontMatter:
    """Divide a text into its front matter and the rest.

    Lines between two rulers that are not a mapping belong to the text. So does faulty front matter, but its rulers
    become blank lines: the second ruler would turn the line above it into a heading.

    >>> front_matter("---\\ntags: [a, b]\\n---\\n# Text")
    FrontMatter(fields={'tags': ['a', 'b']}, text='# Text', line=4, remark=None)
    >>> front_matter("---\\ntags: [a\\n---\\n# Text").text
    '\\ntags: [a\\n\\n# Text'
    """
    match = FRONT_MATTER.match(text)
    if match is None:
        return FrontMatter({}, text)
    inner = match["fields"] or match["toml"] or ""
    if len(inner) > MOST_FIELDS:
        values: dict[str, object] | Remark | None = Remark(f"front matter has more than {MOST_FIELDS:,} characters", 1)
    else:
        values = _yaml(inner) if match["yaml"] else _toml(inner)
    if isinstance(values, Remark):
        return FrontMatter({}, f"\n{inner}\n{text[match.end() :]}", 1, values)
    if values is None:
        return FrontMatter({}, text)
    return FrontMatter(values, text[match.end() :], text.count("\n", 0, match.end()) + 1)


def title_of(fields: Mapping[str, object]) -> str:
    """Return the title among the fields of a page, or "" if it is no text or number."""
    title = fields.get("title")
    return " ".join(str(title).split()) if isinstance(title, str | int | float) else ""


def _yaml(text: str) -> dict[str, object] | Remark | None:
    """Return the fields of a text in YAML, a remark about a fault, or None if it is not a mapping."""
    try:
        values = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = 2 + (error.problem_mark.line if error.problem_mark else 0)
        return Remark(f"front matter is not YAML: {error.problem}", line)
    except Exception as error:  # PyYAML raises many types: for 2024-02-31, `!!bool maybe`, deep nesting
        return Remark(f"front matter is not YAML: {' '.join(str(error).split())[:100]}", 2)
    if values is None or isinstance(values, dict):
        return {str(name): value for name, value in (values or {}).items()}
    return None


def _toml(text: str) -> dict[str, object] | Remark:
    """Return the fields of a text in TOML, or a remark about a fault."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        message = " ".join(str(error).split())
        place = TOML_PLACE.search(message)
        line = 1
        if place:  # with the number of a line, or the end of the text
            line = int(place[1]) if place[1] else text.count("\n")
        return Remark(f"front matter is not TOML: {TOML_PLACE.sub('', message)[:100]}", 1 + line)
