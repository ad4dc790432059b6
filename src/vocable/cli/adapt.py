"""Commands that adapt a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from annotated_types import Ge, Gt, Le, Lt
from typing_extensions import Doc, Unpack

import vocable as vo
from vocable.cli.command import Outcome, command
from vocable.cli.options import Device, Loading, Model, Output, Seed, SkipBad, Texts, part_of, texts_of
from vocable.errors import ArgumentError, DataError
from vocable.options import Count, CountOrZero, DType

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

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


def _adapted(output: Path, settings: Mapping[str, Any], adapt: Callable[[], SparseEncoder]) -> SparseEncoder:
    """Return the model that `adapt` makes, written to the output folder, or the model there, made with these settings."""
    from vocable.encoder.load import save_model
    from vocable.storage import finished, refuse_taken

    made_from = _made_from(settings)
    if finished(output, made_from):
        return vo.load(output)
    refuse_taken(output)
    adapted = adapt()
    save_model(adapted, output, made_from)
    return adapted


def _made_from(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an output as JSON values, with a fingerprint of all inputs that they name."""
    from vocable.fingerprint import fingerprint

    values = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    values.pop("device", None)
    names = [name for value in values.values() for name in (value if isinstance(value, list) else [value])]
    return values | {"inputs": fingerprint(*(name for name in names if isinstance(name, str)))}


@command("Adapt", reads=True)
def rescale(
    model: Model,
    output: Output,
    factor: Annotated[str, typer.Option(metavar="K", help="A number above 0, or auto.")],
    texts: ProbeTexts = "pydocs:",
    **options: Unpack[Loading],
) -> Outcome:
    """Divide a model's output matrix by a factor.

    With auto, the factor is the smallest of 1, 2, 4 ... 32 from which training
    would start well.

    Example: vocable rescale answerdotai/ModernBERT-base -o out --factor auto
    """
    number: float | Literal["auto"] = "auto"
    if factor != "auto":
        number = 0.0
        with suppress(ValueError):
            number = float(factor)
        if not 0 < number < math.inf:
            raise ArgumentError(f"factor must be a number above 0, or auto, not {factor!r}")

    def adapt() -> SparseEncoder:
        from vocable.adapt.statistics import probe_texts

        probe = probe_texts(texts) if number == "auto" else None
        return vo.rescale(vo.load(model, **options), number, texts=probe)

    adapted = _adapted(output, {"model": model, "factor": factor, "texts": texts, **options}, adapt)
    return Outcome(vo.provenance(adapted)[-1], [output], f"vocable inspect {output}")


class _Transferred(NamedTuple):
    """The step of a transfer, with the tokens that some new tokens were made of."""

    step: Any
    neighbours: Sequence[Any]

    def __str__(self) -> str:
        return "\n".join(map(str, [self.step, *self.neighbours]))

    def to_json(self) -> dict[str, Any]:
        return {**self.step.to_json(), "neighbours": [made._asdict() for made in self.neighbours]}


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
    settings: dict[str, Any] = {"head_only": head_only, "init": init, "bias": bias, "norm": norm, "seed": seed}

    def adapt() -> SparseEncoder:
        read = texts_of(texts) if texts else None
        return vo.transfer(vo.load(model, **options), target, texts=read, **settings)

    made_from = {"model": model, "target": target, "texts": list(texts), **settings, **options}
    result: Any = vo.provenance(_adapted(output, made_from, adapt))[-1]
    if neighbours:
        from vocable.adapt import transfer as transferring

        made = transferring.neighbours(vo.load(model, **options), target, neighbours, init=init)
        result = _Transferred(result, made)
    following = f"vocable pretrain {output} TEXTS -o DIR --steps 500 --masking overlap-aware"
    if head_only:  # there is nothing to pre-train
        following = f"vocable calibrate {output} TEXTS -o DIR --activation-rate 0.05"
    return Outcome(result, [output], following)


