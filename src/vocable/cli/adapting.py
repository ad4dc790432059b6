"""inspect and rescale: look at a backbone, and mend the scale of its head."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from vocable.cli.options import Json, Output
from vocable.cli.output import print_json, print_table
from vocable.errors import ArgumentError

if TYPE_CHECKING:
    from rich.table import Table

    from vocable.adapt.rescale import Choice

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A masked language model: a folder or a Hub id.")]
Probe = Annotated[str, typer.Option("--texts", metavar="PLACE", help="Probe texts, best from your own corpus.")]


def inspect(
    model: Model,
    target: Annotated[str | None, typer.Option(help="A tokenizer's folder or Hub id, to compare with.")] = None,
    texts: Probe = "pydocs:",
    as_json: Json = False,
) -> None:
    """See what a model needs before it is trained.

    Measures head, vocabulary and the start of a training, and ends with the next command.

    Example: vocable inspect bert-base-cased --target bert-base-uncased
    """
    from vocable.adapt.inspection import inspect as look_at

    found = look_at(model, target=target, texts=texts)
    if as_json:
        print_json(found.to_json())
    else:
        print_table(found.table())
        print(f"\n{found.verdict}")


def rescale(
    model: Model,
    output: Output,
    factor: Annotated[str, typer.Option(metavar="K", help="A number above 0, or auto.")],
    texts: Probe = "pydocs:",
    as_json: Json = False,
) -> None:
    """Divide a model's output matrix by K.

    With auto, K is the smallest of 1, 2, 4 ... 32 that a training would start well from.

    Example: vocable rescale answerdotai/ModernBERT-base -o out --factor auto
    """
    k = _number(factor)
    from vocable.adapt.provenance import save_adapted
    from vocable.adapt.rescale import choose_factor
    from vocable.adapt.rescale import rescale as divide
    from vocable.adapt.statistics import probe_texts
    from vocable.encoder.load import load_checkpoint
    from vocable.storage import refuse_taken

    refuse_taken(output)
    mlm, tokenizer = load_checkpoint(model)
    choice = None
    if k is None:
        choice = choose_factor(mlm, tokenizer, probe_texts(texts))
        k = choice.factor
    save_adapted(divide(mlm, k), tokenizer, output, source=model)
    if as_json:
        trials = [] if choice is None else [{"factor": trial.factor} | asdict(trial.start) for trial in choice.trials]
        print_json({"output": str(output), "factor": k, "trials": trials})
        return
    if choice is not None:
        print_table(_trials(choice))
    print(f"{output}: output matrix divided by {k:g}; next: vocable inspect {output}")


def _number(factor: str) -> float | None:
    """The factor; None for auto."""
    if factor == "auto":
        return None
    try:
        return float(factor)
    except ValueError as error:
        raise ArgumentError(f"--factor is a number above 0, or auto, not {factor!r}") from error


def _trials(choice: Choice) -> Table:
    """One row a factor, the chosen one marked."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from vocable.tables import short

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("k", "active", "terms", "score", "std", "largest", "own first", "loss", "guessing"):
        table.add_column(column, justify="right", no_wrap=True)
    for factor, start in choice.trials:
        table.add_row(
            f"{'> ' if factor == choice.factor else ''}{factor}",
            f"{start.pooled_rate:.1%}",
            f"{start.terms_mean:,.0f}",
            *map(short, (start.score_mean, start.score_std, start.score_max)),
            f"{start.accuracy:.0%}",
            short(start.loss),
            short(start.chance),
        )
    return table
