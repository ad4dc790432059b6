"""Stages of a recipe before training; the shipped recipes are valid."""

from __future__ import annotations

import json
import math
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tests.by_parts import calibrate, expand, load_checkpoint, rescale, transfer
from vocable.adapt.alignment import align
from vocable.adapt.expand_vocabulary import frequent_words
from vocable.encoding.terms import splitter
from vocable.errors import DataError, ModelError, RecipeError
from vocable.torch_models.output_vocabulary import output_vocabulary
from vocable.training.recipe import Recipe
from vocable.training.recipe_files import make_recipe, read_recipe
from vocable.training.stages import carry_out_stages
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
        ({"rescale": {"factor": "auto"}}, "rescale: factor auto needs texts, the source of the probe texts"),
        ({"rescale": {"factor": 0}}, "rescale.factor"),
        ({"rescale": {"factor": -2}}, "rescale.factor"),
        ({"rescale": {"factor": math.nan}}, "rescale.factor"),
        ({"rescale": {"factor": "much"}}, "rescale.factor"),
        ({"transfer": {"init": "mean"}}, "transfer.target: this key is missing"),
        ({"transfer": {"target": "t", "init": "best"}}, "transfer.init must be 'semantic', 'subtoken'"),
        ({"transfer": {"target": "t", "bias": "none"}}, "transfer.bias must be 'prior' or 'keep'"),
        ({"lowercase": "perhaps"}, "lowercase must be true or false"),
        ({"evaluation": {"datasets": []}}, "evaluation.datasets must have at least 1 item"),
        ({"evaluation": {}}, "evaluation.datasets: this key is missing"),
    ],
)
def test_settings_of_stages_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_recipe_and_variant_is_valid(path: Path) -> None:
    recipe = read_recipe(path)
    assert recipe.about
    for name, variant in recipe.variants.items():
        read_recipe(path, variant=name)
        assert not variant.published or re.match(r"[A-Z].* 2026, (table|figure)", variant.source)


