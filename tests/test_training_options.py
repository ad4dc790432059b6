"""Options of the sources besides the documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from vocable.errors import ArgumentError, DataError
from vocable.training_options import TuningSources
from vocable.tuning.exam import read_asked
from vocable.tuning.tune import tune


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"judgments": "qrels.tsv"}, "`judgments` needs `queries`"),
        ({"minutes": 0}, "minutes"),
        ({"minutes": float("nan")}, "minutes"),
        ({"seed": -1}, "seed"),
        ({"teachers": ["m"]}, "teachers"),
        ({"teacher": "m"}, "teacher"),
    ],
)
def test_options_that_cannot_be_are_known_at_once(options: dict, says: str, tmp_path: Path) -> None:
    with pytest.raises((ArgumentError, TypeError), match=says):
        tune("/no/such/model", "/no/such/corpus", tmp_path / "out", **options)
    assert not [*tmp_path.iterdir()]


def test_judgments_of_no_searched_document_are_an_error(tmp_path: Path) -> None:
    queries, judgments = tmp_path / "queries.jsonl", tmp_path / "qrels.tsv"
    queries.write_text('{"_id": "q1", "text": "a lamp"}\n', encoding="utf-8")
    judgments.write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t1\n", encoding="utf-8")
    sources: TuningSources = {"queries": str(queries), "judgments": str(judgments)}
    with pytest.raises(DataError):
        read_asked(sources, {"d3"})
    assert [query.id for query in read_asked(sources, {"d1"}).judged] == ["q1"]
