"""Commands that adapt a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import typer
from annotated_types import Gt, Lt
from typing_extensions import Doc, Unpack

import vocable as vo
from vocable.cli.command import Outcome, command, quoted
from vocable.cli.options import Loading, Model, Output, Seed, SkipBad, Texts, texts_of
from vocable.errors import ArgumentError, DataError
from vocable.options import Count, Device, select
from vocable.training_options import PretrainOptions

ProbeTexts = Annotated[str, typer.Option(metavar="SOURCE", help="Probe texts, best from your own corpus.")]


@command("Adapt")
def inspect(
    model: Model,
    target: Annotated[str | None, Doc("Vocabulary to compare with: a folder or a Hub id.")] = None,
    texts: ProbeTexts = "pydocs:",
    device: Device = None,
    skip_bad: SkipBad = 0,
) -> Outcome:
    """See what a model needs before it is trained.

    Measures head, vocabulary and the start of a training, and ends with the next command.

    Example: vocable inspect bert-base-cased --target bert-base-uncased
    """
    return Outcome(vo.inspect(model, target=target, texts=texts, device=device, skip_bad=skip_bad))


def _adapted(
    verb: Callable[..., Outcome],
    arguments: Mapping[str, Any],
    texts: Callable[[], Iterable[str] | None],
    following: str,
    without: tuple[str, ...] = (),
) -> Outcome:
    """Adapt a model into the output folder, unless an equal call did; return the last step of its provenance.

    Args:
        verb: the command; it has the arguments of the function with the same name in `vocable`.
        arguments: the `locals()` of the command.
        texts: opens the texts for the function; it is not called if the model already exists.
        following: a command that may follow.
        without: arguments that the function does not take.
    """
    from vocable.core.fingerprint import settings_of
    from vocable.core.storage import finished, refuse_taken
    from vocable.torch_models.sparse_encoder import save_model

    output, made_from = arguments["output"], settings_of(verb, arguments, without=without)
    if finished(output, made_from):
        adapted = vo.load(output)
    else:
        refuse_taken(output)
        left_out = {"model", "output", "options", "texts", *without}
        given = {name: value for name, value in arguments.items() if name not in left_out and value is not None}
        opened, loaded = texts(), vo.load(arguments["model"], **arguments["options"])
        adapted = getattr(vo, verb.__name__)(loaded, texts=opened, **given)
        save_model(adapted, output, made_from)
    return Outcome(vo.provenance(adapted)[-1], [output], following)


@command("Adapt", reads=True)
def rescale(
    model: Model,
    output: Output,
    factor: Annotated[str, typer.Option(metavar="K", help="A number above 0, or auto.")],
    texts: ProbeTexts = "pydocs:",
    **options: Unpack[Loading],
) -> Outcome:
    """Divide a model's output matrix by a factor.

    With auto, it is the smallest of 1, 2, 4 ... 32 that lets training start
    well.

    Example: vocable rescale answerdotai/ModernBERT-base -o out --factor auto
    """
    arguments, number = locals(), cast(float | Literal["auto"], "auto")
    if factor != "auto":
        number = 0.0
        with suppress(ValueError):
            number = float(factor)
        if not 0 < number < math.inf:
            raise ArgumentError(f"factor must be a number above 0, or auto, not {factor!r}")

    def probe() -> list[str] | None:
        from vocable.adapt.statistics import probe_texts

        return probe_texts(texts) if number == "auto" else None

    return _adapted(rescale, arguments | {"factor": number}, probe, f"vocable inspect {quoted(output)}")


class _Transferred(NamedTuple):
    """The step of a transfer, with the source tokens of the requested new tokens."""

    step: Any
    neighbours: Sequence[Any]

    def __str__(self) -> str:
        return "\n".join(map(str, [self.step, *self.neighbours]))

    def to_json(self) -> dict[str, object]:
        return {**self.step.to_json(), "neighbours": [sources._asdict() for sources in self.neighbours]}


@command("Adapt", reads=True)
def transfer(
    model: Model,
    output: Output,
    target: Annotated[str, Doc("Model or tokenizer with the new vocabulary: a folder or a Hub id.")],
    head_only: Annotated[bool, Doc("Replace the output terms alone.")] = False,
    init: Annotated[
        Literal["semantic", "subtoken", "mean", "random-new", "random-all"], Doc("Initialization of a new token's row.")
    ] = "semantic",
    bias: Annotated[
        Literal["prior", "keep"], Doc("Output bias: the target's, on the model's scale (prior), or the model's (keep).")
    ] = "prior",
    norm: Annotated[
        Literal["keep", "target"],
        Doc("Norm of the output rows: the model's (keep), or scaled to the target's mean over shared tokens (target)."),
    ] = "keep",
    texts: Annotated[
        Sequence[str], typer.Option(metavar="SOURCE", help="Corpus to count the target's tokens in.")
    ] = (),
    neighbours: Annotated[
        Sequence[str], typer.Option(metavar="TOKEN", help="Show the tokens that a new token was made of.")
    ] = (),
    seed: Seed = 0,
    **options: Unpack[Loading],
) -> Outcome:
    """Give a model another vocabulary.

    Shared tokens keep their embeddings; new ones start near their meaning.

    Example: vocable transfer MODEL --target bert-base-uncased -o out
    """
    arguments = locals()
    following = f"vocable pretrain {quoted(output)} TEXTS -o DIR --steps 500 --masking overlap-aware"
    if head_only:  # nothing needs pre-training
        following = f"vocable calibrate {quoted(output)} TEXTS -o DIR --activation-rate 0.05"
    outcome = _adapted(transfer, arguments, lambda: texts_of(texts) if texts else None, following, ("neighbours",))
    if not neighbours:
        return outcome
    from vocable.adapt import transfer as transferring

    sources = transferring.neighbours(vo.load(model, **options), target, neighbours, init=init)
    return outcome._replace(result=_Transferred(outcome.result, sources))


@command("Adapt", reads=True)
def expand_vocabulary(
    model: Model,
    output: Output,
    words: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="A word per line, or in .jsonl a JSON string.")
    ] = None,
    texts: Annotated[
        Sequence[str],
        typer.Option(metavar="SOURCE", help="Instead of --words: take the most frequent words of this corpus."),
    ] = (),
    size: Annotated[Count | None, Doc("With --texts: number of words, 100,000 by default.")] = None,
    min_count: Annotated[Count | None, Doc("With --texts: leave out words with fewer occurrences.")] = None,
    splitter: Annotated[
        Literal["words", "whitespace"],
        Doc("Words of a text: runs of letters, digits, marks and _ (words), or separated by whitespace."),
    ] = "words",
    init: Annotated[
        Literal["mean", "semantic", "random"], Doc("Initialization of the words' rows and biases.")
    ] = "mean",
    target: Annotated[str | None, Doc("With --init semantic: a model that has words as tokens.")] = None,
    seed: Seed = 0,
    **options: Unpack[Loading],
) -> Outcome:
    """Give a model whole words as output terms.

    The tokenizer stays: the model reads tokens as before, and its terms are
    any number of words.

    Example: vocable expand-vocabulary vocable-mini --texts texts.txt -o out
    """
    arguments = locals()
    if (not texts) == (words is None):
        raise ArgumentError("give either --texts, for their most frequent words, or --words, a file of words")
    if words is not None and not (size is None and min_count is None):
        raise ArgumentError("--size and --min-count go with --texts: all words of a file are taken")
    if (init == "semantic") != (target is not None):
        raise ArgumentError("--init semantic and --target go together")
    following = f"vocable pretrain {quoted(output)} TEXTS -o DIR --steps 500 --masking whole-word"
    return _adapted(expand_vocabulary, arguments, lambda: texts_of(texts) if texts else None, following)


@command("Adapt", reads=True)
def train_vocabulary(
    texts: Texts,
    size: Annotated[Sequence[Count], Doc("Number of tokens, special ones included; several are compared.")],
    algorithm: Annotated[
        Literal["wordpiece", "bpe"], Doc("bpe knows every character, wordpiece the 1,000 most frequent.")
    ] = "wordpiece",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder of the tokenizer (written atomically).")
    ] = None,
) -> Outcome:
    """Train a normalized vocabulary on texts.

    Lower-case and without accents, for `vocable transfer` to move a model onto.
    With several sizes nothing is written: the table shows the tokens per word,
    and the share of tokens that are too rare in the texts to be learned.

    Example: vocable train-vocabulary texts.txt -o vocabulary --size 20000
    """
    result = vo.train_vocabulary(texts_of(texts), size, algorithm=algorithm, output=output)
    following = "" if output is None else f"vocable transfer MODEL --target {quoted(output)} --init subtoken -o DIR"
    return Outcome(result, [output], following)


class LoadingAndPretraining(Loading, PretrainOptions, total=False):
    """Options of `vocable.load` and `vocable.pretrain`."""


@command("Adapt", resumable=True, reads=True)
def pretrain(
    model: Model,
    texts: Texts,
    output: Output,
    steps: Annotated[Count, Doc("Number of optimizer steps.")],
    **options: Unpack[LoadingAndPretraining],
) -> Outcome:
    """Adapt a model by masked language modelling.

    An interrupted run resumes when repeated. The report shows how well tokens
    of held-out texts are predicted, before and after; new tokens of a model
    made by `vocable transfer` are counted separately. A model made by `vocable
    expand-vocabulary` takes --masking whole-word. With --teacher it learns the
    logits of a sparse model; with --classes it learns the cluster of a text
    among a dense teacher's embeddings; with --labels, of examples, the query of
    a positive.

    Example: vocable pretrain bert-base-uncased texts.txt -o out --steps 1000
    """
    arguments = locals()
    from vocable.core.fingerprint import settings_of
    from vocable.core.storage import finished
    from vocable.data import read_examples
    from vocable.training.pretraining.pretrain import check_settings, pretrain_folder

    loading, settings = select(Loading, options), select(PretrainOptions, options)
    complete = check_settings(steps, settings).model_dump(mode="json", exclude={"texts", "teacher"})
    made_from = settings_of(pretrain, arguments, complete | {"seed": settings.get("seed", 0)})
    finished(output, made_from)  # refuses an output made with other settings, before the texts are opened
    given: Iterable[Any] = texts_of(texts)
    if complete["labels"]:
        given = chain.from_iterable(map(read_examples, texts))
    adapted = pretrain_folder(output, made_from, lambda: vo.load(model, **loading), given, steps=steps, **settings)
    following = f"vocable calibrate {quoted(output)} TEXTS -o DIR --activation-rate 0.05"
    return Outcome(vo.provenance(adapted)[-1], [output], following)


@command("Adapt", reads=True)
def calibrate(
    model: Model,
    texts: Texts,
    output: Output,
    activation_rate: Annotated[float | None, Gt(0), Lt(1), Doc("Share of the terms to be active.")] = None,
    shift: Annotated[float | None, Doc("Instead of a rate: lower the output bias by this many logits.")] = None,
    level: Annotated[
        Literal["pooled", "token"], Doc("Count the active terms of a text, after pooling, or of each token.")
    ] = "pooled",
    max_length: Annotated[Count, Doc("Tokens per probe text.")] = 128,
    count: Annotated[Count, Doc("Number of probe texts.")] = 256,
    **options: Unpack[Loading],
) -> Outcome:
    """Choose the share of the vocabulary that is active.

    The output bias is shifted, so that a text activates this share of the terms.

    Example: vocable calibrate adapted texts.txt -o out --activation-rate 0.05
    """
    arguments = locals()
    if (activation_rate is None) == (shift is None):
        raise ArgumentError("give either --activation-rate or --shift")

    def probe() -> list[str]:
        probes = list(islice((text for text in texts_of(texts) if text.strip()), count))
        if not probes:
            raise DataError("no text to probe with", source=" ".join(texts))
        return probes

    return _adapted(calibrate, arguments, probe, f"vocable inspect {quoted(output)}")


@command("Adapt", reads=True)
def make_inference_free(
    model: Model,
    output: Output,
    texts: Annotated[
        Sequence[str],
        typer.Option(metavar="SOURCE", help="Corpus of the IDF; for mean weights, examples with the queries."),
    ] = (),
    weights: Annotated[
        Literal["idf", "mean", "ones"],
        Doc("Weight of a token: its IDF in --texts, the query encoder's mean over the queries in --texts, or 1."),
    ] = "idf",
    formula: Annotated[
        Literal["bm25", "log"], Doc("IDF: log(1 + (n - df + 0.5) / (df + 0.5)) (bm25), or log(n / df) (log).")
    ] = "bm25",
    trainable: Annotated[bool, Doc("Let a later training change the weights.")] = False,
    **options: Unpack[Loading],
) -> Outcome:
    """Give a model queries that need no encoder.

    A query is its distinct tokens, each with a weight from a table, and
    documents are encoded as before. Train the result for good rankings.

    Example: vocable make-inference-free vocable-mini --texts pydocs: -o out
    """
    arguments = locals()

    def read() -> Iterator[str] | None:
        if weights == "mean" and texts:
            streams = [vo.read_examples(source) for source in texts]
            return (example.query for stream in streams for example in stream)
        return texts_of(texts) if texts else None

    following = f"vocable evaluate {quoted(output)} --dataset SOURCE, or a recipe with model: {quoted(output)}"
    return _adapted(make_inference_free, arguments, read, following)
