"""The studies that come with vocable: what they name is there, and their plans count each run once."""

from __future__ import annotations

from pathlib import Path

import pytest

from vocable.cli.train import STUDIES
from vocable.errors import ArgumentError, DataError, RecipeError
from vocable.reproduce.cost import TOKENS, Cost
from vocable.reproduce.measurements import MEASUREMENTS
from vocable.reproduce.plan import Plan, make_plan
from vocable.reproduce.reproduce import reproduce
from vocable.reproduce.study import read_study, studies
from vocable.training.recipe import read_recipe


@pytest.fixture(params=STUDIES)
def plan(request: pytest.FixtureRequest) -> Plan:
    return make_plan(read_study(request.param), Path("nowhere"))


def test_the_command_line_names_the_studies() -> None:
    assert sorted(STUDIES) == studies()


def test_what_a_column_measures_is_known_and_what_is_published_is_shown(plan: Plan) -> None:
    study = plan.study
    assert {column.of for column in study.columns.values()} <= MEASUREMENTS.keys()
    published: dict[str, set[str]] = {}
    for rows in plan.rows.values():
        for row in rows:
            published.setdefault(row.label, set()).update(row.published)
    shown = {name for exhibit in study.exhibits.values() for name in exhibit.shown}
    spread = {"ChemHotpotQA Std", "ChemNQ Std"}  # stands in the cell of the mean
    assert set[str]().union(*published.values()) - spread <= shown


def test_a_table_of_published_numbers_has_them_in_every_row(plan: Plan) -> None:
    for name, rows in plan.rows.items():
        columns = plan.exhibits[name].columns
        if name.startswith("table") and name != "table-10-mean" and not plan.exhibits[name].models:
            assert all(set(columns) & row.published.keys() for row in rows), name


def test_runs_with_one_recipe_are_one_run(plan: Plan) -> None:
    recipes = [run.recipe.model_dump_json() for run in plan.runs.values() if run.recipe is not None]
    assert len(set(recipes)) == len(recipes)
    assert len({run.name for run in plan.runs.values()}) == len(plan.runs)


def test_the_same_run_of_several_tables_is_carried_out_once() -> None:
    study = read_study("vocabulary-transfer")
    plan = make_plan(study, Path("nowhere"))
    whole = {row.label: row.runs[0].name for rows in plan.rows.values() for row in rows}
    assert whole["vt"] == whole["semantic-adapted"] == whole["vt-adapted"] == whole["vt-seed-42"]
    # Nine activation rates, one pre-training.
    rates = [run for name, run in plan.runs.items() if name.startswith("active-")]
    assert len(rates) == 9
    assert {run.adapted for run in rates} == {plan.runs[whole["vt"]].adapted}
    costs = make_plan(study, Path("nowhere"), ["table-5"]).costs()
    assert [cost.steps for cost in costs.values()] == [170_000, *[150_000] * 8]


def test_a_run_has_one_name_whatever_is_chosen() -> None:
    study = read_study("vocabulary-transfer")
    one = make_plan(study, Path("nowhere"), ["table-6"])
    assert [row.runs[0].name for row in one.rows["table-6"]][-1] == "vt"
    assert "semantic-direct" in one.runs  # which table 6 calls vt-direct


def test_the_cost_of_a_run_by_hand() -> None:
    recipe = read_recipe("mlm-head-rescaling", [], "bert-k1")
    cost = Cost.of("bert-base-uncased", recipe, 1000, adapts=True, trains=True)
    per_token = 2 * 85.1e6 + 2 * 768 * 30.5e3
    assert cost.operations == pytest.approx(
        3 * 8000 * 64 * 3 * 256 * per_token + 1000 * TOKENS * per_token  # query, positive, negative of 256 tokens
    )
    assert Cost.together([cost, cost]) == (16_000, 2000, 2 * cost.operations)


def test_corpora_are_encoded_once_per_model() -> None:
    plan = make_plan(read_study("mlm-head-rescaling"), Path("nowhere"), ["table-2"])
    sizes = plan.study.sizes
    collections = {"dev", *plan.study.groups["BEIR-13"]} - {"climate-fever"}
    assert plan.costs()["bert-k1"].texts == sum(sizes[name] for name in collections)


def test_what_is_missing_is_said_before_anything_begins(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^beir:.*NanoClimateFEVER: not there, as 12 more .*--dry-run.*the Hub"):
        reproduce("mlm-head-rescaling", tmp_path / "out", only=["figure-2"], overrides=[f"data_folder={tmp_path}"])
    assert not (tmp_path / "out").exists()
    (tmp_path / "NanoClimateFEVER").mkdir()
    plan = reproduce("mlm-head-rescaling", only=["figure-2"], overrides=[f"data_folder={tmp_path}"], dry_run=True)
    assert isinstance(plan, Plan)
    assert len(plan.missing) == 12
    assert "24 runs together" in str(plan)


def test_a_folder_that_is_there_is_read_and_else_the_collection_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "scifact").mkdir()
    plan = make_plan(read_study("mlm-head-rescaling"), tmp_path, overrides=[f"data_folder={tmp_path}"])
    assert plan.places["scifact"].source == f"beir:{tmp_path}/scifact"
    assert plan.places["nfcorpus"].source == "ir_datasets:beir/nfcorpus/test"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"paper": "splade"}, "no study 'splade': choose from esplade, mlm-head-rescaling"),
        ({"paper": "esplade", "only": ["table-12"]}, "no 'table-12' here: choose from table-2"),
        ({"paper": "esplade", "only": ["table-4"]}, "table-4 is not made here: describes the authors' data"),
        ({"paper": "esplade", "tflops": 0.0}, "tflops must be above 0"),
        ({"paper": "esplade", "toy": True}, "output: name a folder"),
    ],
)
def test_mistakes_are_one_line(
    arguments: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match=message):
        reproduce(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("about: x\ndatasets: {}\ncolumns: {}\nexhibits: {t: {about: x}}", "exhibits: t has no rows or no columns"),
        (
            "about: x\ndatasets: {}\ncolumns: {a: {of: quality, value: R@10, dataset: b}}\nexhibits: {}",
            r"columns.a: 'b' is not known",
        ),
        ("about: x\ndatasets: {}\ncolumns: {}\nexhibit: {}", "exhibit: unknown key; did you mean exhibits?"),
    ],
)
def test_a_study_of_your_own_is_checked(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=message):
        read_study(str(path))
