"""Commands that serve an index, and publish it as static files."""

from __future__ import annotations

from typing import Any

import vocable as vo
from vocable.cli.command import Command, Outcome
from vocable.cli.output import quoted


def _publish(**given: Any) -> Outcome:
    following = f"python3 -m http.server --directory {quoted(given['output'])}"
    return Outcome(vo.publish(**given), following, written=())


SERVING_COMMANDS = (
    Command("serve", "index", "my-index --port 8000", traits="no-json"),
    Command("publish", "index", "my-index -o site", _publish),
)
