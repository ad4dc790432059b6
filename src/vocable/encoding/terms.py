"""The output terms of a model: their names, the words of a text, and the terms that occur in a text.

A splitter finds the words of a text and normalizes each as the model's tokenizer does, so that two spellings are the
same word if the model reads them alike. The terms that occur in a text are its tokens, or, for a model with an output
vocabulary, the terms among its words. All other terms of its vector are expansions.

Letters: m texts or vectors, v output terms, e entries of the vectors.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from tokenizers import PreTokenizedString, Regex, pre_tokenizers
from tokenizers.normalizers import Normalizer

from vocable.data.texts import as_texts
from vocable.encoding.models import Model, encoding_model
from vocable.encoding.protocol import EncodingModel, Tokenization
from vocable.encoding.tokens import UNUSED, WORD_MARKS, backend_of
from vocable.encoding.vectors import as_vectors, selected
from vocable.errors import ArgumentError, VectorsError
from vocable.options import checked

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def terms(model: Model) -> list[str]:
    """Return the v output terms of `model`, by column; a column without a token (padding of the head) is `<column>`."""
    return encoding_model(model).terms


def token_ids(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Iterator[list[int]]:
    """Yield all tokens of each text, even beyond the model's maximum length, without special tokens around them."""
    stream = iter(texts)
    while batch := list(islice(stream, TOKENIZED_TEXTS)):
        yield from tokenizer(batch, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]


class Word(NamedTuple):
    """A normalized word and its place in the text, `text[start:end]`."""

    text: str
    start: int
    end: int


Splitter = Callable[[str], Iterable[Word]]
# Runs of letters, digits, marks and underscores, or everything between white space, which some normalizers write as
# U+2581.
PATTERNS: dict[str, str] = {"words": r"\w+", "whitespace": r"[^\s▁]+"}


def splitter(tokenizer: PreTrainedTokenizerBase, name: str = "words") -> Splitter:
    """Return the named splitter for the texts of `tokenizer`; it returns words in the order of the text."""
    return _cutter(backend_of(tokenizer).normalizer, name)


def _cutter(normalizer: Normalizer | None, name: str) -> Splitter:
    if name not in PATTERNS:
        raise ArgumentError(f"splitter must be one of {', '.join(PATTERNS)}, not {name!r}")
    cutter = pre_tokenizers.Split(Regex(PATTERNS[name]), "removed", invert=True)

    def split(text: str) -> list[Word]:
        pieces = PreTokenizedString(text)
        if normalizer is not None:
            pieces.normalize(normalizer.normalize)
        cutter.pre_tokenize(pieces)
        return [Word(word, start, end) for word, (start, end), _ in pieces.get_splits("original", "char")]

    return split


def normal_form(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], str]:
    """Return the tokenizer's normalization of a word; the model cannot tell words with the same normal form apart."""
    normalizer = backend_of(tokenizer).normalizer
    return (lambda word: word) if normalizer is None else normalizer.normalize_str


WordKind = Literal["any", "words", "whitespace"]

TOKENIZED_TEXTS = 1000  # at a time
SPELLED = (re.compile(r"\w+|[^\w\s]"), re.compile(r"\S+"))
CACHED_WORDS = 1 << 20


@checked
def input_terms(model: Model, texts: Sequence[str], *, words: WordKind = "any") -> csr_array:
    """Count each output term of `model` in each text, even beyond the model's maximum length.

    The prompt and the special tokens that a tokenizer puts around a text do not count. An unknown token counts each
    time.

    Args:
        words: the words of a text, for a model with an output vocabulary. "any": words and marks of the text as they
            are spelled, as the model's tokenizer normalizes them, in lower case, and without accents; a term counts
            once at each place where any of these forms is the term. "words" or "whitespace": the words of that
            splitter.

    Returns:
        [m, v] csr_array of float32 counts.
    """
    texts, encoder = as_texts(texts), encoding_model(model)
    # Terms are tokens, or words of a separate output vocabulary.
    if encoder.own_terms is None:
        ids = _own_tokens(encoder.tokenization, texts)
    else:
        places_of_texts = _own_words(encoder, words, texts)
        ids = ([column for _, column in places] for places in places_of_texts)
    size = len(encoder.terms)
    # Tokens beyond the output vocabulary are no terms.
    columns = [np.array([column for column in text_ids if column < size], dtype=np.int32) for text_ids in ids]
    indices = np.concatenate([np.empty(0, np.int32), *columns])
    indptr = np.cumsum([0, *map(len, columns)])
    ones = np.ones(len(indices), dtype=np.float32)
    return as_vectors(csr_array((ones, indices, indptr), shape=(len(texts), size)))  # adds up equal entries


