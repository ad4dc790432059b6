"""The Hub's hard negatives and scores become examples: once, for all runs of a study."""

from __future__ import annotations

import gzip
import json
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from studies import prepared as prepared_examples
from studies.common import reproduce
from studies.plan import Selection, make_plan
from studies.prepared import PREPARED, with_prepared_examples
from tests.studies.test_plan import study_of
from vocable.errors import DataError
from vocable.training import prepared
from vocable.training.data import load_examples
from vocable.training.prepared import prepared_folder
from vocable.training.recipe import Recipe
from vocable.training.recipe_files import read_recipe

QUERIES, PASSAGES = 40, 300
FILES = {"corpus": "corpus.tsv", "queries": "queries.tsv"}


@pytest.fixture
def hub(tmp_path: Path) -> dict[int, dict[int, float]]:
    """Files as the Hub has them, in tmp_path; returns the scores."""
    rng = np.random.default_rng(0)
    systems = ["bm25", "msmarco-distilbert-base-tas-b", "msmarco-MiniLM-L-6-v3"]
    rows, scores = [], {}
    for qid in range(1000, 1000 + QUERIES):
        neg = {name: rng.choice(PASSAGES, 12, replace=False).tolist() for name in systems}
        pos = [int(rng.integers(PASSAGES))]
        rows.append({"qid": qid, "pos": pos, "neg": neg})
        known = {*pos, *(pid for ids in neg.values() for pid in ids)}
        scores[qid] = {pid: float(rng.normal()) for pid in known if pid % 10}
    content = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "msmarco-hard-negatives.jsonl.gz").write_bytes(gzip.compress(content.encode()))
    pickled = gzip.compress(pickle.dumps(scores, 4))
    (tmp_path / "cross-encoder-ms-marco-MiniLM-L-6-v2-scores.pkl.gz").write_bytes(pickled)
    (tmp_path / "corpus.tsv").write_text("".join(f"{pid}\tpassage {pid}\n" for pid in range(PASSAGES)))
    (tmp_path / "queries.tsv").write_text("".join(f"{qid}\tquery {qid}\n" for qid in scores))
    return scores


def recipe_of(folder: Path) -> Recipe:
    """The recipe of the study, with passages and queries in files."""
    place = study_of("vocabulary_transfer").folder / "vocabulary-transfer.yaml"
    recipe = read_recipe(place, [f"data_folder={folder}"], "bert")
    [source] = recipe.data.examples
    assert not isinstance(source, str)
    data = recipe.data.model_copy(update={"examples": [source.model_copy(update=FILES)]})
    return recipe.model_copy(update={"data": data})


def test_the_files_of_the_hub_become_examples_of_margin_mse(
    hub: dict[int, dict[int, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = with_prepared_examples(recipe_of(tmp_path), tmp_path / "prepared")
    options = {"draws": 800, "batch_size": 8, "seed": 0, "cache": tmp_path / "cache", "scored": True}
    examples = next(iter(load_examples(recipe.examples(), recipe.data, **options)[0].values()))
    assert len(examples) == 800
    pairs = Counter[tuple[str, str]]()
    for row in examples:
        query, positive, negative = (int(row[name].split()[1]) for name in ("query", "positive", "negative_1"))
        expected = [hub[query][positive], hub[query][negative]]
        assert row["label"] == pytest.approx(expected, rel=1e-6)
        assert positive != negative
        pairs[row["query"], row["negative_1"]] += 1
    assert len({negative for _, negative in pairs}) > 150
    monkeypatch.setattr(prepared_examples, "PickledScores", None)  # nothing is read a second time
    monkeypatch.setattr(prepared, "mined_answers", None)
    again = with_prepared_examples(recipe_of(tmp_path), tmp_path / "prepared")
    assert again.data.examples == recipe.data.examples
    for file in tmp_path.glob("*.gz"):  # the files of the Hub are not needed again
        file.unlink()
    assert with_prepared_examples(recipe_of(tmp_path), tmp_path / "prepared").data.examples == recipe.data.examples
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_data_are_missing_only_where_they_are(hub: dict[int, dict[int, float]], tmp_path: Path) -> None:
    chosen, folder = Selection(["table-2"]), [f"data_folder={tmp_path}"]
    names = {"msmarco-hard-negatives.jsonl.gz", "cross-encoder-ms-marco-MiniLM-L-6-v2-scores.pkl.gz"}

    def missing() -> dict[str, str]:
        plan = make_plan(study_of("vocabulary_transfer"), tmp_path / "out", chosen, folder)
        return {Path(place).name: how for place, how in plan.missing.items()}

    assert not names & missing().keys()
    [source] = recipe_of(tmp_path).examples()
    for name in names:
        (tmp_path / name).unlink()
    assert all("hf download" in missing()[name] for name in names)
    assert not isinstance(source, str)
    remote = "ir_datasets:msmarco-passage/train"
    source = source.model_copy(update={"corpus": remote, "queries": remote})
    prepared_folder(source, tmp_path / "out" / PREPARED).mkdir(parents=True)
    assert not names & missing().keys()


def test_a_hostile_pickle_ends_in_one_line(hub: dict[int, dict[int, float]], tmp_path: Path) -> None:
    hostile = tmp_path / "cross-encoder-ms-marco-MiniLM-L-6-v2-scores.pkl.gz"
    hostile.write_bytes(gzip.compress(b"cos\nsystem\n(S'touch ran'\ntR."))
    with pytest.raises(DataError, match=r"scores\.pkl\.gz.*instruction b'c'") as error:
        with_prepared_examples(recipe_of(tmp_path), tmp_path / "prepared")
    assert "\n" not in str(error.value)


def test_recipes_without_sampling_stay_as_they_are(tmp_path: Path) -> None:
    recipe = read_recipe(study_of("mlm_head_rescaling").folder / "mlm-head-rescaling.yaml", [], "bert-k1")
    assert with_prepared_examples(recipe, tmp_path / "prepared") is recipe
    assert not (tmp_path / "prepared").exists()


@pytest.mark.slow
def test_runs_of_a_study_share_prepared_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, read = study_of("vocabulary_transfer"), Counter[str]()
    rows = {"vocabulary-transfer": "bert without-pda-direct"}
    exhibit = replace(study.exhibits["table-2"], rows=rows, models=(), columns=["MSM MRR@10"])
    original = prepared.read_examples

    def counted(source: Any) -> Any:
        read[str(source)] += 1
        return original(source)

    monkeypatch.setattr(prepared, "read_examples", counted)
    found = reproduce(replace(study, exhibits={"table-2": exhibit}), tmp_path / "out", toy=True)
    assert not found.failed
    assert [len(cells["MSM MRR@10"].ours) for cells in found.cells["table-2"].values()] == [1, 1]
    assert [*read.values()] == [1]
    assert len([*(tmp_path / "out" / "prepared").glob("[!.]*")]) == 1
