"""Words of an output vocabulary among tokens, against a search by characters, in three tokenizer families."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from vocable.adapt.expand_vocabulary import frequent_words
from vocable.encoding.terms import Word, splitter
from vocable.errors import DataError
from vocable.training.pretraining.masking import CONTINUES, NO_WORD
from vocable.training.pretraining.windows import SpanFinder, WordFinder, write_windows

FAMILIES = ["wordpiece", "byte-level", "unigram"]
ODD = ["½ fox½", "don't read-books", "re\u0301sume\u0301 naïve हिन्दी। 中国", "fox  the\tfox", "ﬁne [SEP] fox"]


def slow_reference(
    tokenizer: PreTrainedTokenizerFast, terms: list[str], text: str, length: int
) -> tuple[list[list[int]], int]:
    """Character by character: a word is whole if its characters' tokens have no others and lie in one window."""
    encoded = tokenizer(
        text, truncation=True, max_length=length, return_overflowing_tokens=True, return_offsets_mapping=True
    )
    labels = [[NO_WORD] * len(ids) for ids in encoded["input_ids"]]
    owners: list[list[tuple[int, int]]] = [[] for _ in text]  # the tokens of each character
    for window, pairs in enumerate(encoded["offset_mapping"]):
        for place, (start, end) in enumerate(pairs):
            token = tokenizer.convert_ids_to_tokens(encoded["input_ids"][window][place])
            for character in range(start, end):
                if token not in ("Ġ", "▁") and not text[character].isspace():
                    owners[character].append((window, place))
    words, cut = list(splitter(tokenizer)(text)), 0
    for i, (word, start, end) in enumerate(words):
        if word not in terms:
            continue
        tokens = sorted({token for character in range(start, end) for token in owners[character]})
        inside = {
            token for token in tokens if any(token in owners[c] for c in range(len(text)) if not start <= c < end)
        }
        alone = all(other.end <= start or other.start >= end for k, other in enumerate(words) if k != i)
        windows = {window for window, _ in tokens}
        if not tokens or inside or not alone or len(windows) > 1:
            cut += 1
            continue
        for window, place in tokens:
            labels[window][place] = CONTINUES
        labels[tokens[0][0]][tokens[0][1]] = terms.index(word)
    return labels, cut


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [9, 20])
def test_words_are_found_by_their_characters(
    tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str], family: str, length: int
) -> None:
    tokenizer, rng = tokenizers[family], random.Random(0)
    terms = frequent_words([*toy_texts, *ODD], tokenizer, split=splitter(tokenizer)).words[::2]
    split = splitter(tokenizer)
    whole = several = cuts = 0
    for text in [*toy_texts[:25], *(" ".join(rng.sample([*toy_texts, *ODD], 3)) for _ in range(25)), *ODD]:
        finder = WordFinder(terms, tokenizer, split)
        encoded = tokenizer(
            text, truncation=True, max_length=length, return_overflowing_tokens=True, return_offsets_mapping=True
        )
        found = finder(text, encoded["input_ids"], encoded["offset_mapping"])
        labels, cut = slow_reference(tokenizer, terms, text, length)
        assert [window.tolist() for window in found] == labels
        assert finder.passed_over == cut
        whole, cuts = whole + sum((window >= 0).sum() for window in found), cuts + cut
        several += sum((window == CONTINUES).sum() for window in found)
    assert whole > 100
    assert several > 20
    assert cuts > 0


def test_a_tokenizer_that_cuts_across_words(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    tokenizer = tokenizers["wordpiece"]

    def halves(text: str) -> list[Word]:  # a splitter that cuts where the tokenizer does not
        return [Word("th", 0, 2), Word("fox", 4, 7)]

    finder = WordFinder(["th", "fox"], tokenizer, halves)
    encoded = tokenizer("the fox", return_offsets_mapping=True)
    [found] = finder("the fox", [encoded["input_ids"]], [encoded["offset_mapping"]])
    assert found.tolist() == [NO_WORD, NO_WORD, 1, NO_WORD]
    assert finder.passed_over == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_carry_the_words_of_their_tokens(
    tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str], tmp_path: Path, family: str
) -> None:
    tokenizer, texts = tokenizers[family], [*toy_texts[:40], "?!", " ".join(toy_texts[:9])]
    terms = frequent_words(toy_texts, tokenizer, size=30).words
    finder = WordFinder(terms, tokenizer, splitter(tokenizer))
    windows = write_windows(tmp_path / "a", texts, tokenizer, 24, finder)
    plain = write_windows(tmp_path / "b", texts, tokenizer, 24)
    assert plain.counts is plain.labels(0) is None
    assert windows.counts is not None
    assert windows.counts.without == len(plain) - len(windows) >= 1
    begun = 0
    for i in range(len(windows)):
        words = windows.labels(i)
        assert words is not None
        assert len(words) == len(windows[i])
        begun += int((words >= 0).sum())
        assert (words >= 0).any()
        place = int(np.flatnonzero(words >= 0)[0])
        end = place + 1
        while words[end] == CONTINUES:
            end += 1
        spelled = tokenizer.decode(windows[i][place:end]).strip().replace(" ", "")
        assert spelled == terms[int(words[place])]
    assert windows.counts.words == begun
    again = write_windows(tmp_path / "a", [], tokenizer, 24, finder)
    assert again.counts == windows.counts
    assert np.array_equal(again.labels(3), windows.labels(3))  # type: ignore[arg-type]


