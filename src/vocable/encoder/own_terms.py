"""Which output terms stand in a text itself, and how often: what is left of its vector is the model's expansion.

Where the output terms are the tokenizer's tokens, they are the tokens of the text. An output vocabulary of a model's
own has no tokenizer: there a term is looked for among the words of the text.

Letters: m texts, v output terms.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerBase

from vocable.encoder.fuse import splade_modules
from vocable.encoder.output_vocabulary import OutputVocabulary, output_layer, output_vocabulary
from vocable.encoder.splitters import PATTERNS, normal_form, splitter
from vocable.errors import ArgumentError, check_texts
from vocable.vectors import as_vectors

Words = Literal["any", "words", "whitespace"]
Columns = Callable[[Sequence[str]], list[Counter[int]]]

BATCH = 1000  # texts tokenized at a time
WORD_MARKS = ("", "Ġ", "▁")  # in front of a term that begins a word, by tokenizer family
SPELLED = (re.compile(r"\w+|[^\w\s]"), re.compile(r"\S+"))
REMEMBERED = 1 << 20  # words whose terms are looked up once


def own_terms(
    model: SparseEncoder,
    texts: Sequence[str],
    *,
    words: Words = "any",
    advance: Callable[[int], object] = lambda done: None,
) -> csr_array:
    """How often each output term of `model` stands in each text, also beyond the length at which the model cuts it.

    The special tokens that a tokenizer puts around a text never count, nor does a prompt; a token for what the
    tokenizer does not know counts as often as there is something unknown.

    Args:
        model: from `vocable.load`.
        texts: m texts.
        words: what is a word of the text, for output terms that are not the tokenizer's tokens; no other model minds.
            "any": the words and marks of the text, as they are spelled, as the model's tokenizer normalizes them, in
            lower case, and without accents; a term counts once at each place where any of these is the term. "words"
            or "whitespace": only what that splitter (`vocable.encoder.splitters`) finds.
        advance: called with the number of texts done after every batch.

    Returns:
        [m, v] csr_array of float32 counts.

    Raises:
        ArgumentError: no such way to find words.
        ModelError: a tokenizer without a backend of the `tokenizers` library, where words have to be found.
    """
    check_texts(texts)
    if words not in get_args(Words):
        raise ArgumentError(f"words must be one of {', '.join(get_args(Words))}, not {words!r}")
    [(transformer, _), *_] = splade_modules(model)
    tokenizer, layer = transformer.tokenizer, output_vocabulary(transformer.auto_model)
    count = _count_tokens(tokenizer) if layer is None else _count_words(tokenizer, layer, words)
    size = output_layer(transformer.auto_model).out_features
    lengths, columns, counts = [0], [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        for found in count(batch):
            known = sorted(column for column in found if column < size)
            lengths.append(len(known))
            columns.append(np.array(known, dtype=np.int32))
            counts.append(np.array([found[column] for column in known], dtype=np.float32))
        advance(len(batch))
    parts = np.concatenate(counts), np.concatenate(columns), np.cumsum(lengths)
    return as_vectors(csr_array(parts, shape=(len(texts), size)))


def special_columns(model: SparseEncoder) -> np.ndarray:
    """The columns of the special tokens, [CLS] and its like, int64 [s]; an output vocabulary of its own has none."""
    [(transformer, _), *_] = splade_modules(model)
    if output_vocabulary(transformer.auto_model) is not None:
        return np.empty(0, dtype=np.int64)
    return np.sort(np.array(transformer.tokenizer.all_special_ids, dtype=np.int64))


def _count_tokens(tokenizer: PreTrainedTokenizerBase) -> Columns:
    around = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}

    def count(texts: Sequence[str]) -> list[Counter[int]]:
        batch = tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)
        return [Counter(token for token in ids if token not in around) for ids in batch["input_ids"]]

    return count


def _count_words(tokenizer: PreTrainedTokenizerBase, layer: OutputVocabulary, words: Words) -> Columns:
    columns_of = _by_spelling(layer) if words == "any" else _by_normal_form(tokenizer, layer)
    split = [splitter(tokenizer, name) for name in PATTERNS if words in ("any", name)]
    patterns = SPELLED if words == "any" else ()

    def places(text: str) -> Iterator[tuple[int, str]]:
        for pattern in patterns:
            yield from ((match.start(), match[0]) for match in pattern.finditer(text))
        for cut in split:
            yield from ((start, word) for word, start, _ in cut(text))

    def count(texts: Sequence[str]) -> list[Counter[int]]:
        found = ({(start, column) for start, word in places(text) for column in columns_of(word)} for text in texts)
        return [Counter(column for _, column in pairs) for pairs in found]

    return count


def _by_spelling(layer: OutputVocabulary) -> Callable[[str], tuple[int, ...]]:
    """The columns of the terms that a word stands for: its own spelling, in lower case, and without accents."""
    column_of = {term: column for column, term in enumerate(layer.terms)}

    @lru_cache(REMEMBERED)
    def columns_of(word: str) -> tuple[int, ...]:
        forms = {word, word.lower(), _without_accents(word.lower())}
        return tuple(column_of[mark + form] for form in forms for mark in WORD_MARKS if mark + form in column_of)

    return columns_of


def _by_normal_form(tokenizer: PreTrainedTokenizerBase, layer: OutputVocabulary) -> Callable[[str], tuple[int, ...]]:
    """The column of the term that a normalized word is."""
    normalize = normal_form(tokenizer)
    columns = {normalize(term): (column,) for column, term in enumerate(layer.terms)}
    return lambda word: columns.get(word, ())


def _without_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
