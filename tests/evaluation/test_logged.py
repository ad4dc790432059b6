"""Test sets of logged searches: clicks on pages become judgments of the documents of an index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vocable as vo
from tests.cli.command_line import done, refused
from vocable.collection.collection import Collection
from vocable.data import BadLines
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.dataset import load_dataset
from vocable.evaluation.logged import logged_dataset

PARAGRAPH = " ".join(f"A paragraph of a section has {number} words." for number in range(20))
PAGES = {
    "guide/install.md": f"# Install\n\n{PARAGRAPH}\n\n## Linux\n\n{PARAGRAPH}\n",
    "guide/search.md": "# Search\n\nAsk a question.\n",
    "index.md": "# Start\n\nBegin here.\n",
}
LOG = """query,page,count
set up,https://example.org/guide/install/,3
set  up,/guide/install.html#linux,2
set up,guide/search.md,1
only gone,/gone/,9
ask,/guide/search/index.html,1
ask,/gone/too/,1
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logged")
    for name, text in PAGES.items():
        (folder / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "docs" / name).write_text(text, encoding="utf-8")
    vo.index("vocable-mini", folder / "docs", folder / "index", base_url="https://example.org", device="cpu").close()
    return folder


@pytest.fixture
def opened(place: Path) -> Iterator[Collection]:
    with vo.open_index(place / "index") as collection:
        yield collection


def write(folder: Path, text: str) -> str:
    (folder / "searches.csv").write_text(text, encoding="utf-8")
    return str(folder / "searches.csv")


def test_clicks_are_grades_and_equal_searches_one_query(
    opened: Collection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = write(tmp_path, LOG)
    dataset, unmatched = logged_dataset(log, opened, BadLines())
    assert [tuple(query) for query in dataset.queries] == [("q0", "set up"), ("q2", "ask")]  # rows of distinct searches
    assert {tuple(judgment[:3]) for judgment in dataset.judgments} == {
        ("q0", "guide/install.md#install", 3),
        ("q0", "guide/install.md#linux", 5),
        ("q0", "guide/search.md#search", 1),
        ("q2", "guide/search.md#search", 1),
    }
    assert unmatched == 2
    [line] = [record.getMessage() for record in caplog.records]
    assert line == f"{log}: 2 addresses of 6 without a page in the index: '/gone/', '/gone/too/'"
    # More searches at the end of the log change no id.
    longer, _ = logged_dataset(write(tmp_path, f"{LOG}begin,/,1\n"), opened, BadLines())
    assert [tuple(query) for query in longer.queries][:2] == [("q0", "set up"), ("q2", "ask")]


def test_the_command_writes_what_evaluate_reads(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, output = write(tmp_path, LOG), tmp_path / "testset"
    command = ["make-testset", log, "--index", place / "index", "-o", output]
    printed = done(capsys, *command, "--json", warning="/gone/too/")
    counts = {"queries": 2, "documents": 4, "levels": {}, "bad_lines": 0, "unmatched": 2}
    assert json.loads(printed) == {"output": str(output), **counts}
    assert "addresses without a page: 2" in done(capsys, *command, warning="/gone/")
    dataset = load_dataset(f"beir:{output}")
    assert [query.text for query in dataset.queries] == ["set up", "ask"]
    with vo.open_index(place / "index") as collection:
        assert list(dataset.documents) == list(collection.all_documents())
    values = json.loads(done(capsys, "evaluate", place / "index", "--dataset", f"beir:{output}", "-m", "R@3", "--json"))
    assert {system["name"] for system in values["systems"]} >= {"bm25", "sparse"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("query,page\nset up,/guide/install/\nset up\n", "searches.csv:3: "),
        ("query,page\nset up,/gone/\n", "'/gone/'"),
        ("query,page\n", "no search"),
    ],
)
def test_a_log_without_a_test_set_is_refused_and_nothing_written(
    text: str, reason: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(tmp_path, text)
    line = refused(capsys, "make-testset", log, "--index", place / "index", "-o", tmp_path / "testset")
    assert reason in line
    assert [path.name for path in tmp_path.iterdir()] == ["searches.csv"]
    with pytest.raises(DataError):
        logged_dataset(log, place / "index", BadLines())


def test_options_of_a_draw_exclude_an_index(place: Path, tmp_path: Path) -> None:
    log = write(tmp_path, LOG)
    given: dict[str, Any] = {"queries": 3, "seed": 1, "embedding": "some", "train_output": tmp_path / "rest.jsonl"}
    for name, value in given.items():
        with pytest.raises(ArgumentError) as error:
            vo.make_testset(log, tmp_path / "testset", index=str(place / "index"), **{name: value})
        assert str(error.value).startswith(f"{name} is for drawing")
