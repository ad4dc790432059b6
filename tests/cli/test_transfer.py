"""vocable transfer, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModelForMaskedLM, AutoTokenizer

import vocable as vo
from vocable.cli import main


def test_a_model_is_moved_and_what_was_made_is_told(
    backbones: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "moved"
    given = [str(backbones["roberta"]), "--target", str(backbones["bert"]), "-o", str(output)]
    assert main(["transfer", *given, "--neighbours", "fox"]) == 0
    printed = capsys.readouterr().out
    assert printed.split("special")[1].split()[:3] == ["5", "5", "100.0%"]
    assert "fox: cut into" in printed
    assert printed.endswith(f"next: vocable pretrain {output} TEXTS -o DIR --steps 500 --masking overlap-aware\n")
    mlm, tokenizer = AutoModelForMaskedLM.from_pretrained(output), AutoTokenizer.from_pretrained(output)
    assert mlm.config.vocab_size == len(tokenizer)
    assert main(["transfer", *given]) == 0
    assert "already there, made with the same settings" in capsys.readouterr().out
    assert main(["transfer", *given, "--init", "mean"]) == 2
    assert "was made with other settings (init)" in capsys.readouterr().err


def test_json_has_the_same_figures(
    backbones: dict[str, Path], tmp_path: Path, toy_texts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    output, texts = tmp_path / "moved", tmp_path / "texts.txt"
    texts.write_text("\n".join(toy_texts), encoding="utf-8")
    given = [str(backbones["bert"]), "--target", str(backbones["albert"]), "--init", "subtoken", "--texts", str(texts)]
    assert main(["transfer", *given, "-o", str(output), "--neighbours", "▁fox", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    model = vo.load(output)
    [stored], fresh = vo.provenance(model), vo.new_tokens(model)
    assert fresh is not None
    assert found["new_tokens"] == len(fresh) == stored["new_tokens"]
    assert found["overlap"] == stored["overlap"]
    assert found["classes"] == stored["classes"]
    assert (stored["init"], stored["bias"]) == ("subtoken", "prior")
    assert found["neighbours"][0]["token"] == "▁fox"


def test_a_mistake_is_one_line(backbones: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    AutoTokenizer.from_pretrained(backbones["albert"]).save_pretrained(tmp_path / "alone")
    given = [str(backbones["bert"]), "--target", str(tmp_path / "alone"), "-o", str(tmp_path / "moved")]
    assert main(["transfer", *given]) == 2
    told = "vocable: init='semantic' needs the target's embeddings, and it is a tokenizer alone: use 'subtoken'"
    assert capsys.readouterr().err.splitlines()[-1] == told
    assert not (tmp_path / "moved").exists()
