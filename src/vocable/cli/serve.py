"""The command that serves an index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

import typer

from vocable.cli.declare import Command
from vocable.cli.search import Place, Wacky, WackyShare


class Serve(Command):
    """Serve an index over HTTP.

    A page to search with at /; search, explanations, sparse embeddings as
    text-embeddings-inference has them, and changes, until Ctrl-C. The log is
    JSON on stderr.

    Example: vocable serve my-index --port 8000
    """

    has_json: ClassVar[bool] = False
    index: Place
    model: Annotated[str | None, typer.Option(help="The model of the index, if it has moved.")] = None
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The bearer token that requests must have; or VOCABLE_TOKEN.")
    ] = None
    compare_with: Annotated[str | None, typer.Option(metavar="PLACE")] = None
    wacky: Wacky = None
    wacky_share: WackyShare = None


COMMANDS: list[type[Command]] = [Serve]
