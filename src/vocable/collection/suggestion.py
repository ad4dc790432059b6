"""Suggestions for misspelt words of a query, from the words of a collection's documents."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from vocable.collection.collection import Collection
from vocable.encoding.tokens import WORD_MARKS
from vocable.explanation.highlights import MARKED_CHARACTERS
from vocable.language.suggestions import DOCUMENTS_READ, edits_of, likely_stems, nearest
from vocable.language.words import stemmed, unspaced, word_spans, words


def suggestion(collection: Collection, text: str) -> str | None:
    """Return a query with each word that no document has replaced by the nearest known word; None without such words.

    Only BM25 knows words, so a collection without BM25, or on a server, suggests nothing. A word that is a term of the
    model is right, if the model is loaded already; this function never loads a model.
    """
    places = [(start, end) for start, end in word_spans(text) if edits_of(text[start:end])]
    places = [(start, end) for start, end in places if not unspaced(text[start:end])]
    if "bm25" not in collection.spaces or collection.counts.hashed_words is not None or not places:
        return None
    typed, language = [text[start:end] for start, end in places], collection.settings.language
    unknown = (np.diff(collection.counts.lexicon.query_vectors(typed).indptr) == 0) & [
        bool(stems) for stems in stemmed(typed, language)
    ]
    replaced, done, loaded = "", 0, "loaded" in vars(collection.models)
    known = set(collection.models.terms) if unknown.any() and loaded else set[str]()
    for (start, end), word in ((places[at], typed[at]) for at in np.flatnonzero(unknown)):
        right = any(mark + word.lower() in known for mark in ("", *WORD_MARKS))
        if not right and (instead := _nearest(collection, word)):
            replaced, done = replaced + text[done:start] + instead, end
    return replaced + text[done:] if replaced else None


def _nearest(collection: Collection, word: str) -> str | None:
    """Return the word, in lower case, that is nearest to an unknown word in the documents of the likely stems.

    An index has only stems, which are not for readers: the words come from the texts of documents.
    """
    language = collection.settings.language
    [[stem]], [typed] = stemmed([word], language), words(word)
    edits, lexicon = edits_of(typed), cast(Any, collection.counts.lexicon)
    counts = dict(lexicon.words_like(typed[:2], max(3, len(typed) // 2 - 1), len(typed) + edits))
    if not (stems := likely_stems(typed, stem, counts)):
        return None
    best = collection.searcher.rank(lexicon.query_vectors(stems, stems=True), DOCUMENTS_READ, space="bm25")
    names = dict.fromkeys(name for number in range(len(stems)) for name, _ in best.hits(number))
    documents = [document for document in collection.documents([*names]) if document is not None]
    written = {word for document in documents for word in words(document.full[:MARKED_CHARACTERS])}
    near = sorted(word for word in written if word[0] in typed[:2] and abs(len(word) - len(typed)) <= edits)
    pairs = zip(near, stemmed(near, language), strict=True)
    return nearest(typed, [(word, counts.get(stems[0], 0)) for word, stems in pairs if stems])  # without stop words
