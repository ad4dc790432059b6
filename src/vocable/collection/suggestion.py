"""Words of a query that no document has, and suggestions for them from the words of a collection's documents."""

from __future__ import annotations

from unicodedata import category

import numpy as np

from vocable.collection.collection import Collection
from vocable.core.cancelling import stop_if_cancelled
from vocable.core.tables import counted
from vocable.encoding.tokens import WORD_MARKS
from vocable.explanation.highlights import MARKED_CHARACTERS
from vocable.language.languages import language_of
from vocable.language.suggestions import DOCUMENTS_READ, edits_of, likely_stems, nearest
from vocable.language.words import stemmed, unspaced, word_spans, words

READ_WORDS = 500  # words of a query that are looked up
NAMED_WORDS = 5  # unknown words that are named in a line, or get a suggestion: each takes milliseconds


def _are_unknown(collection: Collection, text: str) -> dict[tuple[int, int], bool]:
    """Return the places of the first words in a query, each with whether no document has the word, as BM25 compares it.

    The result is empty for a collection without BM25. Common words such as "how" and single letters are left out. A run
    of a script without spaces counts as one word, which is unknown if no document has any pair of its letters.
    """
    language = collection.settings.language
    common = language_of(language).common
    spans = word_spans(text)[:READ_WORDS]
    places = [(start, end) for start, end in spans if text[start:end].lower() not in common]
    if "bm25" not in collection.spaces or not places:
        return {}
    typed = [text[start:end] for start, end in places]
    unknown = np.diff(collection.store.lexicon.query_vectors(typed).indptr) == 0
    runs: dict[tuple[int, int], bool] = {}
    for (start, end), is_unknown, stems in zip(places, unknown.tolist(), stemmed(typed, language), strict=True):
        last = next(reversed(runs), (0, 0))
        if start < last[1]:  # names and pairs of letters overlap
            runs[last[0], max(end, last[1])] = runs.pop(last) and is_unknown
        elif stems and sum(category(letter)[0] != "M" for letter in text[start:end]) > 1:
            runs[start, end] = is_unknown
    return runs


def unknown_note(collection: Collection, text: str, *, guessing: bool) -> str | None:
    """Return a line about the words of a query that no document has; None without such words.

    With `guessing`, hits are by the model: if they are by pieces of unknown words alone, the line says so. An unknown
    word that is a term of the model is found by its expansion.
    """
    are_unknown = _are_unknown(collection, text)
    if not any(are_unknown.values()):
        return None
    typed = dict.fromkeys(text[start:end] for (start, end), is_unknown in are_unknown.items() if is_unknown)
    # Hits are guesses if all words are unknown and no term of the model is a word of the query.
    terms = collection.models.loaded.columns if guessing and all(are_unknown.values()) else {}
    guesses = terms and not any(mark + word.lower() in terms for word in typed for mark in ("", *WORD_MARKS))
    # Name the first words, and count the others.
    more = f" and {counted(len(typed) - NAMED_WORDS, 'other')}" if len(typed) > NAMED_WORDS else ""
    words = f"word{'s' if len(typed) > 1 else ''} {', '.join([*typed][:NAMED_WORDS])}{more}"
    pieces = f": these hits are guesses by pieces of {'them' if len(typed) > 1 else 'it'}" if guesses else ""
    return f"no document has the {words}{pieces}"


def suggestion(collection: Collection, text: str) -> str | None:
    """Return a query with words that no document has replaced by the nearest known words; None without such words.

    The first `NAMED_WORDS` words that no document has are replaced, wherever they stand.
    A collection on a server suggests nothing, since it has only hashes of words. A word that is a term of the model is
    right, if the model is loaded already; this function never loads a model.
    """
    are_unknown, loaded = _are_unknown(collection, text), "loaded" in vars(collection.models)
    known = collection.models.loaded.columns if loaded and any(are_unknown.values()) else {}  # takes milliseconds
    replaced, done, nearest_words = "", 0, dict[str, str | None]()
    for (start, end), is_unknown in are_unknown.items():
        word = text[start:end]
        right = any(mark + word.lower() in known for mark in ("", *WORD_MARKS))
        if not is_unknown or unspaced(word) or right or not edits_of(word):  # an edit of two letters is another word
            continue
        if len(words(word)) != 1:  # a name with signs, such as 1804.10959
            continue
        if word not in nearest_words and len(nearest_words) < NAMED_WORDS:
            stop_if_cancelled()
            nearest_words[word] = _nearest(collection, word)
        if instead := nearest_words.get(word):
            replaced, done = replaced + text[done:start] + instead, end
    return replaced + text[done:] if replaced else None


def _nearest(collection: Collection, word: str) -> str | None:
    """Return the word, in lower case, that is nearest to an unknown word in the documents of the likely stems.

    An index has only stems, which are not for readers: the words come from the texts of documents.
    """
    language = collection.settings.language
    [[stem, *_]], [typed] = stemmed([word], language), words(word)
    edits, lexicon = edits_of(typed), collection.store.lexicon
    counts = dict(lexicon.words_like(typed[:2], max(3, len(typed) // 2 - 1), len(typed) + edits))
    if not (stems := likely_stems(typed, stem, counts)):
        return None
    best = collection.searcher.search_space(lexicon.query_vectors(stems, stems=True), DOCUMENTS_READ, space="bm25")
    names = dict.fromkeys(name for number in range(len(stems)) for name, _ in best.hits(number))
    documents = [document for document in collection.documents([*names]) if document is not None]
    written = {word for document in documents for word in words(document.full[:MARKED_CHARACTERS])}
    near = sorted(word for word in written if word[0] in typed[:2] and abs(len(word) - len(typed)) <= edits)
    pairs = zip(near, stemmed(near, language), strict=True)
    return nearest(typed, [(word, counts.get(stems[0], 0)) for word, stems in pairs if stems])  # without stop words