def test_the_small_ablation_has_the_papers_rows() -> None:
    path = next(path for path in SHIPPED if path == STUDIES / "small/vocabulary-transfer.yaml")
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
    shipped = {path.stem: read_recipe(path).variants for path in SHIPPED if path.parent.name != "small"}
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
        ({"words": "b", "splitter": "os:system"}, "expand.splitter must be 'words' or 'whitespace'"),
    ]:
        with pytest.raises(RecipeError, match=message):
            make_recipe(SMALLEST | {"expand": stage})
    both = {"expand": {"words": "b"}, "transfer": {"target": "t", "head_only": True}}
    with pytest.raises(RecipeError):
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
    with pytest.raises(RecipeError, match=r"pretrain\.schedule_steps: .*\b10\b"):
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
    with pytest.raises(DataError, match=r"gone\.jsonl"):
        train(recipe, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["here.jsonl"]


@pytest.mark.parametrize(
    "changes",
    [
        {"teacher": {"models": ["here", "gone"]}, "losses": [{"name": "kl"}]},
        {"sparse_teacher": "gone", "losses": [{"name": "alignment"}]},
        {"pretrain": {"teacher": "gone", "texts": ["-"], "steps": 1}},
    ],
)
def test_a_model_that_is_not_there_is_known_before_any_work(
    changes: dict[str, Any], backbones: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    places = {"gone": str(tmp_path / "gone"), "here": str(backbones["bert"])}
    text = re.sub('"(gone|here)"', lambda found: json.dumps(places[found[1]]), json.dumps(changes))
    parts = json.loads(text)
    stages = {key: parts.pop(key) for key in ("pretrain",) if key in parts}
    values = {"model": str(backbones["bert"]), "data": {"examples": ["-"]}, "training": {"steps": 1} | parts, **stages}
    with pytest.raises(ModelError):
        train(make_recipe(values), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["gone"]


@pytest.fixture
def texts(tmp_path: Path, toy_texts: list[str]) -> str:
    path = tmp_path / "texts.jsonl"
    lines = [json.dumps({"_id": str(i), "text": text}) for i, text in enumerate(toy_texts)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def recipe(model: Path, **stages: Any) -> Recipe:
    return make_recipe({"model": str(model), "data": {"examples": ["-"]}, "training": {"steps": 1}, **stages})


def test_without_a_stage_the_model_is_the_backbone(backbones: dict[str, Path], tmp_path: Path) -> None:
    assert carry_out_stages(recipe(backbones["bert"]), tmp_path) == str(backbones["bert"])


@pytest.mark.parametrize("target", ["bert", "albert"])
def test_transfer_rescale_and_calibrate_are_the_verbs_in_this_order(
    backbones: dict[str, Path], texts: str, toy_texts: list[str], tmp_path: Path, target: str
) -> None:
    stages = {
        "transfer": {"target": str(backbones[target]), "init": "mean"},
        "rescale": {"factor": 4},
        "calibrate": {"texts": texts, "activation_rate": 0.1},
    }
    found, tokenizer = load_checkpoint(carry_out_stages(recipe(backbones["roberta"], **stages), tmp_path))
    target_model, target_tokenizer = load_checkpoint(backbones[target])
    expected, source = load_checkpoint(backbones["roberta"])
    expected = transfer(expected, source, target_tokenizer, target_model=target_model, init="mean").mlm
    expected = rescale(expected, 4)
    expected = calibrate(expected, target_tokenizer, toy_texts, activation_rate=0.1).mlm
    assert tokenizer.get_vocab() == target_tokenizer.get_vocab()
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], tensor, rtol=0, atol=0)


def test_pre_training_knows_the_tokens_that_the_transfer_made(
    backbones: dict[str, Path], texts: str, tmp_path: Path
) -> None:
    stages = {
        "transfer": {"target": str(backbones["bert"]), "init": "random-new"},
        "pretrain": {
            "texts": [texts],
            "steps": 12,
            "batch_size": 8,
            "max_length": 16,
            "masking": "overlap-aware",
            "trainable": "embeddings",
            "learning_rate": 1e-2,
            "save_every": 6,
        },
    }
    found = AutoModelForMaskedLM.from_pretrained(carry_out_stages(recipe(backbones["roberta"], **stages), tmp_path))
    source = AutoModelForMaskedLM.from_pretrained(backbones["roberta"])
    # The transformer is frozen, and the held-out report tells shared and new tokens apart.
    layer = "roberta.encoder.layer.0.attention.self.query.weight"
    torch.testing.assert_close(found.state_dict()[layer], source.state_dict()[layer], rtol=0, atol=0)
    report = [json.loads(line) for line in (tmp_path / "pretrain" / "log.jsonl").read_text().splitlines()]
    kinds = {key for line in report for key in line if "new" in key or "shared" in key}
    assert any("new" in kind for kind in kinds)
    assert any("shared" in kind for kind in kinds)


def test_lower_casing_comes_before_the_rest(backbones: dict[str, Path], texts: str, tmp_path: Path) -> None:
    stages = {"lowercase": True, "calibrate": {"texts": texts, "shift": 0.5}}
    place = carry_out_stages(recipe(backbones["roberta"], **stages), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(place)
    assert tokenizer("The Fox")["input_ids"] == tokenizer("the fox")["input_ids"]
    assert len(align(AutoTokenizer.from_pretrained(backbones["roberta"]), tokenizer).new) == 0


def test_a_finished_starting_point_is_used_as_it_is(backbones: dict[str, Path], texts: str, tmp_path: Path) -> None:
    run = recipe(backbones["bert"], rescale={"factor": 2})
    place = carry_out_stages(run, tmp_path)
    weights = AutoModelForMaskedLM.from_pretrained(place).get_output_embeddings().weight
    original = AutoModelForMaskedLM.from_pretrained(backbones["bert"]).get_output_embeddings().weight
    np.testing.assert_array_equal(weights.detach() * 2, original.detach())
    (Path(place) / "marker").touch()
    assert carry_out_stages(run, tmp_path) == place
    assert (Path(place) / "marker").exists()


def test_a_semantic_transfer_onto_a_tokenizer_alone_is_refused(
    backbones: dict[str, Path], tokenizers: dict[str, Any], tmp_path: Path
) -> None:
    tokenizers["wordpiece"].save_pretrained(tmp_path / "alone")
    run = recipe(backbones["roberta"], transfer={"target": str(tmp_path / "alone")})
    with pytest.raises(ModelError):
        carry_out_stages(run, tmp_path / "work")


def test_words_are_expanded_to_pre_trained_and_calibrated(
    backbones: dict[str, Path], texts: str, toy_texts: list[str], tmp_path: Path
) -> None:
    pretrain = {"texts": [texts], "steps": 2, "batch_size": 4, "max_length": 24, "masking": "whole-word"}
    stages: dict[str, Any] = {
        "expand": {"texts": [texts], "size": 40, "splitter": "whitespace"},
        "calibrate": {"texts": texts, "activation_rate": 0.1},
    }
    found, tokenizer = load_checkpoint(carry_out_stages(recipe(backbones["roberta"], **stages), tmp_path / "a"))
    source, _ = load_checkpoint(backbones["roberta"])
    words = frequent_words(toy_texts, tokenizer, size=40, split=splitter(tokenizer, "whitespace")).words
    assert any(not word.isalnum() for word in words)
    expected = calibrate(expand(source, tokenizer, words), tokenizer, toy_texts, activation_rate=0.1).mlm
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], tensor, rtol=0, atol=0)

    (tmp_path / "words.txt").write_text("\n".join(words), encoding="utf-8")
    listed: dict[str, Any] = {"expand": {"words": "words.txt"}, "data_folder": str(tmp_path), "pretrain": pretrain}
    learned, _ = load_checkpoint(carry_out_stages(recipe(backbones["roberta"], **listed), tmp_path / "b"))
    before, after = output_vocabulary(expected), output_vocabulary(learned)
    assert before is not None
    assert after is not None
    assert before.terms == after.terms == tuple(words)
    assert not torch.equal(before.weight, after.weight)
