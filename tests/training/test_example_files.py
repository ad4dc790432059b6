"""Files of examples that are written again: an interruption at each chunk, and what a repeated call finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data import Example, read_examples
from vocable.errors import ArgumentError, DataError, VectorsError
from vocable.training import example_files
from vocable.training.example_files import ExampleCounts, rewrite


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_files, "CHUNK", 3)


def examples_rewrite(count: int) -> list[Example]:
    return [Example(f"query {i}", f"positive {i}", (f"wrong {i}",)) for i in range(count)]


def run(
    given: Iterable[Example], output: Path, *, fail_at: int = 99, settings: dict[str, int] | None = None
) -> ExampleCounts:
    """Upper-case the queries and drop every fifth example; `fail_at` ends it in a chunk."""
    chunks = iter(range(99))

    def change(chunk: list[Example]) -> list[Example]:
        if next(chunks) == fail_at:
            raise RuntimeError("killed")
        return [one._replace(query=one.query.upper()) for one in chunk if int(one.query.split()[1]) % 5]

    return rewrite(lambda: given, output, settings or {"a": 1}, lambda work: change, title="test")


@pytest.mark.parametrize("fail_at", range(5))
def test_an_interrupted_run_goes_on(tmp_path: Path, fail_at: int) -> None:
    whole = run(examples_rewrite(14), tmp_path / "whole.jsonl")
    assert (whole.read, whole.written, whole.negatives) == (14, 11, 11)
    with pytest.raises(RuntimeError):
        run(examples_rewrite(14), tmp_path / "out.jsonl", fail_at=fail_at)
    assert not (tmp_path / "out.jsonl").exists()
    with (tmp_path / "out.jsonl.partial" / "lines.jsonl").open("ab") as file:
        file.write(b'{"query": "half a li')  # of a chunk that did not come to count
    assert run(examples_rewrite(14), tmp_path / "out.jsonl") == whole
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".out.jsonl.settings.json",
        ".whole.jsonl.settings.json",
        "out.jsonl",
        "whole.jsonl",
    ]
    queries = [one.query for one in read_examples(tmp_path / "out.jsonl")]
    assert queries == [f"QUERY {i}" for i in range(14) if i % 5]


# Readers compose characters.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip).map(partial(normalize, "NFC"))


NEGATIVES = st.lists(TEXT, max_size=2).map(tuple)


@given(st.lists(st.builds(Example, TEXT, TEXT, NEGATIVES, st.just(""), st.just(())), min_size=1, max_size=7))
def test_what_is_written_can_be_read(tmp_path_factory: pytest.TempPathFactory, given: list[Example]) -> None:
    output = tmp_path_factory.mktemp("round") / "out.jsonl"
    rewrite(lambda: given, output, {}, lambda work: list, title="test")
    assert [one._replace(source="") for one in read_examples(output)] == given


def test_another_run_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with pytest.raises(RuntimeError):
        run(examples_rewrite(14), output, fail_at=2)
    with pytest.raises(ArgumentError, match=r"out\.jsonl\.partial .*\(a\)"):
        run(examples_rewrite(14), output, settings={"a": 2})
    with pytest.raises(VectorsError, match=r"out\.jsonl\.partial"):
        run([*examples_rewrite(3), *examples_rewrite(11)], output)
    run(examples_rewrite(14), output)
    with pytest.raises(ArgumentError, match=r"out\.jsonl .*\(a\)"):
        run(examples_rewrite(14), output, settings={"a": 2})


def test_a_finished_run_repeated_counts_what_is_there(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    first = run(examples_rewrite(14), output)
    before = output.stat()
    assert run(examples_rewrite(14), output, fail_at=0).to_json() == first.to_json()
    assert (output.stat().st_ino, output.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    output.write_bytes(output.read_bytes().replace(b"QUERY 1", b"QUERY 9"))
    with pytest.raises(ArgumentError):
        run(examples_rewrite(14), output)


def test_mining_without_examples_is_refused(tmp_path: Path) -> None:
    def none() -> Iterator[Example]:
        yield from ()

    with pytest.raises(DataError):
        run(none(), tmp_path / "out.jsonl")
    assert not list(tmp_path.iterdir())
