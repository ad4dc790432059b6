"""The result of a bake-off, made by hand: the order of the differing queries, times, sizes and notes."""

from __future__ import annotations

import numpy as np
from scipy.stats import ttest_1samp, ttest_rel

from tests.core.test_html import Cells
from vocable.data import Qrel, Query, ScoredDoc
from vocable.evaluation.bakeoff_report import BAKEOFF_MEASURES, DIFFERING, BakeOff, PageHit, SearchAnswers
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.quality import evaluate_run
from vocable.evaluation.significance import compare

QUERIES = [Query(f"q{number}", f"query {number} <b>") for number in range(25)]
RIGHT, WRONG = (
    PageHit("/right/", "The right page", "https://example.org/right/"),
    PageHit("/w/", "Wrong", "javascript:x"),
)


def made(ranks: list[int]) -> BakeOff:
    """A search that is always right, and one whose right page is at `ranks` (0: no hit)."""
    hits = {
        "first": [[RIGHT] for _ in ranks],
        "second": [[WRONG] * (rank - 1) + [RIGHT] if rank else [] for rank in ranks],
    }
    judged = Dataset("toy", [], QUERIES, [Qrel(query.id, RIGHT.page, 1) for query in QUERIES])
    evaluations = []
    for name, of in hits.items():
        run = [
            ScoredDoc(query.id, f"{hit.page}{place if hit is WRONG else ''}", -place)
            for query, found in zip(QUERIES, of, strict=True)
            for place, hit in enumerate(found)
        ]
        evaluations.append(evaluate_run(name, run, judged, BAKEOFF_MEASURES))
    answers = [
        SearchAnswers("first", hits["first"], np.array([1.0, 3.0, 8.0]), (2_500_000.0, "index")),
        SearchAnswers("second", hits["second"], None, (1234.0, "file"), unknown=7),
    ]
    return BakeOff("my-index", QUERIES, [[RIGHT]] * 25, answers, compare(evaluations), missing=1)


def test_the_largest_differences_come_first_and_equal_queries_not_at_all() -> None:
    result = made([1, 2, 0, 3, *[1] * 21])
    assert result.differing() == [2, 3, 1]
    assert len(made([0] * 25).differing()) == DIFFERING
    same = made([1] * 25)
    assert same.differing() == []
    assert "do not differ" in same.html()


def test_the_table_has_times_sizes_and_differences() -> None:
    result = made([1, 2, 0, 3, *[1] * 21])
    table = result.table()
    assert table.header == [
        "search",
        *[part for name in BAKEOFF_MEASURES for part in (name, "p")],
        "answer p50 ms",
        "size",
    ]
    first, second = ([*[1.0] * 25], [1, 0.5, 0, 1 / 3, *[1] * 21])
    half = np.mean(second) - ttest_1samp(second, 0).confidence_interval(0.95).low
    p = ttest_rel(first, second).pvalue
    assert table.rows[0][5:7] == ["1.000 ±0.000", "–"]
    assert table.rows[1][5:7] == [f"{np.mean(second):.3f} ±{half:.3f}", f"{p:.3f}"]  # RR@10
    assert [row[-2:] for row in table.rows] == [
        ["3.00", "index 2.50 MB"],
        ["–", "file 1.23 kB"],
    ]
    assert "\\x" not in str(table)  # nothing that a terminal would not show
    change = np.array([0, 1 / np.log2(3) - 1, -1, -0.5, *[0] * 21])
    assert any(line.startswith(f"second against first: nDCG@10 {change.mean():+.3f} [") for line in table.notes)
    assert "second: 7 hits that are no page of the index, as misses" in table.notes
    assert "1 judged document not in the index, which no search finds" in table.notes
    assert result.to_json()["differing"][0]["query"] == "query 2 <b>"  # type: ignore[index]


def test_the_page_has_links_of_the_web_alone_and_shows_texts_as_they_are() -> None:
    text = made([1, 2, 0, 3, *[1] * 21]).html()
    assert text.count(f'<a href="{RIGHT.address}">') == 3 + 3 + 2  # expected, first, second
    assert '<a href="javascript' not in text
    assert "<b>" not in text
    found = Cells(text)
    assert [line for line in found.texts["td"] if line.endswith("no hit")]
    assert [line for line in found.texts["td"] if "Wrong" in line and line.endswith("rank 3")]
