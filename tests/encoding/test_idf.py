"""Document frequencies and IDF against counting by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from vocable.encoding import terms as module
from vocable.encoding.idf import document_frequencies, idf
from vocable.errors import ArgumentError


def test_documents_are_counted_once_a_token(
    tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOKENIZED_TEXTS", 7)
    texts = [*toy_texts[:50], "", "fox fox fox", " ".join(toy_texts)]  # the last is longer than any model reads
    for tokenizer in tokenizers.values():
        found, documents = document_frequencies(iter(texts), tokenizer)
        assert documents == len(texts) == 53
        assert found.dtype == np.int64
        assert len(found) == len(tokenizer)
        sets = [set(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) for text in texts]
        assert found.tolist() == [sum(token in tokens for tokens in sets) for token in range(len(tokenizer))]
        assert not found[[tokenizer.cls_token_id, tokenizer.sep_token_id]].any()


def test_a_wider_head_has_columns_that_no_document_has(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    tokenizer = tokenizers["wordpiece"]
    narrow, _ = document_frequencies(["the old fox"], tokenizer)
    wide, _ = document_frequencies(["the old fox"], tokenizer, size=len(tokenizer) + 5)
    assert wide.tolist() == [*narrow.tolist(), 0, 0, 0, 0, 0]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.integers(1, 10**9))
def test_both_formulas_are_those_of_the_docstring(frequencies: list[int], more: int) -> None:
    documents = max(frequencies) + more
    found = idf(np.array(frequencies), documents)
    assert found.dtype == np.float32
    assert (found > 0).all()
    expected = [math.log(1 + (documents - df + 0.5) / (df + 0.5)) for df in frequencies]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    plain = idf(np.array(frequencies), documents, formula="log")
    np.testing.assert_allclose(plain, [math.log(documents / max(df, 1)) for df in frequencies], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("frequencies", "documents", "formula"),
    [([0], 0, "bm25"), ([1, 5], 4, "bm25"), ([-1], 4, "bm25"), ([1], 4, "bm42")],
)
def test_impossible_counts_are_refused(frequencies: list[int], documents: int, formula: str) -> None:
    with pytest.raises(ArgumentError):
        idf(np.array(frequencies), documents, formula=formula)
