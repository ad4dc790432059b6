"""The plans of the studies: each run once, its cost, and what is missing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from studies import processor
from studies.common import main, reproduce
from studies.cost import TOKENS, Cost
from studies.plan import Plan, Selection, Study, make_plan
from vocable.errors import ArgumentError, DataError
from vocable.training.recipe_files import read_recipe

STUDIES = ("mlm_head_rescaling", "vocabulary_transfer", "wacky_weights", "esplade")
NOWHERE = Path("nowhere")


def study_of(name: str) -> Study:
    study: Study = import_module(f"studies.{name}.__main__").STUDY
    return study


@pytest.fixture(scope="module", params=STUDIES)
def plan(request: pytest.FixtureRequest) -> Plan:
    return make_plan(study_of(request.param), NOWHERE)


@pytest.mark.slow
def test_all_published_figures_are_shown(plan: Plan) -> None:
    published: dict[str, set[str]] = {}
    for rows in plan.rows.values():
        for row in rows:
            published.setdefault(row.label, set()).update(row.published)
    shown = {name for exhibit in plan.study.exhibits.values() for name in exhibit.shown}
    spread = {"ChemHotpotQA Std", "ChemNQ Std"}  # stands in the cell of the mean
    assert set[str]().union(*published.values()) - spread <= shown


def test_names_in_a_study_are_known(plan: Plan) -> None:
    study = plan.study
    known = study.datasets.keys()
    assert {name for column in study.columns.values() for name in study.datasets_of(column) if name} <= known
    assert {*study.corpora, *study.corpora.values(), *study.sizes} <= known
    for exhibit in study.exhibits.values():
        assert exhibit.shown
        assert set(exhibit.shown) <= study.columns.keys()
        assert exhibit.figure is None or len(exhibit.figure.x) in (0, len(exhibit.figure.y))


def test_a_table_of_published_numbers_has_them_in_every_row(plan: Plan) -> None:
    for name, rows in plan.rows.items():
        columns = plan.exhibits[name].columns
        words = columns in (["the wackiest terms"], ["new tokens"])
        if name.startswith("table") and name != "table-10-mean" and not plan.exhibits[name].models and not words:
            assert all(set(columns) & row.published.keys() for row in rows), name


def test_runs_with_one_recipe_are_one_run(plan: Plan) -> None:
    recipes = [run.recipe.model_dump_json() for run in plan.runs.values() if run.recipe is not None]
    assert len(set(recipes)) == len(recipes)
    assert len({run.name for run in plan.runs.values()}) == len(plan.runs)


@pytest.mark.slow
def test_dropout_is_that_of_the_backbone_unless_an_option_says_otherwise(plan: Plan) -> None:
    for study in (plan, make_plan(plan.study, NOWHERE, overrides=["training.dropout=0.2"])):
        recipes = [run.recipe for run in study.runs.values() if run.recipe is not None]
        assert {recipe.training.dropout for recipe in recipes} == {None if study is plan else 0.2}
        assert {recipe.pretrain.dropout for recipe in recipes if recipe.pretrain is not None} <= {None}


@pytest.mark.slow
def test_the_same_run_of_several_tables_is_carried_out_once() -> None:
    study = study_of("vocabulary_transfer")
    plan = make_plan(study, NOWHERE)
    whole = {row.label: row.runs[0].name for rows in plan.rows.values() for row in rows}
    assert whole["vt"] == whole["semantic-adapted"] == whole["vt-adapted"] == whole["vt-seed-42"]
    # Nine activation rates, one pre-training.
    rates = [run for name, run in plan.runs.items() if name.startswith("active-")]
    assert len(rates) == 9
    assert {run.adapted for run in rates} == {plan.runs[whole["vt"]].adapted}
    costs = make_plan(study, NOWHERE, Selection(["table-5"])).costs()
    assert [cost.steps for cost in costs.values()] == [170_000, *[150_000] * 8]


@pytest.mark.slow
def test_a_run_has_one_name_whatever_is_selected() -> None:
    one = make_plan(study_of("vocabulary_transfer"), NOWHERE, Selection(["table-6"]))
    assert [row.runs[0].name for row in one.rows["table-6"]][-1] == "vt"
    assert "semantic-direct" in one.runs  # which table 6 calls vt-direct


@pytest.mark.slow
def test_settings_are_those_of_the_authors_code_where_it_is_published() -> None:
    """Geng and Yang 2026, tables 5, 6, 8 and 9."""
    plan = make_plan(study_of("vocabulary_transfer"), NOWHERE)
    domain = plan.rows["table-9"][3].runs[0].recipe
    assert domain.training.steps * domain.training.batch_size * domain.training.gradient_accumulation == 199_936
    assert (domain.training.batch_size, domain.training.warmup_share, domain.training.weight_decay) == (16, 0.1, 0)
    assert (domain.training.regularizers.query.weight, domain.training.regularizers.document.weight) == (0, 0.003)
    assert (domain.training.query_length, domain.saved.document_length) == (512, 512)
    calibrated = domain.calibrate
    assert (calibrated.shift, calibrated.activation_rate, calibrated.count, calibrated.max_length) == (
        None, 0.4, 6000, 512,
    )  # fmt: skip
    assert [run.name for run in plan.rows["table-9"][3].runs] == [f"vt-30k-seed-{seed}" for seed in (1, 2, 3, 4, 5)]
    options = plan.study.columns["ChemNQ nDCG@10"].options
    assert options == {"query_max_terms": 128, "document_max_terms": 128}
    probe = plan.runs["active-40"].recipe.calibrate
    assert (probe.count, probe.max_length, probe.activation_rate, probe.shift) == (20_000, 512, 0.4, None)
    assert plan.runs["head-only-sap"].recipe.calibrate is None
    looked_up = plan.runs["vt-idf-l0"].recipe.training
    assert (looked_up.batch_size, looked_up.warmup_share * looked_up.steps) == (160, 6000)


def test_the_cost_of_a_run_by_hand() -> None:
    recipe = read_recipe(study_of("mlm_head_rescaling").folder / "mlm-head-rescaling.yaml", [], "bert-k1")
    cost = Cost.of("bert-base-uncased", recipe, 1000, adapts=True, trains=True)
    per_token = 2 * 85.1e6 + 2 * 768 * 30.5e3
    assert cost.operations == pytest.approx(
        3 * 8000 * 64 * 3 * 256 * per_token + 1000 * TOKENS * per_token  # query, positive, negative of 256 tokens
    )
    assert Cost.together([cost, cost._replace(seconds=7.0)]) == (16_000, 2000, 2 * cost.operations, 7.0)


@pytest.mark.slow
def test_core_hours_by_hand() -> None:
    """Of a run with quality on two collections, and of runs that share prepared examples."""
    plan = make_plan(study_of("mlm_head_rescaling"), NOWHERE, Selection(["figure-2"]))
    name, run = next(iter(plan.runs.items()))
    datasets = {request.on for request in run.wanted if request.on}
    expected = 0.0
    for dataset in datasets:
        n = plan.study.sizes[dataset]
        expected += n * 250 * (48e-9 + 26e-9 + 24e-9) + n * 18e-6 + 50 * (n * 3 * 2.3e-9 + min(1000, n) * 3.8e-6)
    assert run.recipe is not None
    expected += run.recipe.training.steps * run.recipe.training.batch_size * (6e-6 if run.needs == "model" else 0)
    assert plan.costs()[name].seconds == pytest.approx(expected)
    both = make_plan(study_of("vocabulary_transfer"), NOWHERE, Selection(["table-10"])).costs()
    first, *others = [cost.seconds for cost in both.values()]
    assert {*others} == {min(others)}
    assert first - others[0] == pytest.approx(502_939 * 2.8e-3 + 160e6 * 1.4e-6 + 8_841_823 * 18e-6)


def test_a_removal_is_forty_four_searches() -> None:
    alone, removed = (processor.measuring(some, 1e6, 100) for some in (["quality"], ["quality", "removal"]))
    again = 1e6 * (18e-6 + 104e-6 + 250 * (26e-9 + 24e-9))
    assert removed - alone == pytest.approx(again + 44 * processor.searching(1e6, 100))


@pytest.mark.slow
def test_corpora_are_encoded_once_per_model() -> None:
    plan = make_plan(study_of("mlm_head_rescaling"), NOWHERE, Selection(["table-2"]))
    sizes = plan.study.sizes
    collections = {"dev", *plan.study.groups["BEIR-13"].split()} - {"climate-fever"}
    assert plan.costs()["bert-k1"].texts == sum(sizes[name] for name in collections)


@pytest.mark.slow
def test_missing_data_is_named_before_anything_begins(tmp_path: Path) -> None:
    study, data = study_of("mlm_head_rescaling"), [f"data_folder={tmp_path}"]
    with pytest.raises(DataError, match=r"^beir:.*NanoClimateFEVER: .*12 others.*--dry-run.*studies\.data nano-beir"):
        reproduce(study, tmp_path / "out", only=["figure-2"], overrides=data)
    assert not (tmp_path / "out").exists()
    (tmp_path / "NanoClimateFEVER").mkdir()
    plan = make_plan(study, tmp_path / "out", Selection(["figure-2"]), data)
    assert len(plan.missing) == 12
    assert "24 runs together" in str(plan)


@pytest.mark.slow
def test_a_local_folder_comes_before_the_collection_to_fetch(tmp_path: Path) -> None:
    (tmp_path / "scifact").mkdir()
    plan = make_plan(study_of("mlm_head_rescaling"), tmp_path, overrides=[f"data_folder={tmp_path}"])
    assert plan.places["scifact"].source == f"beir:{tmp_path}/scifact"
    assert plan.places["nfcorpus"].source == "ir_datasets:beir/nfcorpus/test"


def test_an_exhibit_of_models_alone_needs_no_recipe() -> None:
    study = study_of("wacky_weights")
    plan = make_plan(replace(study, exhibits={"t": replace(study.exhibits["table-1"], rows={})}), NOWHERE)
    assert [run.start for run in plan.runs.values()] == ["bm25+rm3", "naver/splade-v3", "naver/splade_v2_max"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["--only", "table-12", "--dry-run"], "table-12.*table-2"),
        (["--only", "table-4", "--dry-run"], "table-4.*authors' data"),
        (["--tflops", "0", "--dry-run"], "--tflops.*0"),
        (["--toy"], "--output"),
        (["--toy", "--dry-run"], "--dry-run"),
        (["--dry-run", "--override", "training.step=2"], "training.step.*steps"),
    ],
)
@pytest.mark.usefixtures("quiet_libraries")
def test_mistakes_are_one_line(arguments: list[str], facts: str, capsys: Any) -> None:
    assert main(study_of("esplade"), arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    with pytest.raises(ArgumentError, match=facts):
        raise ArgumentError(line)


@pytest.mark.slow
def test_what_is_fetched_is_not_asked_for() -> None:
    plan = make_plan(study_of("vocabulary_transfer"), NOWHERE)
    assert not [place for place in plan.missing if "msmarco" in place and place.startswith("beir:")]
    needed = " ".join(one for run in plan.runs.values() for one in run.needed)
    assert "13 collections" not in needed
    assert "BEIR folder, msmarco" not in needed
    assert "log in (hf auth login)" in str(plan)
    assert "studies.data bookcorpus" in plan.missing["bookcorpus.jsonl.gz"]


def test_a_study_without_pytorch_is_one_line() -> None:
    code = "import sys; sys.modules['torch'] = None; import runpy; runpy.run_module('studies.esplade')"
    hidden = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (hidden.returncode, hidden.stdout) == (2, "")
    [line] = hidden.stderr.splitlines()
    assert "vocable[train]" in line
