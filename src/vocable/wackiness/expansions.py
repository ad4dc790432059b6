"""Expansions of texts by models and expanders: vectors, retrieved documents, and the kinds of their terms.

Letters: m inputs, n documents of the collection, v terms, k retrieved documents.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bm25s.stopwords import STOPWORDS_EN_PLUS
from scipy.sparse import csr_array

from vocable.data.texts import as_texts, iter_texts
from vocable.encoding.encode import encode
from vocable.encoding.graph import GraphModel
from vocable.encoding.models import Model, check_unchanged, encoding_model, is_model, model_name
from vocable.encoding.terms import WordKind, input_terms, special_terms, terms
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.tokens import Surface
from vocable.encoding.vectors import (
    Sources,
    StoredRows,
    StoredVectors,
    joined,
    places_of,
    read_shards,
    vocabulary_fingerprint,
)
from vocable.errors import VectorsError
from vocable.evaluation.expanders import Expander
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.exact_shards import Exact, load_exact, save_exact
from vocable.indexes.word_counts import count_texts
from vocable.options import Count, checked

STORED_PART = 65_536  # texts whose stored vectors are read together
NO_COLUMNS = np.empty(0, dtype=np.int64)


class ExpansionData(NamedTuple):
    """Expansions of m inputs and their searches of n documents; arguments of `vocable.wackiness.score.wackiness`."""

    name: str
    vectors: csr_array  # [m, v], the inputs
    input_counts: csr_array  # [m, v], frequencies of the terms in the inputs themselves
    rows: np.ndarray  # int32 [m, k], the documents that each input retrieves, -1 where there is no k-th
    counts: csr_array  # [n, v], frequencies of the terms in the documents
    surfaces: Sequence[Surface]  # v, each term as it appears in a text
    terms: Sequence[str]  # v, by column
    special: np.ndarray = NO_COLUMNS  # columns of special tokens


def without_itself(rows: np.ndarray, itself: np.ndarray) -> np.ndarray:
    """Remove m inputs, the rows `itself` [m], from the documents `rows` [m, k + 1] that they retrieve; return [m, k].

    >>> without_itself(np.array([[4, 7, 2], [1, 3, 5]]), np.array([7, 6])).tolist()
    [[4, 2], [1, 3]]
    """
    others = rows != itself[:, None]
    # Kept rows move to the front, in their order.
    order = np.argsort(~others, axis=1, kind="stable")[:, : rows.shape[1] - 1]
    return np.take_along_axis(rows, order, axis=1)


@checked
def expansion_data(
    expander: Model | Expander,
    texts: Sequence[str],
    documents: Sequence[str],
    k: Count = 100,
    *,
    name: str = "",
    itself: np.ndarray | None = None,
    vectors: csr_array | Exact | None = None,
    query_vectors: csr_array | None = None,
    ids: Sequence[str] | None = None,
    splitter: WordKind = "any",
) -> ExpansionData:
    """Expand m inputs and search the n documents with them, exactly, for `k` documents per input.

    Queries are searched as `vocable.search` does it: with the IDF of the collection, if the model asks for it.

    Args:
        expander: a model from `vocable.load`, or the result of `vocable.evaluation.expanders.open_expander` for the
            documents.
        texts: the m inputs.
        documents: the n documents, the collection.
        k: number of documents that each input retrieves.
        name: name of the expander.
        itself: [m], the rows of inputs that are documents: a document does not retrieve itself. (Its expansions do not
            appear in it, so it could only displace another document.)
        vectors, query_vectors: vectors of a model: the encoded documents [n, v], or an index of them in this order, and
            the queries [m, v], without the IDF of the collection. By default this function encodes them.
        ids: ids of the documents, which break ties of scores; by default their rows.
        splitter: the `words` of `input_terms`.

    Raises:
        ArgumentError: k below 1, or texts that the expander cannot expand.
        VectorsError: the shapes do not fit together.
    """
    texts, documents = as_texts(texts), as_texts(documents, "documents")
    if is_model(expander):
        if vectors is None or isinstance(vectors, csr_array):
            index: Exact = ExactIndex(encode(expander, documents) if vectors is None else vectors, ids)
        else:
            index = vectors
        counts = input_terms(expander, documents, words=splitter)
        if itself is not None:
            inputs, input_counts = index.get(itself), counts[itself]
        else:
            encoded = encode(expander, texts, role="query") if query_vectors is None else query_vectors
            inputs = as_searched(expander, encoded, index)
            input_counts = input_terms(expander, texts, words=splitter)
        searched = inputs
        surfaces, names, special = model_surfaces(expander), terms(expander), special_terms(expander)
    else:
        inputs, index = expander.expand(texts), expander.index
        language = expander.index.settings["language"]
        input_counts, counts = (count_texts(part, language, expander.vocabulary).counts for part in (texts, documents))
        searched = inputs[:, : len(expander.index.vocabulary)]  # no document has the later words
        names, special = [*expander.vocabulary], NO_COLUMNS
        surfaces = word_surfaces(names)
    rows = index.search(searched, k if itself is None else k + 1).rows
    if itself is not None:
        rows = without_itself(rows, itself)
    return ExpansionData(
        name=name,
        vectors=inputs,
        input_counts=input_counts,
        rows=rows,
        counts=counts,
        surfaces=surfaces,
        terms=names,
        special=special,
    )


def as_searched(model: Model, queries: csr_array, index: Exact) -> csr_array:
    """Multiply the weights of encoded queries [m, v] by their IDF in an index, as a search of the model does."""
    encoder = TextEncoder(model, "query")
    encoder.know_collection(index.document_frequency, len(index))
    return encoder.weighed(queries)


def stored_index(sources: Sources, model: Model, ids: Sequence[str], folder: Path) -> Exact:
    """Index the vectors of the texts with these n ids, in this order, in a new folder; read a shard at a time.

    Raises:
        VectorsError: the vectors are damaged, a model with another vocabulary made them, or a text has no vector.
    """
    save_exact(_stored_parts(sources, model, ids), folder)
    return load_exact(folder)


def stored_vectors(sources: Sources, model: Model, ids: Sequence[str]) -> csr_array:
    """Return the vectors [n, v] of the texts with these n ids, in memory; errors as in `stored_index`."""
    return joined(list(_stored_parts(sources, model, ids))).matrix


def _stored_parts(sources: Sources, model: Model, ids: Sequence[str]) -> Iterator[StoredVectors]:
    """Yield the vectors of texts in parts, in the order of their ids, from folders or shards of `vocable encode`."""
    shards, places = read_shards(sources), ", ".join(map(str, places_of(sources)))
    first = next(shards)
    if first.meta.vocabulary != vocabulary_fingerprint(terms(model)):
        raise VectorsError(f"{places}: made by {first.meta.model}, which has another vocabulary")
    if model_name(model) == first.meta.model:
        check_unchanged(encoding_model(model), first.meta, places, "encode the texts again")
    rows = StoredRows(chain([first], shards))
    for start in range(0, max(1, len(ids)), STORED_PART):
        part = ids[start : start + STORED_PART]
        if (vectors := rows.take(part)) is None:
            raise VectorsError(f"{places}: no vector of the text {rows.missing(part)!r}")
        yield vectors
    rows.rest()


def word_surfaces(words: Sequence[str]) -> list[Surface]:
    """Return the surfaces of terms that are words."""
    return [Surface(word, True, "word" if any(map(str.isalnum, word)) else "punctuation") for word in words]


def model_surfaces(model: Model) -> list[Surface]:
    """Return the surfaces of the v output terms; a column without a token is special."""
    encoding, names = encoding_model(model), terms(model)
    if encoding.own_terms is not None:
        return word_surfaces(names)
    surfaces = encoding.tokenization.surfaces()[: len(names)]
    surfaces += [None] * (len(names) - len(surfaces))
    return [surface or Surface(name, False, "special") for surface, name in zip(surfaces, names, strict=True)]


def output_rows(model: Model) -> np.ndarray | None:
    """Return the rows [v, d] of the output layer, float32; None for an exported model, which hides them."""
    if isinstance(model, GraphModel):
        return None
    from vocable.torch_models.fuse import main_transformer
    from vocable.torch_models.output_vocabulary import output_layer

    return output_layer(main_transformer(model).auto_model).weight.detach().float().cpu().numpy()


TERM_KINDS = ["proper name", "stop word", "punctuation", "non-Latin", "tokenizer artefact"]  # in the order of tables
TERM_KINDS += ["sub-word", "number", "other word"]
STOP_WORDS = frozenset(word for word in STOPWORDS_EN_PLUS if len(word) > 1) | {"a", "i"}
ARTEFACT = re.compile(r"\[unused\d+\]|<.*>|\[[A-Z]+\]", re.DOTALL)
SENTENCE_BREAK = re.compile(r"(?<=[.!?:])\s+|\n+")
LETTERS = re.compile(r"[^\W\d_]{2,}")


def term_kind(surface: Surface, names: Collection[str] = ()) -> str:
    """Return the first of these kinds that fits a term (Polyakov et al. 2026, table 3, judged by eye).

    | kind | its terms |
    |:--|:--|
    | tokenizer artefact | special and unused tokens, partial characters, single Latin letters other than a and I |
    | punctuation | no letter and no digit |
    | non-Latin | a letter of another script |
    | stop word | the English list of bm25s (`STOPWORDS_EN_PLUS`), in any case |
    | sub-word | continuations of words |
    | number | digits and no letter |
    | proper name | one of `names` |
    | other word | all others |

    `names` are in lower case, from `proper_names`.

    >>> kinds = [term_kind(Surface(text, True, "word"), {"edmund"}) for text in ("Edmund", "She", "б", "1985", "D")]
    >>> kinds, term_kind(Surface("ing", False, "continuation"))
    (['proper name', 'stop word', 'non-Latin', 'number', 'tokenizer artefact'], 'sub-word')
    """
    text, letters = surface.text, [character for character in surface.text if character.isalpha()]
    if surface.kind in ("special", "bytes") or ARTEFACT.fullmatch(text):
        return "tokenizer artefact"
    if not any(character.isalnum() for character in text):
        return "punctuation"
    if not all(unicodedata.name(letter, "").startswith("LATIN") for letter in letters):
        return "non-Latin"
    if surface.kind != "word":
        return "sub-word"
    if text.lower() in STOP_WORDS:
        return "stop word"
    if not letters:
        return "number"
    if len(text) == 1:
        return "tokenizer artefact"
    return "proper name" if text.lower() in names else "other word"


def proper_names(texts: Iterable[str], *, share: float = 0.8, least: int = 3) -> set[str]:
    """Return the words, in lower case, that texts capitalize where other words are in lower case.

    An occurrence counts if it is not the first word of its sentence and at least half of the sentence's other words
    begin with a lower-case letter: headings and texts in capitals are no evidence. A word is a proper name if at least
    `least` occurrences count, and if a `share` of them begins with a capital letter followed by lower-case letters (an
    acronym does not).

    >>> sorted(proper_names(["We met Edmund. He and Edmund met us.", "So did Edmund and Will: we will."] * 3))
    ['edmund']
    """
    seen, capital = Counter[str](), Counter[str]()
    for text in iter_texts(texts):
        for sentence in SENTENCE_BREAK.split(text):
            _, *words = LETTERS.findall(sentence) or [""]
            if 2 * sum(word[0].islower() for word in words) < len(words):
                continue
            for word in words:
                seen[word.lower()] += 1
                capital[word.lower()] += word.istitle()
    return {word for word, count in seen.items() if count >= least and capital[word] >= share * count}
