"""The guard: what it stops, what it lets pass, what it says, and what it keeps."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SparseEncoder
from torch import nn
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tests.by_parts import calibrate, load_checkpoint, rescale
from vocable.adapt.rescale import choose_factor
from vocable.adapt.stages import RescaleSettings
from vocable.adapt.statistics import Start, measure_start, probe_texts
from vocable.cli import main
from vocable.core.tables import short
from vocable.encoding.load import load
from vocable.encoding.pooling import Activation
from vocable.errors import ArgumentError, CollapseError
from vocable.training.advice import advise, describe
from vocable.training.detector import Collapse, CollapseKind
from vocable.training.guard import SAMPLED, sampled
from vocable.training.objective import BatchStatistics, Monitor
from vocable.training.recipe import Recipe
from vocable.training.recipe_files import make_recipe
from vocable.training.train import train


@pytest.fixture
def examples(tmp_path: Path, toy_texts: list[str]) -> Path:
    """48 pairs of a sentence and the same in a longer one."""
    texts = sorted(set(toy_texts))[:48]
    rows = [{"query": text, "positive": positive(i, text)} for i, text in enumerate(texts)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def positive(number: int, text: str) -> str:
    return f"chapter {number} of the book says: {text}"


def recipe(model: Path, examples: Path, **training: Any) -> Recipe:
    """So slow a training that what is broken stays so for as long as it takes."""
    settings = {"steps": 12, "batch_size": 8, "log_every": 1, "save_every": 4, "learning_rate": 2e-5} | training
    return make_recipe({"model": str(model), "data": {"examples": [str(examples)]}, "training": settings})


def changed(folder: Path, output: Path, *, factor: float = 1.0, bias: float = 0.0) -> Path:
    """A copy of a backbone with its output matrix divided by `factor`, and `bias` added to its output bias."""
    mlm = rescale(AutoModelForMaskedLM.from_pretrained(folder), factor)
    with torch.no_grad():
        mlm.get_output_embeddings().bias.add_(bias)
    mlm.save_pretrained(output)
    AutoTokenizer.from_pretrained(folder).save_pretrained(output)
    return output


def stopped(recipe: Recipe, output: Path) -> str:
    with pytest.raises(CollapseError) as found:
        train(recipe, output)
    assert not output.exists()
    said = str(found.value)
    assert "\n" not in said
    return said


def checkpoints(output: Path) -> list[str]:
    return sorted(path.name for path in output.with_name(f"{output.name}.partial").glob("train/checkpoint-*"))


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the monitor see other figures from a batch on, the first being 1."""

    def from_batch(first: int, **figures: Any) -> None:
        see, seen = Monitor.see, []

        def spoiled(self: Monitor, *arguments: Any) -> None:
            see(self, *arguments)
            seen.append(self.newest)
            if len(seen) >= first:
                assert self.newest is not None
                self.newest = replace(self.newest, **figures)

        monkeypatch.setattr(Monitor, "see", spoiled)

    return from_batch


@pytest.mark.slow
@pytest.mark.parametrize("name", ["roberta", "deberta"])
def test_a_head_eight_times_too_large_is_stopped(
    backbones: dict[str, Path], name: str, examples: Path, tmp_path: Path
) -> None:
    broken = changed(backbones[name], tmp_path / "broken", factor=1 / 8)
    said = stopped(recipe(broken, examples), tmp_path / "model")
    figures = re.match(
        r"stopped at step 10, dense collapse: (\d+) of (\d+) terms active in a document, loss ([\d.]+), "
        r"the loss of chance is 2.08; this was so from the start: ",
        said,
    )
    assert figures is not None, said
    active, terms, loss = map(float, figures.groups())
    assert 0.6 * terms < active <= terms
    assert loss > 2.5 * 2.08
    mlm, tokenizer = AutoModelForMaskedLM.from_pretrained(broken), AutoTokenizer.from_pretrained(broken)
    texts = [json.loads(line)["positive"] for line in examples.read_text(encoding="utf-8").splitlines()]
    factor, _ = choose_factor(mlm, tokenizer, probe_texts(texts))
    assert factor in (4, 8)
    assert (
        f"start: rescale by {factor} (`rescale.factor: {factor}` in the recipe), after which the loss starts at" in said
    )
    assert f"`vocable calibrate {broken} TEXTS --activation-rate 0.05 -o DIR`, or `calibrate:` in the recipe" in said
    # With the repair the same recipe is carried out.
    train(
        recipe(broken, examples).model_copy(update={"rescale": RescaleSettings(factor=factor)}), tmp_path / "repaired"
    )


