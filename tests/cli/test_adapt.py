"""inspect and rescale on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.by_parts import load_checkpoint, rescale, save_checkpoint
from tests.cli.command_line import done, refused
from vocable.adapt.inspection import inspect
from vocable.adapt.rescale import choose_factor
from vocable.adapt.statistics import probe_texts

pytestmark = pytest.mark.usefixtures("quiet_libraries")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, toy_texts: list[str]) -> str:
    texts = [text for text in dict.fromkeys(toy_texts) if len(text.split()) >= 8][:32]
    path = tmp_path_factory.mktemp("probe") / "texts.txt"
    path.write_text("\n".join(texts), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, backbones: dict[str, Path]) -> str:
    """A folder of BERT with a head 16 times too large."""
    folder = tmp_path_factory.mktemp("large") / "bert"
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    save_checkpoint(rescale(mlm, 1 / 16), tokenizer, folder)
    return str(folder)


def test_inspect(capsys: pytest.CaptureFixture[str], large: str, backbones: dict[str, Path], place: str) -> None:
    arguments = ["inspect", large, "--texts", place, "--target", backbones["roberta"]]
    found = inspect(large, texts=place, target=backbones["roberta"])
    assert json.loads(done(capsys, *arguments, "--json")) == json.loads(json.dumps(found.to_json()))
    text = done(capsys, *arguments)
    assert text.strip() == str(found).strip()
    assert f"vocable rescale {large} --factor {found.factor} -o bert-rescaled" in text


def test_rescale(capsys: pytest.CaptureFixture[str], large: str, tmp_path: Path) -> None:
    output = tmp_path / "out"
    values = json.loads(done(capsys, "rescale", large, "-o", output, "--factor", 2.5, "--json"))
    assert values == {"output": str(output), "factor": 2.5, "trials": []}
    before, after = (load_checkpoint(folder)[0].get_output_embeddings() for folder in (large, output))
    assert torch.equal(after.weight, before.weight / 2.5)
    assert torch.equal(after.bias, before.bias)
    assert "other settings (factor)" in refused(capsys, "rescale", large, "-o", output, "--factor", 2)
    again = json.loads(done(capsys, "rescale", large, "-o", output, "--factor", 2.5, "--json"))
    assert again == values


def test_rescale_auto_shows_what_it_tried(
    capsys: pytest.CaptureFixture[str], large: str, place: str, tmp_path: Path
) -> None:
    texts = Path(place).read_text(encoding="utf-8").splitlines()
    factor, starts = choose_factor(*load_checkpoint(large), probe_texts(texts))
    arguments = ["rescale", large, "--factor", "auto", "--texts", place]
    text = done(capsys, *arguments, "-o", tmp_path / "one")
    assert max(map(len, text.splitlines()[:-2])) <= 80
    [row] = [line for line in text.splitlines() if line.strip().startswith(">")]
    assert row.split()[1] == str(factor)
    said = [f"output matrix divided by {factor}", f"written: {tmp_path}/one"]
    assert text.splitlines()[-3:-1] == said
    values = json.loads(done(capsys, *arguments, "-o", tmp_path / "two", "--json"))
    assert values["factor"] == factor
    assert [trial["loss"] for trial in values["trials"]] == [start.loss for start in starts.values()]


@pytest.mark.parametrize("factor", ["0", "-2", "nan", "inf", "half"])
def test_impossible_factors_are_one_line(
    capsys: pytest.CaptureFixture[str], large: str, tmp_path: Path, factor: str
) -> None:
    line = refused(capsys, "rescale", large, "-o", tmp_path / "out", "--factor", factor)
    assert line.startswith("vocable: ")
    assert "above 0" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [["inspect"], ["rescale", "-o", "out", "--factor", "auto"]])
def test_a_probe_of_empty_lines_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    large: str,
    tmp_path: Path,
    verb: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n \n\n", encoding="utf-8")
    line = refused(capsys, *verb, large, "--texts", "empty.txt")
    assert line == "vocable: empty.txt: a probe needs at least two different texts of 8 words or more"
    assert [path.name for path in tmp_path.iterdir()] == ["empty.txt"]
