"""A corpus encoded in parts: equal to one encoding, whatever interrupts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.data import Document
from vocable.encoding import stream
from vocable.encoding.stream import StreamProgress, encode_stream
from vocable.encoding.terms import terms
from vocable.encoding.text_encoder import TextEncoder, describe
from vocable.encoding.vectors import StoredVectors, read_vectors, vocabulary_fingerprint
from vocable.errors import ArgumentError, VectorsError
from vocable.torch_models.torch_model import TorchEncoder

PART = 4


class Killed(BaseException):
    """An exception that no handler catches, as a signal would be."""


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PART_SIZE", PART)


@pytest.fixture
def documents(toy_texts: list[str]) -> list[Document]:
    texts = sorted(set(toy_texts))[:10]
    return [Document(f"d{i}", text, title=f"title {i}" if i % 2 else "") for i, text in enumerate(texts)]


@pytest.fixture
def encoder(toy_model: SparseEncoder) -> TextEncoder:
    return TextEncoder(toy_model, dtype="float32")


def dense(vectors: csr_array) -> np.ndarray:
    return vectors.toarray()


def stored(folder: Path) -> StoredVectors:
    found = read_vectors(folder)
    assert not folder.with_name(f"{folder.name}.partial").exists()
    return found


def broken_off(documents: list[Document], after: int) -> Iterator[Document]:
    yield from documents[:after]
    raise Killed


def test_parts_together_are_one_encoding(encoder: TextEncoder, documents: list[Document], tmp_path: Path) -> None:
    done = encode_stream(encoder, iter(documents), tmp_path / "out", model="toy", source="list")
    found = stored(tmp_path / "out")
    whole = encoder.encode([document.full for document in documents])
    assert list(found.ids) == [document.id for document in documents]
    np.testing.assert_allclose(dense(found.matrix), dense(whole), atol=1e-5)  # other batches, other rounding
    assert found.meta == describe(encoder, "toy")
    assert (done.parts, done.texts, done.truncated, done.empty, done.last_id) == (3, 10, 0, 0, "d9")
    assert done.seconds > 0


def test_vectors_say_what_made_them(toy_model: SparseEncoder) -> None:
    meta = describe(TextEncoder(toy_model, "query", max_length=9), "toy")
    names = terms(toy_model)
    assert (meta.vocabulary, meta.size) == (vocabulary_fingerprint(names), len(names))
    assert (meta.model, meta.pooling, meta.role, meta.max_length) == ("toy", "max", "query", 9)


@pytest.mark.parametrize("after", [0, 3, 4, 7, 8, 10])
def test_a_stopped_run_goes_on(
    encoder: TextEncoder, documents: list[Document], tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = encode_stream(encoder, documents, tmp_path / "whole", model="toy")
    with pytest.raises(Killed):
        encode_stream(encoder, broken_off(documents, after), tmp_path / "out", model="toy")
    assert not (tmp_path / "out").exists()
    encoded: list[str] = []
    encode = TextEncoder.encode_both

    def counting(self: TextEncoder, texts: list[str], *arguments: Any, **named: Any) -> object:
        encoded.extend(texts)
        return encode(self, texts, *arguments, **named)

    monkeypatch.setattr(TextEncoder, "encode_both", counting)
    done = encode_stream(encoder, documents, tmp_path / "out", model="toy")
    assert len(encoded) == 10 - after // PART * PART  # parts that were finished are not encoded again
    assert replace(done, seconds=0) == replace(whole, seconds=0)
    one, other = stored(tmp_path / "whole"), stored(tmp_path / "out")
    assert list(one.ids) == list(other.ids)
    np.testing.assert_array_equal(dense(one.matrix), dense(other.matrix))


@pytest.mark.parametrize(("seconds", "stop"), [(0.0, Killed), (99.0, KeyboardInterrupt)])
def test_a_part_that_was_begun_goes_on_at_the_batch_where_it_stopped(
    encoder: TextEncoder, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    seconds: float, stop: type[BaseException],
) -> None:  # fmt: skip
    monkeypatch.setattr(stream, "PART_SIZE", 8)
    monkeypatch.setattr(stream, "PART_SECONDS", seconds)
    monkeypatch.setattr(encoder, "batch_tokens", 24)
    encode_batch, batches = TorchEncoder.encode, list[int]()

    def counting(self: TorchEncoder, texts: list[str], *others: Any) -> csr_array:
        batches.append(len(texts))
        if len(batches) == stop_at:
            raise stop
        return encode_batch(self, texts, *others)

    monkeypatch.setattr(TorchEncoder, "encode", counting)
    stop_at = 0
    encode_stream(encoder, documents, tmp_path / "whole", model="toy")
    whole = batches.copy()
    assert len(whole) > 4
    batches.clear()
    stop_at = 3
    with pytest.raises(stop):
        encode_stream(encoder, documents, tmp_path / "out", model="toy")
    batches.clear()
    stop_at = 0
    encode_stream(encoder, documents, tmp_path / "out", model="toy")
    assert batches == whole[2:]
    names = [sorted(path.name for path in (tmp_path / place).iterdir()) for place in ("out", "whole")]
    assert names[0] == names[1]
    for path in (tmp_path / "whole").glob("*.parquet"):
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()


def test_a_part_that_was_not_counted_is_made_again(
    encoder: TextEncoder, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(stream, "write_record", killed)  # the part is on disk, its count is not
        with pytest.raises(Killed):
            encode_stream(encoder, documents, tmp_path / "out", model="toy")
    assert [path.name for path in (tmp_path / "out.partial").glob("part-*")] == ["part-00000.parquet"]
    encode_stream(encoder, documents, tmp_path / "out", model="toy")
    assert list(stored(tmp_path / "out").ids) == [document.id for document in documents]


def test_a_whole_result_is_left_as_it_is(encoder: TextEncoder, documents: list[Document], tmp_path: Path) -> None:
    first = encode_stream(encoder, documents, tmp_path / "out", model="toy")
    assert encode_stream(encoder, broken_off([], 0), tmp_path / "out", model="toy") == first
    other = TextEncoder(encoder.model, "query", min_weight=0.5, dtype="float32")
    with pytest.raises(ArgumentError, match=r"out .*\(min_weight, role\)"):
        encode_stream(other, documents, tmp_path / "out", model="toy")


def test_an_empty_folder_is_no_result(encoder: TextEncoder, documents: list[Document], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert encode_stream(encoder, documents, tmp_path / "out", model="toy").texts == 10
    assert len(stored(tmp_path / "out").ids) == 10


def test_a_folder_may_end_in_a_slash(encoder: TextEncoder, documents: list[Document], tmp_path: Path) -> None:
    encode_stream(encoder, documents, f"{tmp_path}/out/", model="toy")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_no_documents_are_readable(encoder: TextEncoder, tmp_path: Path) -> None:
    done = encode_stream(encoder, [], tmp_path / "out", model="toy")
    assert done == StreamProgress(parts=1, seconds=done.seconds)
    assert stored(tmp_path / "out").matrix.shape == (0, len(terms(encoder.model)))


def test_cut_and_empty_texts_are_counted(toy_model: SparseEncoder, tmp_path: Path) -> None:
    lengths = [len(toy_model.tokenizer(text)["input_ids"]) for text in ("a", "the old fox reads books at night")]
    assert lengths[0] <= 6 < lengths[1]
    encoder = TextEncoder(toy_model, max_length=6, min_weight=1e6, dtype="float32")  # nothing weighs a million
    documents = [Document("a", "a"), Document("b", "the old fox reads books at night"), Document("c", "a")]
    done = encode_stream(encoder, documents, tmp_path / "out", model="toy")
    assert (done.truncated, done.empty) == (1, 3)


def test_other_documents_are_noticed(encoder: TextEncoder, documents: list[Document], tmp_path: Path) -> None:
    with pytest.raises(Killed):
        encode_stream(encoder, broken_off(documents, 6), tmp_path / "out", model="toy")
    for others in (documents[1:], documents[:2]):
        with pytest.raises(VectorsError):
            encode_stream(encoder, others, tmp_path / "out", model="toy")


def test_a_model_trained_further_is_noticed(encoder: TextEncoder, documents: list[Document], tmp_path: Path) -> None:
    with pytest.raises(Killed):
        encode_stream(encoder, broken_off(documents, 6), tmp_path / "out", model="toy")
    with torch.no_grad():
        next(encoder.model.sparse_encoder.parameters()).view(-1)[0] += 1
    with pytest.raises(ArgumentError, match=r"\(fingerprint.weights\)"):
        encode_stream(encoder, documents, tmp_path / "out", model="toy")


@pytest.mark.parametrize("content", ["{", '{"pages": 3}', "[]"])
def test_damaged_progress_is_named(
    encoder: TextEncoder, documents: list[Document], tmp_path: Path, content: str
) -> None:
    with pytest.raises(Killed):
        encode_stream(encoder, broken_off(documents, 6), tmp_path / "out", model="toy")
    (tmp_path / "out.partial" / "progress.json").write_text(content, encoding="utf-8")
    with pytest.raises(VectorsError, match=r"progress\.json"):
        encode_stream(encoder, documents, tmp_path / "out", model="toy")


def test_settings_name_type_and_shard(encoder: TextEncoder, documents: list[Document], tmp_path: Path) -> None:
    encode_stream(encoder, documents, tmp_path / "out", model="toy")
    settings = json.loads((tmp_path / "out" / "settings.json").read_text(encoding="utf-8"))
    assert (settings["dtype"], settings["shard"]) == ("float32", [1, 1])
