from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers.utils import logging as transformers_logging

from vocable.cli import main
from vocable.data import Document, Qrel, Query
from vocable.encoder.asymmetric import Role
from vocable.errors import ArgumentError, ModelError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.evaluate import evaluate
from vocable.evaluation.expanders import (
    DocT5Query,
    Expander,
    Query2Doc,
    lexical_search,
    load_generator,
    open_expander,
)
from vocable.evaluation.expansion_data import expansion_data
from vocable.evaluation.retrieval import retrieve_lexically
from vocable.retrieval.bm25 import RM3, BM25Index
from vocable.wackiness.score import wackiness

DOCUMENTS = [
    "cats sleep and purr",
    "cats purr",
    "dogs bark at cats, dogs bark",
    "owls hoot",
    "owls hoot at dogs in the night",
    "foxes bark",
]
QUERIES = ["sleeping cat", "dogs", "zebra", ""]


def reference(expander: Expander, texts: list[str], documents: list[str], k: int) -> dict[str, float]:
    """The Wackiness Score of every expansion, word by word."""
    vectors, names, index = expander.expand(texts), list(expander.vocabulary), expander.index
    counts = [Counter(words) for words in index.words(documents)]
    importance: dict[str, list[float]] = {}
    for row, own in enumerate(index.words(texts)):
        weights = dict(zip(names, vectors[[row]].toarray()[0], strict=True))
        scores = index.get() @ np.array([weights[name] for name in index.vocabulary])
        found = [int(i) for i in np.argsort(-scores, kind="stable")[:k] if scores[i] > 0]
        for name in [name for name in names if weights[name] and name not in own]:
            having = sum(name in one for one in counts)
            idf = np.log(len(documents) / having) if having else 0.0
            importance.setdefault(name, []).append(idf * sum(counts[i][name] for i in found))
    means = {name: float(np.mean(values)) for name, values in importance.items()}
    least, most = min(means.values()), max(means.values())
    return {name: 1 - (mean - least) / (most - least) for name, mean in means.items()}


def test_feedback_is_measured() -> None:
    expander = open_expander("bm25+rm3", DOCUMENTS)
    measured = expansion_data(expander, QUERIES, DOCUMENTS, 3, name="RM3")
    assert measured.name == "RM3"
    assert measured.rows.shape == (4, 3)
    assert (measured.vectors != RM3(BM25Index(DOCUMENTS), DOCUMENTS).expand(QUERIES)).nnz == 0
    found = wackiness(measured.vectors, measured.own, measured.rows, measured.counts)
    scores = {name: score for name, score in zip(measured.terms, found.scores, strict=True) if not np.isnan(score)}
    assert scores == pytest.approx(reference(expander, QUERIES, DOCUMENTS, 3))
    # "sleep" is the first query's own; every other word of what the two find expands one of them.
    assert set(scores) == {"purr", "dog", "bark", "cat", "owl", "hoot", "night"}
    assert [surface.text for surface in measured.surfaces] == list(measured.terms)


def test_a_written_passage_is_measured_also_in_words_that_no_document_has(causal: Path, toy_texts: list[str]) -> None:
    documents = toy_texts[:20]
    expander = Query2Doc(BM25Index(documents), load_generator(causal, "causal"), new_tokens=60)
    queries = ["old fox", "zebra books", *toy_texts[:4]]
    measured = expansion_data(expander, queries, documents, 5)
    found = wackiness(measured.vectors, measured.own, measured.rows, measured.counts)
    scores = {name: score for name, score in zip(measured.terms, found.scores, strict=True) if not np.isnan(score)}
    assert scores == pytest.approx(reference(expander, queries, documents, 5))
    unheard_of = set(scores) - set(expander.index.vocabulary)
    assert unheard_of
    assert {scores[name] for name in unheard_of} == {1.0}
    assert "zebra" in measured.terms  # of the query itself: no expansion, though no document has it
    assert "zebra" not in scores


def test_documents_that_are_expanded_do_not_retrieve_themselves(seq2seq: Path, toy_texts: list[str]) -> None:
    documents = sorted(set(toy_texts))[:8]
    expander = DocT5Query(documents, load_generator(seq2seq, "seq2seq"), samples=2)
    rows = np.array([5, 2])
    texts = [documents[row] for row in rows]
    measured = expansion_data(expander, texts, documents, 3, itself=rows)
    everything = expander.index.search(expander.expand(texts), 8).rows
    assert [row in found for row, found in zip(rows, everything, strict=True)] == [True, True]
    for row, found, others in zip(rows, everything, measured.rows, strict=True):
        assert others.tolist() == [other for other in found if other != row][:3]
    # Words are counted in the documents as they were, not in the queries that were guessed for them.
    assert measured.counts.sum() == sum(map(len, expander.index.words(documents)))
    assert measured.own.sum() == sum(map(len, expander.index.words(texts)))
    assert measured.vectors.sum() > measured.own.sum()


