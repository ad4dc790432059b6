from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from vocable.encoder.terms import expansion_entries, remove_expansions
from vocable.errors import ArgumentError, VectorsError

M, V = 4, 6
dense = arrays(np.float32, (M, V), elements=st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0]))
columns = st.lists(st.integers(0, V - 1), unique=True).map(lambda found: np.array(found, dtype=np.int64))


@given(dense, dense, columns)
def test_only_chosen_expansions_go(vectors: np.ndarray, own: np.ndarray, terms: np.ndarray) -> None:
    expected = vectors.copy()
    for row in range(M):
        for column in range(V):
            if column in terms and own[row, column] == 0:
                expected[row, column] = 0
    result = remove_expansions(csr_array(vectors), csr_array(own), terms)
    np.testing.assert_array_equal(result.toarray(), expected)
    assert result.nnz == np.count_nonzero(expected)
    assert result.has_canonical_format


@given(dense, dense)
def test_an_expansion_is_what_the_text_does_not_have(vectors: np.ndarray, own: np.ndarray) -> None:
    sparse = csr_array(vectors)
    rows, terms = np.nonzero(vectors)
    assert expansion_entries(sparse, csr_array(own)).tolist() == (own[rows, terms] == 0).tolist()
    np.testing.assert_array_equal(remove_expansions(sparse, csr_array(own), np.empty(0, int)).toarray(), vectors)
    alone = remove_expansions(sparse, csr_array(own), np.arange(V)).toarray()
    np.testing.assert_array_equal(alone, np.where(own > 0, vectors, 0))


def test_terms_and_shapes_are_checked() -> None:
    vectors = csr_array(np.ones((2, 3), dtype=np.float32))
    for term in (-1, 3):
        with pytest.raises(ArgumentError, match="terms must lie between 0 and 2"):
            remove_expansions(vectors, vectors, np.array([term]))
    with pytest.raises(VectorsError, match="not of one text"):
        remove_expansions(vectors, vectors[:1], np.array([1]))
