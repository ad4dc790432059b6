"""pretrain and calibrate: what fits a masked language model to a corpus before it is trained to retrieve."""

from __future__ import annotations

import shutil
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vocable.cli.options import Json, NewHead, Output
from vocable.cli.output import print_json
from vocable.encoder.poolings import PoolingName
from vocable.errors import ArgumentError, DataError, VocableError

if TYPE_CHECKING:
    from vocable.training.recipe import PretrainSettings

PROBE_TEXTS = 1000  # read for calibrate, which uses the first 256 that are not empty

Checkpoint = Annotated[str, typer.Argument(metavar="MODEL", help="A masked language model: a folder or a Hub id.")]


def pretrain(
    model: Checkpoint,
    texts: Annotated[list[str], typer.Argument(metavar="TEXTS...", help="Places of texts to learn from.")],
    output: Output,
    steps: Annotated[int, typer.Option(help="Optimizer steps.")],
    batch_size: Annotated[int, typer.Option(help="Texts of a step.")] = 32,
    max_length: Annotated[int, typer.Option(help="Tokens of a text.")] = 128,
    masking: Annotated[
        Literal["uniform", "overlap-aware", "whole-word"],
        typer.Option(help="overlap-aware: new tokens of a transferred model more often; whole-word: of an expanded."),
    ] = "uniform",
    masking_rate: Annotated[
        float | None, typer.Option(help="Share of the tokens to guess, 0.3; of the words, 0.15.")
    ] = None,
    new_token_weight: Annotated[
        float, typer.Option(help="How often a new token is masked for a shared one, if overlap-aware.")
    ] = 2.0,
    trainable: Annotated[
        Literal["all", "embeddings"], typer.Option(help="embeddings: the transformer is frozen.")
    ] = "all",
    train_bias: Annotated[bool, typer.Option("--train-bias", help="With embeddings: the output bias, too.")] = False,
    passes: Annotated[int | None, typer.Option(help="See no text more often; 1: only new texts.")] = None,
    learning_rate: Annotated[float, typer.Option(help="Peak of the schedule.")] = 3e-4,
    schedule: Annotated[Literal["cosine", "linear"], typer.Option(help="How the rate falls.")] = "cosine",
    schedule_steps: Annotated[
        int | None, typer.Option(help="Steps of a longer run, of which this is the beginning.")
    ] = None,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 200,
    seed: Annotated[int, typer.Option(help="Decides order, masks and dropout.")] = 0,
    new_head: NewHead = False,
    as_json: Json = False,
) -> None:
    """Adapt a model by masked language modelling.

    Repeated after a kill, it goes on where it stopped. It ends with how well
    tokens of texts held out are guessed, before and after; new tokens of a
    model that `vocable transfer` made are counted apart. A model that
    `vocable expand` made takes --masking whole-word.

    Example: vocable pretrain bert-base-uncased texts.txt -o out --steps 1000
    """
    settings = _pretraining(
        texts=texts,
        steps=steps,
        batch_size=batch_size,
        max_length=max_length,
        masking=masking,
        **({} if masking_rate is None else {"masking_rate": masking_rate}),
        new_token_weight=new_token_weight,
        trainable=trainable,
        train_bias=train_bias,
        passes=passes,
        learning_rate=learning_rate,
        schedule=schedule,
        schedule_steps=schedule_steps,
        save_every=save_every,
    )
    from vocable.data import read_texts
    from vocable.encoder.load import load, save_model
    from vocable.encoder.provenance import provenance
    from vocable.storage import finish, refuse_existing, resumable
    from vocable.training.pretrain import KEPT_LOG, LOG
    from vocable.training.pretrain import pretrain as adapt
    from vocable.training.trainer import last_checkpoint

    refuse_existing(output)
    loaded = load(model, new_head=new_head)
    streams = [read_texts(place) for place in texts]  # a place that is not there is known at once
    with resumable(output, {"model": model, "new_head": new_head, "seed": seed, **settings.model_dump()}) as work:
        corpus = (text for stream in streams for text in stream)
        try:
            adapted = adapt(loaded, corpus, work=work / "run", seed=seed, **settings.model_dump(exclude={"texts"}))
        except VocableError:
            if last_checkpoint(work / "run") is None:  # a mistake to be mended: nothing here to go on from
                shutil.rmtree(work)
            raise
        shutil.rmtree(work / "whole", ignore_errors=True)
        save_model(adapted, work / "whole")
        shutil.copy(work / "run" / LOG, work / "whole" / KEPT_LOG)
        finish(work, output, work / "whole")
    step = provenance(adapted)[-1]
    counts, held_out = step.get("words"), step["held_out"]
    if as_json:
        words = {} if counts is None else {"words": counts}
        print_json({"output": str(output), "steps": steps, "held_out": held_out, **words})
        return
    print(
        f"{output}: pre-trained for {steps:,} steps; "
        f"next: vocable calibrate {output} TEXTS -o DIR --activation-rate 0.05"
    )
    if counts is not None:
        print(
            f"words to guess: {counts['words']:,}; passed over: {counts['cut']:,} that tokens cut across, "
            f"{counts['without']:,} texts without any"
        )
    for group, before in held_out["before"].items():
        after = held_out["after"][group]
        print(
            f"held-out tokens, {group} ({before['tokens']:,}): loss {before['loss']:.3f} -> {after['loss']:.3f}, "
            f"accuracy {before['accuracy']:.1%} -> {after['accuracy']:.1%}"
        )


