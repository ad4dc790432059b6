"""What an output term is: a proper name, a stop word, a piece of a word ... ("Understanding Wacky Weights: A Dissection
of SPLADE's Learned Term Importance", table 3, groups the wackiest terms of a model like this by eye).

What the measure of wackiness needs of an expander: a model's vectors of inputs, and what they retrieve.

Letters: m inputs, n documents of the collection, v terms, k retrieved documents.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from bm25s.stopwords import STOPWORDS_EN_PLUS
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.adapt.alignment import Surface, token_surfaces
from vocable.encoder.encode import DType, encode
from vocable.encoder.fuse import splade_modules
from vocable.encoder.output_vocabulary import output_vocabulary
from vocable.encoder.terms import own_terms, special_columns, terms
from vocable.errors import check_texts
from vocable.evaluation.wackiness import check_depth, without_itself
from vocable.search.exact import ExactIndex


class Measured(NamedTuple):
    """An expander at work on m inputs and n documents; the arguments of `vocable.evaluation.wackiness.wackiness`."""

    name: str
    vectors: csr_array  # [m, v], the inputs
    own: csr_array  # [m, v], how often the terms stand in the inputs themselves
    rows: np.ndarray  # int32 [m, k], what each input retrieves, -1 where there is no k-th
    counts: csr_array  # [n, v], how often the terms stand in the documents
    surfaces: Sequence[Surface]  # v, what each term stands for in a text
    terms: Sequence[str]  # v, by column
    special: np.ndarray = np.empty(0, dtype=np.int64)  # columns of special tokens


def measured_model(
    name: str,
    model: SparseEncoder,
    queries: Sequence[str],
    documents: Sequence[str],
    k: int = 100,
    *,
    dtype: DType = "auto",
) -> Measured:
    """Encode queries and documents with a model from `vocable.load`, and search exactly; `dtype` is that of `encode`.

    Raises:
        ArgumentError: k below 1.
    """
    check_texts(queries, "queries")
    check_texts(documents, "documents")
    check_depth(k)
    counts, found = own_terms(model, documents), encode(model, documents, dtype=dtype)
    vectors = encode(model, queries, role="query", dtype=dtype)
    return measured_vectors(name, model, vectors, own_terms(model, queries), ExactIndex(found), counts, k)


def measured_vectors(
    name: str,
    model: SparseEncoder,
    vectors: csr_array,
    own: csr_array,
    index: ExactIndex,
    counts: csr_array,
    k: int = 100,
    *,
    itself: np.ndarray | None = None,
) -> Measured:
    """The same from what is encoded already.

    Args:
        name: of the model, as it is to be called.
        model: whose terms the vectors have.
        vectors: [m, v], the inputs.
        own: [m, v], their own terms.
        index: the n documents.
        counts: [n, v], the documents' own terms.
        k: documents that an input retrieves.
        itself: [m], for inputs that are documents of the collection, the row of each: it is not among the k that it
            retrieves. (Its expansions do not stand in it, so that it could only take the place of another.)

    Raises:
        ArgumentError: k below 1.
        VectorsError: the shapes do not fit together.
    """
    check_depth(k)
    rows = index.search(vectors, k if itself is None else k + 1).rows
    if itself is not None:
        rows = without_itself(rows, itself)
    return Measured(name, vectors, own, rows, counts, model_surfaces(model), terms(model), special_columns(model))


def word_surfaces(words: Sequence[str]) -> list[Surface]:
    """The surfaces of terms that are words."""
    return [Surface(word, True, "word" if any(map(str.isalnum, word)) else "punctuation") for word in words]


def model_surfaces(model: SparseEncoder) -> list[Surface]:
    """What each of the v output terms of `model` stands for in a text; a column without a token is a special one."""
    [(transformer, _), *_] = splade_modules(model)
    names = terms(model)
    if output_vocabulary(transformer.auto_model) is not None:
        return word_surfaces(names)
    found = token_surfaces(transformer.tokenizer)[: len(names)]
    found += [None] * (len(names) - len(found))
    return [surface or Surface(name, False, "special") for surface, name in zip(found, names, strict=True)]


KINDS = (
    "proper name",
    "stop word",
    "punctuation",
    "non-Latin",
    "tokenizer artefact",
    "sub-word",
    "number",
    "other word",
)
STOP_WORDS = frozenset(word for word in STOPWORDS_EN_PLUS if len(word) > 1) | {"a", "i"}
ARTEFACT = re.compile(r"\[unused\d+\]|<.*>|\[[A-Z]+\]", re.DOTALL)
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n+")
WORD = re.compile(r"[^\W\d_]{2,}")


def term_kind(surface: Surface, names: Collection[str] = ()) -> str:
    """The kind of a term, the first of these that it is.

    | kind | what is one |
    |:--|:--|
    | tokenizer artefact | special and unused tokens, bytes that are no character, Latin letters other than a and I |
    | punctuation | no letter and no digit |
    | non-Latin | has a letter of another script |
    | stop word | one of the English list of bm25s (`STOPWORDS_EN_PLUS`), in any case |
    | sub-word | goes on with a word |
    | number | digits and no letter |
    | proper name | one of `names` |
    | other word | all others |

    Args:
        surface: what the term stands for in a text (`vocable.adapt.alignment`).
        names: the proper names in lower case, from `proper_names`.

    >>> kinds = [term_kind(Surface(text, True, "word"), {"edmund"}) for text in ("Edmund", "She", "б", "1985", "D")]
    >>> kinds, term_kind(Surface("ing", False, "continuation"))
    (['proper name', 'stop word', 'non-Latin', 'number', 'tokenizer artefact'], 'sub-word')
    """
    text, letters = surface.text, [character for character in surface.text if character.isalpha()]
    whole = surface.kind == "word"
    if surface.kind in ("special", "bytes") or ARTEFACT.fullmatch(text):
        return "tokenizer artefact"
    if not any(character.isalnum() for character in text):
        return "punctuation"
    if not all(map(_latin, letters)):
        return "non-Latin"
    if whole and text.lower() in STOP_WORDS:
        return "stop word"
    if not whole:
        return "sub-word"
    if not letters:
        return "number"
    if len(text) == 1:
        return "tokenizer artefact"
    return "proper name" if text.lower() in names else "other word"


def term_kinds(surfaces: Sequence[Surface], names: Collection[str] = ()) -> list[str]:
    """The kind of each of v terms, by column."""
    return [term_kind(surface, names) for surface in surfaces]


def proper_names(texts: Iterable[str], *, share: float = 0.8, least: int = 3) -> set[str]:
    """The words, in lower case, that texts write with a capital letter where others have none.

    A word counts where it is not the first of its sentence, and where at least half of the sentence's other words begin
    with a small letter: headings and texts in capitals say nothing. It is a proper name if it counts `least` times and
    in `share` of these begins with a capital letter and goes on with small ones (an acronym is not). So a name that the
    texts do not have is not known, and of texts in small letters none is.

    >>> sorted(proper_names(["We met Edmund. He and Edmund met us.", "So did Edmund and Will: we will."] * 3))
    ['edmund']
    """
    check_texts(texts)
    seen, capital = Counter[str](), Counter[str]()
    for text in texts:
        for sentence in SENTENCE_END.split(text):
            _, *words = WORD.findall(sentence) or [""]
            if 2 * sum(word[0].islower() for word in words) < len(words):
                continue
            for word in words:
                seen[word.lower()] += 1
                capital[word.lower()] += word.istitle()
    return {word for word, count in seen.items() if count >= least and capital[word] >= share * count}


def _latin(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith("LATIN")
