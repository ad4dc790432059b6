"""Retrievers of other frameworks find what `vocable.search` finds, through the framework's own calls."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from vocable.collection.answers import search
from vocable.collection.collection import Collection
from vocable.collection.index import index
from vocable.data import Document, Query
from vocable.errors import ArgumentError, DataError, MissingExtraError, VectorsError
from vocable.integrations.searcher import Searcher, content, metadata

QUERIES = ["the old fox reads", "posting lists at night"]
WAYS: list[dict[str, Any]] = [
    {},
    {"k": 3, "filter": "lang=en"},
    {"weights": "sparse"},
    {"weights": "sparse=1,bm25=2"},
    {"weights": "sparse=1,bm25=1", "fusion": "reciprocal-rank", "minimum_match": 0.5},
]
WORDS = {  # of each query, as they are marked in a text
    QUERIES[0]: r"\b(old|fox|reads?)\b",
    QUERIES[1]: r"\b(posting|lists?|night)\b",
}
Found: TypeAlias = tuple[str, str, float, dict[str, Any]]  # id, text, score, the rest
FRAMEWORKS = {  # module: the package that it needs, its extra, and its class
    "langchain": ("langchain_core", "langchain", "LangChainRetriever"),
    "llama_index": ("llama_index.core", "llama-index", "LlamaIndexRetriever"),
    "haystack": ("haystack", "haystack", "HaystackRetriever"),
    "pyterrier": ("pyterrier", "pyterrier", "PyTerrierRetriever"),
}


def retriever_of(name: str) -> Any:
    """Return the retriever for a framework; its tests are skipped if it is not installed."""
    package, _, retriever = FRAMEWORKS[name]
    pytest.importorskip(package)
    return getattr(import_module(f"vocable.integrations.{name}"), retriever)


def found(collection: Collection, query: str, way: dict[str, Any]) -> list[tuple[str, float, Document]]:
    """Return the ids, scores and documents that the verb finds."""
    return [(hit.document.id, hit.score, hit.document) for hit in search(collection, [query], **way)[0].hits]


def langchain(retriever: Any) -> list[list[Found]]:
    return [[_langchain(one) for one in retriever.invoke(query)] for query in QUERIES]


def _langchain(one: Any) -> Found:
    assert one.metadata["id"] == one.id
    rest = {name: value for name, value in one.metadata.items() if name not in ("id", "score")}
    return one.id, one.page_content, one.metadata["score"], rest


def llama_index(retriever: Any) -> list[list[Found]]:
    answers = [retriever.retrieve(query) for query in QUERIES]
    return [[(one.node.node_id, one.node.text, one.score, one.node.metadata) for one in some] for some in answers]


def haystack(retriever: Any) -> list[list[Found]]:
    import haystack

    pipeline = haystack.Pipeline()
    pipeline.add_component("retriever", retriever)
    answers = [pipeline.run({"retriever": {"query": query}})["retriever"]["documents"] for query in QUERIES]
    return [[(one.id, one.content, one.score, one.meta) for one in some] for some in answers]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("ask", [langchain, llama_index, haystack])
def test_a_framework_gets_the_hits_of_the_verb(
    ask: Callable[[Any], list[list[Found]]], way: dict[str, Any], collection: Collection
) -> None:
    expected = [
        [
            (name, one.text, score, {**one.fields, "title": one.title, "snippet": one.text, "highlights": places})
            for name, score, one in found(collection, query, way)
            if (places := [list(word.span()) for word in re.finditer(WORDS[query], one.text, re.IGNORECASE)])
            is not None
        ]
        for query in QUERIES
    ]
    assert all(expected)
    assert ask(retriever_of(ask.__name__)(collection, **way)) == expected


def test_a_place_is_opened(collection: Collection) -> None:
    searcher = Searcher(collection.place, 2, weights="sparse")
    assert repr(searcher) == f"Searcher({collection.place!r}, k=2, weights='sparse')"
    assert [hit.document.id for hit in searcher.hits(QUERIES[0])] == [
        name for name, *_ in found(collection, QUERIES[0], {"k": 2, "weights": "sparse"})
    ]


def test_langchain_takes_options_with_each_query_and_waits_in_threads(collection: Collection) -> None:
    retriever = retriever_of("langchain")(collection, 4, filter="lang=en", tags=["ours"], metadata={"team": "a"})
    way = {"k": 2, "filter": "lang=de"}
    expected = [name for name, *_ in found(collection, QUERIES[0], way)]
    assert [one.id for one in retriever.invoke(QUERIES[0], **way)] == expected
    assert [one.id for one in asyncio.run(retriever.ainvoke(QUERIES[0], **way))] == expected
    of_all = [[_langchain(one) for one in some] for some in retriever.batch(QUERIES * 4)]
    assert of_all == langchain(retriever) * 4
    assert [one.id for one in (retriever | (lambda documents: documents[:1])).invoke(QUERIES[0])] == [
        found(collection, QUERIES[0], {"k": 1, "filter": "lang=en"})[0][0]
    ]


def test_llama_index_asks_in_another_thread(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = retriever_of("llama_index")(collection, 4)
    threads, hits = [], retriever.searcher.hits

    def watched(query: str) -> Any:
        threads.append(threading.get_ident())
        return hits(query)

    monkeypatch.setattr(retriever.searcher, "hits", watched)
    nodes = asyncio.run(retriever.aretrieve(QUERIES[1]))
    assert [one.node.node_id for one in nodes] == [name for name, *_ in found(collection, QUERIES[1], {"k": 4})]
    assert threads
    assert threads[0] != threading.get_ident()


def test_a_pipeline_of_haystack_is_written_and_read(collection: Collection) -> None:
    retriever = retriever_of("haystack")(collection, 3, filter="lang=en")
    import haystack

    pipeline = haystack.Pipeline()
    pipeline.add_component("retriever", retriever)
    again = haystack.Pipeline.loads(pipeline.dumps(), allowed_modules=["vocable.integrations.haystack"])
    asked = {"query": QUERIES[0], "k": 2, "filter": "lang=fr"}
    for given, way in (({"query": QUERIES[0]}, {"k": 3, "filter": "lang=en"}), (asked, {"k": 2, "filter": "lang=fr"})):
        expected = [name for name, *_ in found(collection, QUERIES[0], way)]
        assert [one.id for one in again.run({"retriever": given})["retriever"]["documents"]] == expected
    waited = asyncio.run(again.get_component("retriever").run_async(**asked))
    assert [one.id for one in waited["documents"]] == expected


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_pyterrier_gets_a_frame_of_hits(way: dict[str, Any], collection: Collection) -> None:
    retriever = retriever_of("pyterrier")(collection, **way)
    import pandas

    topics = pandas.DataFrame({"qid": ["7", "2"], "query": QUERIES, "of": ["a", "b"]})
    frame = retriever(topics)
    answers = search(collection, [Query("7", QUERIES[0]), Query("2", QUERIES[1])], **{"k": 1000, **way})
    expected = [
        (answer.query.id, answer.query.text, of, hit.document.id, hit.score, hit.rank - 1)
        for answer, of in zip(answers, ["a", "b"], strict=True)
        for hit in answer.hits
    ]
    columns = ["qid", "query", "of", "docno", "score", "rank"]
    assert list(frame.columns) == columns
    assert list(frame.itertuples(index=False, name=None)) == expected
    assert retriever.search(QUERIES[0])["docno"].tolist() == [row[3] for row in expected if row[0] == "7"]


def test_pyterrier_measures_as_the_verb_does(collection: Collection) -> None:
    retriever = retriever_of("pyterrier")(collection)
    import ir_measures
    import pandas
    import pyterrier

    qrels = pandas.DataFrame({"qid": ["1", "1", "2"], "docno": ["d3", "d17", "d30"], "label": [1, 2, 1]})
    topics = pandas.DataFrame({"qid": ["1", "2"], "query": QUERIES})
    measured = pyterrier.Experiment([retriever], topics, qrels, ["ndcg_cut_10", "map"])
    run = search(collection, QUERIES, 1000).ranking.to_run(["1", "2"])
    judged = qrels.rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"})
    measures = [ir_measures.parse_measure("nDCG@10"), ir_measures.parse_measure("AP")]
    expected = ir_measures.calc_aggregate(measures, judged, run)
    assert measured[["ndcg_cut_10", "map"]].iloc[0].tolist() == pytest.approx([expected[one] for one in measures])
    assert (retriever % 2)(topics).groupby("qid").size().tolist() == [2, 2]


def test_pyterrier_refuses_documents_and_takes_no_query(collection: Collection) -> None:
    retriever = retriever_of("pyterrier")(collection)
    import pandas
    import pyterrier

    with pytest.raises(pyterrier.validate.InputValidationError):
        retriever(pandas.DataFrame({"qid": ["1"], "query": ["fox"], "docno": ["d1"]}))
    none = retriever(pandas.DataFrame({"qid": [], "query": []}))
    assert list(none.columns) == ["qid", "query", "docno", "score", "rank"]
    assert not len(none)


def test_a_passage_is_the_content(backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    text = " ".join(toy_texts[:60])
    corpus.write_text(f'{{"_id": "long", "title": "T", "text": "{text}"}}\n', encoding="utf-8")
    made = index(
        str(backbones["bert"]), corpus, tmp_path / "store", long_documents="passages", max_length=32, device="cpu"
    )
    [hit] = Searcher(made).hits("the old fox")
    start, end = metadata(hit)["passage"]
    assert content(hit) == text[start:end]
    assert 0 < len(content(hit)) < len(text) / 4
    made.close()


def test_searches_of_many_threads_are_those_of_one(collection: Collection) -> None:
    searchers = [Searcher(collection, 5), Searcher(collection, 5)]
    with ThreadPoolExecutor(8) as pool:
        several = list(pool.map(lambda number, query: searchers[number % 2].hits(query), range(16), QUERIES * 8))
    for query, hits in zip(QUERIES * 8, several, strict=True):
        expected = [(name, score) for name, score, _ in found(collection, query, {"k": 5})]
        assert [(hit.document.id, hit.score) for hit in hits] == expected


@pytest.mark.parametrize("k", [0, -1])
def test_a_number_of_hits_out_of_range_is_refused(k: int, collection: Collection) -> None:
    with pytest.raises(ArgumentError):
        Searcher(collection, k)
    with pytest.raises(ArgumentError):
        Searcher(collection).hits("fox", k)


def test_unknown_options_places_and_fields_are_refused(collection: Collection, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        Searcher(collection, top_k=5)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError):
        Searcher(collection).hits("fox", filters="lang=en")
    with pytest.raises(VectorsError):
        Searcher(tmp_path / "none")
    with pytest.raises((ArgumentError, DataError)):
        Searcher(collection, filter="lang=").hits("fox")


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package, extra, _ = FRAMEWORKS[name]
    for module in [module for module in sys.modules if f"{module}.".startswith(f"{package.partition('.')[0]}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package.partition(".")[0], None)
    monkeypatch.delitem(sys.modules, f"vocable.integrations.{name}", raising=False)
    with pytest.raises(MissingExtraError, match=rf"vocable\[{extra}\]"):
        import_module(f"vocable.integrations.{name}")
