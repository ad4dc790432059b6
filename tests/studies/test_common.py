"""Rows of each study on toys, against the verbs' results for the same model; interrupted, repeated, drawn."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vocable as vo
from studies import measurements, runs, vectors
from studies.common import main, reproduce
from studies.kept import processor
from studies.plan import Figure, Study, make_plan
from studies.results import Cell, Reproduction
from tests.studies.test_plan import study_of
from vocable.adapt.statistics import row_norms
from vocable.core.figures import empty_panels
from vocable.core.storage import locked
from vocable.core.tables import Table
from vocable.encoding.protocol import Role
from vocable.encoding.pruning import prune
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, RecipeError
from vocable.evaluation.cost import flops
from vocable.torch_models.fuse import parts
from vocable.training.data import load_examples

ROWS = {  # study -> exhibit -> its only row here
    "mlm_head_rescaling": {"table-1": "roberta-k2", "table-2": "roberta-k2", "figure-4": "roberta-k2"},
    "vocabulary_transfer": {"table-1": "vt", "table-2": "vt", "table-6": "head-only-emlm", "table-8": "vt-idf-l0",
                            "pre-training": "vt"},
    "wacky_weights": {"table-1": "v3-style", "table-2": "v3-style", "figure-2": "v3-style",
                      "figure-4-documents": "v3-style"},
    "esplade": {"table-2": "indep-uniq-lr-h", "table-3": "indep-uniq-lr-h", "table-6": "indep-uniq-lr-h",
                "table-8": "indep-uniq-lr-h", "table-9": "indep-uniq-lr-h", "figure-1": "indep-uniq-lr-h",
                "figure-2": "indep-uniq-lr-h", "figure-3": "indep-uniq-lr-h", "figure-4": "indep-uniq-lr-h"},
}  # fmt: skip
FEW = {"BEIR-13": "nfcorpus fever climate-fever", "BEIR": "NFC FEV Cli"}


def _cut(name: str) -> Study:
    """A study of the rows above alone, over few collections."""
    study = study_of(name)
    exhibits = {}
    for key, row in ROWS[name].items():
        recipe = next(iter(study.exhibits[key].rows))
        exhibits[key] = replace(study.exhibits[key], rows={recipe: row}, models=[])
    groups = {key: FEW.get(key, " ".join(some.split()[:2])) for key, some in study.groups.items()}
    if name == "wacky_weights":
        groups = {"BEIR": "nfcorpus scifact"}
    return replace(study, groups=groups, exhibits=exhibits)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reproduction]:
    """A row of each study, carried out."""
    found = {}
    for name in ROWS:
        found[name] = reproduce(_cut(name), tmp_path_factory.mktemp(name) / "out", toy=True)
    return found


def _ours(reproduction: Reproduction, exhibit: str, column: str) -> Any:
    [cells] = reproduction.cells[exhibit].values()
    return cells[column].ours[0]


@pytest.mark.slow
def test_every_cell_of_every_table_is_there(done: dict[str, Reproduction]) -> None:
    for name, reproduction in done.items():
        for exhibit, rows in reproduction.cells.items():
            for cells in rows.values():
                numbers = np.concatenate([np.ravel(cell.ours[0]) for cell in cells.values()])
                assert len(numbers) >= len(cells), f"{name} {exhibit}"


@pytest.mark.slow
def test_quality_is_that_of_evaluate_in_the_units_of_the_paper(done: dict[str, Reproduction]) -> None:
    reproduction = done["vocabulary_transfer"]
    model = str(reproduction.output / "models" / "vt")
    sources = [f"beir:{reproduction.output}/toys/data/{name}" for name in FEW["BEIR"].split()]
    each = [vo.evaluate(model, source, ["nDCG@10"]).evaluations[0] for source in sources]
    values = [evaluation.values["nDCG@10"] for evaluation in each]
    assert _ours(reproduction, "table-2", "BEIR nDCG@10") == pytest.approx(100 * np.mean(values))
    costs = [evaluation.cost for evaluation in each if evaluation.cost is not None]
    assert _ours(reproduction, "table-1", "FLOPs") == pytest.approx(np.mean([cost.flops for cost in costs]))
    assert _ours(reproduction, "table-1", "Doc_Len") == pytest.approx(np.mean([cost.document_terms for cost in costs]))
    judged = vo.evaluate(model, f"beir:{reproduction.output}/toys/data/DL-19", ["R@1000"])
    [recall] = judged.evaluations[0].values.values()
    assert _ours(reproduction, "table-2", "DL-19 R@1k") == pytest.approx(100 * recall)


@pytest.mark.slow
def test_the_norm_is_that_of_the_rescaled_matrix(done: dict[str, Reproduction]) -> None:
    reproduction = done["mlm_head_rescaling"]
    backbone = vo.load(str(reproduction.output / "toys" / "models" / "roberta-base"))
    norm = float(row_norms(parts(backbone).mlm.get_output_embeddings().weight).mean())
    assert _ours(reproduction, "table-2", "norm") == pytest.approx(norm / 2)
    mlm = parts(backbone).mlm
    parameters = sum(weight.numel() for weight in {id(one): one for one in mlm.parameters()}.values())
    assert _ours(reproduction, "table-1", "parameters (B)") == pytest.approx(parameters / 1e9)


@pytest.mark.slow
def test_pruned_costs_and_postings_are_those_of_the_vectors(done: dict[str, Reproduction]) -> None:
    reproduction = done["esplade"]
    model = vo.load(str(reproduction.output / "models" / "indep-uniq-lr-h"))
    folder = reproduction.output / "toys" / "data" / "evaluation"
    encoded = {}
    sides: tuple[tuple[Role, str], ...] = (("query", "queries"), ("document", "corpus"))
    for role, file in sides:
        rows = map(json.loads, (folder / f"{file}.jsonl").read_text(encoding="utf-8").splitlines())
        texts = [f"{row.get('title', '')} {row['text']}".strip() for row in rows]
        encoded[role] = TextEncoder(model, role).encode(texts)
    queries, documents = prune(encoded["query"], 7), prune(encoded["document"], 20)
    assert _ours(reproduction, "table-2", "q7 d20 L0_d") == pytest.approx(np.diff(documents.indptr).mean())
    assert _ours(reproduction, "table-2", "q7 d20 FLOPS") == pytest.approx(flops(queries, documents))
    counts = np.diff(prune(encoded["query"], 5).indptr), np.diff(prune(encoded["document"], 10).indptr)
    assert _ours(reproduction, "table-9", "top5 L0_q-std") == pytest.approx(counts[0].std())
    assert _ours(reproduction, "table-9", "top10 L0_d-std") == pytest.approx(counts[1].std())
    lengths = np.bincount(encoded["document"].indices, minlength=encoded["document"].shape[1])
    assert _ours(reproduction, "table-9", "d0 pos-ls-len-std") == pytest.approx(lengths.std())
    kept = (reproduction.output / "adapted/indep-uniq-lr-h/pretrain.jsonl").read_text(encoding="utf-8")
    log = [json.loads(line) for line in kept.splitlines()]
    assert _ours(reproduction, "figure-2", "accuracy") == [
        line["held_out_accuracy"] for line in log if "held_out_accuracy" in line
    ]
    assert _ours(reproduction, "figure-2", "accuracy of later sub-words") == [
        line["held_out_accuracy_later_sub-words"] for line in log if "held_out_accuracy" in line
    ]
    assert _ours(reproduction, "figure-3", "loss of first sub-words") == [
        line["held_out_loss_first_sub-word"] for line in log if "held_out_accuracy" in line
    ]


@pytest.mark.slow
def test_the_checkpoint_is_that_which_the_validation_set_chooses(done: dict[str, Reproduction]) -> None:
    output = done["esplade"].output
    evaluation = json.loads((output / "models" / "indep-uniq-lr-h" / "recipe.json").read_text())["evaluation"]
    assert evaluation["best"] is True
    assert [Path(place).name for place in evaluation["datasets"]] == ["beir-validation"]
    log = (output / "models" / "indep-uniq-lr-h" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert sum("R@10" in line for line in log) >= 2


@pytest.mark.slow
def test_a_repeated_call_reads_what_it_has_made(done: dict[str, Reproduction], monkeypatch: pytest.MonkeyPatch) -> None:
    first = done["mlm_head_rescaling"]
    monkeypatch.setattr(runs, "train", None)
    monkeypatch.setattr(vectors, "encode_stream", None)
    again = reproduce(_cut("mlm_head_rescaling"), first.output, toy=True)
    assert again.cells == first.cells
    page = (first.output / "index.html").read_text(encoding="utf-8")
    assert "on toys: the numbers mean nothing" in page
    assert page.count("<img") == 1
    assert json.loads((first.output / "results.json").read_text())["toy"] is True


@pytest.mark.slow
def test_a_killed_measurement_goes_on_at_the_collection_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, encoded, searched = _cut("mlm_head_rescaling"), Counter[str](), Counter[str]()
    encode, evaluate = vectors.encode_stream, measurements.evaluate_run

    def counted(encoder: Any, texts: Any, folder: Path, **options: Any) -> Any:
        encoded[folder.name] += 1
        return encode(encoder, texts, folder, **options)

    def killed(*given: Any, **options: Any) -> Any:
        searched["all"] += 1
        if searched["all"] == 4:  # after dev, DL 2019 and the first collection of BEIR
            raise KeyboardInterrupt
        return evaluate(*given, **options)

    monkeypatch.setattr(vectors, "encode_stream", counted)
    monkeypatch.setattr(measurements, "evaluate_run", killed)
    with pytest.raises(KeyboardInterrupt):
        reproduce(study, tmp_path / "out", only=["table-2"], toy=True)
    done = set(encoded)
    assert {"dev-document", "dev-query", "nfcorpus-document"} <= done
    monkeypatch.setattr(measurements, "evaluate_run", evaluate)
    reproduce(study, tmp_path / "out", only=["table-2"], toy=True)
    assert all(encoded[name] == 1 for name in done if not name.startswith("fever"))
    assert not [*(tmp_path / "out" / "vectors").glob("*/*")]


@pytest.mark.slow
def test_a_table_that_is_chosen_later_finds_the_models_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = _cut("mlm_head_rescaling")
    first = reproduce(study, tmp_path / "out", only=["figure-4"], toy=True)  # trains, and measures no adapted model
    monkeypatch.setattr("vocable.training.run._fine_tune", None)
    both = reproduce(study, tmp_path / "out", only=["figure-4", "table-1"], toy=True)
    assert both.cells["figure-4"] == first.cells["figure-4"]


@pytest.mark.slow
def test_documents_that_collections_share_are_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, counts, original = _cut("mlm_head_rescaling"), {}, vectors.encode_stream
    reproduce(study, tmp_path / "out", only=["table-1"], toy=True)
    toys = tmp_path / "out" / "toys" / "data"
    fever, climate = toys / "fever", toys / "climate-fever"
    shared = (fever / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    changed = json.loads(shared[1]) | {"text": "another text"}
    own = (climate / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    ids = {json.loads(line)["_id"] for line in own}
    own += [line for line in shared if json.loads(line)["_id"] not in ids | {changed["_id"]}]
    (climate / "corpus.jsonl").write_text("\n".join([*own, json.dumps(changed)]) + "\n", encoding="utf-8")

    def counted(encoder: Any, texts: Any, folder: Path, **options: Any) -> Any:
        counts[folder.name] = [document.full for document in texts]
        return original(encoder, texts, folder, **options)

    monkeypatch.setattr(vectors, "encode_stream", counted)
    reproduce(study, tmp_path / "out", only=["table-2"], toy=True)
    fresh = counts["climate-fever-document"]
    assert any(text.endswith("another text") for text in fresh)
    assert not set(fresh) & set(counts["fever-document"])
    values = json.loads((tmp_path / "out/measured/roberta-k2.json").read_text())["values"]
    alone = vo.evaluate(str(tmp_path / "out/models/roberta-k2"), f"beir:{climate}", ["nDCG@10"]).evaluations[0]
    assert values["quality climate-fever"]["nDCG@10"] == pytest.approx(alone.values["nDCG@10"])


@pytest.mark.slow
def test_negatives_of_the_published_tuples_are_enough_for_a_distillation(tmp_path: Path, toy_texts: list[str]) -> None:
    """The row v3-style draws eight of the fifty negatives of a query, which a teacher has scored."""
    recipe = make_plan(study_of("wacky_weights"), tmp_path).runs["v3-style"].recipe
    assert recipe is not None
    texts = sorted(set(toy_texts))
    rows = [
        {"query": texts[i], "positive": texts[i + 1]} | {f"negative_{n}": texts[(i + 1 + n) % 60] for n in range(1, 51)}
        for i in range(4)
    ]
    (tmp_path / "tuples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    vo.teacher_scores("vocable-mini", str(tmp_path / "tuples.jsonl"), tmp_path / "scored.jsonl")
    options = {"draws": 8, "batch_size": 4, "seed": 0, "cache": tmp_path / "cache", "scored": True}
    [examples] = load_examples([str(tmp_path / "scored.jsonl")], recipe.data, **options)[0].values()
    assert len(examples) == 8
    assert sum(name.startswith("negative") for name in examples.column_names) == recipe.data.negatives == 8
    assert {len(scores) for scores in examples["label"]} == {9}


@pytest.mark.slow
def test_an_output_of_other_settings_is_refused(done: dict[str, Reproduction]) -> None:
    first = done["mlm_head_rescaling"]
    study = _cut("mlm_head_rescaling")
    with pytest.raises((ArgumentError, RecipeError)):
        reproduce(study, first.output, toy=True, overrides=["training.losses.0.temperature=2.0"])


@pytest.mark.slow
def test_the_number_type_and_the_processor_are_said(done: dict[str, Reproduction]) -> None:
    for reproduction in done.values():
        assert reproduction.measured_in == [f"float32 on {processor()}"]
    output = done["esplade"].output
    assert f"Measured in float32 on {processor()}." in (output / "index.html").read_text(encoding="utf-8")
    assert json.loads((output / "results.json").read_text())["measured in"] == [f"float32 on {processor()}"]


@pytest.mark.usefixtures("quiet_libraries")
def test_a_second_study_into_one_output_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(tmp_path / "out"):
        assert main(_cut("mlm_head_rescaling"), ["--toy", "-o", str(tmp_path / "out")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}/out is in use by process" in line
    assert line.endswith("wait for it, or name another output")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_seeds_are_a_mean_and_a_deviation(tmp_path: Path) -> None:
    study = _cut("mlm_head_rescaling")
    seeded = {**study.exhibits, "table-2": replace(study.exhibits["table-2"], seeds=[0, 1])}
    found = reproduce(replace(study, exhibits=seeded), tmp_path / "out", only=["table-2"], toy=True)
    cell = found.cells["table-2"]["roberta-k2"]["BEIR-13 nDCG@10"]
    assert len(cell.ours) == 2
    assert {path.name for path in (tmp_path / "out" / "models").iterdir()} == {"roberta-k2", "roberta-k2-seed-1"}
    assert Cell([1.0, 2.0], 1.5).text(2) == "1.50 ± 0.71 (1.50)"
    assert Cell([0.25], None).text(3) == "0.250"


@pytest.mark.usefixtures("quiet_libraries")
def test_an_own_model_is_a_row_of_any_exhibit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], backbones: dict[str, Path]
) -> None:
    study, model = _cut("mlm_head_rescaling"), backbones["bert"]
    given = ["--toy", "-o", str(tmp_path / "out"), "--only", "mine", "--add", f"mine={model}"]
    assert main(study, given) == 0
    assert " ".join(capsys.readouterr().out.split()).count("[on toys: the numbers mean nothing]") == 3
    cells = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["cells"]
    norm = float(row_norms(parts(vo.load(model)).mlm.get_output_embeddings().weight).mean())
    assert cells["table-1"]["mine"]["norm"] == {"ours": [pytest.approx(norm)], "published": None}
    sources = [f"beir:{tmp_path}/out/toys/data/{name}" for name in FEW["BEIR-13"].split()]
    values = [vo.evaluate(str(model), source, ["nDCG@10"]).evaluations[0].values["nDCG@10"] for source in sources]
    assert cells["table-2"]["mine"]["BEIR-13 nDCG@10"]["ours"] == [pytest.approx(np.mean(values))]
    assert cells["figure-4"]["mine"]["loss"]["ours"] == [[]]  # it has no log
    assert main(study, [*given[:-1], f"roberta-k2={model}"]) == 2
    assert "there is a row 'roberta-k2' already" in capsys.readouterr().err


def test_equal_curves_are_told_apart_and_numbers_have_heads(tmp_path: Path) -> None:
    study = _cut("mlm_head_rescaling")
    figure = Figure(x=["step"], y=["loss"])
    exhibit = replace(study.exhibits["figure-4"], columns=["norm"], figure=figure)
    line, norm = Cell([[float(step) for step in range(40)]], None), Cell([0.5], None)
    rows = {name: {"step": line, "loss": line, "norm": norm} for name in ("one", "two", "three")}
    found = Reproduction(replace(study, exhibits={"figure-4": exhibit}), {"figure-4": rows}, tmp_path)
    [table] = [part for part in found.table() if isinstance(part, Table)]
    assert (table.header, table.rows[0]) == (["", "norm"], ["one", "0.5000"])
    drawn = empty_panels(1, 1)
    found._draw(drawn.axes[0], "figure-4", None, [("step", "loss", None, None)])
    curves = [curve for curve in drawn.axes[0].get_lines() if len(curve.get_xdata())]
    widths = [curve.get_linewidth() for curve in curves]
    assert widths == sorted(set(widths), reverse=True)
    places = [range(40)[slice(curve.get_markevery()[0], None, curve.get_markevery()[1])] for curve in curves]
    assert not set(places[0]) & set(places[1]) | set(places[1]) & set(places[2])


@pytest.mark.usefixtures("quiet_libraries")
def test_the_command_prints_cells_beside_the_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = _cut("mlm_head_rescaling")
    assert main(study, ["--only", "table-1", "--toy", "-o", str(tmp_path / "out"), "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]["table-1"]["roberta-k2"]
    assert cells["norm"]["published"] == 1.82
    assert main(study, ["--only", "table-1", "--dry-run"]) == 0
    assert "1 run together" in capsys.readouterr().out
