"""Recipes: what is read, what is refused, and with which words."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from vocable.data import Example
from vocable.encoding.load import load
from vocable.errors import RecipeError
from vocable.evaluation.plans import evaluate_system
from vocable.training.recipe import HardNegatives, Recipe
from vocable.training.recipe_files import make_recipe, read_recipe, recipes
from vocable.training.train import train
from vocable.training.variants import plan_runs

SMALLEST = """
model: some/model
data:
  examples: [pairs.jsonl]
training:
  steps: 10
"""


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(SMALLEST, encoding="utf-8")
    return path


def test_defaults_fill_what_is_left_out(recipe_file):
    recipe = read_recipe(recipe_file)
    assert (recipe.training.batch_size, recipe.training.learning_rate, recipe.seed) == (32, 2e-5, 0)
    assert recipe.pretrain is None
    assert recipe.calibrate is None


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("training.learning_rate=2e-5", 2e-5),
        ("training.learning_rate=0.1", 0.1),
        ("training.regularizers.query.weight=0.003", 0.003),
        ("seed=7", 7),
        ("data.examples=[a.tsv, b.tsv]", ["a.tsv", "b.tsv"]),
    ],
)
def test_override_replaces_one_key(recipe_file, override, value):
    found = read_recipe(recipe_file, [override])
    for part in override.partition("=")[0].split("."):
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.learning_rat=1", "{file}: training.learning_rat: unknown key; did you mean learning_rate?"),
        ("steps=1", "{file}: steps: unknown key; did you mean pretrain.steps or training.steps?"),
        ("training.steps=0", "{file}: training.steps must be above 0, not 0"),
        ("training.batch_size=1", "{file}: training.batch_size must be at least 2, not 1"),
        ("calibrate.texts=a.txt", "{file}: calibrate: give either activation_rate or shift"),
        ("training.learning_rate=.inf", "{file}: training.learning_rate must be a finite number, not inf"),
        ("seed=-1", "{file}: seed must be at least 0, not -1"),
        ("seed=4294967296", "{file}: seed must be below 4294967296, not 4294967296"),
        (
            "data={examples: [a], examples: [b]}",
            "override data={{examples: [a], examples: [b]}}:1: duplicate key 'examples'",
        ),
        ("pooling=mean", "{file}: pooling must be 'max', 'sum', 'cls' or 'mean-before-head', not 'mean'"),
        ("data.examples=[a.tsv, 4]", "{file}: data.examples.1 must be a mapping of keys, not 4"),
        ("steps", "override steps: expected KEY=VALUE"),
        ("model.name=x", "override model.name=x: model has no keys"),
    ],
)
def test_a_wrong_key_is_named_with_its_path(recipe_file, override, message):
    with pytest.raises(RecipeError) as error:
        read_recipe(recipe_file, [override])
    assert str(error.value) == message.format(file=recipe_file)


def test_an_unknown_measure_is_refused(recipe_file):
    with pytest.raises(RecipeError, match=r"evaluation\.measures: .*'x@y'"):
        read_recipe(recipe_file, ["evaluation={dataset: d, measures: [x@y]}"])


def test_all_wrong_values_are_named_at_once(recipe_file):
    with pytest.raises(RecipeError) as error:
        read_recipe(recipe_file, ["seed=-1", "training.batch_size=1"])
    assert [line.split(": ")[1].split(" ")[0] for line in str(error.value).splitlines()] == [
        "seed",
        "training.batch_size",
    ]


def test_a_missing_key_is_named():
    with pytest.raises(RecipeError):
        make_recipe({"model": "m", "data": {"examples": ["a"]}})


@pytest.mark.parametrize("text", ["a: [", "- 1"])
def test_a_file_that_is_no_recipe_is_refused(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError):
        read_recipe(path)


def test_a_missing_recipe_is_named(tmp_path):
    with pytest.raises(RecipeError):
        read_recipe(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("pairs/a.jsonl", "data/pairs/a.jsonl"),
        ("/abs/a.jsonl", "/abs/a.jsonl"),
        ("beir:scifact#train", "beir:data/scifact#train"),
        ("pydocs:#train", "pydocs:#train"),
        ("hf:some/set", "hf:some/set"),
    ],
)
def test_relative_places_are_looked_up_in_the_data_folder(place, found):
    recipe = make_recipe({"model": "m", "data_folder": "data", "data": {"examples": ["a"]}, "training": {"steps": 1}})
    assert recipe.place(place) == found


def test_examples_are_looked_up_in_the_data_folder():
    ids = {"file": "a.jsonl", "corpus": "hf:name", "queries": "q.tsv"}
    values = {"model": "m", "data_folder": "data", "data": {"examples": ["pairs.tsv", ids]}, "training": {"steps": 1}}
    placed = HardNegatives(file="data/a.jsonl", corpus="hf:name", queries="data/q.tsv")
    assert make_recipe(values).examples() == ["data/pairs.tsv", placed]


def test_listed_recipes_are_starters_that_need_nothing():
    assert [*recipes()] == ["backbone-to-retriever", "my-pairs"]
    for name, recipe in recipes().items():
        assert recipe == recipes(name)
        assert not read_recipe(name).needs
        assert len(re.findall(r"^[^#]*#|^#", recipe.text, re.MULTILINE)) > 8  # comments say what to change
    assert read_recipe("my-pairs").data.examples == ["pydocs:#train"]


def test_recipes_are_listed_without_torch():
    code = "import sys, vocable.training.recipe_files as y; print(len(y.recipes())); assert 'torch' not in sys.modules"
    assert int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["my-pairs", "backbone-to-retriever"])
def test_a_starter_trains_as_it_is(name: str, tmp_path: Path) -> None:
    few = ["training.steps=2", "training.batch_size=4", "data.held_out=0"]
    if "pretrain" in recipes(name).text:
        few += ["pretrain.steps=2", "pretrain.batch_size=4", "pretrain.held_out=4", "calibrate.count=8"]
    model = train(name, tmp_path / "out", overrides=few)
    assert model.tokenizer.get_vocab() == load("vocable-mini", device="cpu").tokenizer.get_vocab()


FOLDER = Path(__file__).parents[2] / "studies/small"
SMALL = {path.stem: path for path in FOLDER.glob("*.yaml") if path.stem != "vocable-mini"}


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
    assert {"rescaling", "vocabulary-transfer", "wackiness", "expanded", "distillation"} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_variants_differ(name: str) -> None:
    recipe = read_recipe(SMALL[name])
    assert len(recipe.variants) > 2
    found = [read_recipe(SMALL[name], variant=variant).model_dump_json() for variant in recipe.variants]
    assert len(set(found)) == len(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("rescaling", "k2"),
        ("vocabulary-transfer", "semantic-adapted"),
        ("wackiness", "sum"),
        ("wackiness", "larger-vocabulary"),
        ("expanded", "lr-l"),
        ("distillation", "kl"),
        ("distillation", "alignment"),
    ],
)
def test_each_small_recipe_trains_and_is_measured(
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
        ("wackiness", "l1", "training.regularizers.document.weight", "l1"),
        ("distillation", "margin-mse", "training.regularizers.document", "flops"),
    ],
)
def test_a_regularizer_can_be_swept(name: str, variant: str, key: str, kind: str) -> None:
    plan = plan_runs(SMALL[name], [variant], sweep=f"{key}=0.001,0.1")
    last = key.rpartition(".")[2]
    assert [*plan] == [f"{variant}-{last}-{value}" for value in ("0.001", "0.1")]
    for (recipe, _), weight in zip(plan.values(), (0.001, 0.1), strict=True):
        document = recipe.training.regularizers.document
        assert (document.name, document.weight) == (kind, weight)
