"""Stored scores come back, and only for the vocabulary that they are of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array

from vocable.encoding.term_scores import ScoresMeta, ranked, read_scores, read_wacky_terms
from vocable.encoding.tokens import Surface
from vocable.encoding.vectors import vocabulary_fingerprint
from vocable.errors import ArgumentError, VectorsError
from vocable.options import check
from vocable.training_options import WackinessOptions
from vocable.wackiness.expansions import ExpansionData
from vocable.wackiness.measure import SCORES_KEY, ExpanderWackiness, by_kind, term_cards, write_scores
from vocable.wackiness.report import kinds_table
from vocable.wackiness.score import Wackiness

TERMS = ["the", "##ing", "fox\n", "б", "unused"]
TERM_KINDS = ["stop word", "sub-word", "other word", "non-Latin", "other word"]
FOUND = Wackiness(
    np.array([1.0, 0.25, 1.0, 0.1 + 0.2, np.nan]), np.array([0.0, 9.5, 0.0, 1 / 3, np.nan]), np.array([2, 7, 5, 1, 0])
)
META = ScoresMeta("a model", vocabulary_fingerprint(TERMS), 5, "query", 100, "log", "queries.tsv", "beir:x", 0.625)


def finding_of(
    name: str, terms: list[str], kinds: list[str], found: Wackiness, w_auc: float = 0.7
) -> ExpanderWackiness:
    """A finding with this W-AUC and the kinds of its terms."""
    record: Any = {"name": name, "w_auc": None if np.isnan(w_auc) else w_auc, "kinds": by_kind(kinds, found)}
    return ExpanderWackiness(record, terms, kinds, found, np.empty(0))


def write(path: Path, found: Wackiness = FOUND, w_auc: float = 0.625) -> None:
    finding = finding_of("toy", TERMS, TERM_KINDS, found, w_auc)
    write_scores(path, finding, check(WackinessOptions, {}), model="a model", queries="queries.tsv", corpus="beir:x")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "scores.parquet"
    write(path)
    return path


def test_scores_come_back_as_they_were_written(stored: Path) -> None:
    scores, inputs, meta = read_scores(stored, vocabulary_fingerprint(TERMS))
    np.testing.assert_array_equal(scores, FOUND.scores)
    np.testing.assert_array_equal(inputs, FOUND.inputs)
    assert meta == META
    assert read_scores(stored)[2] == META


def test_the_file_is_the_ranking(stored: Path) -> None:
    rows = pq.read_table(stored).to_pylist()
    assert [row["column"] for row in rows] == ranked(FOUND.scores, FOUND.inputs).tolist() == [2, 0, 3, 1]
    assert rows[1] == {"term": "the", "column": 0, "score": 1, "importance": 0, "inputs": 2, "kind": "stop word"}


def test_a_measurement_without_scores_is_written_and_read(tmp_path: Path) -> None:
    nothing = Wackiness(np.full(5, np.nan), np.full(5, np.nan), np.zeros(5, np.int64))
    write(tmp_path / "s.parquet", nothing, float("nan"))
    scores, _, meta = read_scores(tmp_path / "s.parquet")
    assert np.isnan(scores).all()
    assert len(scores) == 5
    assert np.isnan(meta.w_auc)


def test_scores_of_another_vocabulary_are_refused(stored: Path) -> None:
    with pytest.raises(VectorsError):
        read_scores(stored, vocabulary_fingerprint(["another"]))


def test_a_file_of_no_scores_is_refused(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(VectorsError, match=r"none\.parquet"):
        read_scores(tmp_path / "none.parquet")
    with pytest.raises(VectorsError, match=r"scores\.parquet"):
        read_scores(tmp_path)
    content = stored.read_bytes()
    for damaged in (b"", content[:-20], b"text"):
        stored.write_bytes(damaged)
        with pytest.raises(VectorsError):
            read_scores(stored)
    pq.write_table(pa.table({"a": [1]}), stored)
    with pytest.raises(VectorsError):
        read_scores(stored)


def test_metadata_that_does_not_fit_is_refused(stored: Path) -> None:
    table, text = pq.read_table(stored), pq.read_schema(stored).metadata[SCORES_KEY]

    def rewritten(old: bytes, new: bytes, columns: list[str] = table.schema.names) -> None:
        assert old in text
        changed = table.select(columns).replace_schema_metadata({SCORES_KEY: text.replace(old, new)})
        pq.write_table(changed, stored)

    rewritten(b'"format": 1', b'"format": 2')
    with pytest.raises(VectorsError):
        read_scores(stored)
    rewritten(b'"idf"', b'"fdi"')
    with pytest.raises(VectorsError):
        read_scores(stored)
    rewritten(b'"size": 5', b'"size": 3')
    with pytest.raises(VectorsError):
        read_scores(stored)
    rewritten(b'"size": 5', b'"size": 5', ["term", "column"])
    with pytest.raises(VectorsError):
        read_scores(stored)


NAMES = ["a", "b", "c", "d", "e"]


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """c first, then e, which expands more than a; d has no score."""
    values = np.array([0.9, 0.1, 1.0, np.nan, 0.9])
    found = Wackiness(values, 1 - values, np.array([1, 1, 3, 0, 2]))
    finding = finding_of("toy", NAMES, ["other word"] * 5, found)
    write_scores(tmp_path / "scores.parquet", finding, check(WackinessOptions, {}), model="toy")
    return tmp_path / "scores.parquet"


@pytest.mark.parametrize(
    ("share", "expected"), [(0.1, "c"), (0.25, "c"), (0.26, "ce"), (0.5, "ce"), (0.75, "cea"), (1, "ceab")]
)
def test_the_wackiest_terms_are_the_first_share_of_the_scored_terms(scores: Path, share: float, expected: str) -> None:
    assert read_wacky_terms(scores, NAMES, share) == set(expected)


def test_kinds_are_counted_by_terms_and_by_expansions() -> None:
    values = np.array([0.9, 0.1, 1.0, np.nan, 0.9])
    found = Wackiness(values, 1 - values, np.array([1, 1, 3, 0, 2]))
    kinds = ["number", "other word", "stop word", "stop word", "number"]
    finding = finding_of("toy", NAMES, kinds, found)
    expected = [
        {"kind": "stop word", "terms": 1, "expansions": 3, "score": 1.0},
        {"kind": "number", "terms": 2, "expansions": 3, "score": pytest.approx(0.9)},
        {"kind": "other word", "terms": 1, "expansions": 1, "score": 0.1},
    ]
    assert finding.record["kinds"] == expected
    other = finding_of("none", NAMES, kinds, Wackiness(values * np.nan, values, values * 0))
    assert kinds_table([finding.record, other.record]).rows == [
        ["stop word", "25.0%", "42.9%", "1.000", "–", "–", "–"],
        ["number", "50.0%", "42.9%", "0.900", "–", "–", "–"],
        ["other word", "25.0%", "14.3%", "0.100", "–", "–", "–"],
    ]
    assert kinds_table([finding.record]).header == ["kind", "terms", "expansions", "mean score"]


def test_scores_of_another_vocabulary_or_no_share_are_refused(scores: Path) -> None:
    with pytest.raises(VectorsError):
        read_wacky_terms(scores, NAMES[::-1])
    for share in (0, -0.1, 1.5):
        with pytest.raises(ArgumentError):
            read_wacky_terms(scores, NAMES, share)


def test_a_card_has_the_documents_inputs_and_neighbours_of_its_term() -> None:
    """The latent topic of a term (Polyakov et al. 2026, section 6), by loops over all inputs and rows."""
    rng = np.random.default_rng(5)
    vectors = csr_array(rng.choice([0, 0, 0.5, 1, 2, 3.25], (9, 6)).astype(np.float32))
    own = csr_array(rng.choice([0, 0, 0, 1], (9, 6)).astype(np.float32))
    counts = csr_array(rng.choice([0, 0, 1, 2], (7, 6)).astype(np.float32))
    surfaces = [Surface(name, True, "word") for name in "abcdef"]
    data = ExpansionData("toy", vectors, own, np.zeros((9, 1), np.int32), counts, surfaces, [*"abcdef"])
    rows = rng.normal(size=(6, 3)).astype(np.float32)
    inputs = [f"input {number}" for number in range(9)]
    cards = term_cards(data, range(6), inputs, rows, check(WackinessOptions, {}))
    weights, mine, held = vectors.toarray(), own.toarray(), counts.toarray()
    for term, card in enumerate(cards):
        added = {i: float(weights[i, term]) for i in range(9) if weights[i, term] > 0 and mine[i, term] == 0}
        assert card["documents"] == sum(held[n, term] > 0 for n in range(7))
        assert card["weight"] == pytest.approx(sum(added.values()) / len(added) if added else 0)
        assert card["examples"] == [inputs[i] for i in sorted(added, key=lambda i: (-added[i], i))[:3]]
        cosines = {
            n: rows[n] @ rows[term] / np.linalg.norm(rows[n]) / np.linalg.norm(rows[term])
            for n in range(6)
            if n != term
        }
        assert card["nearest"] == ["abcdef"[n] for n in sorted(cosines, key=lambda n: -cosines[n])]
