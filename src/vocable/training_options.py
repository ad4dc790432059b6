"""The options that commands and functions of the training side share, one record each; `vocable.options` checks them.

They stand here since the command line reads them, which does not import the training side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Gt, Le, Lt
from typing_extensions import Doc, TypedDict

from vocable.errors import ArgumentError
from vocable.options import RECORD_RULES, Count, CountOrZero, Default, DType, Inference

Masking: TypeAlias = Literal["uniform", "overlap-aware", "whole-word", "longest-span"]


class NegativeOptions(TypedDict, total=False):
    """Rule for the hits of a query that are its negatives."""

    negatives: Annotated[Count, Doc("Number of negatives per example; 8 by default.")]
    from_rank: Annotated[Count, Doc("First rank of a negative, positives included; 1 by default.")]
    to_rank: Annotated[Count, Doc("Last rank of a negative; 100 by default.")]
    margin: Annotated[float | None, Doc("Negatives must score this much less than the positive.")]
    relative_margin: Annotated[
        float | None, Ge(0), Lt(1), Doc("Negatives must score less than (1 - this) of the positive's score.")
    ]


class PretrainOptions(TypedDict, total=False):
    """Settings of a pre-training, except the number of steps."""

    batch_size: Annotated[Count, Doc("Texts per batch; 32 by default.")]
    gradient_accumulation: Annotated[Count, Doc("Batches per step; 1 by default.")]
    learning_rate: Annotated[float, Gt(0), Doc("Largest learning rate, after the warm-up; 3e-4 by default.")]
    weight_decay: Annotated[float, Ge(0), Doc("Weight decay of AdamW; 0.01 by default.")]
    dropout: Annotated[float | None, Ge(0), Lt(1), Doc("Share to drop, None: the model's own rates; 0 by default.")]
    warmup_share: Annotated[
        float, Ge(0), Lt(1), Doc("Share of the steps with a rising learning rate; 0.06 by default.")
    ]
    dtype: Annotated[DType, Doc("Number type of products; auto is bfloat16 where the device has it natively.")]
    log_every: Annotated[Count, Doc("Steps between lines of the log; 10 by default.")]
    save_every: Annotated[Count, Doc("Steps between checkpoints; 200 by default.")]
    max_length: Annotated[int, Ge(8), Doc("Tokens per window, special tokens included; 128 by default.")]
    masking: Annotated[
        Masking,
        Doc(
            "Tokens to mask: uniform (default); overlap-aware: new tokens of a transferred model more often; "
            "whole-word: words of an expanded vocabulary; longest-span: terms of a new head, by their own tokens."
        ),
    ]
    masking_rate: Annotated[
        float, Gt(0), Le(1), Doc("Share of tokens to mask; default: 0.3, for words and terms 0.15.")
    ]
    new_token_weight: Annotated[
        float,
        Gt(0),
        Doc('With `masking="overlap-aware"`: how often a new token is masked per shared one; 2 by default.'),
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
    trainable: Annotated[Literal["all", "embeddings", "head"], Doc("Parameters that learn; all by default.")]
    margin: Annotated[float, Ge(0), Doc("Margin subtracted from the label's logit; 0 by default.")]
    train_bias: Annotated[bool, Doc('With `trainable="embeddings"`: train the output bias, too.')]
    held_out: Annotated[CountOrZero, Doc("Windows held out for the report, at most a tenth; 256 by default.")]
    passes: Annotated[
        Count | None, Doc("Largest number of passes over a text, each with other masks; unlimited by default.")
    ]
    schedule: Annotated[Literal["cosine", "linear"], Doc("Decay of the learning rate; cosine by default.")]
    schedule_steps: Annotated[
        Count | None, Doc("Steps after which the learning rate would be 0, if more than those of the run.")
    ]
    seed: Annotated[CountOrZero, Doc("Seed of the order of texts, masks, dropout and held-out windows; 0 by default.")]


class ExpansionStudy(Inference, total=False):
    """Model inference, stored vectors and random numbers of a study of expansion terms."""

    seed: Annotated[int, Ge(0), Doc("Seed of the random draws; 0 by default.")]
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

    k: Annotated[int, Ge(1), Doc("Documents that an input retrieves; 100 by default.")]
    idf: Annotated[Literal["log", "bm25"], Doc("log (the default) is log(n / df); bm25 is BM25's IDF, never 0.")]
    special: Annotated[bool, Default(True), Doc("Count special tokens such as [CLS] as expansions, too; the default.")]
    splitter: Annotated[
        Literal["any", "words", "whitespace"], Doc("Words of a text, for models whose terms are whole words.")
    ]
    bins: Annotated[int, Ge(1), Doc("Points of the curve; 100 by default.")]
    whole_vocabulary: Annotated[bool, Doc("Divide all terms into the bins, not only the scored ones.")]
    expansions: Annotated[int | None, Ge(1), Doc("Heaviest expansions per input that count; by default all.")]
    bootstrap: Annotated[int, Ge(0), Doc("Draws of the inputs for the standard deviation; 0 for none, 100 by default.")]


class TuningSources(TypedDict, total=False):
    """Sources of a tuning in addition to its documents."""

    queries: Annotated[
        str | None, Doc("Source of queries of people; judged queries join the exam, the others are learned from.")
    ]
    judgments: Annotated[str | None, Doc("Source of judgments of the queries.")]
    generator: Annotated[str | None, Doc("Causal or sequence-to-sequence model that writes questions.")]


def _check_bootstrap(options: Mapping[str, object]) -> None:
    if options.get("bootstrap") == 1:  # has no standard deviation
        raise ArgumentError("bootstrap needs at least 2 draws, or 0 for none")


def _check_sources(options: Mapping[str, object]) -> None:
    if options.get("judgments") is not None and options.get("queries") is None:
        raise ArgumentError("--judgments needs --queries")


RECORD_RULES[WackinessOptions] = _check_bootstrap
RECORD_RULES[TuningSources] = _check_sources
