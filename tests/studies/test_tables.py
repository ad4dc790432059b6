"""Tables of the studies: words, marks of significance, bands, rows of BM25, conventions; and what is not done twice."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bm25s.stopwords import STOPWORDS_EN

import vocable as vo
from studies import measurements, vectors
from studies.common import reproduce
from studies.plan import Selection, Study, make_plan
from studies.results import Cell, Reproduction
from studies.runs import Run
from studies.vectors import Encoders, Place
from tests.studies.test_plan import NOWHERE, study_of
from tests.studies.test_vectors import WORDS, collection
from vocable.adapt.expand_vocabulary import expand_vocabulary
from vocable.adapt.transfer import neighbours
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.significance import paired_t_test
from vocable.torch_models.sparse_encoder import save_model
from vocable.training.recipe import Recipe

ROWS = ("v2", "v2-sum")


def wacky() -> Study:
    """Two rows of each exhibit of Polyakov et al. 2026, on one collection of BEIR."""
    study = study_of("wacky_weights")
    exhibits = {
        name: replace(study.exhibits[name], rows={"wacky-weights": " ".join(ROWS)}, models=[])
        for name in ("table-1", "table-3", "figure-2", "figure-3")
    }
    columns = {name: column for name, column in study.columns.items() if not name.startswith("arguana")}
    kept = [name for name in exhibits["figure-3"].figure.y if name.startswith(("scifact", "nDCG"))]
    figure = exhibits["figure-3"].figure
    places = [figure.y.index(name) for name in kept]
    some = {key: [getattr(figure, key)[place] for place in places] for key in ("x", "y", "dashed", "bands")}
    exhibits["figure-3"] = replace(exhibits["figure-3"], figure=replace(figure, **some))
    return replace(study, exhibits=exhibits, columns=columns, groups={"BEIR": "scifact"})


class Done:
    """A reproduction, and what was done for it how often."""

    def __init__(self, folder: Path) -> None:
        self.encoded, self.ablated = Counter[str](), Counter[str]()
        with pytest.MonkeyPatch.context() as patch:
            encode, ablate = vectors.encode_stream, measurements.ablate

            def counted_encode(encoder: Any, texts: Any, to: Path, **options: Any) -> Any:
                self.encoded[to.name] += 1
                return encode(encoder, texts, to, **options)

            def counted_ablate(model: str, source: str, to: Path, **options: Any) -> Any:
                self.ablated[to.parent.name] += 1
                return ablate(model, source, to, **options)

            patch.setattr(vectors, "encode_stream", counted_encode)
            patch.setattr(measurements, "ablate", counted_ablate)
            self.found = reproduce(wacky(), folder / "out", toy=True)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return Done(tmp_path_factory.mktemp("wacky"))


@pytest.mark.slow
def test_a_table_is_tested_against_its_baseline(done: Done) -> None:
    source = f"beir:{done.found.output}/toys/data/MSM"
    each = [vo.evaluate(str(done.found.output / "models" / row), source, ["RR@10"]).evaluations[0] for row in ROWS]
    cells = done.found.cells["table-1"]
    expected = paired_t_test(*(one.per_query["RR@10"] for one in each))
    assert cells["v2-sum"]["MSM MRR@10"].p == pytest.approx(expected)
    assert cells["v2"]["MSM MRR@10"].p is None
    assert [Cell([0.25], 0.5, p).text(2) for p in (None, 0.2, 0.049, 0.009)] == [
        "0.25 (0.50)", "0.25 (0.50)", "0.25* (0.50)", "0.25** (0.50)",
    ]  # fmt: skip
    assert json.loads((done.found.output / "results.json").read_text())["cells"]["table-1"]["v2-sum"]["MSM MRR@10"]["p"]


@pytest.mark.slow
def test_the_wackiest_terms_are_those_of_the_report(done: Done) -> None:
    report = done.found.output / "measured" / "v2-train" / "wackiness-query" / "results.json"
    expected = [one["term"] for one in json.loads(report.read_text())["models"][0]["wackiest"]]
    cell = done.found.cells["table-3"]["v2"]["the wackiest terms"]
    assert cell.ours == [expected]
    assert 0 < len(expected) <= 20
    assert cell.text(4) == ", ".join(expected)


@pytest.mark.slow
def test_random_removals_have_a_band(done: Done) -> None:
    cells = done.found.cells["figure-2"]["v2"]
    for measure in ("RR@10", "R@1000"):
        low, mean, high = (cells[f"{measure} without random ones{end}"].ours[0] for end in (", low", "", ", high"))
        assert np.all(np.array(low) <= mean)
        assert np.all(np.array(mean) <= high)
        np.testing.assert_allclose(np.array(high) - mean, np.array(mean) - low, atol=1e-12)
    assert (done.found.output / "figure-2.svg").exists()


@pytest.mark.slow
def test_nothing_is_removed_or_encoded_twice(done: Done) -> None:
    assert done.ablated == {f"{row}-{dataset}": 1 for row in ROWS for dataset in ("MSM", "scifact")}
    assert "train-query" not in done.encoded  # those that count are drawn first, and encoded by `measure_wackiness`
    assert done.encoded["MSM-document"] == done.encoded["scifact-document"] == len(ROWS)


@pytest.mark.slow
def test_terms_of_all_removals_are_those_of_the_training_queries(done: Done) -> None:
    for dataset in ("MSM", "scifact"):
        report = json.loads((done.found.output / "measured" / f"v2-{dataset}" / "removal" / "results.json").read_text())
        assert report["settings"]["scores"].endswith("v2-train/wackiness-query/scores.parquet")


def test_a_removal_without_scores_says_what_is_missing(tmp_path: Path) -> None:
    column = study_of("wacky_weights").columns["removed terms"]
    run = Run("v2", tmp_path, model="vocable-mini")
    with pytest.raises(DataError, match=r"scores\.parquet.*v2 on train.*W-AUC"):
        column.measure(run, None, ["terms"], **column.options)


def test_an_exhibit_that_is_not_made_says_why() -> None:
    with pytest.raises(ArgumentError, match=r"table-1.*authors' data"):
        make_plan(study_of("esplade"), NOWHERE, Selection(["table-1"]))


def test_new_tokens_have_the_neighbours_of_a_transfer(tmp_path: Path, backbones: dict[str, Path]) -> None:
    column = study_of("vocabulary_transfer").columns["new tokens"]
    recipe = Recipe.model_validate(
        {"model": str(backbones["modernbert"]), "transfer": {"target": str(backbones["bert"])},
         "data": {"examples": ["none"]}, "training": {"steps": 1}}
    )  # fmt: skip
    run = Run("vt", tmp_path, recipe=recipe)
    assert column.measure(run, None, ["neighbours"], **column.options) == {"neighbours": []}  # no tokens of a toy
    expected = neighbours(vo.load(backbones["modernbert"]), str(backbones["bert"]), ["fox", "the"])
    shown = column.measure(run, None, ["neighbours"], words=["fox", "nationalists", "the"])["neighbours"]
    assert [line.partition(" ")[0] for line in shown] == [row.token for row in expected] == ["fox", "the"]
    for line, row in zip(shown, expected, strict=True):
        assert line.endswith(", ".join(f"{token} {weight:.3f}" for token, weight in row.made_of))


def test_the_example_of_a_query_has_its_terms_and_marks_expansions(tmp_path: Path) -> None:
    column = study_of("wacky_weights").columns["terms of the example"]
    found = column.measure(Run("mini", tmp_path, model="vocable-mini"), None, ["terms"], **column.options)["terms"]
    model, text = vo.load("vocable-mini"), "androgen receptor define"
    vector, names = vo.encode(model, [text], "query").toarray()[0], vo.terms(model)
    expected = {name: weight for name, weight in zip(names, vector, strict=True) if weight > 0}
    assert [float(one.rpartition(" ")[2]) for one in found] == [round(w, 2) for w in sorted(expected.values())[::-1]]
    assert {one.rpartition(" ")[0].removeprefix("+") for one in found} == expected.keys()
    assert {one.rpartition(" ")[0] for one in found} & {"receptor", "define"}


@pytest.mark.slow
@pytest.mark.parametrize("only", ["own terms", "stop words", "half of the terms"])
def test_restricted_vectors_are_searched_with_the_terms_that_are_kept(tmp_path: Path, only: str) -> None:
    folder = tmp_path / "weather"
    texts = {f"d{n}": f"the {n % 3} days of {word} and of the rain" for n, word in enumerate(WORDS)}
    place = Place(collection(folder, texts), "one")
    run = Run("mini", tmp_path / "out", model="vocable-mini")
    on, model = Encoders(run, {"one": place}).open("one"), vo.load("vocable-mini")
    found = measurements.quality("RR@10", "one").measure(run, on, ["RR@10", "L0_q", "L0_d"], only=only)
    kept = np.zeros(len(vo.terms(model)), dtype=bool)
    if only == "half of the terms":
        kept[np.random.default_rng(0).permutation(len(kept))[: len(kept) // 2]] = True
    elif only == "stop words":
        kept[:] = [term in STOPWORDS_EN for term in vo.terms(model)]
    sides = []
    for some, role in ((on.dataset.queries, "query"), (on.dataset.documents, "document")):
        whole = [getattr(one, "full", one.text) for one in some]
        matrix = vo.encode(model, whole, role).toarray()
        own = np.array([[term in re.findall(r"\w+", text) for term in vo.terms(model)] for text in whole])
        sides.append(matrix * (own if only == "own terms" else kept))
    scores = sides[0] @ sides[1].T
    ranks = [1 + int((row > row[at]).sum()) if row[at] > 0 else np.inf for at, row in enumerate(scores)]
    assert [found["L0_q"], found["L0_d"]] == pytest.approx([(side > 0).sum(axis=1).mean() for side in sides])
    if only != "stop words":  # where scores are alike, ids decide
        assert found["RR@10"] == pytest.approx(np.mean([1 / rank for rank in ranks]), abs=0.2)


def lexical(tmp_path: Path) -> Reproduction:
    study = study_of("vocabulary_transfer")
    exhibit = replace(study.exhibits["table-8"], rows={}, models=["BM25"])
    return reproduce(
        replace(study, exhibits={"table-8": exhibit}, groups={"BEIR": "NFC SciF"}), tmp_path / "out", toy=True
    )


def test_a_row_of_bm25_is_that_of_evaluate(tmp_path: Path) -> None:
    found = lexical(tmp_path)
    values = [
        vo.evaluate("bm25", f"beir:{tmp_path}/out/toys/data/{name}", ["nDCG@10"]).evaluations[0].values["nDCG@10"]
        for name in ("NFC", "SciF")
    ]
    assert found.cells["table-8"]["BM25"]["nDCG@10"].ours == [pytest.approx(100 * np.mean(values))]
    assert not found.failed
    assert "44.5" in str(found)


@pytest.mark.slow
def test_public_checkpoints_have_the_figures_of_their_tables() -> None:
    plan = make_plan(study_of("vocabulary_transfer"), NOWHERE, Selection(["table-1", "table-2", "table-8"]))
    rows = {name: {row.label: row for row in rows} for name, rows in plan.rows.items()}
    for label in ("Co-SelfDistil", "Co-EnsembleDistil", "SPLADE-v3"):
        figures = rows["table-1"][label].published
        collections = [figures[name] for name in plan.study.columns if name in plan.exhibits["table-1"].columns[2:-1]]
        assert len(collections) == 13
        assert np.mean(collections) == pytest.approx(figures["BEIR nDCG@10"], abs=0.06)
    assert rows["table-2"]["SPLADE-v3"].published["DL-19 R@1k"] == 83.2
    assert rows["table-8"]["SPLADE-v3-doc"].published["doc_len"] == 240.3
    assert {row.runs[0].start for row in plan.rows["table-8"] if row.runs[0].recipe is None} == {
        "bm25", "naver/splade-v3-doc", "opensearch-project/opensearch-neural-sparse-encoding-doc-v2-distill",
    }  # fmt: skip


def nano(folder: Path) -> None:
    """A collection as the study advises to save it, in which a query has the id of a document."""
    folder.mkdir()
    rows = [{"_id": "a", "text": "snow and ice"}, {"_id": "b", "text": "snow and ice and rain"}]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "a", "text": "snow and ice"}) + "\n")
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\na\ta\t1\n")


@pytest.mark.slow
def test_nano_beir_counts_the_document_of_the_query(tmp_path: Path) -> None:
    plan = make_plan(study_of("mlm_head_rescaling"), tmp_path, overrides=[f"data_folder={tmp_path}"])
    places = plan.places
    assert {name for name, place in places.items() if place.convention == "trec_eval"} == {
        name for name in places if name.startswith("nano-")
    }
    nano(tmp_path / "NanoArguAna")
    run = Run("mini", tmp_path / "out", model="vocable-mini")
    for name, convention, value in (("one", "trec_eval", 1.0), ("two", None, 0.0)):
        place = places["nano-arguana"]._replace(corpus=name, convention=convention)
        on = Encoders(run, {name: place}).open(name)
        assert measurements.quality("RR@10", name).measure(run, on, ["RR@10"])["RR@10"] == value


@pytest.mark.slow
def test_the_share_of_words_that_two_vocabularies_have(tmp_path: Path) -> None:
    run = Run("one", tmp_path, model="vocable-mini")
    column = study_of("esplade").columns["shared words %"]
    with pytest.raises(DataError):
        column.measure(run, None, ["share"], **column.options)
    words = {"one": ["snow", "rain", "hail", "fog"], "overlap-repeat-lr-l": ["fog", "rain", "sun"]}
    for name, some in words.items():
        save_model(expand_vocabulary(vo.load(), words=some), tmp_path / "adapted" / name)
    run = Run("one", tmp_path, model=str(tmp_path / "adapted" / "one"))
    assert column.measure(run, None, ["share"], **column.options) == {"share": 0.5}
