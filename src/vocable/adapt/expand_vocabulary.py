"""Whole words as output terms: Expanded-SPLADE (Kim et al. 2026, appendix B.1).

The tokenizer stays, and an output layer for words replaces the decoder. Its rows start from the decoder's rows. The
words are the most frequent words of a corpus, or a list. The tokenizer must be able to spell each word.

Letters: v tokens, u words, d size of the decoder's input.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array, vstack
from sentence_transformers import SparseEncoder
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from vocable.adapt.alignment import align, cut_words
from vocable.adapt.initialization import barycentres, mix, random_rows, subtoken_weights
from vocable.adapt.stages import ExpandSettings, Inputs, WordInit
from vocable.adapt.transfer import OWN_TERMS, TargetName, vocabulary_of, with_output_vocabulary
from vocable.core.storage import regular
from vocable.data.texts import as_texts, iter_texts
from vocable.encoding.own_terms import json_string
from vocable.encoding.terms import Splitter, normal_form
from vocable.encoding.terms import splitter as splitter_of
from vocable.errors import ArgumentError, DataError, ModelError
from vocable.options import Count, CountOrZero, checked
from vocable.torch_models.fuse import copy_with, parts
from vocable.torch_models.opening import Target, load_target
from vocable.torch_models.output_vocabulary import OutputVocabulary, special_tokens
from vocable.torch_models.provenance import Step, describes, record

logger = logging.getLogger(__name__)

WORDS = 10_000  # words cut at a time
FAULTS = 3  # faults that a message names


class FrequentWords(NamedTuple):
    """The most frequent words of a corpus, in falling order, and their statistics."""

    words: list[str]
    covered: float  # share of all word occurrences in the corpus
    tokens_per_word: float  # mean over their occurrences
    passed_over: int  # distinct words, frequent enough, that the tokenizer cannot spell


@checked
def frequent_words(
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    *,
    size: Count = 100_000,
    min_count: Count = 1,
    split: Splitter | None = None,
) -> FrequentWords:
    """Return the `size` most frequent words of `texts` that `tokenizer` can spell, as it normalizes them.

    Equally frequent words are sorted by their characters, so that the order of the texts does not matter.
    """
    split = split or splitter_of(tokenizer)
    counts = Counter(word.text for text in iter_texts(texts) for word in split(text))
    often = [word for _, word in sorted((-count, word) for word, count in counts.items() if count >= min_count)]
    # The tokenizer cuts a batch of words at a time, because few words may be enough.
    words, tokens, passed_over = list[str](), 0, 0
    batches = (often[start : start + WORDS] for start in range(0, len(often), WORDS))
    for word, pieces in chain.from_iterable(zip(batch, cut_words(tokenizer, batch), strict=True) for batch in batches):
        if not pieces:
            passed_over += 1
            continue
        words.append(word)
        tokens += counts[word] * len(pieces)
        if len(words) == size:
            break
    if not words:
        raise DataError(f"the texts have no word that occurs {min_count} times and that the tokenizer can spell")
    occurrences = sum(counts[word] for word in words)
    return FrequentWords(words, occurrences / counts.total(), tokens / occurrences, passed_over)


def read_words(path: str | Path) -> list[str]:
    """Read the words of a file, one per line: verbatim, or in a .jsonl file as JSON strings. Nothing is checked."""
    place = str(path)
    try:
        text = regular(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(error.strerror or str(error), source=place) from error
    except UnicodeDecodeError as error:
        raise DataError("not UTF-8", source=place, line=1 + error.object[: error.start].count(b"\n")) from error
    # Not str.splitlines, which also cuts at characters that a word may have.
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    if Path(path).suffix != ".jsonl":
        return lines
    return [json_string(line, place, number) for number, line in enumerate(lines, start=1)]


def check_words(words: Sequence[str], pieces: Sequence[Sequence[int]], normalize: Callable[[str], str]) -> None:
    """Raise `ArgumentError` unless all words can be terms; `pieces` are the tokens that spell each.

    Words must not be empty, duplicates (also once normalized) or unspellable; the message has line numbers, from 1.
    """
    if not words:
        raise ArgumentError("there are no words to expand to")
    faults, first = list[str](), dict[str, int]()
    for number, (word, ids) in enumerate(zip(words, pieces, strict=True), start=1):
        if not word:
            faults.append(f"line {number}: an empty string")
        elif not ids:
            faults.append(f"line {number}: {word!r} is empty or unknown to the tokenizer")
        elif (earlier := first.setdefault(normalize(word), number)) != number:
            same = "" if words[earlier - 1] == word else f" of {words[earlier - 1]!r} to the tokenizer,"
            faults.append(f"line {number}: {word!r} is a duplicate{same} in line {earlier}")
    if faults:
        more = f"; and {len(faults) - FAULTS:,} more" if len(faults) > FAULTS else ""
        raise ArgumentError(f"not every word can be a term: {'; '.join(faults[:FAULTS])}{more}")


@checked
def expand_vocabulary(
    model: SparseEncoder,
    words: Sequence[str] | Path | None = None,
    *,
    texts: Iterable[str] | None = None,
    size: Count = 100_000,
    min_count: Count = 1,
    splitter: Literal["words", "whitespace"] = "words",
    init: WordInit = "mean",
    target: TargetName | None = None,
    seed: CountOrZero = 0,
) -> SparseEncoder:
    """Give a model whole words as output terms.

    The tokenizer stays: the model reads tokens as before, and its terms are any number of words.

    Args:
        model: from `vocable.load`; it is not changed. The result has its tokenizer.
        words: the words: a file with a word per line, or in .jsonl a JSON string; in Python also a list.
        texts: instead of `words`: a corpus whose most frequent words are the terms. It is read once.
        size: with `texts`: the largest number of words.
        min_count: with `texts`: least occurrences of a word.
        splitter: splits texts into words. words: runs of letters, digits, marks and _. whitespace: split at spaces
            only. Pre-training uses the same splitter.
        init: rows and biases of the words. mean: the means over their sub-tokens. semantic: as in `transfer`, for words
            that are a single token of `target` and several of the source; mean for the others. random: rows from a
            normal distribution with the decoder's standard deviation, and the mean of its biases.
        target: for semantic: a model that has words as tokens, a folder or a Hub id; in Python also loaded.
        seed: seed of the random rows.

    Returns:
        a new model. Its provenance has the number of words and, with texts, the share of word occurrences that they
        cover, the mean tokens per word, and the number of skipped words.

    Raises:
        ArgumentError: neither or both of words and texts, or words that cannot be terms.
        DataError: a file with words that cannot be terms; texts without a word.
        ModelError: the model has its own output terms already; "semantic" with a target that has no embeddings or none
            of the words.
    """
    if (words is None) == (texts is None):
        raise ArgumentError("expand_vocabulary takes either words, or texts whose most frequent words it takes")
    (mlm, tokenizer, *_), figures = parts(model), dict[str, Any]()
    old, split = vocabulary_of(mlm), splitter_of(tokenizer, splitter)
    # The words, and the pieces into which the tokenizer cuts each.
    if texts is not None:
        figures = frequent_words(texts, tokenizer, size=size, min_count=min_count, split=split)._asdict()
        words = figures.pop("words")
    listed = read_words(words) if isinstance(words, Path) else as_texts(words, "words")
    pieces = cut_words(tokenizer, listed)
    try:
        check_words(listed, pieces, normal_form(tokenizer))
    except ArgumentError as error:
        raise (DataError(str(error), source=str(words)) if isinstance(words, Path) else error) from None
    # Rows [u, d] and biases [u] of the u words: drawn, or mixed from the rows of their pieces.
    if init == "random":
        rows = random_rows(old.decoder, len(listed), torch.Generator().manual_seed(seed))
        bias = None if old.bias is None else _mean_bias(old.bias, tokenizer).expand(len(listed))
    else:
        weights = subtoken_weights(pieces, len(old.decoder))
        if init == "semantic":
            weights = _semantic(weights, pieces, tokenizer, listed, None if target is None else load_target(target))
        rows = mix(weights, old.decoder).to(old.decoder)
        bias = None if old.bias is None else mix(weights, old.bias[:, None])[:, 0].to(old.bias)
    expanded = copy_with(model, with_output_vocabulary(mlm, OutputVocabulary(listed, rows, bias)))
    record(expanded, "expand-vocabulary", words=len(listed), init=init, splitter=splitter, **figures)
    return expanded


def _mean_bias(bias: Tensor, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return the mean output bias of all tokens except special ones, a scalar; `bias` is [v]."""
    ordinary = np.setdiff1d(np.arange(len(bias)), special_tokens(tokenizer, len(bias)))
    return bias[torch.from_numpy(ordinary).to(bias.device)].float().mean().to(bias)


