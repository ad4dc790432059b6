"""Words of an output vocabulary among tokens, against a search by characters, in three tokenizer families."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from vocable.adapt.expand_vocabulary import frequent_words
from vocable.encoder.terms import Word, splitter
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
        assert finder.cut == cut
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
    assert finder.cut == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_carry_the_words_of_their_tokens(
    tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str], tmp_path: Path, family: str
) -> None:
    tokenizer, texts = tokenizers[family], [*toy_texts[:40], "?!", " ".join(toy_texts[:9])]
    terms = frequent_words(toy_texts, tokenizer, size=30).words
    finder = WordFinder(terms, tokenizer, splitter(tokenizer))
    windows = write_windows(tmp_path / "a", texts, tokenizer, 24, finder)
    plain = write_windows(tmp_path / "b", texts, tokenizer, 24)
    assert plain.counts is plain.words(0) is None
    assert windows.counts is not None
    assert windows.counts.without == len(plain) - len(windows) >= 1
    begun = 0
    for i in range(len(windows)):
        words = windows.words(i)
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
    assert np.array_equal(again.words(3), windows.words(3))  # type: ignore[arg-type]


def test_a_corpus_without_a_word_is_refused(tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path: Path) -> None:
    tokenizer = tokenizers["wordpiece"]
    finder = WordFinder(["owl"], tokenizer, splitter(tokenizer))
    with pytest.raises(DataError, match="no text with a word of the output vocabulary"):
        write_windows(tmp_path, ["the fox reads"], tokenizer, 24, finder)


def spans_by_hand(
    text: str, finder: list[tuple[int, int]], spelled: dict[str, int], *, pieces: bool
) -> list[tuple[int, int, int]]:
    """The longest spans of up to eight tokens from left to right: (first, last, term), by comparing strings."""
    found, at = [], 0
    finder = [(start + len(text[start:end]) - len(text[start:end].lstrip()), end) for start, end in finder]
    while at < len(finder):
        best = None
        for last in range(at, min(at + 8, len(finder))):
            if any(finder[i][1] != finder[i + 1][0] for i in range(at, last)):
                break
            start, span = finder[at][0], text[finder[at][0] : finder[last][1]].lower()
            inside = start > 0 and text[start - 1].isalnum() and text[start].isalnum()
            for form in [f"##{span}"] if inside and pieces else [span] if inside or pieces else [f"Ġ{span}", span]:
                if form in spelled and span:
                    best = (at, last, spelled[form])
                    break
        found += [best] if best else []
        at = best[1] + 1 if best else at + 1
    return found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pieces", [True, False])
def test_the_longest_spans_that_spell_a_term(
    tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str], family: str, pieces: bool
) -> None:
    tokenizer = tokenizers[family]
    words = sorted({word.strip(".,?!():").lower() for text in toy_texts for word in text.split()} - {""})
    parts = [(word[:size], word[size:]) for word in words for size in range(1, len(word))]
    terms = [f"##{rest}" for _, rest in parts] + [start for start, _ in parts[::2]] + words[::3]
    if not pieces:
        terms = [term.removeprefix("##") if term.startswith("##") else f"Ġ{term}" for term in terms]
    terms = list(dict.fromkeys(terms))
    number = {term: i for i, term in reversed([*enumerate(terms)])}
    spans, several, continued = SpanFinder(terms, tokenizer), 0, 0
    for text in toy_texts[:60]:
        cut = tokenizer(text, return_offsets_mapping=True)
        [labels] = spans(text, [cut["input_ids"]], [cut["offset_mapping"]])
        spelling = [
            place
            for place, (start, end) in enumerate(cut["offset_mapping"])
            if text[start:end].strip() and tokenizer.convert_ids_to_tokens(cut["input_ids"][place]) not in ("Ġ", "▁")
        ]
        expected = np.full(len(cut["input_ids"]), NO_WORD)
        places = [cut["offset_mapping"][i] for i in spelling]
        for first, last, term in spans_by_hand(text, places, number, pieces=pieces):
            expected[spelling[first] : spelling[last] + 1] = CONTINUES
            expected[spelling[first]] = term
            several += last > first
            continued += terms[term].startswith("##") or (not pieces and not terms[term].startswith("Ġ"))
        assert labels.tolist() == expected.tolist(), text
    assert several > 20
    assert continued > 20
    assert spans.cut > 0


def test_spans_end_at_the_edge_of_a_window_and_at_white_space(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    tokenizer = tokenizers["wordpiece"]
    finder = SpanFinder(["books", "bo", "##oks", "aves"], tokenizer)
    text = "b o books"
    cut = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = cut["input_ids"], cut["offset_mapping"]
    [whole] = finder(text, [ids], [offsets])
    assert (whole >= 0).sum() == 1
    halves = finder(text, [ids[:1], ids[1:]], [offsets[:1], offsets[1:]])
    assert [len(half) for half in halves] == [1, len(ids) - 1]
