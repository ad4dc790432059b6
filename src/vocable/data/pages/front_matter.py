"""Front matter: YAML between two lines `---` at the start of a Markdown file."""

from __future__ import annotations

import re
from typing import Any

import yaml

from vocable.data.pages.blocks import PageError

FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)


class _Loader(yaml.SafeLoader):  # the loader of libyaml may overflow the stack
    """A loader that refuses aliases, which could multiply values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not read", problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)


def front_matter(text: str) -> tuple[dict[str, Any], int]:
    """Return the fields at the start of a text, and the length of the front matter: 0 if there is none.

    Lines between two rulers that are no mapping belong to the text.

    >>> front_matter("---\\ntags: [a, b]\\n---\\n# Text")
    ({'tags': ['a', 'b']}, 21)

    Raises:
        PageError: the front matter is not YAML.
    """
    found = FRONT_MATTER.match(text)
    if found is None:
        return {}, 0
    try:
        values = yaml.load(found[1] or "", _Loader)
    except yaml.MarkedYAMLError as error:
        line = 2 + (error.problem_mark.line if error.problem_mark else 0)
        raise PageError(f"front matter is not YAML: {error.problem}", line) from error
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:  # a date such as 2024-02-31
        raise PageError(f"front matter is not YAML: {' '.join(str(error).split())[:100]}", 2) from error
    if values is None or isinstance(values, dict):
        return {str(name): value for name, value in (values or {}).items()}, found.end()
    return {}, 0