def term_places(model: Model, text: str) -> list[Word]:
    """Return the places in a text of the output terms that `input_terms` counts, in the order of the text.

    It omits unknown tokens and white space. Words that are not tokens may overlap. The list is empty for a tokenizer
    that does not return the places of its tokens.
    """
    encoder = encoding_model(model)
    tokenization, own_terms = encoder.tokenization, encoder.own_terms
    if own_terms is not None:
        [place_ends] = _own_words(encoder, "any", [text])
        return [Word(own_terms[column], start, end) for (start, column), end in sorted(place_ends.items())]
    if not tokenization.has_places:
        return []
    cut = [token for token in tokenization.places(text) if token.id not in tokenization.special]
    names = tokenization.names([token.id for token in cut])
    # Some tokenizers include the white space in front of a word in its first token.
    stripped = [end - len(text[start:end].lstrip()) for _, start, end in cut]
    places = zip(names, stripped, [end for _, _, end in cut], strict=True)
    return [Word(name, start, end) for name, start, end in places if start < end]


def special_terms(model: Model) -> np.ndarray:
    """Return the columns of the special terms, such as [CLS], ascending, int64."""
    return encoding_model(model).special_terms


def _own_tokens(tokenization: Tokenization, texts: Sequence[str]) -> Iterator[list[int]]:
    for start in range(0, len(texts), TOKENIZED_TEXTS):
        ids_of_texts = tokenization.ids(texts[start : start + TOKENIZED_TEXTS])
        distinct = [*set[int]().union(*ids_of_texts)]  # a whole vocabulary takes 40 times as long as a text
        unused = {i for i, name in zip(distinct, tokenization.names(distinct), strict=True) if UNUSED.fullmatch(name)}
        around = (tokenization.marked | unused) - {tokenization.unknown}
        for ids in ids_of_texts:
            yield [token for token in ids if token not in around]


def _own_words(model: EncodingModel, words: WordKind, texts: Iterable[str]) -> Iterator[dict[tuple[int, int], int]]:
    """Yield the places of each text's terms: {(start, column): end}."""
    normalizer, column_of = model.tokenization.normalizer, model.columns
    if words != "any" and normalizer is not None:
        column_of = {normalizer.normalize_str(term): column for term, column in column_of.items()}

    @lru_cache(CACHED_WORDS)
    def columns_of(word: str) -> list[int]:
        """Return the terms of a word; with "any", also the terms of its lower case and of its form without accents."""
        lower = word.lower()
        spelled = [mark + form for form in (word, lower, without_accents(lower)) for mark in ("", *WORD_MARKS)]
        return [column_of[form] for form in (spelled if words == "any" else [word]) if form in column_of]

    # With "any", words of all splitters, and words as they are spelled in the text.
    split = [_cutter(normalizer, name) for name in PATTERNS if words in ("any", name)]
    patterns = SPELLED if words == "any" else ()
    for text in texts:
        places = [Word(match[0], *match.span()) for pattern in patterns for match in pattern.finditer(text)]
        places += [word for cut in split for word in cut(text)]
        yield {(start, column): end for word, start, end in places for column in columns_of(word)}


def without_accents(text: str) -> str:
    """Remove combining marks from a text, as BERT's uncased tokenizer does.

    >>> without_accents("Ångström")
    'Angstrom'
    """
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


def remove_expansions(vectors: csr_array, own_terms: csr_array, terms: np.ndarray) -> csr_array:
    """Remove `terms` (columns) from `vectors` [m, v] where they are expansions.

    `own_terms` [m, v] has an entry for each term that occurs in the text; these terms are kept.

    >>> vectors = csr_array(np.array([[1.0, 2.0, 3.0]], dtype=np.float32))
    >>> own_terms = csr_array(np.array([[0.0, 1.0, 0.0]]))
    >>> remove_expansions(vectors, own_terms, np.array([0, 1])).toarray().tolist()
    [[0.0, 2.0, 3.0]]
    """
    vectors = as_vectors(vectors)
    return selected(vectors, ~(expansion_entries(vectors, own_terms) & flags(terms, vectors.shape[1])[vectors.indices]))


def expansion_entries(vectors: csr_array, own_terms: csr_array) -> np.ndarray:
    """Return True for each of the e entries of `vectors` [m, v] without an entry in `own_terms` [m, v], bool [e]."""
    vectors = as_vectors(vectors)
    own_terms = as_vectors(own_terms, "the texts' own terms")
    if vectors.shape != own_terms.shape:
        raise VectorsError(f"vectors of shape {vectors.shape} do not match own terms of shape {own_terms.shape}")
    # The number of each entry's cell, counted row by row, in ascending order.
    places, own_places = (
        np.repeat(np.arange(part.shape[0], dtype=np.int64), np.diff(part.indptr)) * part.shape[1] + part.indices
        for part in (vectors, own_terms)
    )
    at = np.minimum(np.searchsorted(own_places, places), max(0, len(own_places) - 1))
    return own_places[at] != places if len(own_places) else np.ones(len(places), dtype=bool)


def flags(terms: np.ndarray, size: int) -> np.ndarray:
    """Return a bool for each of `size` columns: True if it is in `terms`."""
    if len(terms) and not 0 <= terms.min() <= terms.max() < size:
        raise ArgumentError(f"terms must lie between 0 and {size - 1}, not {terms.min()} to {terms.max()}")
    flags = np.zeros(size, dtype=bool)
    flags[terms] = True
    return flags
