"""Commands that train, and prepare data to train on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from annotated_types import Gt
from typing_extensions import Doc, Unpack

import vocable as vo
from vocable.cli.command import Outcome, command, quoted
from vocable.cli.options import Corpus, Lines, Loading, Model, Output, Seed, SkipBad, keywords
from vocable.options import Device, TestsetOptions, select
from vocable.training_options import NegativeOptions, TuningSources

Examples = Annotated[str, typer.Argument(help="Source of queries, positives, and negatives, if any.")]


@command("Train", resumable=True, json=False)
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder that keeps index and model.")] = Path(
        "vocable-demo"
    ),
    serve: Annotated[bool, Doc("Show the index on a page in the browser, until Ctrl-C.")] = False,
) -> None:
    """See it all work, on Python's documentation.

    Indexes, searches, explains and compares with BM25; with the extra train also
    tunes the model, five minutes, and shows whether that paid. With --serve a
    page shows the index in the browser.

    Example: vocable demo
    """
    vo.demo(output, serve=serve)


@command("Train", resumable=True)
def tune(
    model: Model,
    corpus: Corpus,
    output: Output,
    minutes: Annotated[float, Gt(0), Doc("Minutes that the plan may take on this machine.")] = 60.0,
    seed: Seed = 0,
    device: Device = None,
    dry_run: Annotated[bool, Doc("Look at model, documents and machine, print the plan, and end.")] = False,
    skip_bad: SkipBad = 0,
    **sources: Unpack[TuningSources],
) -> Outcome:
    """Tune a model on your own documents, with proof.

    Asks questions about documents that are not learned from, before and after. The
    output is the better model: the original model if the test shows no difference.
    An interrupted run resumes when repeated.

    Example: vocable tune vocable-mini docs/ -o my-model --minutes 30
    """
    report = vo.tune(
        model, corpus, output, minutes=minutes, seed=seed, device=device, dry_run=dry_run, skip_bad=skip_bad, **sources
    )
    if not hasattr(report, "next_commands"):  # the plan of a dry run
        return Outcome(report)
    skipped = f" --skip-bad {skip_bad}" if skip_bad else ""
    return Outcome(report, [output, output / "index.html"], report.next_commands()[0] + skipped)


@command("Train", resumable=True)
def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of one of vocable recipes.")],
    output: Output,
    variant: Annotated[str | None, typer.Option(metavar="NAME", help="Train this variant of the recipe.")] = None,
    variants: Annotated[
        Sequence[str] | None,
        typer.Option(metavar="NAME", help="Train these variants, or all, into OUTPUT/NAME and evaluate them."),
    ] = None,
    override: Annotated[Sequence[str], typer.Option(metavar="KEY=VALUE", help="Change a key of the recipe.")] = (),
    sweep: Annotated[
        str | None,
        typer.Option(metavar="KEY=V1,V2,...", help="Train once with each value of a key, and evaluate."),
    ] = None,
    figure: Annotated[Path | None, Doc("With --sweep: file for quality against FLOPS, .png or .svg.")] = None,
    resume: Annotated[bool, typer.Option(help="Resume unfinished work, or throw it away.")] = True,
) -> Outcome:
    """Train a retriever by a recipe.

    An interrupted run resumes when repeated.

    Example: vocable train pydocs -o my-model --override training.steps=200
    """
    names = [name.strip() for listed in variants or [] for name in listed.split(",")]
    result = vo.train(
        recipe,
        output,
        variant=variant,
        variants="all" if names == ["all"] else names or None,
        overrides=override,
        sweep=sweep,
        figure=figure,
        resume=resume,
    )
    if variants or sweep:
        return Outcome(result, [output, figure])
    return Outcome(None, [output], f"vocable evaluate {quoted(output)} --dataset SOURCE")


@command("Train")
def recipes(
    name: Annotated[str | None, typer.Argument(help="The recipe to print; without it, all are listed.")] = None,
) -> Outcome:
    """List the built-in recipes, or print one.

    A recipe with a * needs data, devices or code that vocable does not include.

    Example: vocable recipes pydocs
    """
    return Outcome(vo.recipes(name))


class MineOptions(Loading, NegativeOptions, total=False):
    """Options of `vocable.load` and `vocable.mine`."""


@command("Train", resumable=True)
def mine(
    model: Model,
    examples: Examples,
    output: Lines,
    corpus: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Documents to search; by default the examples' documents.")
    ] = None,
    index: Annotated[str | None, typer.Option(metavar="PLACE", help="Index to search, instead of a corpus.")] = None,
    with_scores: Annotated[bool, Doc("Also write the model's scores.")] = False,
    skip_bad: SkipBad = 0,
    **options: Unpack[MineOptions],
) -> Outcome:
    """Find hard negatives with the model's own index.

    Takes the best hits that are not answers, and drops examples with too few.
    An interrupted run resumes when repeated.

    Example: vocable mine my-model pairs.jsonl -o hard.jsonl
    """
    from vocable.training.mine import NegativeRule

    rule = select(NegativeOptions, options)
    NegativeRule(**rule)  # refuses impossible ranks before the model is loaded
    loaded = vo.load(model, **select(Loading, options))
    result = vo.mine(
        loaded, examples, output, corpus=corpus, index=index, with_scores=with_scores, skip_bad=skip_bad, **rule
    )
    return Outcome(result, [output])


@command("Train", resumable=True)
def teacher_scores(
    model: Annotated[str, typer.Argument(help="A cross-encoder, or a dense or sparse encoder: a folder or Hub id.")],
    examples: Examples,
    output: Lines,
    kind: Annotated[
        Literal["cross", "dense", "sparse"] | None, Doc("Kind of the model, if its files do not say.")
    ] = None,
    device: Device = None,
    skip_bad: SkipBad = 0,
) -> Outcome:
    """Add a teacher's scores to examples.

    Scores the positive and each negative. An interrupted run resumes when
    repeated.

    Example: vocable teacher-scores my-teacher hard.jsonl -o scored.jsonl
    """
    return Outcome(vo.teacher_scores(**locals()), [output])


@command("Train")
def make_testset(
    log: Annotated[str, typer.Argument(help="Source of queries and positives, perhaps with scores.")],
    output: Output,
    embedding: Annotated[str, Doc("Dense model that groups the queries, or lexical.")] = "lexical",
    device: Device = None,
    seed: Seed = 0,
    train_output: Annotated[
        Path | None, Doc("JSON Lines file for the examples of all other queries, to train on.")
    ] = None,
    skip_bad: SkipBad = 0,
    **options: Unpack[TestsetOptions],
) -> Outcome:
    """Make a test collection from a log of queries.

    A BEIR folder whose queries come equally from all groups of similar queries,
    with equal numbers of low, middle and high word overlap with their documents.

    Example: vocable make-testset clicks.jsonl -o test-set --queries 300
    """
    testset = vo.make_testset(**keywords(locals()))
    following = f"vocable evaluate vocable-mini --dataset {quoted(f'beir:{output}')}"
    return Outcome(testset, [output, train_output], following)
