"""Model folders that lack weights or their tokenizer, of which the host libraries would make something up."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel

from tests.by_parts import load_checkpoint
from tests.conftest import some_pairs
from vocable.encoding.load import load
from vocable.errors import ModelError
from vocable.torch_models.inference_free import make_inference_free
from vocable.torch_models.opening import load_target
from vocable.torch_models.sparse_encoder import save_model
from vocable.training.teachers import load_scoring_model

WEIGHTS = "model.safetensors"
LOADERS: dict[str, Callable[[Path], object]] = {
    "load": load,
    "load_target": load_target,
}


def without(folder: Path, copy: Path, tensor: str) -> Path:
    """A copy of a model folder without one tensor."""
    shutil.copytree(folder, copy)
    tensors = load_file(folder / WEIGHTS)
    del tensors[tensor]
    save_file(tensors, copy / WEIGHTS, metadata={"format": "pt"})
    return copy


@pytest.mark.parametrize(("name", "where"), some_pairs([0.0, 0.5, 1.0]))
def test_a_model_without_one_of_its_tensors_is_refused(
    backbones: dict[str, Path], name: str, where: float, tmp_path: Path
) -> None:
    backbone = backbones[name]
    names = sorted(load_file(backbone / WEIGHTS))
    broken = without(backbone, tmp_path / "broken", names[round(where * (len(names) - 1))])
    for loader in LOADERS.values():
        with pytest.raises(ModelError) as caught:
            loader(broken)
        assert "\n" not in str(caught.value)


def test_every_whole_model_loads(backbone: Path) -> None:
    stock = PreTrainedModel.__dict__["from_pretrained"]
    for loader in LOADERS.values():
        loader(backbone)
    assert PreTrainedModel.__dict__["from_pretrained"] is stock


def test_the_built_in_model_is_whole() -> None:
    load("vocable-mini")


def test_missing_weights_of_a_saved_sparse_encoder_are_named(backbones: dict[str, Path], tmp_path: Path) -> None:
    load(backbones["bert"], device="cpu").save_pretrained(str(tmp_path / "saved"))
    lost = "bert.encoder.layer.0.attention.self.query.weight"
    with pytest.raises(ModelError, match=f"broken: .*{lost}$"):
        load(without(tmp_path / "saved", tmp_path / "broken", lost))
    load(tmp_path / "saved")


@pytest.mark.parametrize("lost", ["modules.json", "1_SpladePooling/config.json"])
def test_a_model_does_not_lose_its_pooling_with_a_file(backbones: dict[str, Path], tmp_path: Path, lost: str) -> None:
    load(backbones["bert"], pooling="sum", device="cpu").save_pretrained(str(tmp_path / "saved"))
    (tmp_path / "saved" / lost).unlink()
    with pytest.raises(ModelError, match=f"saved: .*{lost}"):
        load(tmp_path / "saved")


def test_the_pooling_of_routed_documents_does_not_get_lost(backbones: dict[str, Path], tmp_path: Path) -> None:
    model = make_inference_free(load(backbones["bert"], device="cpu"), ["A text.", "Another."])
    model.save_pretrained(str(tmp_path / "saved"))
    (tmp_path / "saved" / "document_1_SpladePooling" / "config.json").unlink()
    with pytest.raises(ModelError, match=r"saved: document_1_SpladePooling/config.json"):
        load(tmp_path / "saved")


def test_a_shard_without_one_of_its_tensors_is_noticed(backbones: dict[str, Path], tmp_path: Path) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    mlm.save_pretrained(tmp_path, max_shard_size="20KB")
    tokenizer.save_pretrained(tmp_path)
    load(tmp_path)
    index = tmp_path / f"{WEIGHTS}.index.json"
    found = json.loads(index.read_text())
    lost, shard = next((name, file) for name, file in found["weight_map"].items() if "query.weight" in name)
    tensors = load_file(tmp_path / shard)
    del tensors[lost], found["weight_map"][lost]
    save_file(tensors, tmp_path / shard, metadata={"format": "pt"})
    index.write_text(json.dumps(found))
    with pytest.raises(ModelError, match=lost):
        load(tmp_path)


@pytest.mark.parametrize("files", [("tokenizer.json",), ("tokenizer.json", "tokenizer_config.json")])
def test_a_model_without_its_tokenizer_is_refused(backbone: Path, tmp_path: Path, files: tuple[str, ...]) -> None:
    shutil.copytree(backbone, tmp_path / "mute")
    for file in files:
        (tmp_path / "mute" / file).unlink()
    for loader in LOADERS.values():
        with pytest.raises(ModelError):
            loader(tmp_path / "mute")


def config(**values: object) -> Callable[[Path], object]:
    def change(folder: Path) -> object:
        path = folder / "config.json"
        return path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def weights(name: str, change: Callable[[torch.Tensor], torch.Tensor], put: str = "") -> Callable[[Path], object]:
    def apply(folder: Path) -> object:
        tensors = load_file(folder / WEIGHTS)
        tensors[put or name] = change(tensors[name]).contiguous()
        return save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    return apply


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()


def more_tokens(folder: Path) -> None:
    described = json.loads((folder / "tokenizer.json").read_text())
    described["model"]["vocab"]["extra"] = 10**6
    (folder / "tokenizer.json").write_text(json.dumps(described))


def instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: ((folder / name).unlink(), make(folder / name))


DENSE = "bert.encoder.layer.1.output.dense.weight"
DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (config(num_hidden_layers=10**7), "num_hidden_layers 10000000 in config.json"),
    (config(num_hidden_layers=0), "num_hidden_layers 0 in config.json"),
    (config(num_hidden_layers=1), r"config.json has no place for bert\.encoder\.layer\.1\."),
    (config(hidden_size="wide"), "Field 'hidden_size' expected int"),
    (config(intermediate_size=47), r"intermediate.dense.bias has the shape \[48\], config.json says \[47\]"),
    (weights(DENSE, lambda weight: weight[:, :-1]), rf"{DENSE} has the shape \[32, 47\]"),
    (weights(DENSE, lambda weight: weight / 0), f"{DENSE} has weights that are not finite"),
    (pickled, "weights are read from safetensors only, .*pytorch_model.bin"),
    (more_tokens, r"its tokenizer has 1000001 tokens, its embeddings \d+ rows"),
    (instead("tokenizer.json", lambda path: path.write_text("{}")), "its tokenizer is damaged|its files are damaged"),
    (instead("config.json", os.mkfifo), "config.json: not a regular file"),
    (instead(WEIGHTS, os.mkdir), f"{WEIGHTS}: not a regular file"),
]


@pytest.mark.parametrize(("damage", "fault"), DAMAGES, ids=[fault for _, fault in DAMAGES])
def test_files_that_do_not_fit_are_refused(
    backbones: dict[str, Path], tmp_path: Path, damage: Callable[[Path], object], fault: str
) -> None:
    shutil.copytree(backbones["bert"], tmp_path / "broken")
    damage(tmp_path / "broken")
    for loader in LOADERS.values():
        with pytest.raises(ModelError, match=f"broken.*({fault})") as caught:
            loader(tmp_path / "broken")
        assert "\n" not in str(caught.value)


def test_missing_weights_are_named_and_no_other_file(
    backbones: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a folder, and of a model in the Hub's cache without a network."""
    snapshot = tmp_path / "hub" / "models--acme--toy" / "snapshots" / "abc"
    shutil.copytree(backbones["bert"], snapshot)
    (snapshot / WEIGHTS).unlink()
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in (str(snapshot), "acme/toy"):
        with pytest.raises(ModelError, match=f"{name}: .*{WEIGHTS}") as caught:
            load(name)
        assert "pytorch_model" not in str(caught.value)


