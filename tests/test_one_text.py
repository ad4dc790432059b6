"""One str where a list of texts is meant: its characters are not taken for texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sentence_transformers import SparseEncoder

from vocable.adapt.calibrate import calibrate
from vocable.adapt.expand import expand, frequent_words
from vocable.adapt.initialization import log_counts
from vocable.adapt.rescale import choose_factor, rescale
from vocable.adapt.statistics import measure_start
from vocable.adapt.transfer import transfer
from vocable.adapt.vocabulary import count_words, fragmentation, train_vocabulary
from vocable.analysis.expanders import Query2Doc, open_expander
from vocable.analysis.expansion_data import expansion_data, proper_names
from vocable.analysis.logits import logit_statistics, logits, recoverability
from vocable.encoder.encode import TextEncoder
from vocable.encoder.fuse import splade_modules
from vocable.encoder.inference_free import inference_free
from vocable.encoder.roles import document_frequencies
from vocable.encoder.stream import encode
from vocable.encoder.terms import input_terms
from vocable.errors import ArgumentError, check_texts
from vocable.evaluation.grid import parse_grid
from vocable.evaluation.testsets import text_embeddings
from vocable.search.collection import Collection
from vocable.search.engines.bm25 import RM3, BM25Index
from vocable.search.engines.exact import ExactIndex
from vocable.training.pretrain import pretrain

TEXT = "a text of more than eight words, which is one and not many"
UNUSED: Any = None  # an argument that is not looked at before the texts are

Call = Callable[[SparseEncoder], object]


def _mlm(model: SparseEncoder) -> Any:
    [(transformer, _), *_] = splade_modules(model)
    return transformer.auto_model


def _bm25() -> BM25Index:
    return BM25Index([TEXT])


CALLS: dict[str, Call] = {
    "encode": lambda model: encode(model, TEXT),
    "TextEncoder.encode": lambda model: TextEncoder(model).encode(TEXT),
    "input_terms": lambda model: input_terms(model, TEXT),
    "inference_free": lambda model: inference_free(model, TEXT),
    "document_frequencies": lambda model: document_frequencies(TEXT, model.tokenizer),
    "calibrate": lambda model: calibrate(model, TEXT, activation_rate=0.1),
    "rescale": lambda model: rescale(model, "auto", texts=TEXT),
    "choose_factor": lambda model: choose_factor(_mlm(model), model.tokenizer, TEXT),
    "measure_start": lambda model: measure_start(_mlm(model), model.tokenizer, TEXT),
    "transfer": lambda model: transfer(model, model.tokenizer, texts=TEXT),
    "log_counts": lambda model: log_counts(model.tokenizer, TEXT),
    "pretrain": lambda model: pretrain(model, TEXT, steps=1),
    "frequent_words": lambda model: frequent_words(TEXT, model.tokenizer),
    "fragmentation": lambda model: fragmentation(model.tokenizer, TEXT),
    "count_words": lambda model: count_words(TEXT),
    "train_vocabulary": lambda model: train_vocabulary(TEXT, 100),
    "logit_statistics": lambda model: logit_statistics(_mlm(model), model.tokenizer, TEXT),
    "recoverability": lambda model: recoverability(_mlm(model), model.tokenizer, TEXT, 2),
    "text_embeddings": lambda model: text_embeddings(TEXT),
    "parse_grid": lambda model: parse_grid("query_top_k=5"),
    "proper_names": lambda model: proper_names(TEXT),
    "BM25Index": lambda model: BM25Index(TEXT),
    "BM25Index.query_vectors": lambda model: _bm25().query_vectors(TEXT),
    "RM3": lambda model: RM3(_bm25(), TEXT),
    "RM3.expand": lambda model: RM3(_bm25(), [TEXT]).expand(TEXT),
    "Query2Doc.expand": lambda model: Query2Doc(_bm25(), UNUSED).expand(TEXT),
    "expansion_data": lambda model: expansion_data(model, TEXT, [TEXT]),
    "logits": lambda model: logits("none", TEXT),
}
NAMED: dict[str, tuple[str, Call]] = {
    "Collection.search": ("queries", lambda model: Collection.search(UNUSED, TEXT, UNUSED)),
    "BM25Index.search": ("queries", lambda model: _bm25().search(TEXT)),
    "expand": ("words", lambda model: expand(model, "words")),
    "expansion_data, documents": ("documents", lambda model: expansion_data(model, [TEXT], TEXT)),
    "open_expander": ("documents", lambda model: open_expander("rm3", TEXT, "query")),
}


@pytest.mark.parametrize("name", [*CALLS, *NAMED])
def test_one_str_is_refused(name: str, toy_model: SparseEncoder) -> None:
    argument, call = NAMED[name] if name in NAMED else ("texts", CALLS[name])
    with pytest.raises(ArgumentError, match=rf"^{argument} must be a list of texts, not one str: write \[text\]$"):
        call(toy_model)


def test_whatever_else_gives_texts_is_taken(toy_model: SparseEncoder) -> None:
    for texts in ([TEXT], (TEXT,), iter([TEXT]), {TEXT: 1}, None):
        check_texts(texts)
    vectors = encode(toy_model, (TEXT, TEXT))
    assert ExactIndex(vectors).search(vectors, k=1).rows.tolist() == [[0], [0]]