def test_by_name(causal: Path, seq2seq: Path) -> None:
    assert isinstance(open_expander(f"query2doc:{causal}", DOCUMENTS), Query2Doc)
    assert isinstance(open_expander(f"doct5query:{seq2seq}", DOCUMENTS[:2], "document"), DocT5Query)
    for name, message in (("gpt2", "'gpt2' is not an expander"), ("bm25", "bm25 expands nothing")):
        choices = re.escape("choose bm25+rm3, query2doc:MODEL or doct5query:MODEL")
        with pytest.raises(ArgumentError, match=f"{message}: {choices}"):
            open_expander(name, DOCUMENTS)
    with pytest.raises(ArgumentError, match="expands documents, not queries: measure it with --role document"):
        open_expander("doct5query:/no/such/folder", DOCUMENTS)
    with pytest.raises(ModelError, match="no such model folder"):
        open_expander("query2doc:/no/such/folder", DOCUMENTS)
    with pytest.raises(ArgumentError, match="k must be at least 1, not 0"):
        expansion_data(open_expander("bm25+rm3", DOCUMENTS), QUERIES, DOCUMENTS, 0)


def test_they_are_searched_as_systems(causal: Path, seq2seq: Path, toy_texts: list[str]) -> None:
    texts, asked = sorted(set(toy_texts))[:6], ["old fox", "lazy dog"]
    documents = [Document(f"d{i}", text) for i, text in enumerate(texts)]
    queries = [Query(f"q{i}", text) for i, text in enumerate(asked)]
    dataset = Dataset("toy", documents, queries, [Qrel(query.id, "d0", 1) for query in queries])
    ids = [document.id for document in documents]
    for name in (f"query2doc:{causal}", f"doct5query:{seq2seq}"):
        role: Role = "query" if name.startswith("query2doc") else "document"
        expander = open_expander(name, texts, role)
        weights = expander.expand(asked) if role == "query" else expander.index.query_vectors(asked)
        scores = weights[:, : len(expander.index.vocabulary)] @ expander.index.get().T
        found = retrieve_lexically(dataset, k=6, make=lexical_search(name))
        for row, query in enumerate(scores.toarray()):
            hits = dict(found.ranking.hits(row))
            assert hits == pytest.approx({ids[i]: query[i] for i in np.flatnonzero(query)}, rel=1e-5)
        [one] = evaluate([name], dataset, ["nDCG@10"]).evaluations
        assert one.name == f"{name.partition(':')[0]}:{Path(name).name}"


def test_by_the_command(
    capsys: pytest.CaptureFixture[str], causal: Path, seq2seq: Path, toy_texts: list[str], tmp_path: Path
) -> None:
    documents, queries = sorted(set(toy_texts))[:3], ["old fox", "lazy dog at night", "books"]
    for name, texts in (("corpus", documents), ("queries", queries)):
        rows = ({"_id": f"{name}{i}", "text": text} for i, text in enumerate(texts))
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    common = ["--corpus", str(tmp_path / "corpus.jsonl"), "--bootstrap", "0", "--json"]
    asked = [f"query2doc:{causal}", "bm25+rm3", "--queries", str(tmp_path / "queries.jsonl")]
    transformers_logging.disable_progress_bar()  # imported before the command line could silence it
    found: list[dict[str, Any]] = []
    for number, arguments in enumerate([asked, [f"doct5query:{seq2seq}", "--role", "document"]]):
        capsys.readouterr()
        assert main(["measure-wackiness", *arguments, *common, "-o", str(tmp_path / str(number))]) == 0
        found += json.loads(capsys.readouterr().out)["models"]
    assert [model["name"] for model in found] == [f"query2doc:{causal}", "bm25+rm3", f"doct5query:{seq2seq}"]
    for model in found:
        assert model["scored_terms"] > 0
        assert model["expansions"] > 0
        assert 0 <= model["w_auc"] <= 1
    line = "vocable: doct5query:x expands documents, not queries: measure it with --role document\n"
    late = ["/no/such/model", "doct5query:x"]  # refused before the model before it is looked at
    assert main(["measure-wackiness", *late, *asked[2:], *common, "-o", str(tmp_path / "refused")]) == 2
    assert capsys.readouterr().err == line
    assert not list(tmp_path.glob("refused*"))
