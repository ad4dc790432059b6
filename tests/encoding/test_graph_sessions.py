from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.encoding.graph_sessions import GRAPHS, INPUTS, open_session, padded
from vocable.encoding.hub import BUILT_IN_DENSE, BUILT_IN_MODEL, locate
from vocable.errors import ModelError


@given(
    st.lists(st.lists(st.integers(0, 30_000), min_size=1, max_size=9), min_size=1, max_size=5),
    st.sampled_from([INPUTS, INPUTS[:2]]),
)
def test_padding_fills_the_rows_of_shorter_texts(ids: list[list[int]], inputs: tuple[str, ...]) -> None:
    given = padded(ids, 7, inputs)
    assert [*given] == [*inputs]
    longest = max(map(len, ids))
    for row, text_ids in enumerate(ids):
        rest = longest - len(text_ids)
        assert given["input_ids"][row].tolist() == text_ids + [7] * rest
        assert given["attention_mask"][row].tolist() == [1] * len(text_ids) + [0] * rest
    if "token_type_ids" in given:
        assert not given["token_type_ids"].any()


@pytest.mark.parametrize(("name", "size", "dimensions"), [(BUILT_IN_MODEL, 30522, None), (BUILT_IN_DENSE, None, 384)])
def test_a_session_has_the_sizes_of_its_graph(name: str, size: int | None, dimensions: int | None) -> None:
    path = Path(locate(name), GRAPHS["onnx"][True])
    session = open_session(path, "onnx", size, dimensions)
    assert (session.size, session.dimensions) == (size, dimensions)
    [vectors] = session.run(padded([[101, 3899, 102], [101, 102]], 0, session.inputs))
    assert vectors.shape == (2, size or dimensions)
    assert np.isfinite(vectors).all()
    for other in ((30521, dimensions), (size, 12)):
        with pytest.raises(ModelError):
            open_session(path, "onnx", *other)


def test_a_missing_graph_names_its_path_and_any_weights(tmp_path: Path) -> None:
    path = tmp_path / "onnx/model.onnx"
    with pytest.raises(ModelError):
        open_session(path, "onnx", 3, None)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError):
        open_session(path, "onnx", 3, None)


@pytest.mark.parametrize(("field", "number"), [("opset", 99), ("ir_version", 99)])
def test_a_graph_of_a_later_runtime_names_the_version_that_it_needs(tmp_path: Path, field: str, number: int) -> None:
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("Identity", ["input_ids"], ["weights"])
    tensors = [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in ("input_ids", "weights")]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", tensors[:1], tensors[1:]))
    if field == "opset":
        model.opset_import[0].version = number
    else:
        model.ir_version = number
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with pytest.raises(ModelError, match=r"later ONNX Runtime than .*, at least 1\.23: pip install"):
        open_session(path, "onnx", 1, None)


def test_onnx_runtime_keeps_no_telemetry(tmp_path: Path) -> None:
    """With telemetry it makes folders with an id of the device and a database of events, which it sends."""
    hidden = ("ORT_DISABLE_TELEMETRY", "CI", "GITHUB_ACTIONS", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | {"HOME": str(tmp_path)}
    code = "import vocable as vo; print(vo.encode('vocable-mini', ['a red fox'], role='query').nnz)"
    shown = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True, timeout=120)
    assert int(shown) > 0
    assert [path for path in tmp_path.rglob("*") if "icrosoft" in path.name or "onnxruntime" in path.name] == []
