"""The figures of an inspection, their thresholds, and the commands that follow."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SparseEncoder
from transformers import AutoModel, AutoTokenizer

import vocable as vo
from tests.by_parts import load_checkpoint, rescale
from vocable.adapt.alignment import align
from vocable.adapt.inspect import Head, Inspection, TokenizerFigures, VocabularyOverlap, inspect
from vocable.adapt.rescale import choose_factor
from vocable.adapt.statistics import Start, measure_start
from vocable.cli import COMMANDS
from vocable.cli.words import options_of
from vocable.errors import ArgumentError, DataError, ModelError


@pytest.mark.slow
def test_every_architecture_as_by_hand(backbone: Path, backbones: dict[str, Path], texts: list[str]) -> None:
    found = inspect(backbone, target=backbones["bert"], texts=texts)
    mlm, tokenizer = load_checkpoint(backbone)
    decoder = mlm.get_output_embeddings()
    norms = np.linalg.norm(decoder.weight.detach().numpy(), axis=1)
    assert (found.name, found.architecture) == (str(backbone), type(mlm).__name__)
    distinct = {id(p): p.numel() for p in mlm.parameters()}  # tied ones once
    assert found.parameters == sum(distinct.values())
    assert (found.head.terms, found.head.dimensions) == decoder.weight.shape
    measured = (found.head.norm_mean, found.head.norm_max, found.head.norm_std)
    assert measured == pytest.approx((norms.mean(), norms.max(), norms.std()), rel=1e-4)
    assert (found.head.tied, found.head.biased) == (True, True)
    assert found.vocabulary.size == len(tokenizer)
    words = re.findall(r"[^\W\d_]+", " ".join(texts))
    tokens = sum(len(tokenizer(f" {word}", add_special_tokens=False)["input_ids"]) for word in words)
    assert found.vocabulary.tokens_per_word == pytest.approx(tokens / len(words))
    other = align(tokenizer, AutoTokenizer.from_pretrained(backbones["bert"]))
    assert found.overlap is not None
    assert (found.overlap.share, found.overlap.classes) == (other.overlap, other.classes)
    assert found.start == measure_start(mlm, tokenizer, texts)
    assert (found.factor, found.probe) == (1, "TEXTS")


def test_a_loud_head_is_told_its_factor(backbones: dict[str, Path], texts: list[str], tmp_path: Path) -> None:
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    large = rescale(mlm, 1 / 16)
    found = inspect(large, tokenizer=tokenizer, texts=texts)
    assert found.factor == choose_factor(large, tokenizer, texts)[0]
    name = str(backbones["bert"])
    assert found.next == f"vocable rescale {name} --factor {found.factor} -o {Path(name).name}-rescaled"


def test_names_models_and_sparse_encoders_give_the_same(
    backbones: dict[str, Path], toy_model: SparseEncoder, texts: list[str]
) -> None:
    named = inspect(backbones["bert"], texts=texts)
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    assert inspect(mlm, tokenizer=tokenizer, texts=texts) == named
    assert inspect(toy_model, texts=texts) == named


def test_what_was_done_to_a_model_is_shown(toy_model: SparseEncoder, texts: list[str]) -> None:
    adapted = vo.calibrate(vo.rescale(toy_model, 2), texts, shift=-1.0)
    found = inspect(adapted, texts=texts)
    assert found.to_json()["provenance"] == vo.provenance(adapted)
    assert [step["verb"] for step in found.provenance] == ["rescale", "calibrate"]
    assert re.search(r"^provenance +rescale, factor 2$", str(found), re.MULTILINE)


def test_texts_of_a_place(backbones: dict[str, Path], texts: list[str], tmp_path: Path) -> None:
    place = tmp_path / "probe.txt"
    place.write_text("\n".join(["too short", *texts]), encoding="utf-8")
    found = inspect(backbones["bert"], texts=place)
    assert found.start == inspect(backbones["bert"], texts=texts).start
    assert found.probe == str(place)
    place.write_text("\n\n  \n", encoding="utf-8")
    with pytest.raises(DataError, match="probe\\.txt"):
        inspect(backbones["bert"], texts=place)


@pytest.fixture(scope="module")
def found(backbones: dict[str, Path], texts: list[str]) -> Inspection:
    return inspect(backbones["roberta"], target=backbones["bert"], texts=texts)


def test_an_inspection_prints_as_a_table(found: Inspection) -> None:
    text = str(found)
    commands = [finding.command for finding in found.findings if finding.command]
    assert max(len(line) for line in text.splitlines() if line.strip() not in commands) <= 80
    assert all(f"   {command}" in text.splitlines() for command in commands)  # whole, to be copied
    for shown in ("row norms", f"mean {found.head.norm_mean:.3f}", "cased", "overlap", f"{found.start.loss:,.2f}"):
        assert shown in text
    assert commands


def test_the_json_of_an_inspection_has_all_its_figures(found: Inspection) -> None:
    values = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert values["head"]["norm_mean"] == found.head.norm_mean
    assert values["start"]["loss"] == found.start.loss
    assert found.overlap is not None
    assert values["overlap"]["classes"]["word"] == found.overlap.classes["word"]._asdict()
    assert values["next"] == found.next
    assert values["findings"][0]["command"] == found.findings[0].command


def test_a_model_without_a_head_is_told_the_way_out(backbones: dict[str, Path], tmp_path: Path) -> None:
    AutoModel.from_pretrained(backbones["bert"]).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(backbones["bert"]).save_pretrained(tmp_path)
    with pytest.raises(ModelError):
        inspect(tmp_path)


def test_an_object_needs_its_tokenizer(backbones: dict[str, Path]) -> None:
    with pytest.raises(ArgumentError):
        inspect(load_checkpoint(backbones["bert"])[0])


def test_texts_in_another_language_are_the_first_finding(backbones: dict[str, Path]) -> None:
    thai = ["ภาษาไทยเป็นภาษาที่ใช้ในประเทศ", "กดปุ่มสีแดงสองครั้งแล้วเครื่องจะหยุดทันที"]  # a probe of pairs of characters
    found = inspect(backbones["bert"], texts=thai)
    assert found.vocabulary.foreign.endswith("100% unknown")
    assert "multilingual backbone" in found.findings[0].text
    assert found.findings[0].command is None


def test_a_target_that_is_not_there_is_one_line(backbones: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        inspect(backbones["bert"], target=tmp_path / "none")
    assert "\n" not in str(caught.value)


READY = Inspection(
    name="org/encoder",
    architecture="BertForMaskedLM",
    parameters=110_000_000,
    head=Head(
        terms=30522, dimensions=768, norm_mean=1.4, norm_max=2.0, norm_std=0.1, anisotropy=0.4, tied=True, biased=True
    ),
    vocabulary=TokenizerFigures(size=30522, cased=False, accents=False, redundancy=0.09, tokens_per_word=1.3),
    overlap=None,
    start=Start(
        pairs=128,
        batch=32,
        token_rate=0.01,
        pooled_rate=0.05,
        terms_mean=1500,
        terms_p99=4000,
        positive_mean=50,
        score_mean=40,
        score_std=5,
        score_max=70,
        accuracy=0.6,
        loss=5.0,
        chance=3.4657,
    ),
    factor=1,
    probe="texts.txt",
)
LOUD = {"loss": 600.0, "pooled_rate": 0.92}
CASED = {"cased": True, "redundancy": 0.34}
TRANSFER = "vocable transfer org/encoder --target vocable-mini -o encoder-transferred"
CALIBRATE = "vocable calibrate org/encoder texts.txt --activation-rate 0.05 -o encoder-calibrated"
RESCALE = "vocable rescale org/encoder --factor 8 -o encoder-rescaled"


def after(first: str, second: str) -> str:
    """Return the second command, from the output of the first."""
    return second.replace("org/encoder", first.split()[-1])


def changed(
    *, start: dict[str, Any] | None = None, head: dict[str, Any] | None = None, vocabulary: Any = None, **others: Any
) -> Inspection:
    return replace(
        READY,
        start=replace(READY.start, **(start or {})),
        head=replace(READY.head, **(head or {})),
        vocabulary=replace(READY.vocabulary, **(vocabulary or {})),
        **others,
    )


@pytest.mark.parametrize(
    ("found", "commands"),
    [
        (READY, []),
        (changed(head={"norm_mean": 2.6}), []),  # a long head whose start is calm has nothing to mend
        (changed(start=LOUD), [CALIBRATE]),
        (changed(start=LOUD, head={"norm_mean": 2.6}, factor=8), [RESCALE]),
        (changed(start=LOUD, head={"norm_mean": 1.7}, factor=8), [CALIBRATE]),
        (changed(start=LOUD, head={"norm_mean": 2.6}, factor=1), [CALIBRATE]),  # no smaller head would live
        (changed(start={"pooled_rate": 0.61}), [CALIBRATE]),
        (changed(start={"pooled_rate": 0.6}), []),
        (changed(start={"pooled_rate": 0.0009, "loss": 3.4}), [CALIBRATE]),
        (changed(start={"pooled_rate": 0.0019}), []),  # a finished retriever
        (changed(vocabulary=CASED), [TRANSFER]),
        (changed(vocabulary={"cased": True, "redundancy": 0.1}), []),
        (
            changed(vocabulary=CASED, start=LOUD, head={"norm_mean": 2.6}, factor=8),
            [TRANSFER, after(TRANSFER, RESCALE)],
        ),
        (changed(vocabulary=CASED, start=LOUD), [TRANSFER, after(TRANSFER, CALIBRATE)]),
    ],
)
def test_figures_lead_to_commands(found: Inspection, commands: list[str]) -> None:
    assert [finding.command for finding in found.findings] == commands
    assert found.next == (commands[0] if commands else None)


def test_a_target_is_named_and_its_overlap_judged() -> None:
    small = changed(vocabulary=CASED, overlap=VocabularyOverlap("my vocabulary", 0.02, {}))
    assert [finding.command for finding in small.findings] == [
        TRANSFER.replace("vocable-mini", "'my vocabulary'"),
        None,
    ]
    assert small.findings[1].text == "only 2.0% of my vocabulary are shared tokens (threshold 50%)"
    assert changed(overlap=VocabularyOverlap("target", 0.56, {})).findings == ()


def test_without_a_bias_there_is_nothing_to_calibrate() -> None:
    [finding] = changed(start=LOUD, head={"biased": False}).findings
    assert finding.command == "vocable rescale org/encoder --factor auto -o encoder-rescaled"


def test_figures_stand_beside_their_thresholds() -> None:
    [large] = changed(start=LOUD, head={"norm_mean": 2.6}, factor=8).findings
    assert (large.figure, large.threshold) == (2.6, 2.0)
    assert "Jang et al. 2026, tables 1 and 2" in large.source
    [loud] = changed(start=LOUD).findings
    assert (loud.figure, loud.threshold) == (600.0, pytest.approx(2.5 * 3.4657))
    assert "(threshold 8.7)" in loud.text
    [dense] = changed(start={"pooled_rate": 0.7}).findings
    assert (dense.figure, dense.threshold) == (0.7, 0.6)
    assert "table 5" in dense.source


def test_a_verdict_numbers_its_findings_and_keeps_commands_whole() -> None:
    assert READY.verdict == "Nothing to repair: ready to be trained."
    found = changed(vocabulary=CASED, start=LOUD, name="org/" + "long" * 30)
    lines = found.verdict.splitlines()
    assert lines[0] == "1. 34.0% of a cased vocabulary repeat another token's form (threshold 15%)"
    commands = [f"   {finding.command}" for finding in found.findings]
    assert [line for line in lines if len(line) > 80] == commands  # never broken
    assert sum(line.startswith(("1. ", "2. ")) for line in lines) == 2


@pytest.mark.parametrize("command", [TRANSFER, CALIBRATE, RESCALE])
def test_the_commands_of_an_inspection_exist(command: str) -> None:
    _, verb, *words = shlex.split(command)
    known = {name for parameter in COMMANDS[verb].parameters.values() for name in options_of(parameter)}
    assert {word for word in words if word.startswith("-")} <= known
