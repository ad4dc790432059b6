from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from vocable.adapt.expand_vocabulary import check_words, frequent_words, read_words
from vocable.encoder.terms import Splitter, Word, normal_form, splitter
from vocable.errors import ArgumentError, DataError


@pytest.mark.parametrize("family", ["wordpiece", "byte-level", "unigram"])
@pytest.mark.parametrize(("size", "min_count"), [(10, 1), (1000, 40), (1000, 1)])
def test_the_words_are_the_most_frequent(
    tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str], family: str, size: int, min_count: int
) -> None:
    tokenizer = tokenizers[family]
    counts = Counter(word.text for text in toy_texts for word in splitter(tokenizer)(text))
    expected = sorted((word for word, n in counts.items() if n >= min_count), key=lambda word: (-counts[word], word))
    found = frequent_words(reversed(toy_texts), tokenizer, size=size, min_count=min_count)
    assert found.words == expected[:size]
    covered = sum(counts[word] for word in found.words)
    assert found.covered == pytest.approx(covered / counts.total())
    tokens = sum(
        counts[word] * sum(token not in ("▁", "Ġ") for token in tokenizer.tokenize(f" {word}")) for word in found.words
    )
    assert found.tokens_per_word == pytest.approx(tokens / covered)
    assert found.passed_over == 0


def test_what_the_tokenizer_cannot_spell_is_passed_over(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    found = frequent_words(["日本 日本 fox", "fox 日本 the"], tokenizers["wordpiece"], size=2)
    assert found.words == ["fox", "the"]
    assert found.passed_over == 2  # this tokenizer's words are single characters
    assert found.covered == pytest.approx(3 / 9)
    with pytest.raises(DataError, match="5 times"):
        frequent_words(["the fox"], tokenizers["wordpiece"], min_count=5)
    for bad in ({"size": 0}, {"min_count": 0}):
        with pytest.raises(ArgumentError, match="must be at least 1, not 0"):
            frequent_words(["the fox"], tokenizers["wordpiece"], **bad)


def test_a_splitter_of_one_s_own(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    pairs: Splitter = lambda text: [Word(text[i : i + 2], i, i + 2) for i in range(0, len(text) - 1, 2)]  # noqa: E731
    assert frequent_words(["foxfo"], tokenizers["wordpiece"], split=pairs).words == ["fo", "xf"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", b"fox\nU.S.\r\n it's\x0b \xc2\x85x", ["fox", "U.S.", " it's\x0b \x85x"]),
        ("a.txt", b"\xef\xbb\xbffox\n\nowl\n", ["fox", "", "owl"]),
        ("a.txt", b"", []),
        ("a.jsonl", b'"a\\nb"\n"\\u0000"\n', ["a\nb", "\0"]),
    ],
)
def test_a_file_has_a_word_a_line(tmp_path: Path, name: str, content: bytes, expected: list[str]) -> None:
    (tmp_path / name).write_bytes(content)
    assert read_words(tmp_path / name) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"fox\n\xff\n", r"a\.txt:2: not UTF-8$"),
        ("a.jsonl", b'"fox"\n7\n', r"a\.jsonl:2: a term is a JSON string, in quotes$"),
        ("a.jsonl", b"fox\n", r"a\.jsonl:1: a term"),
        (None, b"", r"a\.txt: No such file"),
    ],
)
def test_what_is_no_list_of_words_is_refused(tmp_path: Path, name: str | None, content: bytes, message: str) -> None:
    if name is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_words(tmp_path / (name or "a.txt"))


def test_faults_have_their_lines(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    normalize: Callable[[str], str] = normal_form(tokenizers["wordpiece"])
    words = ["fox", "", "the", "Fox", "fox", "☃", "owl"]
    pieces = [[1], [], [2], [1], [1], [], [3]]
    with pytest.raises(ArgumentError) as raised:
        check_words(words, pieces, normalize)
    assert str(raised.value) == (
        "not every word can be a term: line 2: an empty string; "
        "line 4: 'Fox' is a duplicate of 'fox' to the tokenizer, in line 1; "
        "line 5: 'fox' is a duplicate in line 1; and 1 more"
    )
    with pytest.raises(ArgumentError, match=r"line 1: '☃'"):
        check_words(["☃"], [[]], normalize)
    check_words(["fox", "the"], [[1], [2]], normalize)
