"""BGE-M3's sparse and dense sides against FlagEmbedding's definition; a head that is damaged or more than tensors."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast

from tests.toys import make_m3
from vocable import index, inspect, load, rescale, search
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, ModelError
from vocable.torch_models.token_weights import TokenWeightModel

TEXTS = ["the fox ran over the hill and the fox slept", "a librarian reads a book", "fox", "☃", ""]


@pytest.fixture
def m3(tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path: Path) -> Path:
    return make_m3(tokenizers["byte-level"], tmp_path / "m3")


def by_definition(folder: Path, text: str) -> tuple[dict[int, float], np.ndarray]:
    """The weights of the tokens of a text, by id, and its dense vector: FlagEmbedding's M3Embedder in a loop."""
    tokenizer, encoder = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    head = {key: part.float() for key, part in torch.load(folder / "sparse_linear.pt", weights_only=True).items()}
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        hidden = encoder(**inputs).last_hidden_state[0]
    weights: dict[int, float] = {}
    for token, state in zip(inputs["input_ids"][0].tolist(), hidden, strict=True):
        weight = float(torch.relu(head["weight"][0] @ state + head["bias"][0]))
        unused = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id)
        if weight > 0 and token not in unused:
            weights[token] = max(weight, weights.get(token, 0))
    return weights, (hidden[0] / hidden[0].norm()).numpy()


def test_bge_m3_weighs_tokens_and_gives_dense_vectors_as_its_code_does(m3: Path) -> None:
    model = load(m3, device="cpu")
    assert isinstance(model, TokenWeightModel)
    assert (model.name, model.dimensions, len(model.terms)) == (str(m3), 32, model.terms.index("<362>") + 1)
    for role in ("query", "document"):
        encoder = TextEncoder(model, role, dtype="float32")
        sparse, dense = encoder.encode_both(TEXTS)
        assert dense is not None
        for i, text in enumerate(TEXTS[:4]):
            weights, vector = by_definition(m3, text)
            row = sparse[[i]]
            assert dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) == pytest.approx(weights, rel=1e-4)
            np.testing.assert_allclose(dense[i], vector, rtol=1e-4, atol=1e-5)
        assert sparse[[0]].nnz > 5
        assert sparse[[4]].nnz == 0
    assert TextEncoder(model, max_length=8).encode(TEXTS[:1]).nnz < sparse[[0]].nnz


def test_an_index_of_token_weights_is_searched_by_both_sides(m3: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"id": str(i), "text": text}) for i, text in enumerate(TEXTS[:3])))
    index(m3, corpus, tmp_path / "index")
    for weights in (None, "sparse"):
        found = search(tmp_path / "index", TEXTS[:3], 1, weights=weights)
        assert [answer.hits[0].document.id for answer in found] == ["0", "1", "2"]


def test_verbs_that_need_an_output_layer_refuse_token_weights(m3: Path) -> None:
    model: Any = load(m3, device="cpu")
    for refused in (lambda: inspect(m3), lambda: inspect(model), lambda: rescale(model, factor=2)):
        with pytest.raises(ModelError):
            refused()
    with pytest.raises(ArgumentError):
        load(m3, pooling="max")


class Code:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (os.environ["RAN"],)


def test_a_head_runs_no_code_and_fits(m3: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, ran = m3 / "sparse_linear.pt", tmp_path / "ran"
    monkeypatch.setenv("RAN", str(ran))
    shutil.copy(head, tmp_path / "good")
    for content in (pickle.dumps(Code()), b"", b"nothing", (tmp_path / "good").read_bytes()[:400]):
        head.write_bytes(content)
        with pytest.raises(ModelError, match=r"sparse_linear\.pt") as caught:
            load(m3)
        assert "\n" not in str(caught.value)
        assert "weights_only" not in str(caught.value)
    assert not ran.exists()
    head.unlink()
    os.mkfifo(head)
    with pytest.raises(ModelError, match=r"sparse_linear\.pt"):
        load(m3)
    head.unlink()
    for state in ({"weight": torch.ones(1, 32)}, [1, 2]):
        torch.save(state, head)
        with pytest.raises(ModelError):
            load(m3)
    torch.save(torch.nn.Linear(16, 1).state_dict(), head)
    with pytest.raises(ModelError):
        load(m3)
    torch.save({"weight": torch.full((1, 32), torch.nan), "bias": torch.ones(1)}, head)
    with pytest.raises(ModelError):
        load(m3)
