"""The words of an output vocabulary: the most frequent of a corpus, or a list of one's own.

Paper 004, appendix B.1: the words are the most frequent unigrams, and each must be tokenizable.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from vocable.adapt.subtokens import cut_words
from vocable.encoder.splitters import Splitter, splitter
from vocable.errors import ArgumentError, DataError, check_texts

BATCH = 10_000  # words cut at a time
SHOWN = 3  # faults that a message names


class FrequentWords(NamedTuple):
    """The words chosen from a corpus, the most frequent first, and what they are of it."""

    words: list[str]
    covered: float  # share of the corpus' words, counted with repetition, that are among them
    tokens_per_word: float  # mean over their occurrences in the corpus
    passed_over: int  # different words, frequent enough, that the tokenizer cannot spell


def count_unigrams(texts: Iterable[str], split: Splitter) -> Counter[str]:
    """How often the texts, which are read once, have each word of the splitter; the distinct words are held."""
    check_texts(texts)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word.text for word in split(text))
    return counts


def frequent_words(
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    *,
    size: int = 100_000,
    min_count: int = 1,
    split: Splitter | None = None,
) -> FrequentWords:
    """The `size` most frequent words of `texts`, or as many as there are.

    Words that are equally frequent come in the order of their characters, so that the order of the texts does not
    matter. Those that the tokenizer cannot spell are passed over.

    Args:
        texts: the corpus, read once.
        tokenizer: of the model that is to get the words; they are normalized as it normalizes.
        size: how many words.
        min_count: leave out what is seen less often.
        split: what a word is; by default the splitter "words" (`vocable.encoder.splitters`).

    Raises:
        ArgumentError: a size or a count below 1.
        DataError: the corpus has no word that is frequent enough and can be spelled.
    """
    for name, value in (("size", size), ("min_count", min_count)):
        if value < 1:
            raise ArgumentError(f"{name} must be at least 1, not {value}")
    counts = count_unigrams(texts, split or splitter(tokenizer))
    often = [(-count, word) for word, count in counts.items() if count >= min_count]
    words, tokens, passed_over = [], 0, 0
    for word, pieces in _cut(tokenizer, [word for _, word in sorted(often)]):
        if not pieces:
            passed_over += 1
            continue
        words.append(word)
        tokens += counts[word] * len(pieces)
        if len(words) == size:
            break
    if not words:
        raise DataError(f"the texts have no word that is seen {min_count} times and that the tokenizer can spell")
    occurrences = sum(counts[word] for word in words)
    return FrequentWords(words, occurrences / counts.total(), tokens / occurrences, passed_over)


def read_words(path: str | Path) -> list[str]:
    """The words in a file, one a line: as they stand, or in a .jsonl file as JSON strings, which can hold anything.

    Nothing but the end of the line is taken off. What is no term is for `expand` to refuse.

    Raises:
        DataError: there is no such file, it is not UTF-8, or a line of a .jsonl file is no JSON string.
    """
    place = str(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(error.strerror or str(error), place=place) from error
    except UnicodeDecodeError as error:
        raise DataError("not UTF-8", place=place, line=1 + error.object[: error.start].count(b"\n")) from error
    # Not str.splitlines: it also cuts at characters that a word may have.
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    if Path(path).suffix != ".jsonl":
        return lines
    return [_json_string(line, place, number) for number, line in enumerate(lines, start=1)]


def check_words(words: Sequence[str], pieces: Sequence[Sequence[int]], normalize: Callable[[str], str]) -> None:
    """Refuse words that cannot be terms.

    Args:
        words: all of them.
        pieces: the tokens that spell each.
        normalize: what the tokenizer makes of a word before it cuts it.

    Raises:
        ArgumentError: a word that is empty, there twice, the same as another to the tokenizer, or cannot be spelled;
            with the numbers of the first few, counted from 1.
    """
    faults = [f"line {number}: {fault}" for number, fault in _faults(words, pieces, normalize)]
    if faults:
        more = f"; and {len(faults) - SHOWN:,} more" if len(faults) > SHOWN else ""
        raise ArgumentError(f"not every word can be a term: {'; '.join(faults[:SHOWN])}{more}")


def _faults(
    words: Sequence[str], pieces: Sequence[Sequence[int]], normalize: Callable[[str], str]
) -> Iterator[tuple[int, str]]:
    first: dict[str, int] = {}
    for number, (word, ids) in enumerate(zip(words, pieces, strict=True), start=1):
        if not word:
            yield number, "an empty string"
        elif not ids:
            yield number, f"{word!r} is nothing or unknown to the tokenizer"
        elif (before := first.setdefault(normalize(word), number)) != number:
            same = "" if words[before - 1] == word else f" to the tokenizer, as {words[before - 1]!r},"
            yield number, f"{word!r} is there already{same} in line {before}"


def _cut(tokenizer: PreTrainedTokenizerBase, words: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
    """Words with their tokens, cut only as far as they are asked for."""
    rest = iter(words)
    while batch := list(islice(rest, BATCH)):
        yield from zip(batch, cut_words(tokenizer, batch), strict=True)


def _json_string(line: str, place: str, number: int) -> str:
    try:
        word = json.loads(line)
    except ValueError:
        word = None
    if not isinstance(word, str):
        raise DataError("a word in a .jsonl file is a JSON string, in quotes", place=place, line=number)
    return word