@command("Adapt", reads=True)
def expand_vocabulary(
    model: Model,
    output: Output,
    words: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="A word per line, or in .jsonl a JSON string.")
    ] = None,
    texts: Annotated[
        Sequence[str], typer.Option(metavar="SOURCE", help="In place of words: corpus of the most frequent words.")
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
    if (not texts) == (words is None):
        raise ArgumentError("give either --texts, for their most frequent words, or --words, a file of words")
    if words is not None and not (size is None and min_count is None):
        raise ArgumentError("--size and --min-count go with --texts: all words of a file are taken")
    if (init == "semantic") != (target is not None):
        raise ArgumentError("--init semantic and --target go together")
    settings: dict[str, Any] = {"words": words, "splitter": splitter, "init": init, "target": target, "seed": seed}
    settings |= {} if size is None else {"size": size}
    settings |= {} if min_count is None else {"min_count": min_count}

    def adapt() -> SparseEncoder:
        read = texts_of(texts) if texts else None
        return vo.expand_vocabulary(vo.load(model, **options), texts=read, **settings)

    adapted = _adapted(output, {"model": model, "texts": list(texts), **settings, **options}, adapt)
    following = f"vocable pretrain {output} TEXTS -o DIR --steps 500 --masking whole-word"
    return Outcome(vo.provenance(adapted)[-1], [output], following)


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
    return Outcome(result, [output], f"vocable transfer MODEL --target {output} --init subtoken -o DIR")


class PretrainOptions(Loading, total=False):
    """Settings of the pre-training, and options of `vocable.load`."""

    batch_size: Annotated[Count, Doc("Texts per batch; 32 by default.")]
    gradient_accumulation: Annotated[Count, Doc("Batches per step; 1 by default.")]
    learning_rate: Annotated[float, Gt(0), Doc("Largest learning rate, after the warm-up; 3e-4 by default.")]
    weight_decay: Annotated[float, Ge(0), Doc("Weight decay of AdamW; 0.01 by default.")]
    dropout: Annotated[float, Ge(0), Lt(1), Doc("Share of activations to drop; 0 by default.")]
    warmup_share: Annotated[
        float, Ge(0), Lt(1), Doc("Share of the steps with a rising learning rate; 0.06 by default.")
    ]
    dtype: Annotated[DType, Doc("Number type of products; auto is bfloat16 where the device has it natively.")]
    log_every: Annotated[Count, Doc("Steps between lines of the log; 10 by default.")]
    save_every: Annotated[Count, Doc("Steps between checkpoints; 200 by default.")]
    max_length: Annotated[int, Ge(8), Doc("Tokens per window, special tokens included; 128 by default.")]
    masking: Annotated[
        Literal["uniform", "overlap-aware", "whole-word", "longest-span"],
        Doc(
            "Tokens to mask: uniform (default); overlap-aware: new tokens of a transferred model more often; "
            "whole-word: words of an expanded vocabulary; longest-span: terms of a new head, continuations included."
        ),
    ]
    masking_rate: Annotated[
        float, Gt(0), Le(1), Doc("Share of tokens to mask; default: 0.3, for words and terms 0.15.")
    ]
    new_token_weight: Annotated[
        float, Gt(0), Doc("overlap-aware: how often a new token is masked per shared one; 2 by default.")
    ]
    teacher: Annotated[
        str | None, Doc("Learn the largest logits of this sparse model of the same terms, without masks.")
    ]
    classes: Annotated[
        int | None,
        Ge(2),
        Doc("With a dense teacher: learn which of this many clusters of its embeddings a text is in."),
    ]
    trainable: Annotated[
        Literal["all", "embeddings"], Doc("Parameters to train; the others are frozen; all by default.")
    ]
    train_bias: Annotated[bool, Doc("With --trainable embeddings: train the output bias, too.")]
    held_out: Annotated[CountOrZero, Doc("Windows held out for the report, at most a tenth; 256 by default.")]
    passes: Annotated[
        Count | None, Doc("Largest number of passes over a text, each with other masks; unlimited by default.")
    ]
    schedule: Annotated[Literal["cosine", "linear"], Doc("Decay of the learning rate; cosine by default.")]
    schedule_steps: Annotated[
        Count | None, Doc("Steps after which the learning rate would be 0, if more than --steps.")
    ]
    seed: Annotated[CountOrZero, Doc("Seed of the order of texts, masks, dropout and held-out windows; 0 by default.")]


@command("Adapt", resumable=True, reads=True)
def pretrain(
    model: Model,
    texts: Texts,
    output: Output,
    steps: Annotated[Count, Doc("Number of optimizer steps.")],
    **options: Unpack[PretrainOptions],
) -> Outcome:
    """Adapt a model by masked language modelling.

    An interrupted run resumes when repeated. The report shows how well tokens
    of held-out texts are predicted, before and after; new tokens of a model
    made by `vocable transfer` are counted separately. A model made by `vocable
    expand-vocabulary` takes --masking whole-word. With --teacher it learns the
    logits of a sparse model; with --classes it learns the cluster of a text
    among a dense teacher's embeddings.

    Example: vocable pretrain bert-base-uncased texts.txt -o out --steps 1000
    """
    from vocable.storage import finished
    from vocable.training.pretraining.pretrain import check_settings, pretrain_folder

    loading = part_of(Loading, options)
    settings: dict[str, Any] = {name: value for name, value in options.items() if name not in loading}
    seed = settings.pop("seed", 0)
    complete = check_settings(steps=steps, **settings).model_dump(mode="json") | {"texts": list(texts), "seed": seed}
    made_from = _made_from({"model": model, **loading, **complete})
    finished(output, made_from)  # refuses an output of other settings before the texts are opened
    adapted = pretrain_folder(
        output, made_from, lambda: vo.load(model, **loading), texts_of(texts), steps=steps, seed=seed, **settings
    )
    following = f"vocable calibrate {output} TEXTS -o DIR --activation-rate 0.05"
    return Outcome(vo.provenance(adapted)[-1], [output], following)


@command("Adapt", reads=True)
def calibrate(
    model: Model,
    texts: Texts,
    output: Output,
    activation_rate: Annotated[float | None, Gt(0), Lt(1), Doc("Share of the terms to be active.")] = None,
    shift: Annotated[float | None, Doc("In place of a rate: lower the output bias by this many logits.")] = None,
    level: Annotated[
        Literal["pooled", "token"], Doc("Count the active terms of a text, after pooling, or of each token.")
    ] = "pooled",
    max_length: Annotated[Count, Doc("Tokens per probe text.")] = 128,
    count: Annotated[Count, Doc("Number of probe texts.")] = 256,
    **options: Unpack[Loading],
) -> Outcome:
    """Choose the share of the vocabulary that is active.

    The output bias is shifted, so that a text makes that share of the terms active.

    Example: vocable calibrate adapted texts.txt -o out --activation-rate 0.05
    """
    if (activation_rate is None) == (shift is None):
        raise ArgumentError("give either --activation-rate or --shift")
    settings: dict[str, Any] = {"activation_rate": activation_rate, "shift": shift, "level": level}
    settings |= {"max_length": max_length, "count": count}

    def adapt() -> SparseEncoder:
        probe = list(islice((text for text in texts_of(texts) if text.strip()), count))
        if not probe:
            raise DataError("no text to probe with", source=" ".join(texts))
        return vo.calibrate(vo.load(model, **options), probe, **settings)

    adapted = _adapted(output, {"model": model, "texts": list(texts), **settings, **options}, adapt)
    return Outcome(vo.provenance(adapted)[-1], [output], f"vocable inspect {output}")


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
    settings: dict[str, Any] = {"weights": weights, "formula": formula, "trainable": trainable}

    def adapt() -> SparseEncoder:
        read = texts_of(texts) if texts else None
        if weights == "mean" and texts:
            streams = [vo.read_examples(source) for source in texts]
            read = (example.query for stream in streams for example in stream)
        return vo.make_inference_free(vo.load(model, **options), read, **settings)

    adapted = _adapted(output, {"model": model, "texts": list(texts), **settings, **options}, adapt)
    following = f"vocable evaluate {output} --dataset SOURCE, or a recipe with model: {output}"
    return Outcome(vo.provenance(adapted)[-1], [output], following)
