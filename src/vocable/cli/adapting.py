"""inspect and rescale: look at a backbone, and mend the scale of its head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from vocable.cli.options import Json, NewHead, Output
from vocable.cli.output import print_json, print_table
from vocable.errors import ArgumentError

if TYPE_CHECKING:
    from rich.table import Table

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
    new_head: NewHead = False,
    as_json: Json = False,
) -> None:
    """Divide a model's output matrix by K.

    With auto, K is the smallest of 1, 2, 4 ... 32 that a training would start well from.

    Example: vocable rescale answerdotai/ModernBERT-base -o out --factor auto
    """
    k = _number(factor)
    from vocable.adapt.rescale import rescale as divide
    from vocable.adapt.statistics import probe_texts
    from vocable.encoder.load import load, save_model
    from vocable.encoder.provenance import provenance
    from vocable.storage import refuse_taken

    refuse_taken(output)
    loaded = load(model, new_head=new_head)
    made = divide(loaded, "auto", texts=probe_texts(texts)) if k is None else divide(loaded, k)
    save_model(made, output)
    step = provenance(made)[-1]
    k, trials = step["factor"], step.get("trials", [])
    if as_json:
        print_json({"output": str(output), "factor": k, "trials": trials})
        return
    if trials:
        print_table(_trials(trials, k))
    print(f"{output}: output matrix divided by {k:g}; next: vocable inspect {output}")


def _number(factor: str) -> float | None:
    """The factor; None for auto."""
    if factor == "auto":
        return None
    try:
        return float(factor)
    except ValueError as error:
        raise ArgumentError(f"--factor is a number above 0, or auto, not {factor!r}") from error


def _trials(trials: list[dict[str, Any]], chosen: float) -> Table:
    """One row a factor, the chosen one marked."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from vocable.tables import short

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("k", "active", "terms", "score", "std", "largest", "own first", "loss", "guessing"):
        table.add_column(column, justify="right", no_wrap=True)
    for trial in trials:
        table.add_row(
            f"{'> ' if trial['factor'] == chosen else ''}{trial['factor']}",
            f"{trial['pooled_rate']:.1%}",
            f"{trial['terms_mean']:,.0f}",
            *(short(trial[name]) for name in ("score_mean", "score_std", "score_max")),
            f"{trial['accuracy']:.0%}",
            short(trial["loss"]),
            short(trial["chance"]),
        )
    return table
