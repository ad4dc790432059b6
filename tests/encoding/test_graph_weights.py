"""A graph beside the weights that it was made from."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.encoding.test_graph_settings import BUILT_IN, refusal
from vocable.encoding.graph import GraphModel
from vocable.encoding.graph_settings import BOTH_ROLES, weight_files
from vocable.encoding.load import load, load_encoder
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ModelError
from vocable.torch_models.export import export_model, weights_on_disk


@pytest.fixture(scope="module")
def saved(backbones: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for PyTorch with its graph, in one folder."""
    pytest.importorskip("onnxscript", reason="pip install 'vocable[train]'")
    model: Any = load(backbones["bert"], device="cpu")
    place = tmp_path_factory.mktemp("saved") / "model"
    model.save_pretrained(str(place))
    export_model(load(place, device="cpu"), place.with_name("graph"), texts=["the old fox", "an owl at night"])
    GraphModel(place.with_name("graph")).save_pretrained(place)
    return place


@pytest.mark.slow
def test_a_graph_beside_the_weights_that_it_was_made_from_encodes(saved: Path) -> None:
    kept = json.loads((saved / "graph.json").read_text(encoding="utf-8"))["weights"]
    content = (saved / "model.safetensors").read_bytes()
    assert kept == f"{zlib.crc32(content):08x}"
    assert load_encoder(saved, device="cpu").runtime == "onnx"
    assert TextEncoder(load_encoder(saved, device="cpu")).encode(["the old fox"]).nnz > 0


@pytest.mark.slow
@pytest.mark.parametrize("tensor", ["cls.predictions.bias", "bert.embeddings.word_embeddings.weight"])
def test_a_graph_beside_weights_that_changed_is_refused(saved: Path, tmp_path: Path, tensor: str) -> None:
    place = Path(shutil.copytree(saved, tmp_path / "model"))
    weights = load_file(place / "model.safetensors")
    weights[tensor].view(-1)[-1] += 1
    save_file(weights, place / "model.safetensors", {"format": "pt"})
    for role in BOTH_ROLES:
        message = refusal(place, role)
        assert "model.safetensors" in message
        assert "export the model again" in message
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(place, runtime="onnx")
    assert TextEncoder(load_encoder(place, runtime="torch", device="cpu")).encode(["the old fox"]).nnz > 0


def test_the_built_in_graph_knows_its_weights() -> None:
    content = (BUILT_IN / "model.safetensors").read_bytes()
    assert GraphModel(BUILT_IN).settings.weights == f"{zlib.crc32(content):08x}"


def test_a_model_that_changed_since_it_was_loaded_has_no_weights_on_disk(backbones: dict[str, Path]) -> None:
    model: Any = load(backbones["bert"], device="cpu")
    assert weights_on_disk(model) == f"{zlib.crc32((backbones['bert'] / 'model.safetensors').read_bytes()):08x}"
    model[0].auto_model.get_output_embeddings().bias.data[-1] += 1
    assert weights_on_disk(model) == ""


def test_models_inside_the_folder_of_a_model_are_not_its_weights(tmp_path: Path) -> None:
    inside = [
        f"{folder}/{file}" for folder in ("checkpoint-9", "trained") for file in ("model.safetensors", "modules.json")
    ]
    for name in ("model-00001-of-00002.safetensors", "document/model.safetensors", "modules.json", *inside):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [str(file.relative_to(tmp_path)) for file in weight_files(tmp_path)]
    assert names == ["document/model.safetensors", "model-00001-of-00002.safetensors"]