def sharded(folder: Path, shards: dict[str, str]) -> None:
    """Put the weights of a model into files, all of them into each, and write an index of where each is."""
    names = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).rename(folder / "part.safetensors")
    index = {"metadata": {}, "weight_map": {name: shards.get(name, "part.safetensors") for name in names}}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("elsewhere", ["../other/part.safetensors", "a/../../other/part.safetensors", "{}/other/x"])
def test_weights_outside_the_folder_are_refused(backbones: dict[str, Path], tmp_path: Path, elsewhere: str) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(backbones["bert"], folder)
    shutil.copytree(backbones["bert"], tmp_path / "other")
    sharded(tmp_path / "other", {})
    sharded(folder, {DENSE: elsewhere.format(tmp_path)})
    for loader in LOADERS.values():
        with pytest.raises(ModelError):
            loader(folder)


def test_a_shard_that_is_missing_is_named(backbones: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(backbones["bert"], folder)
    sharded(folder, {})
    load(folder)
    (folder / f"{WEIGHTS}.index.json").write_text('{"weight_map": {"x": "second.safetensors"}}')
    with pytest.raises(ModelError, match=r"broken: .*second\.safetensors"):
        load(folder)
    (folder / f"{WEIGHTS}.index.json").write_text('{"weight_map": 3}')
    with pytest.raises(ModelError):
        load(folder)


def test_heads_that_are_not_used_are_left_alone(backbones: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(backbones["bert"], tmp_path / "more")
    for name in ("bert.pooler.dense.weight", "cls.seq_relationship.weight", "output_vocabulary.layers.0.bias"):
        weights(DENSE, torch.clone, put=name)(tmp_path / "more")
    load(tmp_path / "more")


def test_weights_that_are_not_finite_are_not_saved(backbones: dict[str, Path], tmp_path: Path) -> None:
    model = load(backbones["bert"], device="cpu")
    next(model.parameters()).data[0] = torch.nan
    with pytest.raises(ModelError):
        save_model(model, tmp_path / "saved")
    assert not list(tmp_path.iterdir())


def test_an_encoder_alone_is_a_target_and_may_lack_its_pooler(backbones: dict[str, Path], tmp_path: Path) -> None:
    whole = tmp_path / "encoder"
    AutoModel.from_pretrained(backbones["bert"]).save_pretrained(whole)
    AutoTokenizer.from_pretrained(backbones["bert"]).save_pretrained(whole)
    bare = without(whole, tmp_path / "bare", "pooler.dense.weight")
    expected = load_file(whole / WEIGHTS)["embeddings.word_embeddings.weight"]
    model = load_target(bare).model
    assert model is not None
    assert torch.equal(model.get_input_embeddings().weight, expected)
    load(bare, new_head=True)
    lost = "encoder.layer.1.output.dense.weight"
    broken = without(whole, tmp_path / "broken", lost)
    for loader in (load_target, partial(load, new_head=True)):
        with pytest.raises(ModelError, match=f"broken: .*{lost}"):
            loader(str(broken))


def test_teachers_without_one_of_their_tensors_are_refused(backbones: dict[str, Path], tmp_path: Path) -> None:
    transformer = Transformer(str(backbones["bert"]))
    SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu").save(str(tmp_path / "dense"))
    cross = AutoModelForSequenceClassification.from_pretrained(backbones["bert"], num_labels=1)
    cross.save_pretrained(tmp_path / "cross")
    AutoTokenizer.from_pretrained(backbones["bert"]).save_pretrained(tmp_path / "cross")
    for kind, lost in (("dense", "encoder.layer.0.output.dense.weight"), ("cross", "bert.pooler.dense.weight")):
        load_scoring_model(tmp_path / kind)
        with pytest.raises(ModelError, match=lost):
            load_scoring_model(without(tmp_path / kind, tmp_path / f"broken-{kind}", lost))
    with pytest.raises(ModelError, match=r"bert\.pooler.*, classifier.bias"):
        load_scoring_model(backbones["bert"], "cross")
