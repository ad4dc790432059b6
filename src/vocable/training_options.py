"""The options that commands and functions of the training side share, one record each; `vocable.options` checks them.

They stand here since the command line reads them, which does not import the training side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Annotated, Literal, TypeAlias, cast

from annotated_types import Ge, Gt, Le, Lt
from typing_extensions import Doc, TypedDict

from vocable.errors import ArgumentError
from vocable.options import RECORD_RULES, Count, CountOrZero, Default, DType, Inference, defaults

Masking: TypeAlias = Literal["uniform", "overlap-aware", "whole-word", "longest-span"]


class NegativeOptions(TypedDict, total=False):
    """Rule for the hits of a query that are its negatives."""

    negatives: Annotated[Count, Default(8), Doc("Number of negatives per example.")]
    from_rank: Annotated[Count, Default(1), Doc("First rank of a negative, positives included.")]
    to_rank: Annotated[Count, Default(100), Doc("Last rank of a negative.")]
    margin: Annotated[float | None, Doc("Negatives must score this much less than the positive.")]
    relative_margin: Annotated[
        float | None, Ge(0), Lt(1), Doc("Negatives must score less than (1 - this) of the positive's score.")
    ]


class OptimizerOptions(TypedDict, total=False):
    """Settings that pre-training and retrieval training share."""

    batch_size: Annotated[Count, Default(32), Doc("Texts per batch.")]
    gradient_accumulation: Annotated[Count, Default(1), Doc("Batches per step.")]
    weight_decay: Annotated[float, Ge(0), Default(0.01), Doc("Weight decay of AdamW.")]
    dropout: Annotated[
        float | None, Ge(0), Lt(1), Default(0.0), Doc("Share of activations to drop; None: the model's own rates.")
    ]
    warmup_share: Annotated[float, Ge(0), Lt(1), Default(0.06), Doc("Share of the steps with a rising learning rate.")]
    dtype: Annotated[
        DType, Default("auto"), Doc("Number type of products; auto is bfloat16 where the device has it natively.")
    ]
    log_every: Annotated[Count, Default(10), Doc("Steps between lines of the log.")]
    save_every: Annotated[Count, Default(200), Doc("Steps between checkpoints.")]


class PretrainOptions(OptimizerOptions, total=False):
    """Settings of a pre-training, except the number of steps."""

    learning_rate: Annotated[float, Gt(0), Default(3e-4), Doc("Largest learning rate, after the warm-up.")]
    max_length: Annotated[int, Ge(8), Default(128), Doc("Tokens per window, special tokens included.")]
    masking: Annotated[
        Masking,
        Default("uniform"),
        Doc(
            "Tokens to mask: uniform; overlap-aware: new tokens of a transferred model more often; "
            "whole-word: words of an expanded vocabulary; longest-span: terms of a new head, by their own tokens."
        ),
    ]
    masking_rate: Annotated[
        float | None, Gt(0), Le(1), Doc("Share of tokens to mask; by default 0.3, for words and terms 0.15.")
    ]
    new_token_weight: Annotated[
        float,
        Gt(0),
        Default(2.0),
        Doc('With `masking="overlap-aware"`: how often a new token is masked per shared one.'),
    ]
    teacher: Annotated[
        str | None, Doc("Learn the largest logits of this sparse model of the same terms, without masks.")
    ]
    classes: Annotated[
        int | None,
        Ge(2),
        Doc("With a dense `teacher`: number of clusters of its embeddings; learn which a text is in."),
    ]
    labels: Annotated[bool, Doc("Texts are positives of examples; learn each one's query as its class, without masks.")]
    trainable: Annotated[Literal["all", "embeddings", "head"], Default("all"), Doc("Parameters that learn.")]
    train_bias: Annotated[bool, Doc('With `trainable="embeddings"`: train the output bias, too.')]
    margin: Annotated[float, Ge(0), Default(0.0), Doc("Margin subtracted from the label's logit.")]
    held_out: Annotated[CountOrZero, Default(256), Doc("Windows held out for the report, at most a tenth.")]
    passes: Annotated[
        Count | None, Doc("Largest number of passes over a text, each with other masks; by default unlimited.")
    ]
    schedule: Annotated[Literal["cosine", "linear"], Default("cosine"), Doc("Decay of the learning rate.")]
    schedule_steps: Annotated[
        Count | None, Doc("Steps after which the learning rate would be 0, if more than those of the run.")
    ]


class ExpansionStudy(Inference, total=False):
    """Model inference, stored vectors and random numbers of a study of expansion terms."""

    seed: Annotated[int, Ge(0), Default(0), Doc("Seed of the random draws.")]
    vectors: Annotated[
        str | PathLike[str] | Sequence[str | PathLike[str]] | None,
        Doc(
            "Stored vectors of the documents (vocable encode): a folder or several shards, with one model and dataset."
        ),
    ]
    query_vectors: Annotated[
        str | PathLike[str] | Sequence[str | PathLike[str]] | None, Doc("Stored vectors of the queries.")
    ]


class WackinessOptions(ExpansionStudy, total=False):
    """Settings of a measurement of wackiness that Polyakov et al. 2026 leave open, and the bootstrap."""

    k: Annotated[int, Ge(1), Default(100), Doc("Documents that an input retrieves.")]
    idf: Annotated[Literal["log", "bm25"], Default("log"), Doc("log is log(n / df); bm25 is BM25's IDF, never 0.")]
    special: Annotated[bool, Default(True), Doc("Count special tokens such as [CLS] as expansions, too.")]
    splitter: Annotated[
        Literal["any", "words", "whitespace"],
        Default("any"),
        Doc("Words of a text, for models whose terms are whole words."),
    ]
    bins: Annotated[int, Ge(1), Default(100), Doc("Points of the curve.")]
    whole_vocabulary: Annotated[bool, Doc("Divide all terms into the bins, not only the scored ones.")]
    expansions: Annotated[int | None, Ge(1), Doc("Heaviest expansions per input that count; by default all.")]
    bootstrap: Annotated[int, Ge(0), Default(100), Doc("Draws of the inputs for the standard deviation; 0 for none.")]


def _check_bootstrap(options: Mapping[str, object]) -> None:
    if options.get("bootstrap") == 1:  # has no standard deviation
        raise ArgumentError("bootstrap needs at least 2 draws, or 0 for none")


def _check_ranks(options: Mapping[str, object]) -> None:
    rule = cast(NegativeOptions, {**defaults(NegativeOptions), **options})
    first, last, count = rule["from_rank"], rule["to_rank"], rule["negatives"]
    if last < first:
        raise ArgumentError(f"`to_rank` {last} is below `from_rank` {first}")
    if last - first + 1 < count:
        raise ArgumentError(f"{count} negatives cannot come from ranks {first} to {last}")


RECORD_RULES[NegativeOptions] = _check_ranks
RECORD_RULES[WackinessOptions] = _check_bootstrap
