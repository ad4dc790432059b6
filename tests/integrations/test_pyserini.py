"""The encoder of queries for Pyserini agrees with the export for Anserini: terms, weights, and so scores."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

from vocable.encoding.encode import encode
from vocable.errors import ArgumentError
from vocable.indexes.export import export
from vocable.integrations.pyserini import QueryEncoder

TEXTS = ["the old fox reads", "posting lists at night", "every compiler"]


@pytest.mark.parametrize("scale", [100.0, 7.0])
def test_queries_are_the_topics_of_the_export(toy_model: SparseEncoder, scale: float, tmp_path: Path) -> None:
    source = tmp_path / "queries.jsonl"
    source.write_text("".join(json.dumps({"_id": str(i), "text": text}) + "\n" for i, text in enumerate(TEXTS)))
    encode(toy_model, str(source), "query", output=tmp_path / "queries", name="toy", dtype="float32")
    export(tmp_path / "queries", tmp_path / "topics", scale=scale)
    lines = (tmp_path / "topics" / "topics.tsv").read_text().splitlines()
    encoder = QueryEncoder(toy_model, scale, dtype="float32")
    assert len(lines) == len(TEXTS)
    for line in lines:
        name, _, terms = line.partition("\t")
        assert encoder.encode(TEXTS[int(name)]) == Counter(terms.split())


def test_scores_are_those_of_the_rounded_vectors(
    toy_model: SparseEncoder, toy_texts: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "corpus.jsonl"
    source.write_text(
        "".join(json.dumps({"_id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(toy_texts[:9]))
    )
    encode(toy_model, str(source), output=tmp_path / "documents", name="toy", dtype="float32")
    export(tmp_path / "documents", tmp_path / "exported")
    rows = [
        json.loads(line)["vector"]
        for line in (tmp_path / "exported" / "collection" / "vectors.jsonl").read_text().splitlines()
    ]
    query = QueryEncoder(toy_model, dtype="float32").encode(TEXTS[0])
    scores = [sum(weight * row.get(term, 0) for term, weight in query.items()) for row in rows]
    dense = [encode(toy_model, toy_texts[:9], dtype="float32"), encode(toy_model, TEXTS[:1], "query", dtype="float32")]
    documents, [vector] = (np.rint(one.toarray().astype(np.float64) * 100).astype(int) for one in dense)
    assert scores == (documents @ vector).tolist()
    assert max(scores) > 0
    assert all(type(weight) is int for weight in query.values())


def test_a_models_idf_that_is_not_applied_is_said(toy_model: SparseEncoder, caplog: pytest.LogCaptureFixture) -> None:
    QueryEncoder(toy_model).encode("the lazy dog")
    assert not caplog.records
    QueryEncoder(toy_model, query_idf=0.5).encode("the lazy dog")
    assert "query_idf 0.5" in caplog.text


def test_limits_are_applied_and_wrong_ones_refused(toy_model: SparseEncoder) -> None:
    whole, cut = QueryEncoder(toy_model), QueryEncoder(toy_model, max_terms=3)
    heaviest = sorted(whole.encode(TEXTS[0]).values(), reverse=True)[:3]
    assert sorted(cut.encode(TEXTS[0]).values(), reverse=True) == heaviest
    with pytest.raises(ArgumentError):
        QueryEncoder(toy_model, 0.0).encode("fox")
