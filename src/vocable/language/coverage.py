"""Coverage of the words of texts by a model's vocabulary, which reveals texts in a language unknown to the model."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vocable.encoding.protocol import Tokenization
from vocable.language.words import unspaced, words

logger = logging.getLogger(__name__)

SAMPLED_TEXTS = 32  # texts sampled from each part of a corpus
MOST_TOKENS_PER_WORD = 1.8  # English has 1.1 to 1.4 in an English vocabulary, Spanish 2.0, German 2.5
LARGEST_UNKNOWN = 0.1  # share of unknown tokens
GUIDE = "docs/guides/other-languages.md"
LETTERS_ONLY = re.compile(r"[^\W\d_]+")  # the parts of names in programs


class Coverage(NamedTuple):
    """Counts of the words of texts and of their tokens; in scripts without spaces, each character is a word."""

    words: int = 0
    tokens: int = 0
    unknown: int = 0  # tokens
    characters: int = 0  # words of scripts without spaces

    @classmethod
    def of(cls, texts: Iterable[str], tokenization: Tokenization) -> Coverage:
        """Count the words of texts, without digits, and their tokens; each word is tokenized by itself."""
        counts = Counter(
            part
            for text in texts
            for word in words(text, letters=True, cased=True)
            for part in (LETTERS_ONLY.findall(word) if word.isascii() else [word])
            if any(map(str.isalpha, part))
        )
        ids = tokenization.ids([f" {word}" for word in counts]) if counts else []
        unknown = -1 if tokenization.unknown is None else tokenization.unknown
        pairs = [*zip(counts.items(), ids, strict=True)]
        characters = sum(count * len(word) for word, count in counts.items() if unspaced(word))
        return cls(
            characters + sum(count for word, count in counts.items() if not unspaced(word)),
            sum(count * len(tokens) for (_, count), tokens in pairs),
            sum(count * tokens.count(unknown) for (_, count), tokens in pairs),
            characters,
        )

    def with_sample(self, texts: Sequence[str], tokenization: Tokenization | None) -> Coverage:
        """Add the counts of an even sample of the texts; without a tokenizer, return the counts unchanged."""
        if tokenization is None or not texts:
            return self
        sample = Coverage.of(texts[:: -(-len(texts) // SAMPLED_TEXTS)], tokenization)
        return Coverage(*(count + added for count, added in zip(self, sample, strict=True)))

    @property
    def tokens_per_word(self) -> float:
        """Tokens per word, 0 without words."""
        return self.tokens / max(1, self.words)

    @property
    def unit(self) -> str:
        """The unit of most of the words: word, or character."""
        return "character" if 2 * self.characters > self.words else "word"

    @property
    def unknown_share(self) -> float:
        """The share of the tokens that are unknown."""
        return self.unknown / max(1, self.tokens)

    @property
    def mostly_lost(self) -> bool:
        """True if the vocabulary lacks so many tokens that vectors carry little information."""
        return self.unknown_share > LARGEST_UNKNOWN


def foreign(tokens_per_word: float, unknown_share: float, unit: str = "word") -> str:
    """Return the figures of texts if they show another language than the vocabulary's, else "".

    >>> foreign(2.31, 0.0), foreign(1.43, 0.01)
    ('2.3 tokens per word, 0% unknown', '')
    """
    figures = f"{tokens_per_word:.1f} tokens per {unit}, {unknown_share:.0%} unknown"
    return figures if unknown_share > LARGEST_UNKNOWN or tokens_per_word > MOST_TOKENS_PER_WORD else ""


def warn_of_language(model: str, coverage: Coverage, bm25: bool) -> None:
    """Warn of texts in another language than the vocabulary's, with advice; `bm25` tells if the index has BM25."""
    if figures := foreign(coverage.tokens_per_word, coverage.unknown_share, coverage.unit):
        advice = "searches rely on BM25" if bm25 else "index with --language, or a multilingual model"
        message = "%s: its vocabulary does not know the words of these texts (%s): %s (%s)"
        logger.warning(message, model, figures, advice, GUIDE)
