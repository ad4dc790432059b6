from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from vocable.data import Document, Qrel, Query
from vocable.errors import ArgumentError
from vocable.evaluation.cost import Cost
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import Encoded
from vocable.evaluation.grid import (
    GridPoint,
    SearchGrid,
    Setting,
    check_depth,
    flops_figure,
    parse_grid,
    search_grid,
    swept,
)
from vocable.evaluation.quality import Evaluation

RNG = np.random.default_rng(0)
N, Q, V = 60, 7, 30
DOCUMENTS = random_array((N, V), density=0.3, rng=RNG, dtype=np.float32).toarray()
QUERIES = random_array((Q, V), density=0.3, rng=RNG, dtype=np.float32).toarray()
RELEVANT = [[int(row) for row in RNG.choice(N, 3, replace=False)] for _ in range(Q)]
DATASET = Dataset(
    "toy",
    [Document(f"d{row:02}", "x") for row in range(N)],
    [Query(f"q{row}", "x") for row in range(Q)],
    [Qrel(f"q{q}", f"d{row:02}", 1) for q in range(Q) for row in RELEVANT[q]],
)
ENCODED = Encoded(DATASET, csr_array(QUERIES), csr_array(DOCUMENTS), 1.0)


def heaviest(dense: np.ndarray, max_terms: int, mass: float, least: float) -> np.ndarray:
    """Pruning by its definition, a row at a time."""
    kept = np.zeros_like(dense)
    for row, weights in enumerate(dense):
        order = sorted(np.flatnonzero(weights), key=lambda term: (-weights[term], term))
        sums = np.cumsum([float(weights[term]) for term in order])
        enough = int((sums < mass * sums[-1] - 1e-9).sum()) + 1 if order else 0
        for term in order[: max_terms or None][:enough]:
            kept[row, term] = weights[term] if weights[term] >= least else 0
    return kept


def expected(setting: Setting) -> tuple[list[float], list[float]]:
    """Terms, FLOPS and matched documents, then RR@10 and R@10, from dense matrices."""
    queries = heaviest(QUERIES, setting.query_max_terms, setting.query_mass, setting.query_min_weight)
    documents = heaviest(DOCUMENTS, setting.document_max_terms, setting.document_mass, setting.document_min_weight)
    shared = (queries > 0).astype(int) @ (documents > 0).T.astype(int)
    allowed = (shared > 0) & (shared >= setting.minimum_match * (queries > 0).sum(axis=1, keepdims=True) - 1e-9)
    scores = np.where(allowed, queries.astype(np.float64) @ documents.T, -1)
    whole = QUERIES.astype(np.float64) @ DOCUMENTS.T
    reciprocal, recall = [], []
    for q in range(Q):
        order = [d for d in np.argsort(-scores[q], kind="stable") if scores[q, d] > 0]
        if setting.rescore:
            order = sorted(order[: setting.rescore], key=lambda d: -whole[q, d])
        ranks = [order[:10].index(d) + 1 for d in RELEVANT[q] if d in order[:10]]
        reciprocal.append(1 / min(ranks) if ranks else 0)
        recall.append(len(ranks) / 3)
    # Equation 1: the lengths of the postings lists of a query's terms, over |Q| |D|.
    lengths = (documents > 0).sum(axis=0)
    flops = sum(lengths[term] for query in queries for term in np.flatnonzero(query)) / (Q * N)
    costs = [(queries > 0).sum(axis=1).mean(), (documents > 0).sum(axis=1).mean(), flops, allowed.mean()]
    return costs, [np.mean(reciprocal), np.mean(recall)]


GRID = [
    "query_max_terms=0,3 document_max_terms=0,4",
    "query_mass=0.5 document_mass=0.75,1",
    "query_min_weight=0.4 document_min_weight=0.2",
    "minimum_match=0.3,0.6",
    "query_max_terms=2 document_max_terms=3 rescore=10,20",
]


def test_every_point_is_that_of_brute_force() -> None:
    settings = parse_grid(GRID)
    points = search_grid("toy", ENCODED, settings)
    assert [point.setting for point in points] == settings
    assert len(settings) == 11
    for point in points:
        assert point.setting is not None
        costs, values = expected(point.setting)
        cost = point.evaluation.cost
        assert cost is not None
        found = [cost.query_terms, cost.document_terms, cost.flops, cost.matched]
        assert found == pytest.approx(costs), point.setting
        assert list(point.evaluation.values.values()) == pytest.approx(values), point.setting
    by_match = {point.setting.minimum_match: point.evaluation.cost for point in points[7:9] if point.setting}
    assert by_match[0.3].flops == by_match[0.6].flops == points[0].evaluation.cost.flops  # type: ignore[union-attr]
    assert by_match[0.6].matched < by_match[0.3].matched < points[0].evaluation.cost.matched  # type: ignore[union-attr, operator]


