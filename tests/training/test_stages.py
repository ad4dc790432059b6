"""What may be done to a backbone before training, as a recipe says it; the recipes that are shipped say it right."""

from __future__ import annotations

import math
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from vocable.errors import DataError, RecipeError
from vocable.training.recipe import make_recipe, read_recipe
from vocable.training.train import train

STUDIES = Path(__file__).parents[2] / "studies"
SHIPPED = sorted([*Path(str(files("vocable") / "recipes")).glob("*.yaml"), *STUDIES.rglob("*.yaml")])
SMALLEST: dict[str, Any] = {"model": "m", "data": {"examples": ["a"]}, "training": {"steps": 1}}


def test_stages_have_the_papers_defaults() -> None:
    recipe = make_recipe(SMALLEST | {"transfer": {"target": "t"}, "rescale": {"factor": 8}})
    assert recipe.transfer is not None
    assert recipe.rescale is not None
    assert (recipe.transfer.init, recipe.transfer.bias, recipe.transfer.texts) == ("semantic", "prior", [])
    assert (recipe.rescale.factor, recipe.lowercase) == (8.0, False)
    assert make_recipe(SMALLEST | {"rescale": {"factor": "auto", "texts": "t"}}).rescale is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rescale": {"factor": "auto"}}, "rescale: factor auto needs texts, the place of the probe texts"),
        ({"rescale": {"factor": 0}}, "rescale.factor"),
        ({"rescale": {"factor": -2}}, "rescale.factor"),
        ({"rescale": {"factor": math.nan}}, "rescale.factor"),
        ({"rescale": {"factor": "much"}}, "rescale.factor"),
        ({"transfer": {"init": "mean"}}, "transfer.target: this key is missing"),
        ({"transfer": {"target": "t", "init": "best"}}, "transfer.init: Input should be 'semantic', 'subtoken'"),
        ({"transfer": {"target": "t", "bias": "none"}}, "transfer.bias: Input should be 'prior' or 'keep'"),
        ({"lowercase": "perhaps"}, "lowercase: Input should be a valid boolean"),
        ({"evaluation": {"datasets": []}}, "evaluation.datasets: List should have at least 1 item"),
        ({"evaluation": {}}, "evaluation.datasets: this key is missing"),
    ],
)
def test_stages_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=f"^recipe: {message}"):
        make_recipe(SMALLEST | changes)


@pytest.mark.parametrize("given", [{"dataset": "a"}, {"datasets": ["a"]}, {"datasets": "a"}])
def test_one_dataset_or_several(given: dict[str, Any]) -> None:
    recipe = make_recipe(SMALLEST | {"evaluation": given})
    assert recipe.evaluation is not None
    assert recipe.evaluation.datasets == ["a"]
    assert make_recipe(recipe.model_dump()) == recipe


def test_descriptions_are_not_written_down() -> None:
    described = {"about": "x", "needs": ["y"], "variants": {"v": {}}}
    assert make_recipe(SMALLEST | described).model_dump() == make_recipe(SMALLEST).model_dump()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_recipe_and_variant_is_valid(path: Path) -> None:
    recipe = read_recipe(path)
    assert recipe.about
    for name, variant in recipe.variants.items():
        read_recipe(path, variant=name)
        assert not variant.published or re.match(r"[A-Z].* 2026, (table|figure)", variant.source)


def test_the_small_ablation_has_the_papers_rows() -> None:
    path = next(path for path in SHIPPED if path.stem == "small-vocabulary-transfer")
    recipes = {name: read_recipe(path, variant=name) for name in read_recipe(path).variants}
    assert recipes["plain"].transfer is recipes["plain"].pretrain is recipes["plain"].calibrate is None
    assert recipes["lowercase"].lowercase
    for init in ("random-new", "mean", "subtoken", "semantic"):
        for adapted in (False, True):
            recipe = recipes[f"{init}-{'adapted' if adapted else 'direct'}"]
            assert recipe.transfer is not None
            assert (recipe.transfer.init, recipe.pretrain is not None) == (init, adapted)
    whole, pretrain = recipes["semantic-adapted"], recipes["without-omc"].pretrain
    assert whole.transfer is not None
    assert recipes["without-pda"].transfer == whole.transfer.model_copy(update={"bias": "keep"})
    assert pretrain is not None
    assert pretrain.masking == "uniform"
    assert recipes["without-apc"].calibrate is None
    assert recipes["without-apc"].pretrain == whole.pretrain


