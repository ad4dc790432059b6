from __future__ import annotations

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
    session = open_session(path, "onnx", size, [dimensions])
    assert (session.size, session.dimensions) == (size, dimensions)
    [vectors] = session.run(padded([[101, 3899, 102], [101, 102]], 0, session.inputs))
    assert vectors.shape == (2, size or dimensions)
    assert np.isfinite(vectors).all()
    for other in ((30521, [dimensions]), (size, [12])):
        with pytest.raises(ModelError):
            open_session(path, "onnx", *other)


def test_a_missing_graph_names_its_path_and_any_weights(tmp_path: Path) -> None:
    path = tmp_path / "onnx/model.onnx"
    with pytest.raises(ModelError):
        open_session(path, "onnx", 3, [None])
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError):
        open_session(path, "onnx", 3, [None])
