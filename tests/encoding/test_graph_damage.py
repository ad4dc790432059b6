"""Damaged and foreign files beside a graph: each is one line, before or in place of an encoding."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from vocable.encoding.graph import GraphModel
from vocable.encoding.graph_settings import BOTH_ROLES
from vocable.encoding.graph_weights import weight_files
from vocable.encoding.hub import locate
from vocable.encoding.load import load, load_encoder
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ModelError
from vocable.torch_models.export import export_model
from vocable.torch_models.export_weights import weights_on_disk

BUILT_IN = Path(locate("vocable-mini"))
TOKENS = 30522


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The graph of the built-in model, in a folder whose settings and tokenizer can be changed."""
    (tmp_path / "onnx").symlink_to(BUILT_IN / "onnx")
    for name in ("graph.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((BUILT_IN / name).read_bytes())
    return tmp_path


def change(folder: Path, damage: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
    damage(content)
    (folder / "graph.json").write_text(json.dumps(content), encoding="utf-8")


def refusal(folder: Path, role: Any = "query", text: str = "a river in the mountains") -> str:
    with pytest.raises(ModelError) as caught:
        TextEncoder(load_encoder(folder, device="cpu"), role).encode([text])
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    return str(caught.value)


def test_the_copied_graph_encodes(folder: Path) -> None:
    assert TextEncoder(GraphModel(folder), "query").encode(["a river"]).nnz > 0


@pytest.mark.parametrize("role", BOTH_ROLES)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_length", 0),
        ("max_length", -1),
        ("max_length", 513),  # positions: 512
        ("max_length", 10**30),
        ("positions", 0),
        ("max_terms", 0),
        ("query_idf", -1),
        ("query_idf", 11),
        ("padding", -1),
        ("padding", TOKENS),
        ("tokens", 0),
        ("folder", ".."),
        ("special", [0.5]),
    ],
)
def test_a_number_out_of_range_is_damage(folder: Path, role: str, key: str, value: Any) -> None:
    change(folder, lambda content: content["roles"][role].update({key: value}))
    message = refusal(folder)
    assert "graph.json is damaged" in message
    assert role in message
    assert key in message


@pytest.mark.parametrize("gone", [["query"], ["document"], ["query", "document"]])
def test_a_missing_role_is_damage(folder: Path, gone: list[str]) -> None:
    change(folder, lambda content: [content["roles"].pop(role) for role in gone])
    assert f"graph.json is damaged: export the model again (roles: {gone[0]} is missing)" in refusal(folder)


def of_words(count: int, *, number: int | None = None) -> str:
    """A tokenizer of `count` words; the last has the number `number`."""
    words = {"[UNK]": 0, **{f"w{i}": i for i in range(1, count)}}
    words[f"w{count - 1}"] = count - 1 if number is None else number
    return Tokenizer(WordLevel(words, unk_token="[UNK]")).to_str()


def test_a_tokenizer_of_more_tokens_than_the_graph_has_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(of_words(TOKENS + 1), encoding="utf-8")
    message = refusal(folder)
    assert str(folder / "tokenizer.json") in message
    assert "30,523 tokens, the graph 30,522" in message


def test_a_token_that_the_graph_does_not_have_is_one_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "tokenizer.json").write_text(of_words(9, number=TOKENS), encoding="utf-8")
    assert "tokenizer.json" in refusal(folder, text="w8")
    assert capfd.readouterr().err == ""


def test_more_positions_than_the_graph_has_are_one_line(folder: Path) -> None:
    change(folder, lambda content: content["roles"]["query"].update(max_length=None, positions=None))
    assert "a length of 602 tokens" in refusal(folder, text="x " * 600)


def saved(backbone: Path, place: Path) -> Path:
    """A model for PyTorch with its graph, in one folder."""
    pytest.importorskip("onnxscript", reason="pip install 'vocable[train]'")
    model: Any = load(backbone, device="cpu")
    model.save_pretrained(str(place))
    export_model(load(place, device="cpu"), place.with_name("graph"), texts=["the old fox", "an owl at night"])
    GraphModel(place.with_name("graph")).save_pretrained(place)
    return place


def test_a_graph_beside_the_weights_that_it_was_made_from_encodes(backbones: dict[str, Path], tmp_path: Path) -> None:
    place = saved(backbones["bert"], tmp_path / "model")
    kept = json.loads((place / "graph.json").read_text(encoding="utf-8"))["weights"]
    content = (place / "model.safetensors").read_bytes()
    assert kept == f"{zlib.crc32(content):08x}"
    assert load_encoder(place, device="cpu").runtime == "onnx"
    assert TextEncoder(load_encoder(place, device="cpu")).encode(["the old fox"]).nnz > 0


@pytest.mark.parametrize("tensor", ["cls.predictions.bias", "bert.embeddings.word_embeddings.weight"])
def test_a_graph_beside_weights_that_changed_is_refused(
    backbones: dict[str, Path], tmp_path: Path, tensor: str
) -> None:
    place = saved(backbones["bert"], tmp_path / "model")
    weights = load_file(place / "model.safetensors")
    weights[tensor].view(-1)[-1] += 1
    save_file(weights, place / "model.safetensors", {"format": "pt"})
    for role in BOTH_ROLES:
        message = refusal(place, role)
        assert "model.safetensors" in message
        assert "export the model again" in message
    with pytest.raises(ModelError, match=r"other weights than model\.safetensors"):
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


def test_checkpoints_of_a_training_are_not_the_weights_of_a_model(tmp_path: Path) -> None:
    for name in ("model-00001-of-00002.safetensors", "document/model.safetensors", "checkpoint-9/model.safetensors"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [str(file.relative_to(tmp_path)) for file in weight_files(tmp_path)]
    assert names == ["document/model.safetensors", "model-00001-of-00002.safetensors"]
