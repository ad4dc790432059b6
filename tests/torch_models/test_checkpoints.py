"""Layouts of public checkpoints: each folder opens and encodes as its authors' code does, or says why it does not."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from tests.torch_models.checkpoints import (
    DOCUMENT,
    LAYOUTS,
    PICKLE,
    TEXTS,
    WEIGHTS,
    Layout,
    Toys,
    change,
    rows,
    with_table,
)
from vocable import convert, load
from vocable.encoding.encode import encode
from vocable.errors import ModelError


@pytest.fixture
def toys(backbones: dict[str, Path], tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path: Path) -> Toys:
    return Toys(backbones, tokenizers, tmp_path)


def opened(layout: Layout) -> bool:
    return layout.expected is not None and (not layout.needs or find_spec(layout.needs) is not None)


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("layout", [one for one in LAYOUTS if opened(one)], ids=lambda one: one.name)
def test_a_layout_opens_and_encodes_as_its_authors_code_does(layout: Layout, toys: Toys, tmp_path: Path) -> None:
    folder = tmp_path / layout.name
    layout.make(folder, toys)
    assert layout.expected is not None
    expected = layout.expected(folder)
    if (folder / PICKLE).exists():
        with pytest.raises(ModelError):
            load(folder)
        convert(folder, folder := tmp_path / "converted")
    model = load(folder, device="cpu")
    for role, vectors in zip(("query", "document"), expected, strict=True):
        found = encode(model, TEXTS, role, dtype="float32").toarray()  # type: ignore[arg-type]
        assert ((vectors > 0).sum(1) > 2).all()
        np.testing.assert_allclose(found, vectors[:, : found.shape[1]], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("layout", [one for one in LAYOUTS if one.facts and not opened(one)], ids=lambda one: one.name)
def test_a_layout_that_does_not_open_names_the_file_that_tells(layout: Layout, toys: Toys, tmp_path: Path) -> None:
    folder = tmp_path / layout.name
    try:
        layout.make(folder, toys)
    except ImportError:
        pytest.skip(f"the folder is made with {layout.needs}, which is not here")
    with pytest.raises(ModelError) as caught:
        load(folder)
    message = str(caught.value)
    assert re.search(layout.facts, message), message
    assert "\n" not in message
    assert not any(wrong in message for wrong in ("download", "new_head", "damaged"))


def test_most_layouts_open() -> None:
    assert len([one for one in LAYOUTS if one.expected is not None]) >= 36
    assert len(LAYOUTS) - len([one for one in LAYOUTS if one.expected is not None]) <= 4


def test_the_table_of_the_page_is_the_table_of_the_tests() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_table(text) == text
    assert "\n".join(rows()) in text


def other_program(folder: Path, toys: Toys) -> None:
    shutil.copytree(toys.backbones["bert"], folder)
    change(folder / "config.json", model_type="SNRM", transformers_version="4.30.0")


def later_version(folder: Path, toys: Toys) -> None:
    shutil.copytree(toys.backbones["bert"], folder)
    change(folder / "config.json", model_type="bert-2031", transformers_version="31.0.0")


def other_head(folder: Path, toys: Toys) -> None:
    shutil.copytree(toys.backbones["bert"], folder)
    tensors = {k: v for k, v in load_file(folder / WEIGHTS).items() if k.startswith("bert.")}
    save_file(tensors | {"term_importance.linear.weight": torch.ones(2, 32)}, folder / WEIGHTS, {"format": "pt"})


def tagger(folder: Path, toys: Toys) -> None:
    shutil.copytree(toys.backbones["bert"], folder)
    change(folder / "config.json", architectures=["BertForTokenClassification"], id2label={"0": "PER", "1": "LOC"})


def damaged_table(folder: Path, toys: Toys) -> None:
    shutil.copytree(toys.backbones["bert"], folder)
    (folder / "query_token_weights.txt").write_text("fox\tone\n")


def pickled_adapter(folder: Path, toys: Toys) -> None:
    shutil.copytree(toys.backbones["bert"], folder, ignore=shutil.ignore_patterns(WEIGHTS, "config.json"))
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "bert-base-uncased"}))
    (folder / "adapter_model.bin").write_bytes(b"x")


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (other_program, "config.json has the model type 'SNRM'"),
        (later_version, r"config.json was written by transformers 31.0.0, .*pip install -U transformers"),
        (other_head, "term_importance.linear.weight.*would lose it"),
        (tagger, "tagger"),
        (damaged_table, "query_token_weights.txt"),
        (pickled_adapter, "vocable convert"),
    ],
)
def test_other_folders_say_why_they_do_not_open(make: Any, facts: str, toys: Toys, tmp_path: Path) -> None:
    make(tmp_path / "model", toys)
    with pytest.raises(ModelError) as caught:
        load(tmp_path / "model")
    message = str(caught.value)
    assert re.search(facts, message), message
    assert "\n" not in message
    assert not any(wrong in message for wrong in ("download", "new_head", "damaged"))


def test_a_gated_model_says_what_to_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = "You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/naver/x"
    monkeypatch.setattr("vocable.encoding.hub._check_hub", lambda name: None)
    monkeypatch.setattr("transformers.PreTrainedConfig.get_config_dict", Mock(side_effect=OSError(refusal)))
    monkeypatch.setattr("huggingface_hub.snapshot_download", Mock(side_effect=OSError(refusal)))
    for use in (load, partial(convert, output="never-written")):
        with pytest.raises(ModelError) as caught:
            use("naver/x")
        message = str(caught.value)
        assert message.startswith(
            "naver/x: it is gated: accept its terms at https://huggingface.co/naver/x, then log in"
        )
        assert "\n" not in message
