"""Text arguments: any sequence of str, and records by their text; everything else is refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.adapt.calibrate import calibrate
from vocable.adapt.expand_vocabulary import expand_vocabulary, frequent_words
from vocable.adapt.initialization import log_counts
from vocable.adapt.inspect import inspect
from vocable.adapt.rescale import choose_factor, rescale
from vocable.adapt.statistics import measure_start, probe_texts
from vocable.adapt.train_vocabulary import count_words, fragmentation, train_tokenizer, train_vocabulary
from vocable.adapt.transfer import neighbours, transfer
from vocable.analysis.logits import analyze_logits, logit_statistics, recoverability
from vocable.collection.answers import search
from vocable.collection.collection import Collection
from vocable.collection.index import index
from vocable.collection.verbs import delete
from vocable.collection.writer import CollectionWriter
from vocable.data import Document, Example, Query
from vocable.data.texts import as_queries
from vocable.encoding.encode import encode
from vocable.encoding.idf import document_frequencies
from vocable.encoding.pruning import prune
from vocable.encoding.terms import input_terms
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError
from vocable.evaluation.clusters import text_embeddings
from vocable.evaluation.expanders import Query2Doc, open_expander
from vocable.evaluation.grid import parse_grid
from vocable.explanation.explain import expand_vector, explain_texts
from vocable.indexes.bm25 import RM3, BM25Index
from vocable.indexes.exact_index import ExactIndex
from vocable.integrations.searcher import Searcher
from vocable.language.words import stemmed
from vocable.torch_models.export import export_model
from vocable.torch_models.fuse import main_transformer
from vocable.torch_models.inference_free import make_inference_free
from vocable.training.pretraining.pretrain import pretrain
from vocable.wackiness.expansions import expansion_data, proper_names

TEXT = "a text of more than eight words, which is one and not many"
UNUSED: Any = None  # an argument that is not looked at before the texts are

Call = Callable[[SparseEncoder, Any], object]


def _mlm(model: SparseEncoder) -> Any:
    transformer = main_transformer(model)
    return transformer.auto_model


def _bm25() -> BM25Index:
    return BM25Index([TEXT])


CALLS: dict[str, Call] = {
    "encode": lambda model, texts: encode(model, texts),
    "TextEncoder.encode": lambda model, texts: TextEncoder(model).encode(texts),
    "input_terms": lambda model, texts: input_terms(model, texts),
    "inference_free": lambda model, texts: make_inference_free(model, texts),
    "document_frequencies": lambda model, texts: document_frequencies(texts, model.tokenizer),
    "calibrate": lambda model, texts: calibrate(model, texts, activation_rate=0.1),
    "rescale": lambda model, texts: rescale(model, "auto", texts=texts),
    "choose_factor": lambda model, texts: choose_factor(_mlm(model), model.tokenizer, texts),
    "measure_start": lambda model, texts: measure_start(_mlm(model), model.tokenizer, texts),
    "transfer": lambda model, texts: transfer(model, model.tokenizer, init="subtoken", texts=texts),
    "log_counts": lambda model, texts: log_counts(model.tokenizer, texts),
    "pretrain": lambda model, texts: pretrain(model, texts, steps=1),
    "frequent_words": lambda model, texts: frequent_words(texts, model.tokenizer),
    "fragmentation": lambda model, texts: fragmentation(model.tokenizer, texts),
    "count_words": lambda model, texts: count_words(texts),
    "train_vocabulary": lambda model, texts: train_tokenizer(texts, 100),
    "logit_statistics": lambda model, texts: logit_statistics(_mlm(model), model.tokenizer, texts),
    "recoverability": lambda model, texts: recoverability(_mlm(model), model.tokenizer, texts, 2),
    "text_embeddings": lambda model, texts: text_embeddings(texts),
    "parse_grid": lambda model, texts: parse_grid(texts),
    "proper_names": lambda model, texts: proper_names(texts),
    "BM25Index": lambda model, texts: BM25Index(texts),
    "BM25Index.query_vectors": lambda model, texts: _bm25().query_vectors(texts),
    "RM3": lambda model, texts: RM3(_bm25(), texts),
    "RM3.expand": lambda model, texts: RM3(_bm25(), [TEXT]).expand(texts),
    "Query2Doc.expand": lambda model, texts: Query2Doc(_bm25(), UNUSED).expand(texts),
    "expansion_data": lambda model, texts: expansion_data(model, texts, [TEXT]),
    "stemmed": lambda model, texts: stemmed(texts),
    "export_model": lambda model, texts: export_model(model, "never", texts=texts),
    "probe_texts": lambda model, texts: probe_texts(texts),
    "inspect": lambda model, texts: inspect(model, texts=texts),
    "vocabulary": lambda model, texts: train_vocabulary(texts, 100),
    "Query2Doc.passages": lambda model, texts: Query2Doc(_bm25(), UNUSED).passages(texts),
    "logits": lambda model, texts: analyze_logits("none", texts),
}
NAMED: dict[str, tuple[str, Call]] = {
    "Collection.search": ("queries", lambda model, texts: Collection.search(UNUSED, texts)),
    "BM25Index.search": ("queries", lambda model, texts: _bm25().search(texts)),
    "search": ("queries", lambda model, texts: search(UNUSED, texts)),
    "neighbours": ("words", lambda model, texts: neighbours(model, model.tokenizer, texts, init="subtoken")),
    "delete": ("ids", lambda model, texts: delete(UNUSED, texts)),
    "add": ("documents", lambda model, texts: CollectionWriter.add(Mock(), texts)),
    "expand": ("words", lambda model, texts: expand_vocabulary(model, texts)),
    "expansion_data, documents": ("documents", lambda model, texts: expansion_data(model, [TEXT], texts)),
    "open_expander": ("documents", lambda model, texts: open_expander("bm25+rm3", texts, "query")),
}

TAKEN = {  # what some take beside texts: nothing, the texts of a place, words that are counted
    "None": ("transfer", "inference_free", "export_model", "expand", "rescale"),
    "str": ("inspect", "probe_texts"),
    "dict": ("fragmentation", "count_words", "train_vocabulary"),
}
LISTS: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "generator": iter,
    "NumPy array": np.array,
    "NumPy array of objects": lambda texts: np.array(texts, dtype=object),
    "Series": pd.Series,
    "Arrow array": pa.array,
    "chunked Arrow array": lambda texts: pa.chunked_array([texts[:1], texts[1:]]),
    "queries": lambda texts: [Query(f"q{number}", text) for number, text in enumerate(texts)],
}
NO_LISTS: dict[str, tuple[Any, str]] = {
    "str": (TEXT, "one str: write"),
    "query": (Query("q1", TEXT), "one Query: write"),
    "document": (Document("d1", TEXT), "one Document: write"),
    "None": (None, "NoneType"),
    "number": (3, "int"),
    "bytes": (b"text", "bytes"),
    "dict": ({TEXT: 1}, "dict"),
    "set": ({TEXT}, "set"),
    "DataFrame": (pd.DataFrame({"text": [TEXT]}), "a DataFrame: name one of its columns"),
    "Arrow table": (pa.table({"text": [TEXT]}), "a Table: name one of its columns"),
    "NumPy array without a dimension": (np.array(TEXT), "one str"),
}
NO_TEXTS: dict[str, tuple[Any, str]] = {
    "None": (None, "must be a text, not NoneType"),
    "number": (2, "must be a text, not int"),
    "NaN": (float("nan"), "must be a text, not float"),
    "bytes": (b"text", "must be a text, not bytes"),
    "pair": ((TEXT, TEXT), "must be a text, not tuple"),
    "dict": ({"text": TEXT}, "must be a text, not dict"),
    "example": (Example(TEXT, TEXT), "must be a text, not Example"),
    "document without a text": (Document("d1", None), "must be a text, not NoneType"),  # type: ignore[arg-type]
    "half a surrogate pair": ("a \ud83d", "has half of a surrogate pair"),
}


@pytest.mark.parametrize("name", [*CALLS, *NAMED])
def test_what_holds_no_texts_is_refused(name: str, toy_model: SparseEncoder) -> None:
    argument, call = NAMED[name] if name in NAMED else ("texts", CALLS[name])
    taken = {kind for kind, names in TAKEN.items() if name in names}
    for kind, (given, message) in NO_LISTS.items():
        if kind not in taken:
            with pytest.raises(ArgumentError, match=rf"^{argument} .*a list of \w+, not {message}") as caught:
                call(toy_model, given)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [*CALLS, *NAMED])
def test_an_item_that_is_no_text_is_refused_with_its_place(name: str, toy_model: SparseEncoder) -> None:
    argument, call = NAMED[name] if name in NAMED else ("texts", CALLS[name])
    good = Document("d0", TEXT) if name == "add" else TEXT
    for kind, (item, message) in NO_TEXTS.items():
        expected = rf"^{argument}\[1\]" if name in ("add", "delete") else rf"^{argument}\[1\] {message}"
        with pytest.raises(ArgumentError, match=expected) as caught:
            call(toy_model, [good, item])
        assert "\n" not in str(caught.value), kind


@pytest.mark.parametrize("kind", LISTS)
def test_whatever_gives_texts_is_taken(kind: str, toy_model: SparseEncoder) -> None:
    texts, listed = ["the old fox reads", "a list of été", ""], LISTS[kind]
    expected, found = (encode(toy_model, some) for some in (texts, listed(texts)))
    assert (expected != found).nnz == 0
    assert (input_terms(toy_model, listed(texts)) != input_terms(toy_model, texts)).nnz == 0
    assert stemmed(listed(texts)) == [["old", "fox", "read"], ["list", "été"], []]
    index = BM25Index(listed(texts))
    assert index.search(listed(["foxes", "lists", "owls"]), k=1).rows.tolist() == [[0], [1], [-1]]
    assert count_words(listed(texts)).total() == 8
    assert log_counts(toy_model.tokenizer, listed(texts)).tolist() == log_counts(toy_model.tokenizer, texts).tolist()


def test_records_are_taken_by_their_text(toy_model: SparseEncoder) -> None:
    records = [Document("d1", "reads", title="the old fox", fields={"year": 2000}), Query("q1", "a list")]
    expected = encode(toy_model, ["the old fox reads", "a list"])
    assert (encode(toy_model, records) != expected).nnz == 0
    explained = explain_texts(toy_model, records[1], records[0])
    assert explained == explain_texts(toy_model, "a list", "the old fox reads")
    for wrong in (None, 3, b"text", ("a", "b"), ["a list"]):
        with pytest.raises(ArgumentError, match=rf"^query .*a text, not {type(wrong).__name__}$"):
            explain_texts(toy_model, wrong)  # type: ignore[arg-type]


def test_queries_keep_their_ids() -> None:
    found = as_queries([Query("q7", "a"), "b", Document("d1", "c", title="t")])
    assert found == [Query("q7", "a"), Query("2", "b"), Query("d1", "t c")]
    for identifier in (1, "", "a\tb", "\ud83d"):
        with pytest.raises(ArgumentError, match=r"^queries\[0\]: "):
            as_queries([Query(identifier, "a")])  # type: ignore[arg-type]


WHOLE: dict[str, Callable[[SparseEncoder, Any], object]] = {
    "search": lambda model, number: search(UNUSED, [TEXT], k=number),
    "Collection.search": lambda model, number: Collection.search(UNUSED, [TEXT], k=number),
    "BM25Index.search": lambda model, number: _bm25().search([TEXT], k=number),
    "ExactIndex.search": lambda model, number: ExactIndex(csr_array((1, 2))).search(csr_array((1, 2)), k=number),
    "index": lambda model, number: index(model, "pydocs:", "never", max_terms=number),
    "encode, max_terms": lambda model, number: encode(model, [TEXT], max_terms=number),
    "encode, max_length": lambda model, number: encode(model, [TEXT], max_length=number),
    "encode, shards": lambda model, number: encode(model, "pydocs:", output="never", shards=number),
    "prune": lambda model, number: prune(csr_array((1, 2)), max_terms=number),
    "expansion": lambda model, number: expand_vector(csr_array((1, 1)), ["a"], [], k=number),
    "calibrate": lambda model, number: calibrate(model, [TEXT], shift=1.0, count=number),
    "Searcher": lambda model, number: Searcher(UNUSED, k=number),
}


@pytest.mark.parametrize("name", WHOLE)
def test_numbers_that_are_not_whole_are_refused(name: str, toy_model: SparseEncoder) -> None:
    for number in (2.0, 1.5, np.float32(2), "2", True):
        with pytest.raises(ArgumentError) as caught:
            WHOLE[name](toy_model, number)
        assert "\n" not in str(caught.value)
    with pytest.raises(ArgumentError):
        WHOLE[name](toy_model, np.int64(0))


def test_whole_numbers_of_numpy_are_taken(toy_model: SparseEncoder) -> None:
    two = np.int64(2)
    vectors = encode(toy_model, [TEXT], max_terms=two, max_length=np.int32(16))
    assert (vectors != encode(toy_model, [TEXT], max_terms=2, max_length=16)).nnz == 0
    assert ExactIndex(vectors).search(vectors, k=two).rows.tolist() == [[0, -1]]
    with pytest.raises(ArgumentError):
        prune(vectors, min_weight="1")  # type: ignore[call-overload]