@pytest.mark.parametrize("name", ["bert", "modernbert", "deberta"])
def test_healthy_runs_pass_untouched(
    backbones: dict[str, Path], name: str, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr("vocable.training.guard.advise", lambda *arguments: asked.append(arguments))
    train(recipe(backbones[name], examples, learning_rate=1e-3), tmp_path / "model")
    assert asked == []


def test_a_dead_start_is_stopped(backbones: dict[str, Path], examples: Path, tmp_path: Path) -> None:
    broken = changed(backbones["distilbert"], tmp_path / "broken", bias=-100.0)
    said = stopped(recipe(broken, examples), tmp_path / "model")
    assert said.startswith(
        "stopped at step 10, dead vectors: 100% of the documents have no active term; this was already so at step 1"
    )
    assert "the output bias is too low: calibrate to 5%" in said
    assert "last good checkpoint" not in said
    assert checkpoints(tmp_path / "model") == []


def test_weights_that_are_not_finite_stop_a_training(
    backbones: dict[str, Path], examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gradient that is not one damages the weights in the very step that would be saved."""
    see, steps = Monitor.see, []

    def counted(*arguments: Any) -> None:
        steps.append(see(*arguments))

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * float("nan") if len(steps) == 8 else gradient

    def hooked(*arguments: Any, **options: Any) -> Any:
        model = load(*arguments, **options)
        next(weight for weight in model.parameters() if weight.requires_grad).register_hook(spoil)
        return model

    monkeypatch.setattr(Monitor, "see", counted)
    monkeypatch.setattr("vocable.training.run.load_sparse_encoder", hooked)
    said = stopped(recipe(backbones["bert"], examples), tmp_path / "model")
    assert said.startswith("stopped at step 8, a number that is not finite: ")
    assert "lower training.learning_rate from 2e-05 to 2e-06" in said
    assert checkpoints(tmp_path / "model") == ["checkpoint-4"]
    assert said.endswith(f"; the last good checkpoint is {tmp_path / 'model.partial' / 'train' / 'checkpoint-4'}")
    weights = load(tmp_path / "model.partial" / "train" / "checkpoint-4").state_dict().values()
    assert all(bool(weight.isfinite().all()) for weight in weights)


def test_no_checkpoint_is_written_once_the_trouble_has_begun(
    backbones: dict[str, Path], examples: Path, tmp_path: Path, spoil: Any
) -> None:
    spoil(6, empty_documents=0.75, document_terms=0.2, shares={"document": 0.4})
    settings = {"steps": 20, "save_every": 1, "regularizers": {"query": 0.01, "document": 0.03}}
    said = stopped(recipe(backbones["bert"], examples, **settings), tmp_path / "model")
    assert said.startswith("stopped at step 15, dead vectors: 75% of the documents have no active term; ")
    assert "lower training.regularizers.document from 0.03 to 0.003" in said
    assert checkpoints(tmp_path / "model") == ["checkpoint-4", "checkpoint-5"]


def killed(monkeypatch: pytest.MonkeyPatch, recipe: Recipe, output: Path, batch: int) -> None:
    """Train until the batch with this number comes, the first being 1."""
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(Monitor, "see", lambda *arguments: seen.append(see(*arguments)) or _kill_at(batch, len(seen)))
        with pytest.raises(KeyboardInterrupt):
            train(recipe, output)


see = Monitor.see


def _kill_at(batch: int, seen: int) -> None:
    if seen == batch:
        raise KeyboardInterrupt


def test_a_run_gone_on_with_is_judged_from_its_first_step(
    backbones: dict[str, Path], examples: Path, tmp_path: Path, spoil: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recipe(backbones["bert"], examples, steps=20)
    killed(monkeypatch, run, tmp_path / "model", 6)
    assert checkpoints(tmp_path / "model") == ["checkpoint-4"]
    spoil(1, loss=9999.0)
    said = stopped(run, tmp_path / "model")
    assert said.startswith("stopped at step 14, hopeless scores: ")
    assert "this was not yet so at step 1: lower training.learning_rate" in said


def test_what_was_warned_of_is_not_said_again_after_a_kill(
    backbones: dict[str, Path],
    examples: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = changed(backbones["distilbert"], tmp_path / "broken", bias=-100.0)
    run = recipe(broken, examples, guard="warn", steps=24)
    killed(monkeypatch, run, tmp_path / "model", 14)
    assert checkpoints(tmp_path / "model") == ["checkpoint-12"]
    train(run, tmp_path / "model")
    said = [record.getMessage() for record in caplog.records if record.name == "vocable.training.guard"]
    assert len(said) == 1
    assert said[0].startswith("step 10, dead vectors: ")


@pytest.mark.parametrize(
    ("figures", "advice"),
    [
        ({"loss": 9999.0}, "not yet so at step 1: lower training.learning_rate from 2e-05 to 2e-06"),
        (
            {"empty_queries": 1.0, "query_terms": 0.0, "shares": {"query": 0.4}},
            "regularizers reached 40% (query) of the loss: lower training.regularizers.query from 0.01 to 0.001",
        ),
    ],
)
def test_the_advice_follows_from_the_figures(
    backbones: dict[str, Path], examples: Path, tmp_path: Path, spoil: Any, figures: dict[str, float], advice: str
) -> None:
    spoil(2, **figures)
    weights = {"query": 0.01, "document": 0.03}
    assert advice in stopped(recipe(backbones["bert"], examples, regularizers=weights), tmp_path / "model")


def test_a_rate_that_is_too_high_is_blamed_for_lost_terms(
    backbones: dict[str, Path], examples: Path, tmp_path: Path, spoil: Any
) -> None:
    """AdamW moves a weight by about the rate in a step, and weights without a gradient hardly at all."""
    spoil(2, empty_documents=1.0, document_terms=0.0)
    said = stopped(recipe(backbones["bert"], examples, learning_rate=0.01), tmp_path / "model")
    figures = re.search(
        r"a step moved the weights by up to ([\d.]+)%: lower training.learning_rate from 0.01 to 0.001", said
    )
    assert figures is not None, said
    start = sampled(load(backbones["bert"]))
    assert 0.01 < float(figures[1]) / 100 < 1.1 * 0.01 / float(start.square().mean().sqrt())


def test_the_movement_of_the_weights_is_a_share_of_their_norm() -> None:
    model = nn.Sequential(nn.Linear(50, 60), nn.Linear(60, 2000, bias=False))
    before = sampled(model)
    with torch.no_grad():
        for layer in model:
            layer.weight.mul_(1.25)
    assert len(before) <= 2 * SAMPLED
    assert float((sampled(model) - before).norm() / before.norm()) == pytest.approx(0.25)


def test_a_start_that_hinders_is_told_after_the_first_step(
    backbones: dict[str, Path], examples: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = changed(backbones["roberta"], tmp_path / "broken", factor=1 / 8)
    train(recipe(broken, examples, guard="warn", steps=2), tmp_path / "model")
    [said] = [record.getMessage() for record in caplog.records if record.name == "vocable.training.guard"]
    assert re.match(
        r"step 1: \d+ of \d+ terms active in a document, loss [\d.]+, the loss of chance is 2.08; rescale by", said
    )


@pytest.mark.parametrize(
    ("temperature", "spread", "expected"),
    [
        (1.0, 8.0, "(`training.losses: [{name: info_nce, temperature: 6}]` in the recipe), or add hard negatives"),
        (6.0, 8.0, "add hard negatives (vocable mine, data.negatives)"),
    ],
)
def test_a_training_with_nothing_to_learn_is_told_a_temperature_for_its_scores(
    temperature: float, spread: float, expected: str, toy_model: SparseEncoder
) -> None:
    losses = [{"name": "info_nce", "temperature": temperature}]
    values = {"model": "m", "data": {"examples": ["p.jsonl"]}, "training": {"steps": 200, "losses": losses}}
    idle = replace(LOUD, loss=0.0004, spread=spread)
    collapse, recipe = Collapse(CollapseKind.IDLE, 20, idle, idle), make_recipe(values)
    assert describe(collapse, recipe) == "the loss is almost 0 (0.0004; chance 2.08)"
    assert expected in advise(collapse, recipe, toy_model, [])


@pytest.mark.slow
def test_the_same_command_says_again_why_it_was_stopped(
    backbones: dict[str, Path], examples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = changed(backbones["distilbert"], tmp_path / "broken", bias=-100.0)
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe(broken, examples).model_dump_json(exclude_none=True), encoding="utf-8")
    command = ["train", str(path), "-o", str(tmp_path / "model")]
    said = []
    for _ in range(2):
        assert main(command) == 2
        said.append(capsys.readouterr().err.splitlines()[-1])
    assert said[0] == said[1]
    assert said[0].startswith("vocable: stopped at step 10, dead vectors: ")
    with pytest.raises(ArgumentError):
        train(recipe(broken, examples, steps=13), tmp_path / "model")
    assert main([*command, "--no-resume"]) == 2
    train(recipe(broken, examples, guard="off"), tmp_path / "model", resume=False)


def test_a_guard_that_warns_does_so_once_and_goes_on(
    backbones: dict[str, Path], examples: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = changed(backbones["distilbert"], tmp_path / "broken", bias=-100.0)
    train(recipe(broken, examples, guard="warn", steps=24), tmp_path / "model")
    [said] = [record.getMessage() for record in caplog.records if record.name == "vocable.training.guard"]
    assert said.startswith("step 10, dead vectors: ")


def test_a_guard_that_is_off_says_nothing(
    backbones: dict[str, Path], examples: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = changed(backbones["distilbert"], tmp_path / "broken", bias=-100.0)
    train(recipe(broken, examples, guard="off"), tmp_path / "model")
    assert [record for record in caplog.records if record.name.startswith("vocable.training.guard")] == []


LOUD = BatchStatistics(
    query_terms=300.0,
    document_terms=300.0,
    empty_queries=0.0,
    empty_documents=0.0,
    score=9e5,
    spread=1e5,
    loss=9e4,
    chance=math.log(8),
    terms=360,
    finite=True,
)


@pytest.mark.parametrize(
    ("pooling", "activation"), [("sum", "relu"), ("cls", "relu"), ("mean-before-head", "relu"), ("max", "log1p_relu")]
)
def test_repairs_are_tried_as_the_run_pools(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, pooling: str, activation: Activation
) -> None:
    mlm, tokenizer = load_checkpoint(backbones["roberta"])
    large = rescale(mlm, 1 / 16)
    large.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(backbones["roberta"]).save_pretrained(tmp_path)
    texts = [text for text in sorted(set(toy_texts)) if len(text.split()) >= 8][:24]
    recipe = make_recipe(
        {
            "model": str(tmp_path),
            "pooling": pooling,
            "activation": activation,
            "data": {"examples": ["pairs.jsonl"]},
            "training": {"steps": 9},
        }
    )
    model = load(tmp_path, pooling=recipe.pooling, activation=recipe.activation)
    said = advise(Collapse(CollapseKind.HOPELESS, 10, LOUD, LOUD), recipe, model, texts)
    choice = choose_factor(large, tokenizer, texts, pooling=pooling, activation=activation)
    usual = choose_factor(large, tokenizer, texts)
    assert rescaling(*choice) in said
    assert rescaling(*usual) not in said
    calibrated = calibrate(large, tokenizer, texts, activation_rate=0.05, pooling=pooling).mlm
    start = measure_start(calibrated, tokenizer, texts, pooling=pooling, activation=activation)
    assert start.score_max > 0
    assert ("vocable calibrate" in said) == start.stable


@pytest.mark.parametrize(("pooling", "option"), [("max", "0.05"), ("sum", "0.05"), ("cls", "0.05 --pooling cls")])
def test_advice_on_vectors_that_are_all_alike_depends_on_the_first_step(
    toy_model: SparseEncoder, pooling: str, option: str
) -> None:
    recipe = make_recipe(
        {"model": "m", "pooling": pooling, "data": {"examples": ["p.jsonl"]}, "training": {"steps": 200}}
    )
    alike = replace(LOUD, query_terms=9.0, document_terms=9.0, score=3.0, loss=math.log(8))
    said = advise(Collapse(CollapseKind.ALIKE, 112, alike, alike), recipe, toy_model, [])
    assert said.startswith("this was already so at step 1: pre-train the model, at a lower rate")
    assert f"vocable calibrate m TEXTS --activation-rate {option} -o DIR`" in said
    later = advise(Collapse(CollapseKind.ALIKE, 112, alike, replace(alike, loss=1.0)), recipe, toy_model, [])
    assert later == "this was not yet so at step 1: lower training.learning_rate from 2e-05 to 2e-06"


def rescaling(factor: int, starts: dict[int, Start]) -> str:
    """Return the guard's advice to rescale by a factor."""
    start, repair = starts[factor], f"rescale by {factor} (`rescale.factor: {factor}` in the recipe)"
    return f"{repair}, after which the loss starts at {short(start.loss)} (chance 3.18)"
