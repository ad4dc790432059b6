"""Phrases in texts: words in their order, as they are spelled.

Words are in lower case and in Unicode's composed form, as BM25 reads them, but neither stemmed nor left out: "to be or
not to be" is a phrase, "cat" is not "cats" and "resume" is not "résumé". Punctuation does not count. In scripts without
spaces each character is a word.
"""

from __future__ import annotations

from functools import cached_property

from vocable.language.words import words


class SpelledText:
    """A text, which is cut into words when a phrase needs them.

    >>> text = SpelledText("import os; os.path.join(a, b)")
    >>> [text.has(SpelledText(phrase)) for phrase in ("os.path.join", "Join (A)", "path.jo", "join os")]
    [True, True, False, False]
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def has(self, phrase: SpelledText) -> bool:
        """Return whether the text contains the words of a phrase in their order."""
        lower = self._text.lower() if self._text.isascii() else ""
        if lower and not all(word in lower for word in phrase.lines.split()):  # there is no need to cut the text
            return False
        return phrase.lines in self.lines

    @cached_property
    def lines(self) -> str:
        """The words, each between line ends."""
        return "\n".join(["", *words(self._text, letters=True, pairs=False), ""])