def test_published_figures_are_those_of_the_papers() -> None:
    """A row and two columns, typed a second time."""
    shipped = {path.stem: read_recipe(path).variants for path in SHIPPED}
    row = shipped["vocabulary-transfer"]["modernbert"].published
    assert list(row.values()) == pytest.approx([47.7, 35.7, 98.0, 66.3, 79.9])
    found = [shipped["mlm-head-rescaling"][f"roberta-k{k}"].published["BEIR-13 nDCG@10"] for k in (1, 2, 4, 8, 16)]
    assert found == [0.331, 0.386, 0.383, 0.328, 0.004]
    row = shipped["esplade"]["indep-repeat-lr-h"].published
    keys = ["MRR@10", "q7 d20 R@10", "q5 d20 FLOPS", "q5 d10 L0_d", "d10 postings std", "EMLM logit-score-std",
            "d20 logit-cnt", "d0 pos-ls-len-std"]  # fmt: skip
    assert [row[key] for key in keys] == [0.2539, 0.3363, 0.00369, 9.94, 20.06, 9.49, 12749, 10376]
    found = [variant.published["FLOPs"] for variant in shipped["activation-rate"].values()]
    assert found == [10.69, 10.20, 9.56, 8.92, 7.96, 6.59, 5.29, 4.46, 4.25]


def test_words_come_from_texts_or_a_list_and_replace_the_terms_once() -> None:
    recipe = make_recipe(SMALLEST | {"expand": {"texts": ["a.txt"]}})
    assert recipe.expand is not None
    assert (recipe.expand.size, recipe.expand.min_count, recipe.expand.init) == (100_000, 1, "mean")
    for stage, message in [
        ({}, "expand: give either texts"),
        ({"texts": ["a"], "words": "b"}, "expand: give either texts"),
        ({"words": "b", "init": "semantic"}, "expand: init semantic and target go together"),
        ({"words": "b", "splitter": "os:system"}, "expand.splitter: Input should be 'words' or 'whitespace'"),
    ]:
        with pytest.raises(RecipeError, match=message):
            make_recipe(SMALLEST | {"expand": stage})
    both = {"expand": {"words": "b"}, "transfer": {"target": "t", "head_only": True}}
    with pytest.raises(RecipeError, match="both replace the output terms"):
        make_recipe(SMALLEST | both)
    make_recipe(SMALLEST | both | {"transfer": {"target": "t"}})


def test_pre_training_has_schedules_of_a_longer_run() -> None:
    pretrain: dict[str, Any] = {"texts": ["a"], "steps": 10}
    recipe = make_recipe(SMALLEST | {"pretrain": pretrain | {"masking": "whole-word", "schedule_steps": 10}})
    assert recipe.pretrain is not None
    assert recipe.pretrain.masking_rate == 0.15
    uniform = make_recipe(SMALLEST | {"pretrain": pretrain}).pretrain
    assert uniform is not None
    assert (uniform.masking_rate, uniform.schedule, uniform.passes) == (0.3, "cosine", None)
    with pytest.raises(
        RecipeError, match=r"pretrain\.schedule_steps: the schedule cannot be shorter than the run of 10"
    ):
        make_recipe(SMALLEST | {"pretrain": pretrain | {"schedule_steps": 9}})
    again = make_recipe(recipe.model_dump(exclude={"about", "needs", "variants"}))
    assert again.pretrain == recipe.pretrain


MINED = {"file": "here", "corpus": "here", "queries": "here", "scores": "here"}


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"examples": ["here", "gone"]}},
        *({"data": {"examples": [MINED | {part: "gone"}]}} for part in MINED),
        {"pretrain": {"texts": ["here", "gone"], "steps": 1000}},
        {"calibrate": {"texts": "gone", "shift": 1}},
        {"rescale": {"factor": "auto", "texts": "gone"}},
        {"expand": {"texts": ["gone"]}},
        {"queries": {"weights": "idf", "corpus": "gone"}},
        {"evaluation": {"datasets": ["gone"]}},
    ],
)
def test_a_source_that_is_not_there_is_known_before_any_work(
    changes: dict[str, Any], backbones: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "here.jsonl").write_text('{"query": "a", "positive": "b"}\n', encoding="utf-8")

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: named(one) for key, one in value.items()}
        if isinstance(value, list):
            return [named(one) for one in value]
        return f"{value}.jsonl" if value in ("here", "gone") else value

    values = SMALLEST | {"pretrain": {"texts": ["here"], "steps": 1000}, "data": {"examples": ["here"]}} | changes
    recipe = make_recipe(named(values) | {"model": str(backbones["bert"]), "data_folder": str(tmp_path)})
    with pytest.raises(DataError, match=r"gone\.jsonl: no such file"):
        train(recipe, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["here.jsonl"]
