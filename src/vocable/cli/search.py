"""Commands that search and measure: encode, index, search, explain, evaluate, compare, prune."""

from __future__ import annotations

from vocable.cli import analyzing, encoding, evaluating, searching
from vocable.cli.declare import Command

COMMANDS: list[type[Command]] = []
OLD = [
    encoding.encode,
    encoding.index,
    searching.search,
    searching.explain,
    evaluating.evaluate,
    evaluating.compare,
    analyzing.prune,
]
