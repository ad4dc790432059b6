"""Columns of the studies measure what the papers measured, by the public figures of checkpoints in their tables."""

from __future__ import annotations

import pytest

from studies.plan import Study
from studies.public import FIGURES, NDCG, RECALL
from studies.vocabulary_transfer.__main__ import STUDY as TRANSFER
from studies.wacky_weights.__main__ import STUDY as WACKY

CHECKPOINTS = [  # of which a paper and Pyserini or Anserini have figures
    (study, label, year)
    for study, years in ((TRANSFER, ["DL-19"]), (WACKY, ["DL-19", "DL-20"]))
    for label, model in study.models.items()
    if model.model in FIGURES and not model.model.startswith("bm25")  # with other parameters, or quoted
    for year in years
]


def test_four_checkpoints_are_compared() -> None:
    assert {label for _, label, _ in CHECKPOINTS} == {"Co-SelfDistil", "Co-EnsembleDistil", "SPLADE-v3"}
    assert len(CHECKPOINTS) == 5


@pytest.mark.parametrize(("study", "label", "year"), CHECKPOINTS)
def test_recall_is_at_grade_two_where_the_public_figure_is_the_papers(study: Study, label: str, year: str) -> None:
    published, times = study.models[label].published, study.columns[f"{year} nDCG@10"].times
    assert published[f"{year} nDCG@10"] == pytest.approx(published[NDCG.format(year=year)], abs=0.006 * times)
    public = published[RECALL.format(year=year)]
    at_grade_two = abs(published[f"{year} R@1k"] - public) < 0.005 * times
    assert study.columns[f"{year} R@1k"].value == ("R(rel=2)@1000" if at_grade_two else "R@1000")
    assert study.columns[RECALL.format(year=year)].value == "R(rel=2)@1000"


def test_flops_and_lengths_of_geng_and_yang_are_means_over_beir() -> None:
    columns = TRANSFER.columns
    assert {columns[name].on for name in ("FLOPs", "FLOPS", "Doc_Len", "doc_len", "public FLOPS")} == {"BEIR"}
    assert len(TRANSFER.datasets_of(columns["FLOPs"])) == 13


def test_a_note_says_that_a_quoted_row_counts_other_grades() -> None:
    assert "Pyserini has .7450" in TRANSFER.exhibits["table-2"].note
