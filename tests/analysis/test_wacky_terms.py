"""Which terms are wacky: the first share of the ranking, of the model's own vocabulary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vocable.errors import ArgumentError, VectorsError
from vocable.wackiness.measure import Choices, Finding, read_wacky_terms, write_scores
from vocable.wackiness.report import kinds_table
from vocable.wackiness.score import Wackiness

NAMES = ["a", "b", "c", "d", "e"]


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """c first, then e, which expands more than a; d has no score."""
    values = np.array([0.9, 0.1, 1.0, np.nan, 0.9])
    found = Wackiness(values, 1 - values, np.array([1, 1, 3, 0, 2]))
    finding = Finding("toy", NAMES, ["other word"] * 5, found, np.array([]), 0.7, None, 0.0, 0.0)
    write_scores(tmp_path / "scores.parquet", finding, Choices(), model="toy")
    return tmp_path / "scores.parquet"


@pytest.mark.parametrize(
    ("share", "expected"), [(0.1, "c"), (0.25, "c"), (0.26, "ce"), (0.5, "ce"), (0.75, "cea"), (1, "ceab")]
)
def test_it_is_the_first_share_of_the_scored_terms(scores: Path, share: float, expected: str) -> None:
    assert read_wacky_terms(scores, NAMES, share) == set(expected)


def test_kinds_are_counted_by_terms_and_by_expansions() -> None:
    values = np.array([0.9, 0.1, 1.0, np.nan, 0.9])
    found = Wackiness(values, 1 - values, np.array([1, 1, 3, 0, 2]))
    kinds = ["number", "other word", "stop word", "stop word", "number"]
    finding = Finding("toy", NAMES, kinds, found, np.array([]), 0.7, None, 0.0, 0.0)
    expected = [
        {"kind": "stop word", "terms": 1, "expansions": 3, "score": 1.0},
        {"kind": "number", "terms": 2, "expansions": 3, "score": pytest.approx(0.9)},
        {"kind": "other word", "terms": 1, "expansions": 1, "score": 0.1},
    ]
    assert finding.by_kind() == finding.to_json()["kinds"] == expected
    other = Finding("none", NAMES, kinds, Wackiness(values * np.nan, values, values * 0), np.array([]), 0, None, 0, 0)
    assert kinds_table([finding, other]).rows == [
        ["stop word", "25.0%", "42.9%", "1.000", "–", "–", "–"],
        ["number", "50.0%", "42.9%", "0.900", "–", "–", "–"],
        ["other word", "25.0%", "14.3%", "0.100", "–", "–", "–"],
    ]
    assert kinds_table([finding]).header == ["kind", "terms", "expansions", "mean score"]


def test_scores_of_another_vocabulary_or_no_share_are_refused(scores: Path) -> None:
    with pytest.raises(VectorsError, match="another vocabulary"):
        read_wacky_terms(scores, NAMES[::-1])
    for share in (0, -0.1, 1.5):
        with pytest.raises(ArgumentError, match=r"share of wacky terms must be above 0 and at most 1"):
            read_wacky_terms(scores, NAMES, share)
