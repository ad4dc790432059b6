"""Wackiness in a model's own card: one table, and everything else as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder

from vocable.analysis.wackiness_report import BEGIN, END, HEADER, with_row, write_wackiness
from vocable.errors import ModelError

SETTINGS: dict[str, Any] = {
    "role": "query",
    "queries": "beir:/home/me/data/scifact",
    "corpus": "beir:/home/me/data/scifact",
    "limit": None,
    "k": 100,
    "idf": "log",
    "bins": 100,
    "vocabulary": False,
    "special": True,
    "words": "any",
}
FINDING = {"w_auc": 0.91234, "std": 0.0049, "scored_terms": 12345}
ROW = "| queries of scifact | scifact | k = 100, IDF log, 100 bins | 12,345 | 0.912 | 0.005 |"

cells = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="\\"), min_size=1)
rows = st.lists(cells, min_size=len(HEADER), max_size=len(HEADER))
cards = st.text(st.sampled_from("ab#|-\r\n ")).map(lambda text: f"---\nlicense: x\n---\n{text}")


def table(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")][2:]


def test_a_card_gets_the_table_and_keeps_the_rest(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_bytes("---\nlicense: apache-2.0\n---\r\n\n# Mon modèle\n".encode())
    assert write_wackiness(tmp_path, FINDING, SETTINGS) == card
    text = card.read_bytes().decode()
    assert text.startswith("---\nlicense: apache-2.0\n---\r\n\n# Mon modèle\n\n<!-- wackiness -->\n## Wackiness\n\n")
    assert table(text) == [ROW]
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_a_measurement_takes_the_place_of_the_same_one_alone(tmp_path: Path) -> None:
    write_wackiness(tmp_path, FINDING, SETTINGS)
    card = tmp_path / "README.md"
    card.write_text(card.read_text(encoding="utf-8") + "\n## Thanks\n", encoding="utf-8")
    documents = {"role": "document", "queries": None, "limit": 1000, "k": 10, "special": False, "vocabulary": True}
    write_wackiness(tmp_path, {"w_auc": None, "std": None, "scored_terms": 0}, SETTINGS | documents)
    write_wackiness(tmp_path, FINDING | {"w_auc": 0.5}, SETTINGS)
    text = card.read_text(encoding="utf-8")
    choices = "k = 10, IDF log, 100 bins, whole vocabulary, no special tokens"
    assert table(text) == [ROW.replace("0.912", "0.500"), f"| 1,000 documents | scifact | {choices} | 0 | – | – |"]
    assert text.endswith("\n<!-- end of wackiness -->\n\n## Thanks\n")
    assert text.count("## Wackiness") == 1


@given(cards, cards, st.lists(rows, min_size=1, max_size=4, unique_by=lambda row: tuple(row[:3])))
def test_whatever_else_is_there_stays(before: str, after: str, given_rows: list[list[str]]) -> None:
    text = with_row(before, given_rows[0])
    head = text[: text.index(BEGIN)]
    assert head.rstrip("\n") == before.rstrip("\n")
    text += after
    for row in [*given_rows[1:], given_rows[0]]:
        text = with_row(text, row)
        assert text.startswith(head + BEGIN)
        assert text.partition(END)[2] == "\n" + after
    section = text[text.index(BEGIN) : text.index(END)]
    assert table(section) == ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in given_rows]


def test_a_table_without_its_end_is_left_as_it_is() -> None:
    damaged = f"{BEGIN}\nmy own words\n"
    once = with_row(damaged, list("abcdef"))
    twice = with_row(once, list("ghijkl"))
    assert once.startswith(damaged)
    assert twice.startswith(damaged)
    assert table(twice) == ["| a | b | c | d | e | f |", "| g | h | i | j | k | l |"]


def test_the_host_library_keeps_it_with_the_model(toy_model: SparseEncoder, tmp_path: Path) -> None:
    toy_model.save_pretrained(str(tmp_path / "one"))
    before = (tmp_path / "one" / "README.md").read_text(encoding="utf-8")
    write_wackiness(tmp_path / "one", FINDING, SETTINGS)
    SparseEncoder(str(tmp_path / "one"), device="cpu").save_pretrained(str(tmp_path / "two"))
    text = (tmp_path / "two" / "README.md").read_text(encoding="utf-8")
    assert ROW in text
    assert text.splitlines()[0] == before.splitlines()[0] == "---"


def test_a_card_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no folder of a model"):
        write_wackiness(tmp_path / "none", FINDING, SETTINGS)
    (tmp_path / "README.md").write_bytes(b"\xff\xfe#")
    with pytest.raises(ModelError, match=r"README\.md: not UTF-8"):
        write_wackiness(tmp_path, FINDING, SETTINGS)
    assert (tmp_path / "README.md").read_bytes() == b"\xff\xfe#"
