"""The verb, whole: a small tuning alone and with every source, what it leaves, what it refuses, and after a kill."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file

from tests.evaluation.conftest import seq2seq  # noqa: F401  (a fixture)
from tests.forks import Fork
from tests.tuning.small import FIGURES, small_figures, tune_small
from vocable.data import Document, read_examples
from vocable.encoding.encode import encode
from vocable.encoding.graph import GraphModel
from vocable.encoding.load import load, load_encoder
from vocable.errors import ArgumentError, CollapseError, DataError, ModelError
from vocable.torch_models.export import export_model
from vocable.torch_models.sparse_encoder import load_sparse_encoder, save_model
from vocable.training.train import train
from vocable.tuning import tune as module
from vocable.tuning.plan import TUNING_FILE, Plan, Tuned
from vocable.tuning.tune import tune

FILES = {TUNING_FILE, "recipe.yaml", "examples.jsonl", "settings.json", "model.safetensors"}
MOMENTS = (  # of kills, in order: before the function's n-th call
    ("vocable.tuning.tune", "measure_scale", 1),  # the plan and the examples are written
    ("transformers.trainer", "Trainer._save_rng_state", 2),  # in the middle of the training
    ("vocable.tuning.tune", "Tuning.assemble", 1),  # the model is trained
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, figure, value in small_figures():
        monkeypatch.setattr(place, figure, value)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def weights(folder: Path) -> dict[str, np.ndarray]:
    return {name: weight.float().numpy() for name, weight in load_file(folder / "model.safetensors").items()}


@pytest.mark.slow
def test_the_tuned_model_and_the_recipe_that_makes_it_again(
    model: str, pages: Path, page_documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    tuned = tune(model, pages, output, device="cpu")
    assert isinstance(tuned, Tuned)
    assert names(tmp_path) == {"out"}
    assert names(output) >= FILES
    assert (tuned.model, tuned.corpus, tuned.output) == (model, str(pages), output)
    assert Tuned.read(output) == tuned
    # What was learned from are titles and sentences of the documents.
    examples = list(read_examples(str(output / "examples.jsonl")))
    assert (tuned.examples, tuned.steps) == (len(examples), FIGURES["TRAINING_STEPS"])
    for one in examples:
        [document] = [each for each in page_documents if one.query == each.title or one.query in each.text]
        assert not {*f"{one.query} {one.positive}".split()} - {*document.full.split()}
    # The recipe makes the same weights,
    recipe = yaml.safe_load((output / "recipe.yaml").read_text(encoding="utf-8"))
    assert (recipe["model"], recipe["training"]["batch_size"]) == (model, FIGURES["QUESTIONS_PER_STEP"])
    # from anywhere, when it was moved.
    output.rename(moved := tmp_path / "moved")
    monkeypatch.chdir(moved)
    train("recipe.yaml", tmp_path / "again")
    moved.rename(output)
    mine, again, before = weights(output), weights(tmp_path / "again"), weights(Path(model))
    assert mine.keys() == again.keys()
    for name, weight in mine.items():
        np.testing.assert_array_equal(weight, again[name])
    assert any((weight != before[name]).any() for name, weight in mine.items())
    assert encode(load(output), ["the old fox"]).nnz > 0
    # The same again finds the result; other settings are refused, and nothing changes.
    kept = {path: path.read_bytes() for path in output.iterdir() if path.is_file()}
    monkeypatch.setattr(module, "load_sparse_encoder", None)
    assert tune(model, pages, output, device="cpu") == tuned
    assert tune(model, pages, output, device="cpu", minutes=5) == tuned
    for name, value in (("seed", 1), ("generator", "t5")):
        with pytest.raises(ArgumentError, match=name):
            tune(model, pages, output, device="cpu", **{name: value})
    assert {path: path.read_bytes() for path in output.iterdir() if path.is_file()} == kept


def test_a_dry_run_writes_nothing(model: str, pages: Path, tmp_path: Path) -> None:
    plan = tune(model, pages, tmp_path / "out", device="cpu", dry_run=True)
    assert isinstance(plan, Plan)
    assert (plan.documents, plan.steps, plan.reading.documents) == (90, FIGURES["TRAINING_STEPS"], 90)
    assert not names(tmp_path)


@pytest.mark.slow
def test_a_tuning_reads_every_kind_of_source(
    model: str,
    pages: Path,
    page_documents: list[Document],
    seq2seq: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries = tmp_path / "queries.tsv"
    texts = [sentence for one in page_documents for sentence in one.text.split(". ")[:4]]
    queries.write_text("".join(f"{row}\t{text}\n" for row, text in enumerate(texts)), encoding="utf-8")
    written: list[Any] = []
    whole = module.written_examples
    monkeypatch.setattr(module, "written_examples", lambda *given: written.extend(whole(*given)) or written)
    tune(model, pages, tmp_path / "out", device="cpu", queries=str(queries), generator=str(seq2seq))
    examples = list(read_examples(str(tmp_path / "out" / "examples.jsonl")))
    learned = {one.query for one in examples}
    assert learned & {*texts}
    assert len(learned) == len(examples)
    assert {one.query for one in written} <= learned


def test_a_collapse_writes_nothing(model: str, pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def collapse(*_: object, **options: object) -> None:
        raise CollapseError("step 3: all scores are the same")

    monkeypatch.setattr(module, "carry_out", collapse)
    with pytest.raises(CollapseError):
        tune(model, pages, tmp_path / "out", device="cpu")
    assert not names(tmp_path)


def test_a_tuning_without_documents_is_refused(model: str, tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text('{"_id": "1", "text": "..."}\n', encoding="utf-8")
    for dry_run in (False, True):
        with pytest.raises(DataError, match="no documents to learn from"):
            tune(model, tmp_path / "none.jsonl", tmp_path / "out", device="cpu", dry_run=dry_run)
    assert names(tmp_path) == {"none.jsonl"}


def test_repeated_and_empty_documents_are_counted(model: str, pages: Path, tmp_path: Path) -> None:
    lines = pages.read_text(encoding="utf-8").splitlines()
    more = [json.dumps(json.loads(line) | {"_id": f"copy{row}"}) for row, line in enumerate(lines)]
    more += [json.dumps({"_id": "dots", "text": "..."})]
    (tmp_path / "more.jsonl").write_text("\n".join([*lines, *more]), encoding="utf-8")
    plan = tune(model, tmp_path / "more.jsonl", tmp_path / "out", device="cpu", dry_run=True)
    assert isinstance(plan, Plan)
    assert (plan.reading.documents, plan.reading.repeated, plan.documents) == (181, 91, 90)


def test_another_language_and_texts_that_ask_nothing(model: str, tmp_path: Path, toy_texts: list[str]) -> None:
    foreign, short = tmp_path / "foreign.jsonl", tmp_path / "short.jsonl"
    foreign.write_text("".join(f'{{"_id": "{i}", "text": "Дважды нажмите кнопку {i}"}}\n' for i in range(60)))
    short.write_text("".join(f'{{"_id": "{i}", "text": "old fox {i}"}}\n' for i in range(60)))
    with pytest.raises(ModelError):
        tune(model, foreign, tmp_path / "out", device="cpu")
    with pytest.raises(DataError):
        tune(model, short, tmp_path / "out", device="cpu")
    with pytest.raises(DataError):
        tune(model, short, tmp_path / "out", device="cpu", queries=None, generator=None)
    assert names(tmp_path) == {"foreign.jsonl", "short.jsonl"}


def test_a_tuning_of_too_few_minutes_is_refused(model: str, pages: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        tune(model, pages, tmp_path / "out", device="cpu", minutes=1e-5)
    assert not names(tmp_path)


@pytest.mark.slow
def test_a_tuning_that_is_killed_at_three_moments_makes_the_same_model(model: str, pages: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    with Fork(tune_small, model, str(pages), str(whole)) as process:
        assert process.communicate()[1] is not None
        assert process.wait() == 0
    for moment in MOMENTS:
        with Fork(tune_small, model, str(pages), str(broken), moment) as process:
            error = process.communicate()[1]
            assert process.wait() == -signal.SIGKILL, (moment, error)
        assert names(tmp_path) - {"whole"} == {"broken.partial"}
    with Fork(tune_small, model, str(pages), str(broken)) as process:
        error = process.communicate()[1]
        assert process.wait() == 0, error
    assert names(tmp_path) == {"whole", "broken"}
    assert names(whole) == names(broken)
    for name in ("model.safetensors", "examples.jsonl"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes(), name
    recipes = [yaml.safe_load((one / "recipe.yaml").read_text(encoding="utf-8")) for one in (whole, broken)]
    assert recipes[0] == recipes[1]


@pytest.fixture(scope="module")
def place(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a graph beside its weights."""
    folder = tmp_path_factory.mktemp("graph")
    save_model(load_sparse_encoder(model), folder / "weights")
    export_model(load_sparse_encoder(folder / "weights"), folder / "model", texts=["the old fox reads books"])
    return Path(shutil.copytree(folder / "weights", folder / "model", dirs_exist_ok=True))


