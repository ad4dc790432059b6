"""MTEB scores a model by its sparse vectors: as `vocable.evaluate` does on the same data."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from sentence_transformers import SparseEncoder

from vocable.data import Document, Qrel, Query
from vocable.encoding.encode import encode
from vocable.errors import ArgumentError, MissingExtraError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.evaluate import evaluate
from vocable.integrations.mteb import SparseSearch

QUERIES = {"q1": "the old fox reads", "q2": "posting lists at night", "q3": "the search engine"}
QRELS = {query: {f"d{i}": 1 + i % 2 for i in range(first, 40, 7)} for first, query in enumerate(QUERIES)}


def rows(documents: list[Document]) -> list[dict[str, Any]]:
    """Documents as mteb has them."""
    return [{"id": one.id, "title": one.title, "text": one.text} for one in documents]


def searched(model: SparseEncoder, documents: list[Document], queries: Any = None, **how: Any) -> Any:
    """Search as mteb calls the search model."""
    search = SparseSearch(model, dtype="float32")
    asked = {"task_metadata": None, "hf_split": "test", "hf_subset": "default", "encode_kwargs": {}, "num_proc": None}
    search.index(rows(documents), **asked)
    queries = queries or [{"id": name, "text": text} for name, text in QUERIES.items()]
    return search.search(queries, **{**asked, "top_k": 10, "top_ranked": None, **how})


def test_a_search_is_brute_force(toy_model: SparseEncoder, documents: list[Document]) -> None:
    vectors = [encode(toy_model, [one.full for one in documents], dtype="float32")]
    vectors.append(encode(toy_model, list(QUERIES.values()), "query", dtype="float32"))
    scores = (vectors[1] @ vectors[0].T).toarray()
    for query, some in zip(searched(toy_model, documents).values(), scores, strict=True):
        expected = sorted(((score, one.id) for score, one in zip(some, documents, strict=True)), reverse=True)[:10]
        assert sorted(query.values(), reverse=True) == pytest.approx([score for score, _ in expected], rel=1e-5)
        assert set(query) == {name for _, name in expected}


def test_candidates_alone_are_ranked_and_all_of_them(toy_model: SparseEncoder, documents: list[Document]) -> None:
    candidates = {"q1": ["d9", "d2", "d31"], "q2": ["d4"]}
    empty = [*documents[:-1], documents[-1]._replace(text="", title="")]
    everything = searched(toy_model, empty, top_k=len(documents))
    found = searched(toy_model, empty, top_ranked=candidates)
    expected = {name: {one: everything[name].get(one, 0.0) for one in some} for name, some in candidates.items()}
    assert found == {**expected, "q3": {}}


def test_instructions_follow_the_query(toy_model: SparseEncoder, documents: list[Document]) -> None:
    told = searched(toy_model, documents, [{"id": "q", "text": "the old fox", "instruction": "at night"}])
    assert told == searched(toy_model, documents, [{"id": "q", "text": "the old fox at night"}])
    with pytest.raises(ArgumentError, match="'q'"):
        searched(toy_model, documents, [{"id": "q", "text": ["the old fox", "reads"]}])


def test_a_search_before_an_index_a_precision_and_a_missing_mteb_are_refused(
    toy_model: SparseEncoder, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = SparseSearch(toy_model)
    with pytest.raises(ArgumentError):
        model.search([], top_k=1)
    with pytest.raises(ArgumentError):
        model.index(rows(documents), encode_kwargs={"precision": "int8"})
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vocable\[mteb\]'"):
        _ = model.mteb_model_meta


@pytest.fixture
def task(documents: list[Document]) -> Any:
    """A retrieval task in memory."""
    mteb = pytest.importorskip("mteb", reason="mteb is not among the development packages: 250 MB")
    from datasets import Dataset as Table
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    class Toy(AbsTaskRetrieval):
        metadata = mteb.TaskMetadata(
            name="Toy",
            description="A toy.",
            reference="https://example.org",
            dataset={"path": "none", "revision": "none"},
            type="Retrieval",
            category="t2t",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, **_: Any) -> None:
            queries = Table.from_dict({"id": list(QUERIES), "text": list(QUERIES.values())})
            split = {"corpus": Table.from_list(rows(documents)), "queries": queries, "relevant_docs": QRELS}
            self.dataset, self.data_loaded = {"default": {"test": {**split, "top_ranked": None}}}, True

    return Toy()


@pytest.mark.filterwarnings("default")  # of mteb
def test_figures_are_those_of_evaluate(toy_model: SparseEncoder, documents: list[Document], task: Any) -> None:
    import mteb

    toy = Dataset(
        "toy",
        documents,
        [Query(*one) for one in QUERIES.items()],
        [Qrel(query, name, grade) for query, some in QRELS.items() for name, grade in some.items()],
    )
    values = evaluate(toy_model, toy, ["nDCG@10", "R@5", "RR@10", "AP@100"], dtype="float32").evaluations[0].values
    model = SparseSearch(toy_model, "toys/bert", dtype="float32")
    result = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False)
    [scores] = result.task_results[0].scores["test"]
    names = ["ndcg_at_10", "recall_at_5", "mrr_at_10", "map_at_100"]
    assert [scores[name] for name in names] == pytest.approx(list(values.values()), abs=1e-5)  # mteb rounds to 5 digits
    assert 0 < scores["ndcg_at_10"] < 1
    assert (result.model_name, result.task_results[0].task_name) == ("toys/bert", "Toy")
    meta = model.mteb_model_meta
    assert meta.model_type == ["sparse"]
    assert meta.experiment_kwargs == {"dtype": "float32"}
    other = SparseSearch(toy_model)
    assert other.mteb_model_meta.name.startswith("vocable/")
    toy_model[0].auto_model.bert.embeddings.word_embeddings.weight.data[0] += 1
    assert SparseSearch(toy_model).mteb_model_meta.revision != meta.revision