def test_the_table_has_the_columns_of_the_paper() -> None:
    points = search_grid("toy", ENCODED, parse_grid(["query_max_terms=0", "query_max_terms=5 document_max_terms=20"]))
    table = SearchGrid(points).table()
    assert table.header == ["qk", "dk", "L0_q", "L0_d", "FLOPS", "matched", "RR@10", "R@10"]
    assert [row[:2] for row in table.rows] == [["0", "0"], ["5", "20"]]
    assert table.title == "toy, 7 queries"
    assert points[1].evaluation.name == "toy query_max_terms=5 document_max_terms=20"
    assert points[1].to_json()["setting"]["document_max_terms"] == 20
    two = SearchGrid([*points, points[0]._replace(system="BM25", setting=None)]).table()
    assert two.header[0] == "system"
    assert two.rows[2][:3] == ["BM25", "–", "–"]


def test_settings_are_combinations_and_none_comes_twice() -> None:
    found = parse_grid(["query_max_terms=5,7 document_max_terms=20,10", "query_max_terms=7 document_max_terms=10"])
    assert [(one.query_max_terms, one.document_max_terms) for one in found] == [(5, 20), (5, 10), (7, 20), (7, 10)]
    assert parse_grid([""]) == [Setting()]
    assert all(parse_grid([str(one)]) == [one] for one in parse_grid(GRID))
    assert swept([]) == ["query_max_terms", "document_max_terms"]


@pytest.mark.parametrize(
    "text",
    [
        "max_terms=5",
        "query_max_terms",
        "query_max_terms=1.5",
        "query_max_terms=-1",
        "minimum_match=x",
        "minimum_match=2",
        "document_mass=0",
        "query_min_weight=nan",
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError):
        parse_grid([text])


def test_a_measure_may_not_look_deeper_than_the_search() -> None:
    with pytest.raises(ArgumentError):
        check_depth(parse_grid(["rescore=5,20"]), ["R@10"], 100)
    with pytest.raises(ArgumentError):
        search_grid("toy", ENCODED, [Setting()], ["R@1000"], k=100)


def test_candidates_have_a_bound_and_more_than_there_are_documents_are_all() -> None:
    with pytest.raises(ArgumentError):
        parse_grid(["rescore=1000000000"])
    assert parse_grid(["rescore=100000"])
    most, some = search_grid("toy", ENCODED, parse_grid(["query_max_terms=2 rescore=100000,1000"]))
    assert most.evaluation.values == some.evaluation.values


def point(system: str, setting: Setting | None, flops: float, value: float) -> GridPoint:
    per_query = {"RR@10": {"q": value}, "R@10": {"q": value / 2}}
    values = {"RR@10": value, "R@10": value / 2}
    return GridPoint(
        system,
        setting,
        Evaluation(system, "toy", values, per_query, Cost(flops=flops), convention="trec_eval", ties="search"),
    )


def test_each_measure_is_drawn_against_flops_with_a_curve_a_system() -> None:
    points = [
        point("a", Setting(), 2.0, 0.5),
        point("a", Setting(query_max_terms=5, document_max_terms=20), 0.5, 0.4),
        point("b", Setting(), 3.0, 0.6),
        point("b", Setting(query_max_terms=5, document_max_terms=20), 0.0, 0.0),  # has no place on a logarithmic axis
        point("b", Setting(query_max_terms=5, document_max_terms=20, rescore=100), 0.5, 0.7),
        point("BM25", None, 1.0, 0.3),
    ]
    figure = flops_figure(points)
    assert [axes.get_ylabel() for axes in figure.axes] == ["RR@10", "R@10"]
    for axes, share in zip(figure.axes, (1, 0.5), strict=True):
        drawn = {line.get_label(): np.asarray(line.get_xydata()).tolist() for line in axes.get_lines()}
        curve = [[0.5, 0.4 * share], [2.0, 0.5 * share]]
        others = {"b": [[3.0, 0.6 * share]], "b, rescore=100": [[0.5, 0.7 * share]], "BM25": [[1.0, 0.3 * share]]}
        assert drawn == {"a": curve, **others}
        assert [text.get_text() for text in axes.texts] == ["5/20", "0/0", "0/0", "5/20", ""]
        assert axes.get_xscale() == "log"
    assert figure.legends[0].get_title().get_text() == "labels: qk/dk"
    with pytest.raises(ArgumentError):
        flops_figure([point("a", Setting(), 0.0, 0.5)])
