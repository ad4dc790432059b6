from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vocable.torch_models.quantize import ROWS_OF_TEXT, Group, quantize, rounded_columns

onnx = pytest.importorskip("onnx", reason="pip install 'vocable[train]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'vocable[train]'")


def graph(path: Path, nodes: list[Any], constants: dict[str, np.ndarray]) -> Path:
    """A graph from `ids` [b, s] to `y`."""
    made = onnx.helper.make_graph(
        nodes,
        "graph",
        [onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["b", "s"])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 23)]
    model = onnx.helper.make_model(made, opset_imports=opsets, ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def run(path: Path, ids: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(["y"], {"ids": ids})[0]


@pytest.mark.parametrize("channels", [7, 64])
def test_no_sum_of_two_products_leaves_16_bits(channels: int) -> None:
    weights = np.random.default_rng(0).standard_normal((channels, 50)).astype(np.float32) ** 3
    weights[:2, 0], weights[:, 1] = weights.max() * 9, 0
    columns, scales = rounded_columns(weights)
    pairs = np.pad(columns.astype(int), ((0, channels % 2), (0, 0))).reshape(-1, 2, 50)
    for sign in (1, -1):  # the inputs with the largest sum: 255 where a weight has this sign, 0 elsewhere
        assert (255 * np.maximum(sign * pairs, 0).sum(1)).max() <= 2**15 - 1
    assert (np.abs(columns * scales - weights) <= 0.501 * scales).all()


def test_inputs_and_matrices_that_are_shared_are_rounded_together(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    table = random.standard_normal((30, 16)).astype(np.float32) * np.geomspace(0.1, 9, 16, dtype=np.float32)
    shared, other = (random.standard_normal((16, 16)).astype(np.float32) for _ in range(2))
    add, node = random.standard_normal(16).astype(np.float32), onnx.helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["x"]),
        node("MatMul", ["x", "shared"], ["first"]),
        node("Add", ["first", "bias"], ["biased"]),
        node("MatMul", ["x", "other"], ["second"]),
        node("Tanh", ["biased"], ["again"]),
        node("MatMul", ["again", "shared"], ["third"]),
        node("Sum", ["third", "second"], ["y"]),
    ]
    plain = graph(tmp_path / "plain.onnx", nodes, {"table": table, "shared": shared, "other": other, "bias": add})
    texts = [{"ids": random.integers(0, 30, (1, 20))} for _ in range(8)]
    quantize(plain, tmp_path / "int8.onnx", texts)
    made = onnx.load(tmp_path / "int8.onnx").graph
    assert [one.op_type for one in made.node].count("MatMulIntegerToFloat") == 3
    assert [one.op_type for one in made.node].count("QuantizeLinear") == 2
    assert sorted(tuple(one.dims) for one in made.initializer if one.data_type == onnx.TensorProto.INT8) == [
        (16, 16),
        (16, 16),
        (30, 16),
    ]
    ids = np.concatenate([text["ids"] for text in texts])
    wanted, found = run(plain, ids), run(tmp_path / "int8.onnx", ids)
    assert 0 < np.linalg.norm(found - wanted) < 0.03 * np.linalg.norm(wanted)
    assert np.array_equal(run(tmp_path / "int8.onnx", ids[:1]), found[:1])  # no range of a batch


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_that_are_tied_to_a_decoder_are_stored_once(tied: bool, blocks: int, tmp_path: Path) -> None:
    random, node = np.random.default_rng(4), onnx.helper.make_node
    table = random.standard_normal((31, 16)).astype(np.float32) * np.geomspace(0.2, 5, 16, dtype=np.float32)
    decoder = table.copy()
    decoder[30, 15] += 0 if tied else 0.5
    weights = random.standard_normal((16, 16)).astype(np.float32) / 9
    constants = {f"block{i}": part.T.copy() for i, part in enumerate(np.array_split(decoder, blocks))}
    nodes = [
        node("Gather", ["table", "ids"], ["once"]),
        node("Gather", ["table", "ids"], ["again"]),
        node("Add", ["once", "again"], ["x"]),
        node("MatMul", ["x", "weights"], ["inner"]),
        node("Tanh", ["inner"], ["states"]),
        *(node("MatMul", ["states", name], [f"of_{name}"]) for name in constants),
        node("Concat", [f"of_{name}" for name in constants], ["scores"], axis=-1),
        node("Identity", ["scores"], ["y"]),
    ]
    plain = graph(tmp_path / "plain.onnx", nodes, {"table": table, "weights": weights, **constants})
    texts = [{"ids": random.integers(0, 31, (1, 20))} for _ in range(8)]
    quantize(plain, tmp_path / "int8.onnx", texts)
    stored = onnx.load(tmp_path / "int8.onnx").graph.initializer
    shapes = sorted(tuple(tensor.dims) for tensor in stored if tensor.data_type == onnx.TensorProto.INT8)
    untied = [(31, 16), *((16, len(part)) for part in np.array_split(decoder, blocks))]
    assert shapes == sorted([(16, 16), *([(16, 31)] if tied else untied)])
    ids = np.concatenate([text["ids"] for text in texts])
    wanted, computed = run(plain, ids), run(tmp_path / "int8.onnx", ids)
    assert 0 < np.linalg.norm(computed - wanted) < 0.02 * np.linalg.norm(wanted)


def test_a_product_that_8_bits_do_not_hold_stays_as_it_is(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    table = random.standard_normal((40, 8)).astype(np.float32)
    table[0] *= 1e3  # one row has nearly the whole range, but is rare in the texts
    weights = random.standard_normal((8, 8)).astype(np.float32)
    nodes = [
        onnx.helper.make_node("Gather", ["table", "ids"], ["x"]),
        onnx.helper.make_node("MatMul", ["x", "weights"], ["y"]),
    ]
    plain = graph(tmp_path / "plain.onnx", nodes, {"table": table, "weights": weights})
    texts = [{"ids": np.array([[5, 0, 7, *range(8, 24)]])}, *({"ids": np.arange(1, 40)[None]} for _ in range(9))]
    quantize(plain, tmp_path / "int8.onnx", texts)
    assert "MatMul" in {one.op_type for one in onnx.load(tmp_path / "int8.onnx").graph.node}


@pytest.mark.parametrize("turned", [False, True], ids=["as they are", "turned"])
def test_attention_keeps_heads_together_where_nothing_reads_them_apart(turned: bool, tmp_path: Path) -> None:
    random, node, of_heads = np.random.default_rng(3), onnx.helper.make_node, {"perm": [0, 2, 1, 3]}
    constants = {name: random.standard_normal((30, 16)).astype(np.float32) for name in "qkv"}
    constants |= {"apart": np.array([0, 0, 2, 8]), "whole": np.array([0, 0, 16]), "twice": np.float32(2)}
    constants["weights"] = random.standard_normal((16, 16)).astype(np.float32)
    nodes = []
    for name in "qkv":
        nodes.append(node("Gather", [name, "ids"], [f"{name}_of_tokens"]))
        nodes.append(node("Reshape", [f"{name}_of_tokens", "apart"], [f"{name}_apart"]))
        nodes.append(node("Transpose", [f"{name}_apart"], [f"{name}_heads"], **of_heads))
    keys = "k_heads"
    if turned:  # as by rotary positions
        nodes.append(node("Mul", [keys, "twice"], ["k_turned"]))
        keys = "k_turned"
    nodes.append(node("Attention", ["q_heads", keys, "v_heads"], ["found"], scale=0.3))
    nodes += [node("Transpose", ["found"], ["again"], **of_heads), node("Reshape", ["again", "whole"], ["joined"])]
    nodes.append(node("MatMul", ["joined", "weights"], ["y"]))
    plain, ids = graph(tmp_path / "plain.onnx", nodes, constants), random.integers(0, 30, (3, 7))
    quantize(plain, tmp_path / "int8.onnx", [{"ids": ids}])
    made = onnx.load(tmp_path / "int8.onnx").graph
    assert [one.op_type for one in made.node].count("Transpose") == (4 if turned else 0)
    [attention] = [one for one in made.node if one.op_type == "Attention"]
    assert {one.name for one in attention.attribute} == {"scale"} | (
        set() if turned else {"q_num_heads", "kv_num_heads"}
    )
    wanted, found = run(plain, ids), run(tmp_path / "int8.onnx", ids)
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


def test_a_sample_of_inputs_does_not_keep_the_inputs() -> None:
    group, values = Group(), np.arange(100 * 40 * 3, dtype=np.float32).reshape(100, 40, 3)
    for value in values:
        group.observe(value)
    np.testing.assert_array_equal(np.concatenate(group.rows), values[:, :: 40 // ROWS_OF_TEXT].reshape(-1, 3))
    assert all(rows.base is None for rows in group.rows)
    np.testing.assert_array_equal(group.highest, values.max((0, 1)))
