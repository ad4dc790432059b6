"""Models that come with code of their own: refused unless asked for, nothing asked on stdin."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command_line import done, refused
from vocable import load, train
from vocable.encoding.hub import trusting
from vocable.errors import ModelError
from vocable.torch_models.opening import load_target
from vocable.training.recipe_files import make_recipe

TEXTS = ["the cat sat on the mat", "a dog barked"]
CODE = """
from pathlib import Path

from transformers import BertConfig, BertForMaskedLM

Path({marker!r}).touch()


class OwnConfig(BertConfig):
    model_type = "own-bert"


class OwnForMaskedLM(BertForMaskedLM):
    config_class = OwnConfig
"""


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that is there once the code has run."""
    return tmp_path / "has-run"


@pytest.fixture
def own(backbones: dict[str, Path], tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """BERT as a model whose classes lie beside its weights."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / "own"
    shutil.copytree(backbones["bert"], folder)
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "own_bert.OwnConfig", "AutoModelForMaskedLM": "own_bert.OwnForMaskedLM"}
    config |= {"model_type": "own-bert", "architectures": ["OwnForMaskedLM"], "auto_map": classes}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own_bert.py").write_text(CODE.format(marker=str(marker)))
    return folder


def test_remote_code_is_refused_unless_it_is_asked_for(
    own: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked on stdin"))
    for open_it in (load, load_target):
        with pytest.raises(ModelError):
            open_it(own)
    assert not marker.exists()


def test_a_trusted_model_encodes_as_its_code_does(own: Path, backbones: dict[str, Path], tmp_path: Path) -> None:
    model = load(own, trust_remote_code=True)
    expected = load(backbones["bert"]).encode(TEXTS).to_dense()
    np.testing.assert_array_equal(model.encode(TEXTS).to_dense(), expected)
    model.save_pretrained(str(tmp_path / "saved"))
    with pytest.raises(ModelError):
        load(tmp_path / "saved")
    with trusting(True):
        np.testing.assert_array_equal(load(tmp_path / "saved").encode(TEXTS).to_dense(), expected)
    with pytest.raises(ModelError):
        load(tmp_path / "saved")


@pytest.mark.usefixtures("quiet_libraries")
def test_the_command_line_has_the_option_for_remote_code_before_the_verb(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "vocable --trust-remote-code" in refused(capsys, "inspect", own, "--json")
    assert json.loads(done(capsys, "--trust-remote-code", "inspect", own, "--json"))
    assert "vocable --trust-remote-code" in refused(
        capsys, "inspect", own, "--json"
    )  # one command's trust is no other's


def test_a_recipe_has_a_key_for_remote_code(own: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps({"query": t, "positive": t * 2}) + "\n" for t in TEXTS))
    training = {"steps": 2, "batch_size": 2, "guard": "off", "save_every": 1}
    values = {"model": str(own), "data": {"examples": [str(tmp_path / "pairs.jsonl")]}, "training": training}
    with pytest.raises(ModelError):
        train(make_recipe(values), tmp_path / "refused")
    values |= {"trust_remote_code": True, "rescale": {"factor": 2}}
    model = train(make_recipe(values), tmp_path / "trained")
    assert model.encode(TEXTS).shape[0] == len(TEXTS)
