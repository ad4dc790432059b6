from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from datasets import Dataset
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder
from tokenizers import Tokenizer

from vocable.adapt.calibrate import calibrate
from vocable.adapt.expand_vocabulary import expand_vocabulary
from vocable.adapt.inspect import inspect
from vocable.adapt.rescale import rescale
from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.encoding.models import model_digest
from vocable.encoding.terms import input_terms, term_places, terms
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, MissingExtraError, ModelError
from vocable.torch_models import export as exporting
from vocable.torch_models.asymmetric import asymmetric
from vocable.torch_models.export import POOLED, ExportedModel, PooledTerms, export_model
from vocable.torch_models.fuse import fuse, without_logits
from vocable.torch_models.inference_free import make_inference_free
from vocable.torch_models.provenance import provenance
from vocable.training.teachers import load_sparse_teacher
from vocable.training.train import train

onnx = pytest.importorskip("onnx", reason="pip install 'vocable[train]'")
pytest.importorskip("onnxscript", reason="pip install 'vocable[train]'")

Export = Callable[..., tuple[Path, ExportedModel]]


def dense(model: SparseEncoder, texts: list[str], role: Any = "document") -> np.ndarray:
    vectors = encode(model, texts, role)
    assert isinstance(vectors, csr_array)
    return vectors.toarray()


@pytest.fixture(scope="session")
def texts(toy_texts: list[str]) -> list[str]:
    return [*toy_texts[:6], "fox", "", toy_texts[6] * 3]