@pytest.mark.slow
def test_a_model_with_a_graph_keeps_one(place: Path, pages: Path, tmp_path: Path) -> None:
    tune(place, pages, tmp_path / "out", device="cpu")
    texts = ["the old fox reads books", "posting lists"]
    graph = load_encoder(tmp_path / "out", "cpu")
    assert isinstance(graph, GraphModel)
    by_graph, by_torch = (encode(one, texts).toarray() for one in (graph, load(tmp_path / "out", runtime="torch")))
    np.testing.assert_allclose(by_graph, by_torch, atol=0.02)  # the exported weights are bfloat16


@pytest.mark.slow
def test_a_graph_that_differs_is_left_out(
    place: Path, pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def differs(*_: object, **options: object) -> None:
        raise ModelError("min_overlap of 0.8 is not reached")

    monkeypatch.setattr(module, "export_model", differs)
    tune(place, pages, tmp_path / "out", device="cpu")
    assert "the tuned model has no graph: min_overlap of 0.8 is not reached" in caplog.text
    assert not isinstance(load_encoder(tmp_path / "out", "cpu"), GraphModel)


@pytest.mark.slow
def test_of_two_tunings_of_one_output_the_second_is_refused(model: str, pages: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with Fork(tune_small, model, str(pages), str(output)) as first:
        until = monotonic() + 60
        while not (tmp_path / "out.partial" / "settings.json").exists():
            assert monotonic() < until
            sleep(0.01)
        with Fork(tune_small, model, str(pages), str(output)) as second:
            error = second.communicate()[1]
            assert second.wait() == 1
        assert "InUseError: " in error.splitlines()[-1]
        assert "out.partial" in error.splitlines()[-1]
        assert first.communicate()[1] is not None
        assert first.wait() == 0
    assert names(tmp_path) == {"out"}
    assert names(output) >= FILES
