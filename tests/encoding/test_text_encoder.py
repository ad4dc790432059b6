from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from transformers import PreTrainedTokenizerFast

from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.encoding.pruning import prune
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError
from vocable.torch_models import cpu
from vocable.torch_models import torch_model as encoding
from vocable.torch_models.fuse import fuse

Floats = NDArray[np.float32]


def stock_values(folder: Path, texts: list[str], **options: Any) -> Floats:
    """Return plain sentence-transformers' vectors of texts, dense [b, v]; texts without a word have no term."""
    return without_blank(SparseEncoder(str(folder), device="cpu").encode(texts, **options).to_dense().numpy(), texts)


def without_blank(vectors: Floats, texts: list[str]) -> Floats:
    return vectors * np.array([bool(text.strip()) for text in texts])[:, None]


def assert_sound(vectors: csr_array) -> None:
    assert vectors.data.dtype == np.float32
    assert vectors.indices.dtype == np.int32
    assert vectors.has_canonical_format  # sorted columns, none twice
    assert (vectors.data > 0).all()
    assert vectors.indptr[-1] == len(vectors.data) == len(vectors.indices)


@pytest.fixture
def texts(toy_texts: list[str]) -> list[str]:
    """Out of order by length, with duplicates, an empty one and one of spaces."""
    return [toy_texts[0], "fox", toy_texts[1] * 2, "", toy_texts[2], "fox", "  ", toy_texts[0], *toy_texts[3:20]]


