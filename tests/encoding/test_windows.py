"""Long texts: no word is lost to windows, and the maximum over them is what brute force makes of them one by one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerFast

from studies.toy_models import FAMILIES
from vocable.data import Document
from vocable.encoding import stream
from vocable.encoding.encode import EncodedCorpus, encode
from vocable.encoding.load import load
from vocable.encoding.pruning import prune
from vocable.encoding.stream import StreamProgress, encode_stream, in_parts
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.vectors import read_vectors
from vocable.encoding.windows import OVERLAP, windows
from vocable.errors import ArgumentError
from vocable.torch_models.torch_model import BATCH_TOKENS, TorchEncoder

TEXTS = st.lists(
    st.one_of(
        st.sampled_from(
            ["The fox", "reads", "naïve", "Ålesund", "retrieval-augmented", "twelve", "x" * 40, "字字字。字", "🦊"]
        ),
        st.sampled_from([". ", ".\n\n", " ", "  ", "? ", ", "]),
    ),
    max_size=150,
).map("".join)


def offsets(tokenizer: PreTrainedTokenizerFast, text: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)[
        "offset_mapping"
    ]
    return found


@pytest.mark.parametrize("family", FAMILIES)
@given(text=TEXTS, room=st.integers(8, 40))
def test_windows_are_all_of_a_text_and_none_is_too_long(
    tokenizers: dict[str, PreTrainedTokenizerFast], family: str, text: str, room: int
) -> None:
    tokens = offsets(tokenizers[family], text)
    spans = windows(text, tokens, room)
    starts, ends = np.array(spans).T
    assert (np.diff(starts) > 0).all()
    assert (np.diff(ends) > 0).all()
    covered = np.zeros(len(text) + 1, dtype=bool)
    for start, end in spans:
        covered[start:end] = True
        assert len({token for token in tokens if start <= token[0] and token[1] <= end}) <= room
    read = np.zeros_like(covered)  # what has tokens: a tokenizer may pass over the rest, as blanks
    for start, end in tokens:
        read[start:end] = [not one.isspace() for one in text[start:end]]
    assert not (read & ~covered).any()
    shared = [
        sum(after <= token[0] < before for token in tokens) for before, after in zip(ends, starts[1:], strict=False)
    ]
    assert max(shared, default=0) <= room // OVERLAP + 4  # tokens of one character are counted together


def test_windows_end_with_a_sentence_else_with_a_word(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    sentences = ["The old fox reads books.", "Every compiler forgets (see chapter 7).", "A librarian indexes."] * 4
    text = " ".join(sentences)
    for start, end in windows(text, offsets(tokenizers["wordpiece"], text), 24):
        assert text[start:end].startswith(("The", "Every", "A lib"))
        assert text[start:end].endswith(".")
    text = text.replace(".", "")
    for start, end in windows(text, offsets(tokenizers["wordpiece"], text), 24):
        assert text[start - 1 : start].strip() == text[end : end + 1].strip() == ""
        assert text[start:end] == text[start:end].strip()


@pytest.mark.parametrize("name", ["bert", "roberta", "albert"])
@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("max_length", [10, 24])
def test_max_is_the_maximum_of_windows_one_by_one(
    backbones: dict[str, Path], toy_texts: list[str], name: str, pooling: Any, max_length: int
) -> None:
    model = load(backbones[name], pooling=pooling, device="cpu")
    texts = [toy_texts[0], " ".join(toy_texts[:9]), "", " ".join(toy_texts[9:13]), "fox" * 30]
    limits: dict[str, Any] = {"max_terms": 12, "min_weight": 0.01}
    encoder = TextEncoder(model, dtype="float32", max_length=max_length, long_documents="maxpool", **limits)
    found = encoder.encode(texts)
    cut, expected, count = TextEncoder(model, dtype="float32", max_length=max_length, max_terms=10**6), [], 0
    for text in texts:
        parts = [text[start:end] for start, end in encoder.windows(text)]
        expected.append(np.max([cut.encode([part]).toarray()[0] for part in parts], axis=0))
        count += len(parts)
    np.testing.assert_allclose(
        found.toarray(), prune(csr_array(np.array(expected)), **limits).toarray(), rtol=1e-4, atol=1e-5
    )
    assert (encoder.truncated, cut.truncated) == (0, 0)
    assert encoder.windows_read == count > len(texts)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_the_models_own_number_of_terms_grows_with_the_windows(
    backbones: dict[str, Path], toy_texts: list[str], name: str
) -> None:
    """A document of w windows may have sqrt(w) times as many; a limit that is asked for is of the whole document."""
    model, how = load(backbones[name], device="cpu"), {"dtype": "float32", "max_length": 12}
    model[0].auto_model.config.active_terms = {"document": 5, "query": 3}
    texts = [toy_texts[0], " ".join(toy_texts[:9]), "fox", " ".join(toy_texts[9:40])]
    encoder = TextEncoder(model, long_documents="maxpool", **how)  # type: ignore[arg-type]
    parts = [[text[start:end] for start, end in encoder.windows(text)] for text in texts]
    whole = TextEncoder(model, max_terms=10**6, **how)  # type: ignore[arg-type]
    vectors = [csr_array(whole.encode(some).toarray().max(axis=0)[None]) for some in parts]
    own = [math.ceil(5 * math.sqrt(len(some))) for some in parts]
    assert own[2] == 5 < own[1] < own[3]
    for options, limits in (({}, own), ({"max_terms": 7}, [7] * 4), ({"min_weight": 0.3}, own)):
        found = TextEncoder(model, long_documents="maxpool", **how, **options).encode(texts)  # type: ignore[arg-type]
        for row, (vector, limit) in enumerate(zip(vectors, limits, strict=True)):
            expected = prune(vector, limit, options.get("min_weight", 0.0))
            np.testing.assert_allclose(found[[row]].toarray(), expected.toarray(), rtol=1e-4, atol=1e-5)
    assert np.diff(encoder.encode(texts).indptr)[3] > 5


@given(text=TEXTS, max_length=st.integers(16, 60))
def test_no_window_is_cut(toy_model_of_all_tests: SparseEncoder, text: str, max_length: int) -> None:
    encoder = TextEncoder(toy_model_of_all_tests, dtype="float32", max_length=max_length, long_documents="maxpool")
    before = "A title: "
    for start, end in encoder.windows(text, before):
        [ids] = encoder._tokens([before + text[start:end]], special=True)
        assert len(ids) <= max_length


@pytest.fixture(scope="module")
def toy_model_of_all_tests(backbones: dict[str, Path]) -> SparseEncoder:
    return load(backbones["roberta"], device="cpu")


def test_short_texts_have_the_vectors_of_one_window(toy_model: SparseEncoder, toy_texts: list[str]) -> None:
    assert (encode(toy_model, toy_texts[:9], long_documents="maxpool") != encode(toy_model, toy_texts[:9])).nnz == 0
    assert encode(toy_model, [], long_documents="maxpool").shape == encode(toy_model, []).shape


def test_progress_ends_at_the_number_of_texts(toy_model: SparseEncoder, toy_texts: list[str]) -> None:
    done: list[int] = []
    texts = [" ".join(toy_texts[:20]), "fox", " ".join(toy_texts[20:30])]
    TextEncoder(toy_model, long_documents="maxpool", max_length=8).encode(texts, done.append)
    assert sum(done) == 3
    assert min(done) >= 0


def test_a_part_that_was_interrupted_goes_on(
    toy_model: SparseEncoder, toy_texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BATCH_TOKENS, "cpu", 40)
    documents = [Document(f"d{i}", " ".join(toy_texts[9 * i : 9 * i + i + 1])) for i in range(6)]
    encoder = TextEncoder(toy_model, dtype="float32", max_length=12, long_documents="maxpool")
    encode_batch, batches, last = TorchEncoder.encode, list[int](), 10**6

    def interrupted(self: TorchEncoder, texts: list[str], *others: Any) -> csr_array:
        if len(batches) == last:
            raise KeyboardInterrupt
        batches.append(len(texts))
        return encode_batch(self, texts, *others)

    monkeypatch.setattr(TorchEncoder, "encode", interrupted)
    whole = encode_stream(encoder, documents, tmp_path / "whole", model="toy")
    last = len(batches) + 4
    with pytest.raises(KeyboardInterrupt):
        encode_stream(encoder, documents, tmp_path / "out", model="toy")
    last, before = 10**6, encoder.windows_read
    done = encode_stream(encoder, documents, tmp_path / "out", model="toy")
    assert sum(batches) == 2 * whole.windows  # none was encoded twice
    assert (done.windows, encoder.windows_read - before) == (whole.windows, whole.windows)
    found, expected = read_vectors(tmp_path / "out").matrix, read_vectors(tmp_path / "whole").matrix
    np.testing.assert_array_equal(found.toarray(), expected.toarray())
    with pytest.raises(ArgumentError):
        encode_stream(TextEncoder(toy_model, dtype="float32", max_length=12), documents, tmp_path / "out", model="toy")


def test_parts_end_early_where_texts_are_long_and_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PART_CHARACTERS", 100)
    documents = [Document(str(i), "x" * (60 if i < 4 else 10)) for i in range(9)]
    assert [len(part) for part in in_parts(documents, 4, "truncate")] == [4, 4, 1]
    assert [len(part) for part in in_parts(documents, 4, "maxpool")] == [2, 2, 4, 1]


def test_an_unknown_way_and_a_tokenizer_without_places_are_refused(
    toy_model: SparseEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong: Any = "passages"
    with pytest.raises(ArgumentError):
        encode(toy_model, ["fox"], long_documents=wrong)
    monkeypatch.setattr(PreTrainedTokenizerFast, "is_fast", False)
    with pytest.raises(ArgumentError):
        encode(toy_model, ["fox"], long_documents="maxpool")


def test_windows_are_counted_in_the_result() -> None:
    told = EncodedCorpus(3, 1.0, 0, 0, 128, 0, "", windows=17)
    assert "17 windows of at most 128 tokens" in str(told)
    assert told.to_json()["windows"] == 17
    assert StreamProgress().windows == 0