def calibrate(
    model: Checkpoint,
    texts: Annotated[str, typer.Argument(help="Place of the probe texts; the first 256 are used.")],
    output: Output,
    activation_rate: Annotated[float | None, typer.Option(help="Share of the vocabulary to be active.")] = None,
    shift: Annotated[float | None, typer.Option(help="Lower the output bias by this, in logits.")] = None,
    level: Annotated[
        Literal["pooled", "token"], typer.Option(help="Whose terms are counted: a text's or each token's.")
    ] = "pooled",
    pooling: Annotated[
        PoolingName | None, typer.Option(help="Of the result; decides what a text's terms are. By default the model's.")
    ] = None,
    new_head: NewHead = False,
    as_json: Json = False,
) -> None:
    """Choose how much of the vocabulary is active.

    The output bias is shifted, so that a text makes a chosen share of the terms active.

    Example: vocable calibrate adapted texts.txt -o out --activation-rate 0.05
    """
    if (activation_rate is None) == (shift is None):
        raise ArgumentError("give either --activation-rate or --shift")
    from vocable.adapt.calibrate import calibrate as shift_bias
    from vocable.data import read_texts
    from vocable.encoder.load import load, save_model
    from vocable.encoder.provenance import provenance
    from vocable.storage import refuse_taken

    refuse_taken(output)
    loaded = load(model, pooling=pooling, new_head=new_head)
    probe = list(islice(read_texts(texts), PROBE_TEXTS))
    if not any(text.strip() for text in probe):
        raise DataError("no text to probe with", place=texts)
    made = shift_bias(loaded, probe, activation_rate=activation_rate, shift=shift, level=level)
    save_model(made, output)
    step = provenance(made)[-1]
    lowered, before, after = step["shift"], step["before"], step["after"]
    if as_json:
        figures = {
            f"{name}_{when}": step[when][figure]
            for when in ("before", "after")
            for name, figure in (("rate", "share"), ("mean", "mean"), ("p99", "p99"))
        }
        keys = {"level": level, "pooling": step["pooling"], "shift": lowered}
        print_json({"output": str(output), **keys, **figures})
        return
    moved = f"{'raised' if lowered < 0 else 'lowered'} by {abs(lowered):.3f}"
    print(f"{output}: bias {moved}, active {before['share']:.2%} -> {after['share']:.2%}")
    what = "text" if level == "pooled" else "token"
    print(
        f"active terms of a {what}: mean {before['mean']:,.1f} -> {after['mean']:,.1f}, "
        f"99th percentile {before['p99']:,.0f} -> {after['p99']:,.0f}"
    )


def _pretraining(**values: object) -> PretrainSettings:
    """The settings, checked; `ArgumentError` names the option."""
    from pydantic import ValidationError

    from vocable.training.recipe import PretrainSettings

    try:
        return PretrainSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:  # options that exclude each other
            raise ArgumentError("--train-bias goes with --trainable embeddings") from error
        option = "--" + str(first["loc"][0]).replace("_", "-")
        raise ArgumentError(
            f"{option}: {first['msg'].removeprefix('Value error, ')}, not {first['input']!r}"
        ) from error
