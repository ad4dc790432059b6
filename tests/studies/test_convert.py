"""Pickled checkpoints become safetensors: equal vectors, and no pickle runs code."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import vocable as vo
from studies.convert import convert, main
from studies.toys import Toys
from vocable.errors import ModelError


@pytest.fixture
def pickled(tmp_path: Path) -> Path:
    folder = Path(Toys(tmp_path / "toys").model("distilbert"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").rename(tmp_path / "kept.safetensors")
    return folder


@pytest.mark.slow
def test_a_converted_checkpoint_gives_the_same_vectors(pickled: Path, tmp_path: Path) -> None:
    convert(str(pickled), tmp_path / "converted")
    assert not (tmp_path / "converted" / "pytorch_model.bin").exists()
    vectors = vo.encode(vo.load(tmp_path / "converted"), ["rain and snow"])
    (tmp_path / "kept.safetensors").rename(pickled / "model.safetensors")
    assert (vectors != vo.encode(vo.load(pickled), ["rain and snow"])).nnz == 0


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.slow
def test_a_hostile_pickle_is_refused_and_nothing_runs(pickled: Path, tmp_path: Path) -> None:
    (pickled / "pytorch_model.bin").write_bytes(pickle.dumps(Hostile(tmp_path / "ran"), protocol=2))
    with pytest.raises(ModelError, match=r"pytorch_model\.bin"):
        convert(str(pickled), tmp_path / "converted")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "converted").exists()


def test_a_folder_without_pickled_weights_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty"), "-o", str(tmp_path / "out")]) == 2
    assert "pytorch_model.bin" in capsys.readouterr().err
