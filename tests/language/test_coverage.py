"""Coverage of the words of texts by a vocabulary, and the warning of texts in another language."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from vocable.collection.index import index
from vocable.data import pydocs
from vocable.encoding.load import load_encoder
from vocable.language.coverage import GUIDE, Coverage, foreign

ENGLISH = "Press the red button twice, says Wojciech Szczęsny. The machine stops at once, and the lamp goes out."
CODE = "def read_all(path, max_size=2**20): return [open_file(one).readline() for one in path.iterdir()]"
GERMAN = "Drücken Sie zweimal auf den roten Knopf. Die Maschine hält sofort an, und die Lampe erlischt."
THAI = "กดปุ่มสีแดงสองครั้งแล้วเครื่องจะหยุดทันที"
CHINESE = "按两次红色按钮。机器会立即停止，灯也会熄灭。"


def covered(*texts: str) -> Coverage:
    return Coverage.of(texts, load_encoder("vocable-mini").tokenization)


def test_counts_by_hand() -> None:
    """A word by itself; names in programs in their parts; numbers are none; a character of Thai is a word."""
    ids = {" The": [1], " max": [1], " size": [2], " Knopf": [3, 4], " ☃": [0]}

    class Tokens:
        unknown = 0

        def ids(self, texts: Sequence[str]) -> list[list[int]]:
            return [ids.get(text, [0]) for text in texts]

    tokens: Any = Tokens()
    found = Coverage.of(texts := ["The The max_size2 7 ☃", "Knopf กด"], tokens)
    assert found == Coverage(words=2 + 2 + 1 + 2, tokens=2 + 2 + 2 + 1, unknown=1, characters=2)
    assert found.with_sample(texts, tokens) == Coverage(14, 14, 2, 4)
    assert Coverage().with_sample(["The"] * 100, tokens) == Coverage(25, 25)  # one in four
    assert found.with_sample(texts, None) == found
    assert (Coverage().tokens_per_word, Coverage().unknown_share) == (0, 0)


@pytest.mark.parametrize("text", [ENGLISH, CODE, "7 8 9", ""])
def test_english_and_code_are_covered(text: str) -> None:
    found = covered(text)
    assert not foreign(found.tokens_per_word, found.unknown_share)


def test_the_built_in_documentation_is_covered() -> None:
    found = covered(*(one.full for one in list(pydocs.documents())[::50]))
    assert found.tokens_per_word < 1.4


@pytest.mark.parametrize(
    ("text", "says"), [(GERMAN, "1.9 tokens per word, 0% unknown"), (THAI, "unknown"), (CHINESE, "unknown")]
)
def test_other_languages_are_not(text: str, says: str) -> None:
    found = covered(text)
    assert says in foreign(found.tokens_per_word, found.unknown_share)


@pytest.mark.parametrize(("bm25", "advice"), [(True, "rely on BM25"), (False, "--language")])
@pytest.mark.parametrize(("texts", "warned"), [([THAI], True), ([GERMAN, GERMAN], True), ([ENGLISH, CODE], False)])
def test_an_index_warns_in_one_line(
    texts: list[str], warned: bool, bm25: bool, advice: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": str(n), "text": text}) + "\n" for n, text in enumerate(texts)))
    with caplog.at_level(logging.WARNING, logger="vocable"):
        index("vocable-mini", corpus, tmp_path / "index", bm25=bm25, no_dense=True).close()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == warned
    for line in said:
        assert line.startswith("vocable-mini: ")
        unit = "character" if texts == [THAI] else "word"
        assert all(word in line for word in (f"tokens per {unit}", advice, GUIDE))
        assert len(line) < 220