@pytest.fixture(scope="session")
def export(backbones: dict[str, Path], texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Exports a toy backbone, each only once: the folder, and what was measured."""

    @cache
    def once(name: str = "bert") -> tuple[Path, ExportedModel]:
        folder = tmp_path_factory.mktemp(name) / "exported"
        return folder, export_model(load(backbones[name], device="cpu"), folder, texts=texts)

    return once


@pytest.fixture
def traced(export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds is not done again: whatever is exported has the graph of the toy BERT."""
    file = export()[0] / "onnx" / "model.onnx"
    monkeypatch.setattr(exporting, "_write_onnx", lambda *_: shutil.copy(file, _[-1]))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("pooling", POOLED)
def test_every_pooling_is_that_of_the_head_and_padding_never_wins(
    backbones: dict[str, Path], pooling: str, activation: Any, side: str, texts: list[str]
) -> None:
    model = load(backbones["bert"], pooling=pooling, activation=activation, device="cpu")
    wanted = torch.from_numpy(dense(model, texts))
    model.tokenizer.padding_side = side
    features = model.preprocess(texts)
    assert not features["attention_mask"].all()
    mlm = model[0].auto_model
    known = torch.ones(len(model.tokenizer), dtype=torch.int64)
    known[model.tokenizer.all_special_ids] = 0
    with torch.no_grad(), without_logits(mlm) as layer:
        graph = PooledTerms(mlm, layer, pooling, activation, known, {"query": 2, "document": None})
        found, queries, documents = graph(features["input_ids"], features["attention_mask"])
    assert (wanted > 0).any()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(documents, found)
    assert torch.equal(queries.sort(dim=1).values[:, -2:], found.sort(dim=1).values[:, -2:])
    assert ((queries > 0).sum(dim=1) <= 2).all()


ROLES: tuple[Any, ...] = ("query", "document")


def run_graph(folder: Path, texts: list[str], output: str, length: int, side: str = "right") -> np.ndarray:
    """What a program without vocable and PyTorch makes of the texts."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    padding = json.loads((folder / "config.json").read_text())["pad_token_id"]
    tokenizer.enable_padding(direction=side, pad_id=padding)
    read = tokenizer.encode_batch(texts)
    session = onnxruntime.InferenceSession(folder / "onnx" / "model.onnx")
    given = {
        "input_ids": np.array([one.ids for one in read]),
        "attention_mask": np.array([one.attention_mask for one in read]),
        "token_type_ids": np.array([one.type_ids for one in read]),
    }
    [weights] = session.run([output], {one.name: given[one.name] for one in session.get_inputs()})
    return weights


@pytest.mark.slow
def test_a_graph_has_the_limits_of_each_role(backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path) -> None:
    model = load(backbones["bert"], device="cpu")
    model[0].auto_model.config.active_terms = {"query": 4, "document": 9}
    model[0].query_length, model[0].document_length = 12, 60
    words = " ".join(toy_texts).split()
    texts = [" ".join(words[start : start + count]) for start, count in enumerate((10, 20, 50, 100, 300, 600))]
    export_model(model, tmp_path / "graph", texts=texts)
    card = (tmp_path / "graph" / "README.md").read_text(encoding="utf-8")
    for role, length, k in (("query", 12, 4), ("document", 60, 9)):
        wanted = dense(model, texts, role)
        assert (np.count_nonzero(wanted, axis=1) == k).all()
        found = run_graph(tmp_path / "graph", texts, f"{role}_weights", length)
        np.testing.assert_allclose(found, wanted, atol=1e-4)
        np.testing.assert_allclose(dense(load(tmp_path / "graph"), texts, role), wanted, atol=1e-4)
        everything = encode(model, texts, role, max_terms=10**6)
        assert isinstance(everything, csr_array)
        found = run_graph(tmp_path / "graph", texts, "weights", length)
        np.testing.assert_allclose(found, everything.toarray(), atol=1e-4)
        assert f"| {role} | `{role}_weights` | {length} | {k} |" in card


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "roberta", "deberta", "modernbert"])
def test_padding_at_the_beginning_moves_no_position(name: str, export: Export, texts: list[str]) -> None:
    folder, _ = export(name)
    right, left = (run_graph(folder, texts, "weights", 64, side) for side in ("right", "left"))
    np.testing.assert_allclose(left, right, atol=1e-5)


@pytest.mark.slow
def test_a_row_without_a_token_that_is_known_is_zero(export: Export) -> None:
    folder, _ = export()
    texts = ["the old fox", "", "言葉", "[CLS]", "the 言"]
    found = run_graph(folder, texts, "weights", 64)
    assert [bool(row.any()) for row in found] == [True, False, False, False, True]
    session = onnxruntime.InferenceSession(folder / "onnx" / "model.onnx")
    ids = np.array([[2, 9, 10, 3], [2, 9, 10, 3]])
    for outputs in (["weights"], None):
        for weights in session.run(outputs, {"input_ids": ids, "attention_mask": np.array([[1] * 4, [0] * 4])}):
            assert weights[0].any()
            assert not weights[1].any()


@pytest.mark.slow
def test_each_graph_of_two_encoders_has_the_outputs_of_its_role(
    toy_model: SparseEncoder, texts: list[str], tmp_path: Path
) -> None:
    model = make_inference_free(toy_model, weights="ones")
    export_model(model, tmp_path / "out", texts=texts)
    [path] = (tmp_path / "out").rglob("model.onnx")
    names = [one.name for one in onnxruntime.InferenceSession(path).get_outputs()]
    assert names == ["weights", "document_weights"]


def test_a_model_that_pads_in_front_is_read_with_padding_at_the_end(
    toy_model: SparseEncoder, texts: list[str], tmp_path: Path
) -> None:
    wanted = dense(toy_model, texts)
    toy_model.tokenizer.padding_side = "left"
    toy_model.save_pretrained(str(tmp_path / "left"))
    model = load(tmp_path / "left", device="cpu")
    np.testing.assert_allclose(dense(model, texts), wanted, atol=1e-5)
    assert np.abs(np.vstack([dense(model, [text]) for text in texts]) - wanted).max() < 1e-5


@pytest.mark.slow
def test_a_pipe_beside_a_graph_is_refused(export: Export, tmp_path: Path) -> None:
    shutil.copytree(export()[0], tmp_path / "piped")
    os.mkfifo(tmp_path / "piped" / "onnx" / "x")
    with pytest.raises(ModelError):
        load(tmp_path / "piped")


@pytest.mark.slow
def test_a_graph_gives_what_the_model_gives(backbone: Path, export: Export, texts: list[str]) -> None:
    folder, result = export(backbone.name.rstrip("0123456789"))
    plain, made = load(backbone, device="cpu"), load(folder)
    wanted = dense(plain, texts)
    assert np.abs(dense(made, texts) - wanted).max() < 1e-4
    assert np.abs(np.vstack([dense(made, [text]) for text in texts]) - wanted).max() < 1e-4  # of any size, any length
    assert result.largest_error < 1e-4
    assert result.same_top > 0.99
    assert terms(made) == terms(plain)
    # Standard operations alone, and the decoder stored once.
    graph = onnx.load(folder / "onnx" / "model.onnx")
    assert {node.domain for node in graph.graph.node} == {""}
    assert not graph.functions
    layer = plain[0].auto_model.get_output_embeddings().weight
    stored = [list(one.dims) for one in graph.graph.initializer]
    assert stored.count(list(layer.shape)) + stored.count(list(layer.T.shape)) == 1
    assert sum(int(np.prod(dims)) for dims in stored) < 1.2 * sum(p.numel() for p in plain.parameters())


@pytest.mark.slow
@pytest.mark.parametrize(("format", "int8"), [("onnx", True), ("openvino", False), ("openvino", True)])
@pytest.mark.usefixtures("traced")
def test_a_graph_is_exported_for_onnx_and_openvino_and_in_8_bits(
    toy_model: SparseEncoder, texts: list[str], tmp_path: Path, format: Any, int8: bool
) -> None:
    if format == "openvino":
        pytest.importorskip("openvino", reason="pip install 'vocable[openvino]'")
        pytest.importorskip("nncf", reason="pip install 'vocable[openvino]'")
    result = export_model(toy_model, tmp_path / "out", texts=texts, format=format, int8=int8)
    wanted, found = dense(toy_model, texts), dense(load(tmp_path / "out"), texts)
    best = [set(np.argsort(-row, kind="stable")[: min(10, np.count_nonzero(row))]) for row in wanted]
    same = sum(len(some & set(np.argsort(-row)[:10])) for some, row in zip(best, found, strict=True))
    assert same / sum(map(len, best)) == pytest.approx(result.same_top, abs=0.03)  # of equal weights either may count
    if int8:
        assert result.same_top > 0.8
        assert result.largest_error > 1e-4
        assert result.largest_error < 1
    else:
        assert np.abs(found - wanted).max() < 1e-4


@pytest.mark.slow
def test_8_bit_weights_are_those_of_the_embeddings_and_of_the_decoder(
    toy_model: SparseEncoder, texts: list[str], tmp_path: Path
) -> None:
    export_model(toy_model, tmp_path / "out", texts=texts, int8=True)
    assert not (tmp_path / "out" / "onnx" / "model.onnx").exists()
    graph = onnx.load(tmp_path / "out" / "onnx" / "model_quantized.onnx").graph
    # What opset 23 adds to rounding is not in ONNX Runtime 1.23, the last one for Macs with Intel.
    assert {node.op_type for node in graph.node if node.domain} == {"MatMulIntegerToFloat", "QuantizeLinear"}
    assert "QuantizeLinear" not in {node.op_type for node in graph.node if not node.domain}
    assert "Attention" in {node.op_type for node in graph.node}
    assert [[*node.attribute[0].ints] for node in graph.node if node.op_type == "Transpose"] == [[1, 2, 0]]  # not heads
    shape = list(toy_model[0].auto_model.get_output_embeddings().weight.shape)
    kinds = [one.data_type for one in graph.initializer if sorted(one.dims) == sorted(shape)]
    assert kinds == [onnx.TensorProto.INT8]  # they are tied
    weights = sum(parameter.numel() for parameter in toy_model.parameters())
    assert sum(len(one.raw_data) for one in graph.initializer) < 2 * weights  # bytes, in place of 4 each


@pytest.mark.slow
def test_terms_of_their_own_are_exported(toy_model: SparseEncoder, texts: list[str], tmp_path: Path) -> None:
    model = expand_vocabulary(toy_model, ["librarian", "compiler", "fox", "search engine", "dog"])
    export_model(model, tmp_path / "words", texts=texts)
    made = load(tmp_path / "words")
    assert terms(made) == terms(model)
    assert np.abs(dense(made, texts) - dense(model, texts)).max() < 1e-4
    assert input_terms(made, ["a fox compiler"]).nnz == input_terms(model, ["a fox compiler"]).nnz > 0
    assert term_places(made, "a fox, a dog") == term_places(model, "a fox, a dog") != []


@pytest.mark.usefixtures("traced")
def test_queries_that_are_looked_up_stay_a_table(toy_model: SparseEncoder, texts: list[str], tmp_path: Path) -> None:
    model = make_inference_free(toy_model, texts)
    export_model(model, tmp_path / "free", texts=texts)
    made = load(tmp_path / "free")
    assert np.abs(dense(made, texts) - dense(model, texts)).max() < 1e-4
    assert np.array_equal(dense(made, texts, "query"), dense(model, texts, "query"))


def test_an_exported_model_is_saved_and_copied_with_its_own_fingerprint(
    export: Export, texts: list[str], tmp_path: Path
) -> None:
    folder, _ = export()
    made = load(folder)
    assert provenance(made) == [{"verb": "export-model", "format": "onnx", "int8": False}]
    wanted = dense(made, texts)
    made.save_pretrained(tmp_path / "again")
    for twin in (load(tmp_path / "again"), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert np.array_equal(dense(twin, texts), wanted)
        assert model_digest(twin) == model_digest(made)
    file = tmp_path / "again" / "onnx" / "model.onnx"
    graph = onnx.load(file)
    graph.doc_string = "changed"
    onnx.save(graph, file)
    assert model_digest(load(tmp_path / "again")) != model_digest(made)


@pytest.mark.slow
def test_an_export_leaves_an_existing_folder_as_it_is(
    backbones: dict[str, Path], export: Export, texts: list[str]
) -> None:
    folder, result = export()
    before = (folder / "exported.json").stat().st_mtime_ns
    assert export_model(load(backbones["bert"], device="cpu"), folder, texts=texts) == result
    assert (folder / "exported.json").stat().st_mtime_ns == before
    with pytest.raises(ArgumentError):
        export_model(load(backbones["bert"], device="cpu"), folder, int8=True)


REFUSED: dict[str, Callable[[SparseEncoder], object]] = {
    "rescale": lambda model: rescale(model, 2.0),
    "calibrate": lambda model: calibrate(model, ["a fox"], shift=1.0),
    "expand": lambda model: expand_vocabulary(model, ["fox"]),
    "inference_free": lambda model: make_inference_free(model, weights="ones"),
    "asymmetric": lambda model: asymmetric(model, model),
    "inspect": lambda model: inspect(model),
    "fuse": fuse,
    "export_model": lambda model: export_model(model, "never-written"),
}


@pytest.mark.parametrize("verb", REFUSED)
def test_verbs_that_need_weights_refuse_a_graph(verb: str, export: Export) -> None:
    with pytest.raises(ModelError):
        REFUSED[verb](load(export()[0]))


def test_a_training_refuses_a_graph(export: Export, tmp_path: Path) -> None:
    (tmp_path / "examples.jsonl").write_text('{"query": "fox", "positive": "the fox"}\n' * 4)
    recipe = tmp_path / "recipe.yaml"
    settings = "{steps: 1, batch_size: 2, losses: [{name: info_nce}]}"
    recipe.write_text(f"model: {export()[0]}\ndata:\n  examples: [{tmp_path}/examples.jsonl]\ntraining: {settings}\n")
    with pytest.raises(ModelError):
        train(str(recipe), tmp_path / "trained")
    assert not (tmp_path / "trained").exists()


def test_options_that_a_graph_has_fixed_are_refused(export: Export) -> None:
    folder, _ = export()
    with pytest.raises(ArgumentError):
        load(folder, pooling="sum")
    with pytest.raises(ArgumentError):
        TextEncoder(load(folder), dtype="bfloat16")
    with pytest.raises(ModelError):
        load(folder, new_head=True)


@pytest.mark.usefixtures("traced")
def test_a_graph_that_is_wrong_is_not_written(toy_model: SparseEncoder, texts: list[str], tmp_path: Path) -> None:
    other = calibrate(toy_model, texts, shift=0.01)  # than the one that the graph is of
    with pytest.raises(ModelError, match=r"(1\.0e-02|9\.9e-03), .*0\.001"):
        export_model(other, tmp_path / "wrong", texts=texts)
    with pytest.raises(ModelError):
        export_model(calibrate(toy_model, texts, shift=-0.5), tmp_path / "wrong", texts=texts, int8=True, min_overlap=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "gone", "other"])
def test_a_damaged_graph_is_one_line(export: Export, tmp_path: Path, damage: str) -> None:
    load(export()[0]).save_pretrained(tmp_path / "damaged")
    file = tmp_path / "damaged" / "onnx" / "model.onnx"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "gone":
        file.unlink()
    else:
        graph = onnx.load(file)
        for one in (graph.graph.input[0].name, "hidden"):
            for node in graph.graph.node:
                node.input[:] = ["hidden" if name == one else name for name in node.input]
        graph.graph.input[0].name = "hidden"
        onnx.save(graph, file)
    with pytest.raises(ModelError) as caught:
        load(tmp_path / "damaged")
    assert "damaged" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "format", "extra"), [("onnxscript", "onnx", "train"), ("openvino", "openvino", "openvino")]
)
def test_a_missing_package_of_the_export_is_named(
    toy_model: SparseEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, format: Any, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"{module} .*pip install 'vocable\[{extra}\]'"):
        export_model(toy_model, tmp_path / "out", format=format)
    assert list(tmp_path.iterdir()) == []


def test_arguments_are_checked_before_the_export(toy_model: SparseEncoder, tmp_path: Path) -> None:
    unknown: Any = "tflite"
    with pytest.raises(ArgumentError):
        export_model(toy_model, tmp_path / "out", format=unknown)
    with pytest.raises(ArgumentError):
        export_model(toy_model, tmp_path / "out", texts=[" "])
    with pytest.raises(ArgumentError):
        export_model(toy_model, tmp_path / "out", min_overlap=0)


def test_an_exported_model_teaches_in_its_own_numbers_whatever_those_of_the_training(backbones, export, tmp_path):
    examples = Dataset.from_dict({"query": ["fox", "brown"], "positive": ["the quick brown fox", "a lazy dog"]})
    folder, model = export()[0], load(backbones["bert"], device="cpu")
    teacher = load_sparse_teacher(str(folder), model, examples, tmp_path / "vectors", "bfloat16")
    expected = [dense(model, examples["query"][:], "query"), dense(model, examples["positive"][:])]
    np.testing.assert_allclose(teacher(np.arange(2)), np.concatenate(expected), rtol=1e-4, atol=1e-4)