def test_a_corpus_without_a_word_is_refused(tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path: Path) -> None:
    tokenizer = tokenizers["wordpiece"]
    finder = WordFinder(["owl"], tokenizer, splitter(tokenizer))
    with pytest.raises(DataError):
        write_windows(tmp_path, ["the fox reads"], tokenizer, 24, finder)


def tokens_of_terms(terms: list[str], tokenizer: PreTrainedTokenizerFast) -> list[list[int]]:
    """The tokens of each term, one term at a time; none for a special term."""
    found = []
    for term in terms:
        ways = [term[2:], " " + term[2:]] if term.startswith("##") and len(term) > 2 else [" " + term, term]
        encoded = [tokenizer.encode(way, add_special_tokens=False) for way in ways]
        usable = [ids for ids in encoded if 0 < len(ids) <= 8 and tokenizer.unk_token_id not in ids]
        found.append([] if term.startswith("[") or not usable else usable[0])
    return found


def spans_by_hand(ids: list[int], terms: list[list[int]], special: list[int]) -> list[tuple[int, int, int]]:
    """The spans (first, last + 1, term) from left to right: of all terms whose tokens stand there, the longest one.

    Terms later in the vocabulary take the place of earlier ones of the same tokens.
    """
    found, place = [], 0
    while place < len(ids):
        there = [
            (len(term), number)
            for number, term in enumerate(terms)
            if term and ids[place : place + len(term)] == term and not set(term) & set(special)
        ]
        length, number = max(there, default=(0, -1))
        found += [(place, place + length, number)] if length else []
        place += length or 1
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_spans_are_those_of_the_authors_by_ids(
    tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str], family: str
) -> None:
    tokenizer, target = tokenizers[family], tokenizers["wordpiece"]
    terms = target.convert_ids_to_tokens(range(len(target)))
    known, spans = tokens_of_terms(terms, tokenizer), SpanFinder(terms, tokenizer)
    tokens, labelled, several, unlabelled = 0, 0, 0, 0
    for text in [*toy_texts, *ODD]:
        ids = tokenizer(text)["input_ids"]
        [labels] = spans(text, [ids], [[]])
        expected = np.full(len(ids), NO_WORD)
        for first, end, term in spans_by_hand(ids, known, tokenizer.all_special_ids):
            expected[first:end] = CONTINUES
            expected[first] = term
            several += end - first > 1
        assert labels.tolist() == expected.tolist(), text
        tokens, labelled = tokens + len(ids), labelled + int((expected != NO_WORD).sum())
        ordinary = ~np.isin(ids, tokenizer.all_special_ids)
        unlabelled += int(((expected == NO_WORD) & ordinary).sum())
    assert spans.passed_over == unlabelled
    assert tokens > 2000
    assert labelled > 500
    assert (several > 100) is (family != "wordpiece")  # whose own tokens these terms are


def test_cased_words_are_no_terms_and_a_comma_is_a_continuation(
    tokenizers: dict[str, PreTrainedTokenizerFast],
) -> None:
    tokenizer = tokenizers["byte-level"]
    terms = ["the", ",", "##,", "##the"]
    [labels] = SpanFinder(terms, tokenizer)("", [tokenizer("a the, The", add_special_tokens=False)["input_ids"]], [[]])
    assert [terms[number] for number in labels[labels >= 0]] == ["the", "##,"]


def test_spans_end_at_the_edge_of_a_window(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    tokenizer = tokenizers["byte-level"]
    ids = tokenizer("xylo", add_special_tokens=False)["input_ids"]
    assert 2 <= len(ids) <= 8
    finder = SpanFinder(["##xylo"], tokenizer)
    [whole] = finder("", [ids], [[]])
    assert whole.tolist() == [0] + [CONTINUES] * (len(ids) - 1)
    halves = finder("", [ids[:1], ids[1:]], [[], []])
    assert np.concatenate(halves).tolist() == [NO_WORD] * len(ids)
    assert finder.passed_over == len(ids)
