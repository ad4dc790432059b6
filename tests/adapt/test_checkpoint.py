"""Stock checkpoints in and out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from tests.by_parts import load_checkpoint, save_checkpoint
from vocable.errors import ArgumentError, ModelError


def test_a_checkpoint_comes_back_as_it_was_saved(backbone: Path, tmp_path: Path) -> None:
    mlm, tokenizer = load_checkpoint(backbone)
    save_checkpoint(mlm, tokenizer, tmp_path / "copy")
    again, other = load_checkpoint(tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
    assert again.state_dict().keys() == mlm.state_dict().keys()
    assert all(torch.equal(again.state_dict()[name], value) for name, value in mlm.state_dict().items())
    assert other.get_vocab() == tokenizer.get_vocab()


def test_a_model_without_a_head_is_refused(backbones: dict[str, Path], tmp_path: Path) -> None:
    AutoModel.from_pretrained(backbones["bert"]).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(backbones["bert"]).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="cls\\.predictions"):
        load_checkpoint(tmp_path)


def test_a_missing_checkpoint_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_checkpoint(tmp_path / "nothing")
    assert "\n" not in str(caught.value)


def test_an_existing_output_is_left_alone(backbones: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ArgumentError):
        save_checkpoint(*load_checkpoint(backbones["bert"]), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
