"""transfer: another vocabulary for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vocable.cli.options import Json, Output
from vocable.cli.output import print_json, print_table

if TYPE_CHECKING:
    from vocable.adapt.alignment import Alignment
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
    as_json: Json = False,
) -> None:
    """Give a model another vocabulary.

    Shared tokens keep their embeddings; new ones start near their meaning.

    Example: vocable transfer MODEL --target bert-base-uncased -o out
    """
    from vocable.adapt.provenance import save_transfer
    from vocable.adapt.transfer import neighbours as made_of
    from vocable.adapt.transfer import transfer as move
    from vocable.data import read_texts
    from vocable.encoder.load import load_checkpoint, load_target
    from vocable.storage import refuse_taken

    refuse_taken(output)
    corpus = None if texts is None else read_texts(texts)
    mlm, tokenizer = load_checkpoint(model)
    onto = load_target(target)
    moved = move(
        mlm,
        tokenizer,
        onto.tokenizer,
        target_model=onto.model,
        head_only=head_only,
        init=init,
        bias=bias,
        texts=corpus,
        seed=seed,
    )
    shown = [made_of(moved, tokenizer, word) for word in neighbours or ()]
    save_transfer(moved, output, source=model, target=target, init=init, bias=bias)
    alignment = moved.alignment
    if as_json:
        settings = {"head_only": head_only, "init": init, "bias": bias}
        print_json({"output": str(output), **settings, **_outline(alignment, shown)})
        return
    _print_classes(alignment)
    for made in shown:
        _print_neighbours(made)
    print(f"\n{output}: {alignment.overlap:.1%} of the target carried over, {len(alignment.new):,} new tokens: {init}")
    if head_only:
        print("its terms are not its tokens: vocable.load reads it, stock loaders give the model it was made from")
        print(f"next: vocable calibrate {output} TEXTS -o DIR --activation-rate 0.05")
    else:
        print(f"next: vocable pretrain {output} TEXTS -o DIR --steps 500 --masking overlap-aware")


def _outline(alignment: Alignment, shown: list[Neighbours]) -> dict[str, Any]:
    return {
        "overlap": alignment.overlap,
        "classes": {name: count._asdict() for name, count in alignment.classes.items()},
        "new_tokens": len(alignment.new),
        "neighbours": [made._asdict() for made in shown],
    }


def _print_classes(alignment: Alignment) -> None:
    from rich.table import Table

    table = Table("tokens", box=None)
    for heading in ("shared", "of", "share"):
        table.add_column(heading, justify="right")
    for name, (matched, total) in alignment.classes.items():
        if total:
            table.add_row(name, f"{matched:,}", f"{total:,}", f"{matched / total:.1%}")
    print_table(table)


def _print_neighbours(made: Neighbours) -> None:
    print(f"\n{made.token}: cut into {' '.join(made.subtokens) or 'nothing'}; made of")
    for token, weight in made.made_of:
        print(f"  {weight:.3f}  {token}")
