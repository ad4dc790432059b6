"""Negatives mined during a training: those of the model's own ranking, learned from in time, the same after a kill."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from sentence_transformers import SparseEncoder

import vocable as vo
from tests.forks import start_two
from vocable.cli import main
from vocable.errors import DataError, RecipeError
from vocable.training import example_files, mined_negatives
from vocable.training.callbacks import COMPLETE
from vocable.training.mined_negatives import MiningPlan, MiningSteps, batches_without_repeats
from vocable.training.objective import Objective
from vocable.training.prepared import prepare
from vocable.training.recipe_files import make_recipe

B, N, EVERY, DEPTH = 4, 2, 2, 12


@pytest.fixture
def pairs(toy_texts: list[str]) -> list[dict[str, str]]:
    texts = sorted(set(toy_texts))[:32]
    found = [{"query": f"{text}?", "positive": text} for text in texts]
    return [*found, found[0] | {"positive": texts[1]}]  # a query with two answers


@pytest.fixture
def values(backbones: dict[str, Path], pairs: list[dict[str, str]], tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in pairs), encoding="utf-8")
    training = {
        "steps": 7, "batch_size": B, "log_every": 1, "save_every": 3, "learning_rate": 1e-4, "guard": "off",
        "dtype": "float32", "mine": {"every": EVERY, "depth": DEPTH}, "dropout": 0.1,
    }  # fmt: skip
    data = {"examples": [str(path)], "negatives": N, "held_out": 0}
    return {"model": str(backbones["bert"]), "data": data, "training": training}


class Watched:
    """The models that mine, by step, and the texts that each step learns from."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pairs: list[dict[str, str]]) -> None:
        self.products: dict[int, np.ndarray] = {}
        self.seen: list[list[list[str]]] = []
        mine, forward = MiningPlan.mine, Objective.forward
        asked, texts = ([row[key] for row in pairs] for key in ("query", "positive"))

        def watched_mine(plan: MiningPlan, model: SparseEncoder, step: int) -> None:
            queries, documents = vo.encode(model, asked, "query"), vo.encode(model, texts)
            known = {*plan.pairs["positive"]}  # the run does not see all
            self.products[step] = (queries @ documents.T).toarray() * [text in known for text in texts]
            mine(plan, model, step)

        def watched_forward(objective: Objective, features: Any, labels: Any = None) -> Any:
            columns = list(features)
            decode = objective.model.tokenizer.batch_decode
            self.seen.append([decode(column["input_ids"], skip_special_tokens=True) for column in columns])
            return forward(objective, columns, labels)

        monkeypatch.setattr(MiningPlan, "mine", watched_mine)
        monkeypatch.setattr(Objective, "forward", watched_forward)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(10, 16)), max_size=30), st.integers(1, 5))
def test_no_batch_repeats_a_text_and_rows_come_once(texts: list[tuple[int, int]], b: int) -> None:
    batches = [*batches_without_repeats(texts, b)]
    rows = [row for batch in batches for row in batch]
    assert len(set(rows)) == len(rows)
    for batch in batches:
        assert len(batch) == b
        assert len({text for row in batch for text in texts[row]}) == 2 * b
    left = [row for row in range(len(texts)) if row not in rows]  # they fill no further batch in their order
    used: set[int] = set()
    assert sum(not used & set(texts[row]) and not used.update(texts[row]) for row in left) < b


def test_each_row_learns_from_the_newest_index_that_can_be_ready() -> None:
    steps = MiningSteps(Path("mined"), 8, 3, 1)
    found = [steps.step_of(row) for row in range(0, 80, 8)]  # of the steps 1 to 10; a batch is read ahead
    assert found == [0, 0, 0, 0, 3, 3, 3, 6, 6, 6]
    for step in (0, 3, 6):
        assert next(row for row in range(80) if steps.step_of(row) == step) == steps.first_row(step)


