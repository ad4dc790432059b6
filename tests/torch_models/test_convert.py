"""Pickled checkpoints become safetensors: equal vectors, and no pickle runs code, in `convert` or in `load`."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import vocable as vo
from tests.cli.command_line import done, refused
from vocable.errors import ModelError
from vocable.torch_models.convert import write_tensors

TEXTS = ["rain and snow", "the old fox reads books"]
WEIGHTS, PICKLE = "model.safetensors", "pytorch_model.bin"

pytestmark = pytest.mark.usefixtures("quick_workers")


@pytest.fixture
def pickled(backbones: dict[str, Path], tmp_path: Path) -> Path:
    """A checkpoint as copied from the Hub, with pickled weights alone, and with code and a graph."""
    folder = tmp_path / "pickled"
    shutil.copytree(backbones["distilbert"], folder)
    torch.save(load_file(folder / WEIGHTS), folder / PICKLE)
    (folder / WEIGHTS).unlink()
    (folder / "code.py").write_text("raise SystemExit")
    (folder / "rust_model.ot").write_bytes(b"x")
    return folder


def vectors(folder: Path) -> Any:
    return vo.encode(vo.load(folder, device="cpu"), TEXTS, dtype="float32").toarray()


@pytest.mark.usefixtures("quiet_libraries")
def test_the_message_of_load_names_the_command_that_converts(
    pickled: Path, backbones: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelError) as caught:
        vo.load(pickled)
    command = str(caught.value).partition("vocable ")[2].replace("FOLDER", str(tmp_path / "converted"))
    printed = done(capsys, *command.split())
    tensors = len(load_file(backbones["distilbert"] / WEIGHTS))
    assert printed.splitlines()[0] == f"{WEIGHTS}: {tensors} tensors"
    assert (vectors(tmp_path / "converted") == vectors(backbones["distilbert"])).all()
    assert not [path for path in (tmp_path / "converted").iterdir() if path.suffix in (".bin", ".py", ".ot")]
    assert "already there" in done(capsys, *command.split())
    assert "nothing to convert" in refused(capsys, "convert", backbones["bert"], "-o", tmp_path / "none")


def test_shards_and_modules_are_converted(pickled: Path, tmp_path: Path, backbones: dict[str, Path]) -> None:
    tensors = torch.load(pickled / PICKLE, weights_only=True)
    (pickled / PICKLE).unlink()
    names = sorted(tensors)
    files = [f"pytorch_model-0000{n}-of-00002.bin" for n in (1, 2)]
    for part, file in zip((names[:9], names[9:]), files, strict=True):
        torch.save({name: tensors[name] for name in part}, pickled / file)
    index = {"metadata": {}, "weight_map": {name: files[name not in names[:9]] for name in names}}
    (pickled / f"{PICKLE}.index.json").write_text(json.dumps(index))
    (pickled / "2_Dense").mkdir()
    torch.save({"linear.weight": torch.ones(2, 3)}, pickled / "2_Dense" / PICKLE)
    converted = vo.convert(pickled, tmp_path / "converted")
    assert sorted(converted.files.values()) == sorted([9, len(names) - 9, 1])
    assert (vectors(tmp_path / "converted") == vectors(backbones["distilbert"])).all()
    (pickled / f"{PICKLE}.index.json").write_text('{"weight_map": 3}')
    with pytest.raises(ModelError):
        vo.convert(pickled, tmp_path / "other")


class Hostile:
    """A pickle that runs a command of the shell."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.path}",)


def test_a_hostile_pickle_is_refused_and_nothing_runs(pickled: Path, tmp_path: Path) -> None:
    ran, pickles = tmp_path / "ran", dict[str, bytes]()
    pickle.loads(pickle.dumps(Hostile(tmp_path / "harm")))  # the harm that it would do
    assert (tmp_path / "harm").exists()
    for protocol in range(6):
        pickles[f"protocol {protocol}"] = pickle.dumps(Hostile(ran), protocol=protocol)
    for name, state in {
        "among tensors": {"weight": torch.ones(2), "harm": Hostile(ran)},
        "as a name": {Hostile(ran): torch.ones(2)},
    }.items():
        torch.save(state, pickled / PICKLE)
        pickles[name] = (pickled / PICKLE).read_bytes()
    for name, content in pickles.items():
        (pickled / PICKLE).write_bytes(content)
        with pytest.raises(ModelError) as caught:
            vo.convert(pickled, tmp_path / "converted")
        assert "\n" not in str(caught.value)
        assert PICKLE in str(caught.value), name
        if "protocol 2" in name or "among" in name:
            assert "system" in str(caught.value)  # the name that the pickle asks for
        with pytest.raises(ModelError):
            vo.load(pickled)
        with pytest.raises(ModelError):
            vo.load(pickled, trust_remote_code=True)
    assert not ran.exists()
    assert not (tmp_path / "converted").exists()


def test_load_reads_no_pickle_of_a_module(backbones: dict[str, Path], tmp_path: Path) -> None:
    """The library would read the pickle of a module beside safetensors of the encoder."""
    model, ran = vo.make_inference_free(vo.load(backbones["bert"], device="cpu"), weights="ones"), tmp_path / "ran"
    model.save_pretrained(str(tmp_path / "model"))
    table = tmp_path / "model" / "query_0_SparseStaticEmbedding"
    (table / WEIGHTS).unlink()
    (table / PICKLE).write_bytes(pickle.dumps(Hostile(ran), protocol=2))
    with pytest.raises(ModelError):
        vo.load(tmp_path / "model")
    assert not ran.exists()


def test_what_is_not_tensors_by_name_is_refused(pickled: Path, tmp_path: Path) -> None:
    for state in ({"epoch": 3}, [torch.ones(2)], torch.ones(2), {"model": {"weight": torch.ones(2)}}):
        torch.save(state, pickled / PICKLE)
        with pytest.raises(ModelError):
            vo.convert(pickled, tmp_path / "converted")
    for content in (b"", b"nothing", b"PK\3\4" + bytes(100)):
        (pickled / PICKLE).write_bytes(content)
        with pytest.raises(ModelError):
            vo.convert(pickled, tmp_path / "converted")
    (pickled / PICKLE).unlink()
    os.mkfifo(pickled / PICKLE)
    with pytest.raises(ModelError):
        vo.convert(pickled, tmp_path / "converted")


def test_a_pickle_that_grows_is_stopped(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1 << 24)}, tmp_path / "plain")
    with (
        zipfile.ZipFile(tmp_path / "plain") as plain,
        zipfile.ZipFile(tmp_path / "small", "w", zipfile.ZIP_DEFLATED) as z,
    ):
        for name in plain.namelist():
            z.writestr(name, plain.read(name))
    assert (tmp_path / "small").stat().st_size < 1 << 20
    assert "memory" in write_tensors(tmp_path / "plain", tmp_path / "out", 60, 1 << 20)
    assert write_tensors(tmp_path / "small", tmp_path / "out", 60, 1 << 20)
