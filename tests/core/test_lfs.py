"""Pointers of Git LFS are called so, wherever a file is read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import vocable as vo
from vocable.core.lfs import POINTER, is_pointer
from vocable.data import read_corpus
from vocable.encoding.vectors import read_vectors
from vocable.errors import DataError, ModelError, VectorsError

CONTENT = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d' * 32}\nsize 12345\n"


def test_a_pointer_in_place_of_a_source_is_called_so(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.parquet", "a.tsv", "a.jsonl.gz", "pages/a.md", "pages/b.pdf"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(CONTENT)
        assert is_pointer(path)
        with pytest.raises(DataError) as caught:
            list(read_corpus(path.parent if path.parent.name == "pages" else path))
        assert POINTER in str(caught.value)
        path.unlink()


def test_a_pointer_in_place_of_vectors_or_weights_is_called_so(backbones: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "vectors.parquet").write_text(CONTENT)
    with pytest.raises(VectorsError) as caught:
        read_vectors(tmp_path / "vectors.parquet")
    assert POINTER in str(caught.value)
    shutil.copytree(backbones["bert"], tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_text(CONTENT)
    with pytest.raises(ModelError) as found:
        vo.load(tmp_path / "model")
    assert POINTER in str(found.value)


def test_another_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("version 2")
    (tmp_path / "long").write_text(CONTENT + "x" * 2000)
    os.mkfifo(tmp_path / "pipe")
    assert [is_pointer(tmp_path / name) for name in ("text", "long", "pipe", "missing", ".")] == [False] * 5
