"""A cell of every study on a collection of several parts equals `vocable.evaluate`; stale measurements are dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import vocable as vo
from studies.esplade.__main__ import STUDY as ESPLADE
from studies.measurements import quality
from studies.mlm_head_rescaling.__main__ import STUDY as RESCALING
from studies.plan import Study, make_plan
from studies.runs import Request, Run
from studies.toys import LARGE, PART, Toys
from studies.vectors import Encoders, Place
from studies.vocabulary_transfer.__main__ import STUDY as TRANSFER
from studies.wacky_weights.__main__ import STUDY as WACKY
from vocable.encoding import stream
from vocable.errors import ArgumentError, VectorsError
from vocable.evaluation.quality import Evaluation
from vocable.torch_models.output_vocabulary import special_tokens

FIRST_COLUMNS = [  # a column of each study on its first collection
    (RESCALING, "MSMARCO DEV MRR@10"),
    (TRANSFER, "MSM MRR@10"),
    (WACKY, "MSM R@1k"),
    (ESPLADE, "MRR@10"),
]


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Toys:
    return Toys(tmp_path_factory.mktemp("toys"))


@pytest.fixture(scope="module")
def evaluation(toys: Toys) -> Evaluation:
    """The toy model on the large collection by the measures of all first columns."""
    measures = sorted({study.columns[name].value for study, name in FIRST_COLUMNS})
    [evaluation] = vo.evaluate(
        toys.model("bert"), toys.large_collection("collection"), measures, time_queries=0
    ).evaluations
    return evaluation


@pytest.mark.slow
@pytest.mark.parametrize(("study", "name"), FIRST_COLUMNS)
def test_a_cell_of_each_study_equals_evaluate_on_three_parts(
    study: Study, name: str, toys: Toys, evaluation: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PART_SIZE", PART)
    column = study.columns[name]
    assert column.on == next(iter(study.datasets))
    model, source = toys.model("bert"), toys.large_collection("collection")
    run = Run("run", tmp_path, model=model)
    request = Request.of(column, column.on)
    run.wanted[request] = [column.value, "L0_q", "L0_d", "FLOPS"]
    places = {column.on: Place(source, column.on, postings=toys.postings)}
    run.carry_out(places)
    cost = evaluation.cost
    measured = run.measured(places)[request.key]
    assert LARGE > 2 * PART
    assert measured[column.value] == evaluation.values[column.value]
    assert cost is not None
    costs = [cost.query_terms, cost.document_terms, cost.flops]
    assert [measured["L0_q"], measured["L0_d"], measured["FLOPS"]] == costs


def collection(folder: Path, count: int) -> str:
    folder.mkdir()
    rows = [{"_id": f"d{n}", "text": f"{n} days of snow and {n % 7} of rain"} for n in range(count)]
    queries = [{"_id": f"q{n}", "text": rows[n]["text"]} for n in range(0, count, 9)]
    for file, lines in (("corpus", rows), ("queries", queries)):
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    judged = [f"{query['_id']}\td{query['_id'][1:]}\t1" for query in queries]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    return f"beir:{folder}"


@pytest.mark.slow
def test_a_model_that_weighs_queries_by_idf_is_searched_as_evaluate_searches(tmp_path: Path) -> None:
    source, names = collection(tmp_path / "data", 60), ["nDCG@10", "RR@10", "AP", "L0_q", "FLOPS"]
    run = Run("run", tmp_path, model="vocable-mini")
    request = Request.of(quality("nDCG@10", "a"), "a")
    run.wanted[request] = names
    places = {"a": Place(source, "a")}
    run.carry_out(places)
    [evaluation] = vo.evaluate(vo.load("vocable-mini"), source, names[:3], time_queries=0, dtype="float32").evaluations
    assert evaluation.query_idf
    measured = run.measured(places)[request.key]
    assert {name: measured[name] for name in names[:3]} == evaluation.values
    assert evaluation.cost is not None
    assert measured["FLOPS"] == evaluation.cost.flops


@pytest.mark.parametrize("only", [None, "own terms", "half of the terms"])
def test_an_index_of_parts_of_seven_texts_has_every_document(
    only: Any, toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, source = toys.model("bert"), collection(tmp_path / "data", 60)
    whole = Encoders(Run("whole", tmp_path / "whole", model=model), {"a": Place(source, "a")}).open("a")
    monkeypatch.setattr(stream, "PART_SIZE", 7)
    on = Encoders(Run("parts", tmp_path / "parts", model=model), {"a": Place(source, "a", postings=100)}).open("a")
    index, expected = on.index(0, only), whole.index(0, only)
    assert len(index) == 60
    assert (index.document_frequency == expected.document_frequency).all()
    queries = whole.queries
    assert index.search(queries, 20).scores == pytest.approx(expected.search(queries, 20).scores, rel=1e-6)


def test_an_index_with_fewer_documents_than_the_dataset_is_refused(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = collection(tmp_path / "data", 60)
    on = Encoders(Run("run", tmp_path, model=toys.model("bert")), {"a": Place(source, "a")}).open("a")
    monkeypatch.setattr(stream, "PART_SIZE", 7)
    parts = on._parts

    def all_but_the_last(*given: Any) -> Any:
        return list(parts(*given))[:-1]

    monkeypatch.setattr(on, "_parts", all_but_the_last)
    with pytest.raises(VectorsError, match=r"56.*60"):
        on.index()


def with_special_terms(folder: Path) -> str:
    """Give the special tokens of a toy, which it was calibrated without, a bias that makes them terms."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    [bias] = [name for name in weights if name in ("cls.predictions.bias", "vocab_projector.bias")]
    weights[bias][:5] = 1.0
    save_file(weights, path, {"format": "pt"})
    return str(folder)


