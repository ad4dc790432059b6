"""The recipes for two cores, at toy scale: each variant can be read, and what they are made of is trained."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from vocable.data import Example
from vocable.encoder.load import load
from vocable.evaluation.retrieval import evaluate_system
from vocable.training.recipe import Recipe, read_recipe
from vocable.training.recipe_files import recipe_file, recipes
from vocable.training.train import train
from vocable.training.variants import plan_runs

SMALL = {name: recipe_file(name) for name in recipes() if name.startswith("small-")}
# What becomes toy-sized; everything else is the recipe's own.
TOY = ["needs=[]", "training.steps=2", "training.batch_size=4", "training.log_every=1", "evaluation.every=null"]


def places(recipe: Recipe) -> Iterator[str]:
    """The files that a recipe reads texts and examples from."""
    yield from map(str, recipe.data.examples)
    for part in (recipe.pretrain, recipe.expand, recipe.transfer):
        yield from [] if part is None else part.texts
    if recipe.calibrate is not None:
        yield recipe.calibrate.texts


@pytest.fixture
def toy(tmp_path: Path, backbones: dict[str, Path], toy_texts: list[str]) -> Callable[[str, str | None], list[str]]:
    """Writes what a variant reads, and gives the changes that make it a toy."""
    texts = sorted(set(toy_texts))[:40]
    rows = [Example(f"{i} {text.split()[0]}", text, ()).line for i, text in enumerate(texts)]

    def write(name: str, variant: str | None) -> list[str]:
        recipe = read_recipe(SMALL[name], variant=variant)
        for place in places(recipe):
            (tmp_path / place).parent.mkdir(exist_ok=True)
            (tmp_path / place).write_bytes(gzip.compress(b"".join(rows)))
        assert recipe.evaluation is not None
        for dataset in recipe.evaluation.datasets:
            folder = tmp_path / dataset.removeprefix("beir:")
            folder.mkdir(parents=True, exist_ok=True)
            lines = {
                "corpus.jsonl": [json.dumps({"_id": f"d{i}", "text": text}) for i, text in enumerate(texts)],
                "queries.jsonl": [json.dumps({"_id": f"q{i}", "text": text}) for i, text in enumerate(texts[:4])],
                "qrels.tsv": ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in range(4))],
            }
            for file, content in lines.items():
                (folder / file).write_text("\n".join(content), encoding="utf-8")
        small = [f"data_folder={tmp_path}", f"model={backbones['bert']}", *TOY]
        if recipe.pretrain is not None:
            small += ["pretrain.steps=2", "pretrain.batch_size=4"]
        if recipe.training.teacher is not None:
            small.append(f"training.teacher.models=[{backbones['distilbert']}]")
        if recipe.training.sparse_teacher is not None:
            small.append(f"training.sparse_teacher={backbones['bert']}")
        if recipe.transfer is not None:
            small.append(f"transfer.target={backbones['roberta']}")
        return small

    return write


def test_each_paper_has_a_small_recipe() -> None:
    assert {
        "small-rescaling",
        "small-vocabulary-transfer",
        "small-wackiness",
        "small-expanded",
        "small-distillation",
    } == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_variants_differ_and_need_nothing_that_is_not_at_hand(name: str) -> None:
    recipe = read_recipe(SMALL[name])
    assert recipe.needs == []
    assert len(recipe.variants) > 2
    found = [read_recipe(SMALL[name], variant=variant).model_dump_json() for variant in recipe.variants]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("small-rescaling", "k2"),
        ("small-vocabulary-transfer", "semantic-adapted"),
        ("small-wackiness", "sum"),
        ("small-wackiness", "larger-vocabulary"),
        ("small-expanded", "lr-l"),
        ("small-distillation", "kl"),
        ("small-distillation", "alignment"),
    ],
)
def test_it_trains_and_is_measured(
    toy: Callable[[str, str | None], list[str]],
    tokenizers: dict[str, PreTrainedTokenizerFast],
    name: str,
    variant: str,
    tmp_path: Path,
) -> None:
    overrides = toy(name, variant)
    result = train(SMALL[name], tmp_path / "out", variants=[variant], overrides=overrides)[variant]
    recipe = read_recipe(SMALL[name], overrides, variant)
    assert recipe.evaluation is not None
    model = load(tmp_path / "out" / variant)
    assert model[1].pooling_strategy == recipe.pooling
    family = "wordpiece" if recipe.transfer is None else "byte-level"
    assert model.tokenizer.get_vocab() == tokenizers[family].get_vocab()
    log = [json.loads(line) for line in (tmp_path / "out" / variant / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == 2
    losses = [loss.name for loss in recipe.training.losses]
    assert len(losses) == 1 or all(loss in log[0] for loss in losses)
    several = len(recipe.evaluation.datasets) > 1
    for dataset in recipe.evaluation.datasets:
        found = evaluate_system(model, recipe.place(dataset), recipe.evaluation.measures)
        prefix = f"{Path(dataset).name} " if several else ""
        assert found.cost is not None
        expected = {f"{prefix}{measure}": value for measure, value in found.values.items()}
        assert result.measured.items() >= expected.items()
        assert result.measured[f"{prefix}FLOPS"] == pytest.approx(found.cost.flops)


@pytest.mark.parametrize(
    ("name", "variant", "key", "kind"),
    [
        ("small-wackiness", "l1", "training.regularizers.document.weight", "l1"),
        ("small-distillation", "margin-mse", "training.regularizers.document", "flops"),
    ],
)
def test_a_regularizer_can_be_swept(name: str, variant: str, key: str, kind: str) -> None:
    plan = plan_runs(SMALL[name], [variant], sweep=f"{key}=0.001,0.1")
    last = key.rpartition(".")[2]
    assert [*plan] == [f"{variant}-{last}-{value}" for value in ("0.001", "0.1")]
    for run, weight in zip(plan.values(), (0.001, 0.1), strict=True):
        document = run.recipe.training.regularizers.document
        assert (document.name, document.weight) == (kind, weight)
