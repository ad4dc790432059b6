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
from vocable.core.storage import read_record
from vocable.data import Document, read_examples
from vocable.encoding.encode import encode
from vocable.encoding.graph import GraphModel
from vocable.encoding.load import load, load_encoder
from vocable.errors import ArgumentError, CollapseError, DataError, ModelError
from vocable.torch_models.export import export_model
from vocable.torch_models.sparse_encoder import load_sparse_encoder, save_model
from vocable.training.train import train
from vocable.tuning import tune as module
from vocable.tuning.exam import ASKED
from vocable.tuning.plan import Plan
from vocable.tuning.questions import QUESTION_KINDS
from vocable.tuning.report import ALL_QUESTIONS, REPORT, TRAINED, Judgment, TuningReport
from vocable.tuning.tune import tune

FILES = {"index.html", "report.json", "recipe.yaml", "examples.jsonl", "settings.json", "model.safetensors"}
BETTER, WORSE = (Judgment(verdict, "as the test wants it", ALL_QUESTIONS) for verdict in ("better", "worse"))
MOMENTS = (  # of kills, in order: before the function's n-th call
    ("vocable.tuning.tune", "measure_scale", 1),  # the plan and the examples are written
    ("transformers.trainer", "Trainer._save_rng_state", 2),  # in the middle of the training
    ("vocable.encoding.stream", "write_vectors", 3),  # in the middle of the encoding
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, figure, value in small_figures():
        monkeypatch.setattr(place, figure, value)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def weights(folder: Path) -> dict[str, np.ndarray]:
    return {name: weight.float().numpy() for name, weight in load_file(folder / "model.safetensors").items()}


def verdict_is(monkeypatch: pytest.MonkeyPatch, said: Judgment) -> None:
    monkeypatch.setattr(module, "judge", lambda changes: said)


@pytest.mark.slow
def test_the_better_model_and_the_recipe_that_makes_it_again(
    model: str, pages: Path, page_documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict_is(monkeypatch, BETTER)
    output = tmp_path / "out"
    report = tune(model, pages, output, device="cpu")
    assert isinstance(report, TuningReport)
    assert names(tmp_path) == {"out"}
    assert names(output) >= FILES
    assert {path.stat().st_mode for path in output.iterdir() if path.is_file()} == {
        (output / "index.html").stat().st_mode
    }
    assert (report.verdict, report.model, report.corpus, report.output) == ("better", model, str(pages), output)
    assert read_record(output / REPORT, TuningReport) == report
    assert (output / "README.md").read_text(encoding="utf-8").endswith(report.section())
    assert {*report.alone} == {*QUESTION_KINDS, ALL_QUESTIONS} == {*report.hybrid} == {*report.recall}
    asked = {kind: one.queries for kind, one in report.alone.items()}
    assert asked[ALL_QUESTIONS] == asked["title"] + asked["sentence"] == asked["keywords"] == len(page_documents) // 5
    assert len(report.costs) == 2
    # What was learned from are titles and sentences of documents, none of the exam's.
    examples = list(read_examples(str(output / "examples.jsonl")))
    assert report.examples == len(examples)
    assert report.steps == FIGURES["TRAINING_STEPS"]
    learned = set()
    for one in examples:
        for document in page_documents:
            if one.query == document.title or one.query in document.text:
                learned.add(document.id)
                assert not {*f"{one.query} {one.positive}".split()} - {*document.full.split()}
    assert 0 < len(learned) <= len(page_documents) - asked[ALL_QUESTIONS]
    # The recipe makes the same weights.
    recipe = yaml.safe_load((output / "recipe.yaml").read_text(encoding="utf-8"))
    assert (recipe["model"], recipe["training"]["batch_size"]) == (model, FIGURES["QUESTIONS_PER_STEP"])
    # from anywhere, when it was moved
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


@pytest.mark.slow
def test_a_worse_model_stays_beside_the_initial_model(
    model: str, pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict_is(monkeypatch, WORSE)
    report = tune(model, pages, tmp_path / "out", device="cpu")
    assert report.verdict == "worse"  # type: ignore[union-attr]
    assert names(tmp_path / "out") >= FILES | {TRAINED}
    texts = ["the old fox reads books", "posting lists"]
    for role in ("query", "document"):
        one, other = (encode(load(place, device="cpu"), texts, role) for place in (model, tmp_path / "out"))
        np.testing.assert_array_equal(one.toarray(), other.toarray())
        trained = encode(load(tmp_path / "out" / TRAINED, device="cpu"), texts, role)
        assert (one.toarray() != trained.toarray()).any()
    # The same again finds the result; other settings are refused, and nothing changes.
    kept = {path: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
    monkeypatch.setattr(module, "load_sparse_encoder", None)
    assert tune(model, pages, tmp_path / "out", device="cpu") == report
    assert tune(model, pages, tmp_path / "out", device="cpu", minutes=5) == report
    for name, value in (("seed", 1), ("generator", "t5")):
        with pytest.raises(ArgumentError, match=name):
            tune(model, pages, tmp_path / "out", device="cpu", **{name: value})
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()} == kept


def test_a_dry_run_writes_nothing(model: str, pages: Path, tmp_path: Path) -> None:
    plan = tune(model, pages, tmp_path / "out", device="cpu", dry_run=True)
    assert isinstance(plan, Plan)
    assert (plan.collection, plan.steps, plan.reading.documents) == (90, FIGURES["TRAINING_STEPS"], 90)
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
    queries, judgments = tmp_path / "queries.tsv", tmp_path / "qrels.tsv"
    texts = [sentence for one in page_documents for sentence in one.text.split(". ")[:4]]
    queries.write_text("".join(f"{row}\t{text}\n" for row, text in enumerate(texts)), encoding="utf-8")
    rows = [f"{row}\t{page_documents[row // 4].id}\t1\n" for row in range(0, 40, 4)] + ["1\tnowhere\t1\n"]
    judgments.write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    written: list[Any] = []
    whole = module.written_examples
    monkeypatch.setattr(module, "written_examples", lambda *given: written.extend(whole(*given)) or written)
    report = tune(
        *(model, pages, tmp_path / "out"),
        device="cpu",
        queries=str(queries),
        judgments=str(judgments),
        generator=str(seq2seq),
    )
    assert isinstance(report, TuningReport)
    assert report.alone[ASKED].queries == 10
    assert report.alone[ALL_QUESTIONS].queries == 18
    examples = list(read_examples(str(tmp_path / "out" / "examples.jsonl")))
    learned = {one.query for one in examples}
    judged, unjudged = {texts[row] for row in range(0, 40, 4)}, {text for row, text in enumerate(texts) if row % 4}
    assert learned & unjudged
    assert not learned & judged
    assert len({one.query for one in examples}) == len(examples)
    assert {one.query for one in written} <= learned
    assert report.decided_by == ASKED


def test_a_collapse_leaves_the_model_and_says_so(
    model: str, pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def collapse(*_: object) -> None:
        raise CollapseError("step 3: all scores are the same")

    monkeypatch.setattr(module, "carry_out", collapse)
    report = tune(model, pages, tmp_path / "out", device="cpu")
    assert isinstance(report, TuningReport)
    assert report.verdict == "worse"
    assert not (tmp_path / "out" / TRAINED).exists()
    assert "collapsed" in report.reason
    assert "step 3: all scores are the same" in caplog.text
    assert report.alone[ALL_QUESTIONS].difference == 0
    assert read_record(tmp_path / "out" / REPORT, TuningReport) == report
    before, after = weights(Path(model)), weights(tmp_path / "out")
    assert all((after[name] == weight).all() for name, weight in before.items() if name in after)


@pytest.mark.parametrize("count", [1, 39])
def test_a_tuning_of_too_few_documents_is_refused(model: str, pages: Path, tmp_path: Path, count: int) -> None:
    lines = pages.read_text(encoding="utf-8").splitlines()[:count]
    repeated = [json.dumps(json.loads(line) | {"_id": f"copy{row}"}) for row, line in enumerate(lines)]
    (tmp_path / "few.jsonl").write_text("\n".join([*lines, *repeated]), encoding="utf-8")
    for dry_run in (False, True):
        with pytest.raises(DataError, match=f"^{count} .* 40; "):
            tune(model, tmp_path / "few.jsonl", tmp_path / "out", device="cpu", dry_run=dry_run)
    assert names(tmp_path) == {"few.jsonl"}


def test_repeated_and_empty_documents_are_counted(model: str, pages: Path, tmp_path: Path) -> None:
    lines = pages.read_text(encoding="utf-8").splitlines()
    more = [json.dumps(json.loads(line) | {"_id": f"copy{row}"}) for row, line in enumerate(lines)]
    more += [json.dumps({"_id": "dots", "text": "..."})]
    (tmp_path / "more.jsonl").write_text("\n".join([*lines, *more]), encoding="utf-8")
    plan = tune(model, tmp_path / "more.jsonl", tmp_path / "out", device="cpu", dry_run=True)
    assert isinstance(plan, Plan)
    assert (plan.reading.documents, plan.reading.repeated, plan.collection) == (181, 91, 90)


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
    with Fork(tune_small, model, str(pages), str(whole), None, True) as process:
        assert process.communicate()[1] is not None
        assert process.wait() == 0
    for moment in MOMENTS:
        with Fork(tune_small, model, str(pages), str(broken), moment, True) as process:
            error = process.communicate()[1]
            assert process.wait() == -signal.SIGKILL, (moment, error)
        assert names(tmp_path) - {"whole"} == {"broken.partial"}
    with Fork(tune_small, model, str(pages), str(broken), None, True) as process:
        error = process.communicate()[1]
        assert process.wait() == 0, error
    assert names(tmp_path) == {"whole", "broken"}
    assert names(whole) == names(broken)
    for name in ("model.safetensors", "examples.jsonl"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes(), name
    first, second = (read_record(one / REPORT, TuningReport) for one in (whole, broken))
    assert (first.alone, first.hybrid, first.recall) == (
        second.alone,
        second.hybrid,
        second.recall,
    )
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
@pytest.mark.parametrize("verdict", [BETTER, WORSE])
def test_a_model_with_a_graph_keeps_one(
    place: Path, pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Judgment
) -> None:
    verdict_is(monkeypatch, verdict)
    output = tmp_path / "out"
    report = tune(place, pages, output, device="cpu")
    assert isinstance(report, TuningReport)
    texts = ["the old fox reads books", "posting lists"]
    folders = [output] if verdict == BETTER else [output, output / TRAINED]
    for folder in folders:
        graph = load_encoder(folder, "cpu")
        assert isinstance(graph, GraphModel)
        by_graph, by_torch = (encode(one, texts).toarray() for one in (graph, load(folder, runtime="torch")))
        np.testing.assert_allclose(by_graph, by_torch, atol=0.02)  # the exported weights are bfloat16
    if verdict == WORSE:
        assert {path.name for path in place.iterdir()} <= names(output)


@pytest.mark.slow
def test_of_two_tunings_of_one_output_the_second_is_refused(model: str, pages: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with Fork(tune_small, model, str(pages), str(output), None, True) as first:
        until = monotonic() + 60
        while not (tmp_path / "out.partial" / "settings.json").exists():
            assert monotonic() < until
            sleep(0.01)
        with Fork(tune_small, model, str(pages), str(output), None, True) as second:
            error = second.communicate()[1]
            assert second.wait() == 1
        assert "InUseError: " in error.splitlines()[-1]
        assert "out.partial" in error.splitlines()[-1]
        assert first.communicate()[1] is not None
        assert first.wait() == 0
    assert names(tmp_path) == {"out"}
    assert names(output) >= FILES
