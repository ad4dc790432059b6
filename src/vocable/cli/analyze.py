"""Commands that analyze: logits, postings, wackiness, removal."""

from __future__ import annotations

from vocable.cli import analyzing, removal, wackiness
from vocable.cli.declare import Command

COMMANDS: list[type[Command]] = []
OLD = [analyzing.logits, analyzing.postings, wackiness.wackiness, removal.removal]