def test_a_changed_model_looks_queries_up_or_keeps_special_terms(toys: Toys, tmp_path: Path) -> None:
    source = collection(tmp_path / "data", 20)
    start = with_special_terms(Path(toys.model("special-bert")))
    for name, change in (("looked-up", "look up queries"), ("special", "keep special terms")):
        run = Run(name, tmp_path, model=start, change=change)  # type: ignore[arg-type]
        run.wanted[Request.of(quality("nDCG@10", "a"), "a")] = ["nDCG@10", "L0_q", "FLOPS"]
        run.carry_out({"a": Place(source, "a")})
        assert run.settings() == f"{start} {change}"
    other = Run("special", tmp_path, model=toys.model("other-bert"), change="keep special terms")
    other.wanted[Request.of(quality("AP", "b"), "b")] = ["AP"]
    other.kept.unlink()
    with pytest.raises(ArgumentError):  # the changed model of another start is not believed
        other.carry_out({"b": Place(source, "b")})
    looked_up, kept = (vo.load(tmp_path / "models" / name) for name in ("looked-up", "special"))
    assert set(vo.encode(looked_up, ["snow and rain"], role="query").data) == {1.0}
    special = special_tokens(kept.tokenizer)
    texts = [f"{n} days of snow" for n in range(20)]
    assert vo.encode(kept, texts)[:, special].nnz > 0
    assert vo.encode(vo.load(start), texts)[:, special].nnz == 0


@pytest.mark.slow
def test_a_recipe_that_keeps_special_terms_trains_them(toys: Toys, tmp_path: Path) -> None:
    plan = make_plan(WACKY, tmp_path, toys=toys)
    [run] = [run for name, run in plan.runs.items() if name == "v2"]
    assert run.recipe is not None
    assert run.recipe.special_terms
    with_special_terms(Path(run.recipe.model))
    trained = vo.train(run.recipe, tmp_path / "trained")
    special = special_tokens(trained.tokenizer)
    assert vo.encode(trained, [f"{n} days of snow" for n in range(20)])[:, special].nnz > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "exhibit", "first", "last"),
    [
        (TRANSFER, "table-2", "BM25", "vt"),
        (TRANSFER, "table-8", "BM25", "vt-idf-l0"),
        (WACKY, "table-1", "BM25+RM3", "v3-style"),
    ],
)
def test_rows_stand_in_the_paper_s_order(study: Study, exhibit: str, first: str, last: str, tmp_path: Path) -> None:
    rows = [row.label for row in make_plan(study, tmp_path).rows[exhibit]]
    assert [rows[0], rows[-1]] == [first, last]
    assert set(study.exhibits[exhibit].order.split()) <= set(rows)
    for words in study.exhibits[exhibit].words.values():
        assert set(words) <= set(rows)


@pytest.mark.slow
def test_published_figures_of_two_tables_are_complete(tmp_path: Path) -> None:
    eight = {row.label: row.published for row in make_plan(TRANSFER, tmp_path).rows["table-8"]}
    assert [eight[row]["nDCG@10"] for row in ("BM25", "SPLADE-v3-doc", "Geng-et-al", "modernbert", "vt-idf-l0")] == [
        44.5, 46.8, 50.4, 44.4, 51.5,
    ]  # fmt: skip
    rows = make_plan(WACKY, tmp_path).rows
    two = {row.label: row.published.get("W-AUC ±") for row in rows["table-2"]}
    assert {row for row, spread in two.items() if spread is None} == {"v2-nq", "v2-distilroberta", "v3-style"}
    labels = {name: {row.label for row in rows[name]} for name in ("figure-4", "figure-4-documents")}
    assert labels["figure-4"] == labels["figure-4-documents"]
    assert {row.label for row in rows["table-1"] if not row.published} == {"v3-style"}