@pytest.fixture(params=[0, 3, 40], ids=lambda tokens: f"{tokens or 'default'}-tokens")
def batch_tokens(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default batches, and batches of a text each and of a few."""
    if request.param:
        monkeypatch.setitem(encoding.BATCH_TOKENS, "cpu", request.param)


def test_values_are_the_stock_model_s(backbone: Path, texts: list[str]) -> None:
    vectors = encode(load(backbone, device="cpu"), texts, dtype="float32")
    assert_sound(vectors)
    expected = stock_values(backbone, texts)
    assert vectors.shape == expected.shape
    np.testing.assert_allclose(vectors.toarray(), expected, rtol=1e-4, atol=1e-5)
    assert 0.02 < vectors.nnz / expected.size < 0.5


def test_a_stock_model_is_encoded_as_well(backbones: dict[str, Path], texts: list[str]) -> None:
    model = SparseEncoder(str(backbones["bert"]), device="cpu")
    vectors = encode(model, texts, dtype="float32")
    np.testing.assert_allclose(vectors.toarray(), stock_values(backbones["bert"], texts), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("batch_tokens")
def test_order_and_duplicates_are_kept_whatever_the_batches(
    toy_model: SparseEncoder, backbones: dict[str, Path], texts: list[str]
) -> None:
    vectors, stock = (
        encode(toy_model, texts, dtype="float32").toarray(),
        SparseEncoder(str(backbones["bert"]), device="cpu"),
    )
    for row, text in enumerate(texts):
        alone = without_blank(stock.encode([text]).to_dense().numpy(), [text])[0]
        np.testing.assert_allclose(vectors[row], alone, rtol=1e-4, atol=1e-5, err_msg=repr(text))


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_batches_at_once_are_those_one_after_the_other(
    toy_model: SparseEncoder, toy_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(encoding.BATCH_TOKENS, "cpu", 32)
    seen: list[int] = []
    found = TextEncoder(toy_model).encode(toy_texts, seen.append)
    assert (sum(seen), torch.get_num_threads()) == (len(toy_texts), 2)
    torch.set_num_threads(1)
    expected = TextEncoder(toy_model).encode(toy_texts)
    assert (found != expected).nnz == 0


@pytest.mark.usefixtures("two_threads")
def test_a_batch_that_fails_ends_the_encoding(
    toy_model: SparseEncoder, toy_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(encoding.BATCH_TOKENS, "cpu", 32)

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TextEncoder(toy_model).encode(toy_texts, stop)
    assert torch.get_num_threads() == 2


@given(texts=st.lists(st.text(max_size=30), max_size=6), max_terms=st.none() | st.integers(1, 20))
def test_any_text_has_its_row(toy_model: SparseEncoder, texts: list[str], max_terms: int | None) -> None:
    vectors = encode(toy_model, texts, max_terms=max_terms, dtype="float32")
    assert_sound(vectors)
    assert vectors.shape[0] == len(texts)
    for row, text in enumerate(texts):
        alone = encode(toy_model, [text], max_terms=max_terms, dtype="float32")
        np.testing.assert_allclose(vectors.toarray()[row], alone.toarray()[0], rtol=1e-4, atol=1e-5)


def test_no_text_gives_no_row(toy_model: SparseEncoder) -> None:
    vectors = encode(toy_model, [])
    assert_sound(vectors)
    assert vectors.shape == (0, toy_model[0].config.vocab_size)


def test_progress_counts_every_text_once(toy_model: SparseEncoder, texts: list[str]) -> None:
    done: list[int] = []
    TextEncoder(toy_model).encode(texts, done.append)
    assert sum(done) == len(texts)


def kept(row: Floats, max_terms: int | None, min_weight: float) -> Floats:
    """Brute force: the heaviest terms above the threshold; of equal weights the lower column."""
    order = sorted(range(len(row)), key=lambda column: (-row[column], column))[:max_terms]
    return np.array([w if c in order and w > min_weight else 0 for c, w in enumerate(row)], dtype=np.float32)


@pytest.mark.parametrize(
    ("max_terms", "min_weight"), [(1, 0.0), (5, 0.0), (None, 0.2), (6, 0.3), (10_000, 0.0), (3, 9.0)]
)
def test_max_terms_and_min_weight_are_those_of_brute_force(
    toy_model: SparseEncoder, texts: list[str], max_terms: int | None, min_weight: float
) -> None:
    everything = encode(toy_model, texts, dtype="float32").toarray()
    vectors = encode(toy_model, texts, max_terms=max_terms, min_weight=min_weight, dtype="float32")
    assert_sound(vectors)
    expected = np.stack([kept(row, max_terms, min_weight) for row in everything])
    assert np.array_equal(vectors.toarray(), expected)


def test_of_equal_weights_the_lower_columns_are_kept() -> None:
    pooled = torch.tensor([[0.5, 1.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0, 2.0]])
    vectors = prune(encoding._to_csr(pooled), max_terms=2)
    assert_sound(vectors)
    assert vectors.toarray().tolist() == [[0.5, 1.0, 0, 0, 0], [0, 0, 0, 0, 2.0]]


def test_the_model_s_own_number_of_terms_is_honoured(toy_model: SparseEncoder, texts: list[str]) -> None:
    assert np.diff(encode(toy_model, texts).indptr).max() > 4
    toy_model.max_active_dims = 4
    vectors = encode(toy_model, texts, dtype="float32")
    assert np.diff(vectors.indptr).max() == 4
    expected = toy_model.encode_document(texts).to_dense().numpy()
    np.testing.assert_allclose(vectors.toarray(), without_blank(expected, texts), rtol=1e-4, atol=1e-5)
    assert np.diff(encode(toy_model, texts, max_terms=6).indptr).max() == 6


@pytest.mark.parametrize("role", ["query", "document"])
@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"query": "the rain ", "document": "An Owl "}, None),
        ({"passage": "My neighbour "}, None),
        ({"corpus": "lists "}, "corpus"),
        ({"other": "books "}, "other"),
    ],
)
def test_prompts_are_those_of_the_stock_model(
    backbones: dict[str, Path], texts: list[str], role: Any, prompts: dict[str, str], default: str | None
) -> None:
    stock = SparseEncoder(str(backbones["bert"]), prompts=prompts, default_prompt_name=default, device="cpu")
    by_role: dict[str, Callable[..., torch.Tensor]] = {"query": stock.encode_query, "document": stock.encode_document}
    expected = by_role[role](texts).to_dense().numpy()
    vectors = encode(fuse(stock), texts, role=role, dtype="float32")
    np.testing.assert_allclose(vectors.toarray(), without_blank(expected, texts), rtol=1e-4, atol=1e-5)


def test_a_prompt_changes_the_vectors(backbones: dict[str, Path], texts: list[str]) -> None:
    prompts = {"query": "the rain ", "document": ""}
    model = fuse(SparseEncoder(str(backbones["bert"]), prompts=prompts, device="cpu"))
    queries, documents = (encode(model, texts, role=role, dtype="float32").toarray() for role in ("query", "document"))
    assert not np.allclose(queries, documents, atol=1e-3)
    np.testing.assert_allclose(documents, stock_values(backbones["bert"], texts), rtol=1e-4, atol=1e-5)
    prompted = stock_values(backbones["bert"], ["the rain " + text for text in texts])
    np.testing.assert_allclose(queries, without_blank(prompted, texts), rtol=1e-4, atol=1e-5)


@pytest.fixture
def router(backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast]) -> SparseEncoder:
    tokenizer = tokenizers["wordpiece"]
    static = SparseStaticEmbedding(tokenizer, weight=torch.linspace(0.5, 3, len(tokenizer)))
    documents = [Transformer(str(backbones["bert"]), transformer_task="fill-mask"), SpladePooling()]
    return SparseEncoder(modules=[Router.for_query_document([static], documents)], device="cpu")


def test_a_router_s_routes_are_those_of_the_stock_model(router: SparseEncoder, texts: list[str]) -> None:
    texts = [text for text in texts if text.strip()]
    queries = router.encode_query(texts).to_dense().numpy()
    documents = router.encode_document(texts).to_dense().numpy()
    fuse(router)
    for role, expected in (("query", queries), ("document", documents)):
        vectors = encode(router, texts, role=role, dtype="float32")
        assert_sound(vectors)
        np.testing.assert_allclose(vectors.toarray(), expected, rtol=1e-4, atol=1e-5)
    fox = encode(router, ["the fox fox"], role="query", dtype="float32")
    assert fox.nnz == 2  # static queries have no special tokens, and a repeated word counts once


def test_static_queries_may_be_empty_and_are_cut_at_the_length_asked_for(router: SparseEncoder) -> None:
    queries = ["fox", "", "the old fox reads books"]
    encoder = TextEncoder(fuse(router), "query", max_length=2)
    vectors = encoder.encode(queries)
    assert_sound(vectors)
    assert np.diff(vectors.indptr).tolist() == [1, 0, 2]
    assert (encoder.truncated, encoder.pooling) == (1, "static")
    np.testing.assert_array_equal(vectors[[2]].toarray(), encode(router, ["the old"], role="query").toarray())
    assert encode(router, ["", " "], role="query").nnz == 0
    assert encode(router, [], role="query").shape == (0, vectors.shape[1])


def test_static_queries_are_cut_where_the_stock_model_cuts_them(router: SparseEncoder, toy_texts: list[str]) -> None:
    router[0].sub_modules["query"][0].tokenizer.model_max_length = 7
    texts = [" ".join(toy_texts[:4]), "fox"]
    encoder = TextEncoder(router, "query")
    np.testing.assert_array_equal(encoder.encode(texts).toarray(), router.encode_query(texts).to_dense().numpy())
    assert (encoder.max_length, encoder.truncated) == (7, 1)
    router[0].sub_modules["query"][0].tokenizer.model_max_length = 10**30  # what transformers writes for none
    assert TextEncoder(router, "query").max_length is None
    assert encode(router, texts, "query").nnz > 8


def test_static_queries_keep_prompts_limits_and_positive_weights(router: SparseEncoder, texts: list[str]) -> None:
    texts = [text for text in texts if text.strip()]
    stock = router.encode_query(texts).to_dense().numpy()
    vectors = encode(router, texts, role="query", max_terms=2, min_weight=1.0).toarray()
    for row, full in zip(vectors, stock, strict=True):
        heaviest = np.sort(full)[-2:]
        np.testing.assert_array_equal(np.sort(row)[-2:], np.where(heaviest >= 1.0, heaviest, 0))
    router.prompts["query"] = "the rain "
    np.testing.assert_array_equal(
        encode(router, texts, role="query").toarray(), router.encode_query(texts).to_dense().numpy()
    )
    with torch.no_grad():
        router[0].sub_modules["query"][0].weight.neg_()
    assert encode(router, texts, role="query").nnz == 0


def test_static_queries_are_exact_whatever_the_number_type(router: SparseEncoder, texts: list[str]) -> None:
    vectors = [encode(router, texts, role="query", dtype=dtype).toarray() for dtype in ("float32", "bfloat16")]
    np.testing.assert_array_equal(*vectors)


def test_each_route_s_limit_is_its_own(backbones: dict[str, Path], texts: list[str]) -> None:
    routes = [
        [Transformer(str(backbones[name]), transformer_task="fill-mask"), SpladePooling()]
        for name in ("distilbert", "bert")
    ]
    for (transformer, _), limits in zip(routes, ({"query": 3}, {"query": 2, "document": 5}), strict=True):
        transformer.auto_model.config.active_terms = limits
    model = SparseEncoder(modules=[Router.for_query_document(*routes)], device="cpu")
    assert TextEncoder(model, "query").max_terms == 3
    assert TextEncoder(model, "document").max_terms == 5


def test_max_length_cuts_and_counts(
    toy_model: SparseEncoder, backbones: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    words = "the old fox reads books at night"
    texts = ["the old", words, "the old fox", words + " in the rain"]
    with caplog.at_level(logging.WARNING, logger="vocable"):
        vectors = encode(toy_model, texts, max_length=5, dtype="float32")
    assert [record.getMessage() for record in caplog.records] == ["2 of 4 texts were cut at 5 tokens"]
    # Five tokens are [CLS], three words and [SEP].
    assert len(toy_model.tokenizer.tokenize("the old fox")) == 3
    expected = stock_values(backbones["bert"], ["the old", *["the old fox"] * 3])
    np.testing.assert_allclose(vectors.toarray(), expected, rtol=1e-4, atol=1e-5)


def test_a_long_text_is_tokenized_no_further_than_it_is_read(
    toy_model: SparseEncoder, toy_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = [" ".join(toy_texts), "x" * 9_000, "a\u0301 " * 3_000, "  " * 5_000 + toy_texts[0], "\u4e2d!" * 4_000]
    cut, whole = TextEncoder(toy_model, max_length=5), TextEncoder(toy_model, max_length=5)
    vectors = cut.encode(long)
    monkeypatch.setattr("vocable.encoding.text_encoder.LONGEST_TOKEN", 10**9)
    assert (vectors != whole.encode(long)).nnz == 0
    assert cut.truncated == whole.truncated


def test_nothing_is_said_when_nothing_is_cut(toy_model: SparseEncoder, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="vocable"):
        encode(toy_model, ["the old fox"], max_length=5)
        encode(toy_model, [])
    assert not caplog.records


def test_lengths_are_the_model_s_own_for_the_role(toy_model: SparseEncoder, toy_texts: list[str]) -> None:
    text = " ".join(toy_texts[:20])
    assert TextEncoder(toy_model, "query").max_length == 64
    transformer = toy_model[0]
    transformer.query_length, transformer.document_length = 6, 9
    for role, length in (("query", 6), ("document", 9)):
        encoder = TextEncoder(toy_model, role, dtype="float32")
        vectors = encoder.encode([text, "fox"])
        assert (encoder.max_length, encoder.truncated) == (length, 1)
        stock = toy_model.encode_query if role == "query" else toy_model.encode_document
        np.testing.assert_allclose(vectors.toarray(), stock([text, "fox"]).to_dense().numpy(), rtol=1e-4, atol=1e-5)
    assert TextEncoder(toy_model, "query", max_length=12).max_length == 12


def test_truncated_texts_are_counted_over_all_calls(toy_model: SparseEncoder) -> None:
    encoder = TextEncoder(toy_model, max_length=3)
    encoder.encode(["fox", "the old fox"])
    encoder.encode(["reads books"])
    assert encoder.truncated == 2


def test_bfloat16_is_close_to_float32_and_leaves_the_model_alone(toy_model: SparseEncoder, texts: list[str]) -> None:
    before = {name: value.clone() for name, value in toy_model.state_dict().items()}
    exact = encode(toy_model, texts, dtype="float32").toarray()
    vectors = encode(toy_model, texts, dtype="bfloat16")
    assert_sound(vectors)
    difference = np.linalg.norm(vectors.toarray() - exact) / np.linalg.norm(exact)
    assert 0 < difference < 0.03
    assert all(torch.equal(value, before[name]) for name, value in toy_model.state_dict().items())
    assert np.array_equal(encode(toy_model, texts, dtype="float32").toarray(), exact)


@pytest.mark.parametrize(("native", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_auto_computes_in_bfloat16_only_where_it_is_native(
    toy_model: SparseEncoder, monkeypatch: pytest.MonkeyPatch, native: bool, dtype: str
) -> None:
    monkeypatch.setattr(cpu, "native_bfloat16", lambda device: native)
    assert TextEncoder(toy_model).model.dtype == dtype
    assert TextEncoder(toy_model.bfloat16()).model.dtype == dtype


@pytest.mark.parametrize(
    "options",
    [
        {"role": "passage"},
        {"dtype": "float16"},
        {"max_terms": 0},
        {"min_weight": -0.1},
        {"min_weight": float("nan")},
        {"max_length": 0},
        {"max_length": 65},
    ],
)
def test_arguments_out_of_range_are_refused(toy_model: SparseEncoder, options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        encode(toy_model, ["fox"], **options)
