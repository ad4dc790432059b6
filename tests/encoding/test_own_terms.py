"""The file of the terms of an output vocabulary: any term comes back, and each fault is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.encoding.own_terms import faults_of, read_terms, write_terms
from vocable.errors import DataError


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, unique=True))
def test_terms_come_back_with_all_their_characters(tmp_path_factory: pytest.TempPathFactory, terms: list[str]) -> None:
    path = tmp_path_factory.mktemp("terms") / "terms.jsonl"
    write_terms(path, terms)
    assert read_terms(path) == terms
    assert path.read_bytes().count(b"\n") == len(terms)


@pytest.mark.parametrize(
    ("content", "line", "fault"),
    [
        (b'"fox"\n"owl"\n"fox"\n', 3, "duplicate term 'fox', also number 1"),
        (b'"fox"\n""\n', 2, "an empty term"),
        (b'"fox"\nowl\n', 2, "a term is a JSON string"),
        (b'["fox"]\n', 1, "a term is a JSON string"),
        (b'"\\ud800"\n', 1, "a term is a JSON string"),
        (b'"\xff"\n', 1, "a term is a JSON string"),
        (b"[" * 100_000, 1, "a term is a JSON string"),
        (b'"fox"\n\n"owl"\n', 2, "a term is a JSON string"),
    ],
)
def test_a_bad_term_is_named_with_its_line(tmp_path: Path, content: bytes, line: int, fault: str) -> None:
    path = tmp_path / "terms.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_terms(path)
    assert str(caught.value).startswith(f"{path}:{line}: {fault}")


def test_every_bad_term_of_a_list_is_counted_from_one() -> None:
    assert [number for number, _ in faults_of(["a", "", "b", "a", "", "a"])] == [2, 4, 5, 6]