@pytest.mark.slow
def test_negatives_are_drawn_from_the_models_own_best_documents(
    values: dict[str, Any], pairs: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, last = pairs[:-1], pairs[-1]
    texts = [row["positive"] for row in pairs]
    watched = Watched(monkeypatch, pairs)
    vo.train(make_recipe(values), tmp_path / "out")
    assert [*watched.products] == [0, 2, 4]  # and not after 6, since step 7 has been read
    assert len(watched.seen) == 7
    spell = vo.load(values["model"]).tokenizer

    def read(text: str, length: int) -> str:
        return str(spell.decode(spell(text, truncation=True, max_length=length)["input_ids"], skip_special_tokens=True))

    number = {read(text, 128): row for row, text in enumerate(texts)}
    queries = {read(row["query"], 64): number for number, row in enumerate(pairs)}
    assert len(number) == len(queries) == len(texts)
    drawn_from_all = total = 0
    for step, (asked, positives, *negatives) in enumerate(watched.seen, start=1):
        products = watched.products[max(0, step - 2) // EVERY * EVERY]
        assert len(negatives) == N
        batch = {number[positive] for positive in positives}
        for place, query in enumerate(asked):
            row = queries[query]
            answers = {row} | ({number[read(last["positive"], 128)]} if row == 0 else set())
            drawn = {number[column[place]] for column in negatives}
            assert len(drawn) == N
            assert not drawn & (answers | batch)
            best = [one for one in np.argsort(-products[row], kind="stable") if products[row][one] > 0][:DEPTH]
            total += 1
            if len({*best} - answers - batch) < N:
                drawn_from_all += 1
            else:
                least = products[row][best[-1]] * (1 - 1e-4)  # rounding may turn the last ones
                assert products[row][sorted(drawn)].min() >= least
    assert total == 28
    assert drawn_from_all < 14


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_weights(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example_files, "CHUNK", 3)
    recipe = make_recipe(values)
    whole = vo.train(recipe, tmp_path / "whole").state_dict()
    places: list[tuple[Any, str]] = [
        (mined_negatives, "index_of"),
        (example_files, "finish"),
        (mined_negatives, "prepare"),
        (mined_negatives.MineDuringTraining, "on_save"),
    ]
    for module, name in places:
        original, calls = getattr(module, name), [0]

        def killed(*given: Any, original: Any = original, calls: list[int] = calls, **options: Any) -> Any:
            calls[0] += 1
            if calls[0] == 2:  # while it mines after step 2
                raise KeyboardInterrupt
            return original(*given, **options)

        with monkeypatch.context() as patch:
            patch.setattr(module, name, killed)
            with pytest.raises(KeyboardInterrupt):
                vo.train(recipe, tmp_path / name)
        assert [*(tmp_path / f"{name}.partial" / "train").glob(f"*/{COMPLETE}")], name
        resumed = vo.train(recipe, tmp_path / name).state_dict()
        assert all(torch.equal(resumed[key], value) for key, value in whole.items()), name


def keep_mined(folder: Path) -> None:
    """Copy what is mined into a folder."""
    prepare_mined = mined_negatives.prepare

    def kept(source: str, place: Path) -> Any:
        folder.mkdir(exist_ok=True)
        shutil.copy(source, folder)
        return prepare_mined(source, place)

    mined_negatives.prepare = kept


def work(rank: int, file: str, output: str) -> int:
    keep_mined(Path(f"{output}-mined"))
    return main(["train", file, "-o", output])


@pytest.mark.slow
def test_two_processes_mine_and_learn_as_one(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values["training"]["mine"]["depth"] = 40  # all documents: where scores are nearly alike, rounding decides the best
    # Adam divides a gradient by its size: where that is rounding alone, two processes part by as much as the rate.
    values["training"] |= {"dropout": 0.0, "gradient_accumulation": 2, "steps": 4, "learning_rate": 1e-5}
    (tmp_path / "recipe.yaml").write_text(json.dumps(values))
    one, two = start_two(work, str(tmp_path / "recipe.yaml"), str(tmp_path / "two"))
    with one, two:
        said = [one.communicate(), two.communicate()]
        assert [one.wait(), two.wait()] == [0, 0], said
    monkeypatch.setattr(mined_negatives, "prepare", mined_negatives.prepare)  # undone at the end
    keep_mined(tmp_path / "one-mined")
    vo.train(tmp_path / "recipe.yaml", tmp_path / "one")
    mined = [
        {path.name: path.read_text() for path in (tmp_path / f"{name}-mined").iterdir()} for name in ("one", "two")
    ]
    assert mined[0] == mined[1]
    assert sorted(mined[0]) == ["0-negatives.jsonl", "2-negatives.jsonl"]
    files = [load_file(tmp_path / name / "model.safetensors") for name in ("one", "two")]
    assert files[0].keys() == files[1].keys()
    apart = [np.abs(files[1][key] - value).ravel() for key, value in files[0].items()]
    assert (np.concatenate(apart) > 1e-6).mean() < 0.05
    assert max(map(np.max, apart)) < 4.1e-5


@pytest.mark.slow
def test_prepared_examples_and_a_corpus_of_its_own(
    values: dict[str, Any], pairs: list[dict[str, str]], toy_texts: list[str], tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    further = sorted(set(toy_texts))[40:60]
    corpus.write_text("".join(json.dumps({"_id": f"x{i}", "text": text}) + "\n" for i, text in enumerate(further)))
    values["data"]["examples"] = [str(prepare(values["data"]["examples"][0], tmp_path / "prepared").folder)]
    values["training"] |= {"steps": 1, "save_every": 1}
    values["training"]["mine"] = {"every": 1, "depth": 3, "corpus": str(corpus)}
    vo.train(make_recipe(values), tmp_path / "out")
    values["training"]["mine"]["corpus"] = str(tmp_path / "nowhere.jsonl")
    with pytest.raises(DataError):
        vo.train(make_recipe(values), tmp_path / "other")
    corpus.write_text(json.dumps({"_id": "x", "text": further[0]}) + "\n")
    values["training"]["mine"]["corpus"] = str(corpus)
    with pytest.raises(DataError):
        vo.train(make_recipe(values), tmp_path / "third")
    assert not os.path.exists(tmp_path / "third")


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        ({"data": {"negatives": 0}}, "data.negatives"),
        ({"data": {"sampling": "random"}}, "sampling"),
        ({"data": {"false_negative_margin": 1.0}}, "false_negative_margin"),
        ({"training": {"losses": [{"name": "kl"}]}}, "mine excludes teachers"),
        ({"training": {"regularizers": {"document": {"name": "idf_flops", "weight": 0.1}}}}, "idf_flops"),
        ({"training": {"mine": {"depth": 3}}}, "every"),
    ],
)
def test_what_knows_the_negatives_beforehand_is_refused(
    values: dict[str, Any], changed: dict[str, Any], facts: str
) -> None:
    for key, part in changed.items():
        values[key] |= part
    with pytest.raises(RecipeError, match=facts):
        make_recipe(values)
