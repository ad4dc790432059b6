"""Vectors in documents of Elasticsearch and OpenSearch: every bit comes back."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vocable.engines.lucene_vectors import DENSE_EXPONENT, dense_scale, features, packed, unpacked

WEIGHTS = arrays(np.float32, st.integers(0, 9), elements=st.floats(width=32, allow_nan=False))


@given(WEIGHTS)
def test_every_bit_of_a_row_comes_back(weights: np.ndarray) -> None:
    dense = unpacked(packed(weights), "dense")
    assert isinstance(dense, np.ndarray)
    assert dense.tobytes() == weights.tobytes()
    columns = np.arange(len(weights), dtype=np.int32) * 7919
    found, values = unpacked(packed((columns, weights)), "sparse")
    assert (found.tolist(), values.tobytes()) == (columns.tolist(), weights.tobytes())


def test_features_have_columns_as_names() -> None:
    assert features(np.array([3, 50]), np.float32([0.5, 2])) == {"3": 0.5, "50": 2.0}


@given(arrays(np.float32, st.integers(1, 9), elements=st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False)))
def test_the_scale_is_a_power_of_two_that_makes_the_largest_weight_almost_two_to_the_exponent(
    vector: np.ndarray,
) -> None:
    scale, largest = dense_scale(vector), float(np.abs(vector).max())
    assert math.frexp(scale)[0] == 0.5
    if largest:
        assert 2.0 ** (DENSE_EXPONENT - 1) <= largest / scale < 2.0**DENSE_EXPONENT
