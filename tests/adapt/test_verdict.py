"""What the figures of an inspection mean, and the commands that follow."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from typer.main import get_command

from vocable.adapt.inspect import Head, Inspection, TokenizerFigures, VocabularyOverlap
from vocable.adapt.statistics import Start
from vocable.cli import program

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
TRANSFER = "vocable transfer org/encoder --target bert-base-uncased -o encoder-transferred"
CALIBRATE = "vocable calibrate org/encoder texts.txt --activation-rate 0.05 -o encoder-calibrated"
RESCALE = "vocable rescale org/encoder --factor 8 -o encoder-rescaled"


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
        (changed(vocabulary=CASED, start=LOUD, head={"norm_mean": 2.6}, factor=8), [TRANSFER, RESCALE]),
    ],
)
def test_figures_lead_to_commands(found: Inspection, commands: list[str]) -> None:
    assert [finding.command for finding in found.findings] == commands
    assert found.next == (commands[0] if commands else None)


def test_a_target_is_named_and_its_overlap_judged() -> None:
    small = changed(vocabulary=CASED, overlap=VocabularyOverlap("my vocabulary", 0.02, {}))
    assert [finding.command for finding in small.findings] == [
        TRANSFER.replace("bert-base-uncased", "'my vocabulary'"),
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


def test_in_words() -> None:
    assert READY.verdict == "Nothing to repair: ready to be trained."
    found = changed(vocabulary=CASED, start=LOUD, name="org/" + "long" * 30)
    lines = found.verdict.splitlines()
    assert lines[0] == "1. 34.0% of a cased vocabulary repeat another token's form (threshold 15%)"
    commands = [f"   {finding.command}" for finding in found.findings]
    assert [line for line in lines if len(line) > 80] == commands  # never broken
    assert sum(line.startswith(("1. ", "2. ")) for line in lines) == 2


@pytest.mark.parametrize("command", [TRANSFER, CALIBRATE, RESCALE])
def test_the_commands_are_ones_of_ours(command: str) -> None:
    _, verb, *words = shlex.split(command)
    known = {name for parameter in get_command(program()).commands[verb].params for name in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known
