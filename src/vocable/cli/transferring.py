"""transfer: another vocabulary for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vocable.cli.options import Json, NewHead, Output
from vocable.cli.output import print_json, print_table

if TYPE_CHECKING:
    from vocable.adapt.transfer import Neighbours


def transfer(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A masked language model: a folder or a Hub id.")],
    target: Annotated[str, typer.Option(help="Whose vocabulary: a model or a tokenizer, a folder or a Hub id.")],
    output: Output,
    head_only: Annotated[
        bool, typer.Option("--head-only", help="Keep the tokenizer and replace the output terms alone.")
    ] = False,
    init: Annotated[
        Literal["semantic", "subtoken", "mean", "random-new", "random-all"],
        typer.Option(help="Where new tokens start; semantic needs the target's model."),
    ] = "semantic",
    bias: Annotated[
        Literal["prior", "keep"], typer.Option(help="The target's word frequencies, or the model's own output bias.")
    ] = "prior",
    texts: Annotated[
        str | None, typer.Option(metavar="PLACE", help="Count the target's tokens here, for a prior of its own.")
    ] = None,
    neighbours: Annotated[
        list[str] | None, typer.Option(metavar="TOKEN", help="Show what it was made of; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the random initializations.")] = 0,
    new_head: NewHead = False,
    as_json: Json = False,
) -> None:
    """Give a model another vocabulary.

    Shared tokens keep their embeddings; new ones start near their meaning.

    Example: vocable transfer MODEL --target bert-base-uncased -o out
    """
    from vocable.adapt.transfer import neighbours as made_of
    from vocable.adapt.transfer import transfer as move
    from vocable.data import read_texts
    from vocable.encoder.load import load, save_model
    from vocable.encoder.provenance import provenance
    from vocable.storage import refuse_taken

    refuse_taken(output)
    corpus = None if texts is None else read_texts(texts)
    loaded = load(model, new_head=new_head)
    moved = move(loaded, target, head_only=head_only, init=init, bias=bias, texts=corpus, seed=seed)
    shown = made_of(loaded, target, neighbours, init=init) if neighbours else []
    save_model(moved, output)
    step = provenance(moved)[-1]
    if as_json:
        keys = ("head_only", "init", "bias", "overlap", "classes", "new_tokens")
        figures = {key: step[key] for key in keys} | {"neighbours": [made._asdict() for made in shown]}
        print_json({"output": str(output), **figures})
        return
    _print_classes(step["classes"])
    for made in shown:
        _print_neighbours(made)
    print(f"\n{output}: {step['overlap']:.1%} of the target carried over, {step['new_tokens']:,} new tokens: {init}")
    if head_only:
        print("its terms are not its tokens: vocable.load reads it, stock loaders give the model it was made from")
        print(f"next: vocable calibrate {output} TEXTS -o DIR --activation-rate 0.05")
    else:
        print(f"next: vocable pretrain {output} TEXTS -o DIR --steps 500 --masking overlap-aware")


def _print_classes(classes: dict[str, dict[str, int]]) -> None:
    from rich.table import Table

    table = Table("tokens", box=None)
    for heading in ("shared", "of", "share"):
        table.add_column(heading, justify="right")
    for name, count in classes.items():
        if count["total"]:
            share = count["matched"] / count["total"]
            table.add_row(name, f"{count['matched']:,}", f"{count['total']:,}", f"{share:.1%}")
    print_table(table)


def _print_neighbours(made: Neighbours) -> None:
    print(f"\n{made.token}: cut into {' '.join(made.subtokens) or 'nothing'}; made of")
    for token, weight in made.made_of:
        print(f"  {weight:.3f}  {token}")
