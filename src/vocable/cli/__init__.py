"""The command line: one thin command a verb. Each parses, calls one verb, and prints.

The libraries behind the verbs take seconds to import, so each command imports what it needs when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from vocable import __version__
from vocable.cli import (
    adapting,
    analyzing,
    asymmetric,
    encoding,
    evaluating,
    expanding,
    mining,
    pretraining,
    removal,
    sampling,
    searching,
    training,
    transferring,
    vocabularies,
    wackiness,
)
from vocable.cli.conduct import run

app = typer.Typer(
    help="Learned sparse retrieval: train, encode, search, measure and explain. Begin with: vocable demo",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)

for verb in (
    encoding.encode,
    encoding.index,
    searching.search,
    searching.explain,
    evaluating.evaluate,
    evaluating.compare,
    adapting.inspect,
    adapting.rescale,
    training.train,
    training.recipes,
    mining.mine,
    mining.score,
    pretraining.pretrain,
    pretraining.calibrate,
    vocabularies.vocabulary,
    transferring.transfer,
    expanding.expand,
    asymmetric.inference_free,
    analyzing.logits,
    analyzing.postings,
    analyzing.prune,
    removal.removal,
    wackiness.wackiness,
    sampling.sample,
    training.demo,
):
    app.command()(verb)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"vocable {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """What comes before a verb."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status: 0, 1 for our fault, 2 for the user's, 130 when interrupted."""
    return run(app, list(sys.argv[1:] if arguments is None else arguments))