def _semantic(
    weights: csr_array,
    pieces: Sequence[Sequence[int]],
    tokenizer: PreTrainedTokenizerBase,
    words: Sequence[str],
    target: Target | None,
) -> csr_array:
    """Return the weights [u, v], with barycentres for words of several source tokens that are one target token."""
    if target is None or target.model is None:
        raise ModelError("init='semantic' needs a target with embeddings that has words as tokens: use 'mean'")
    # The words that a single row of the target can place.
    known = cut_words(target.tokenizer, words)
    placed = [i for i, ids in enumerate(known) if len(ids) == 1 < len(pieces[i])]
    if not placed:
        raise ModelError("no word of several tokens is one token of the target: nothing to compare, use init='mean'")
    alignment = align(tokenizer, target.tokenizer)
    if not len(alignment.anchors):
        raise ModelError("the model and the target have no token in common")
    # Weights of source tokens near each of them, in the target's embeddings [placed, v].
    embeddings = target.model.get_input_embeddings().weight.detach()
    ids = np.array([known[i][0] for i in placed])
    semantic = barycentres(embeddings, alignment, ids, weights.shape[1])
    message = "%d words start at their semantic neighbours, the other %d at the mean of their tokens"
    logger.info(message, len(placed), len(words) - len(placed))
    # Below all rows stand the new rows of the placed words, which take their places.
    row_of = np.arange(len(words))
    row_of[placed] = len(words) + np.arange(len(placed))
    return csr_array(vstack([weights, semantic], format="csr")[row_of])


@describes("expand-vocabulary")
def _describe(step: Step) -> list[str]:
    """Return the covered share of the texts, and the number of words."""
    lines = [f"{step['words']:,} words as terms: {step['init']}", OWN_TERMS]
    if step.get("passed_over"):
        lines.insert(0, f"skipped, because the tokenizer cannot spell them: {step['passed_over']:,} words")
    if "covered" in step:
        per_word = f"{step['tokens_per_word']:.2f} tokens per word"
        lines.insert(0, f"{step['covered']:.1%} of the words of the texts, {per_word}")
    return lines


def adapt(model: SparseEncoder, settings: ExpandSettings, inputs: Inputs) -> SparseEncoder:
    """Return the model after the stage of a recipe."""
    keys = settings.model_dump(exclude={"texts", "words"})
    if settings.words is not None:
        return expand_vocabulary(model, Path(inputs.locate(settings.words)), **keys, seed=inputs.seed)
    return expand_vocabulary(model, texts=inputs.texts(settings.texts), **keys, seed=inputs.seed)
