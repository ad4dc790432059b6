"""Maps of a vocabulary onto a coarser one, and folding along them, against dense loops."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.sparse import csr_array
from transformers import PreTrainedTokenizerFast

from studies.compatibility import accent_stripping, case_folding, coarse_graining, fold, porter_stem
from vocable.encoding.tokens import Surface, token_surfaces
from vocable.errors import ArgumentError, VectorsError

WEIGHTS = npst.arrays(np.float32, (4, 7), elements=st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.5]))
CLASSES = npst.arrays(np.int64, 7, elements=st.integers(0, 4))


@given(WEIGHTS, CLASSES)
def test_folding_takes_the_maximum_or_the_sum_of_each_class(weights: np.ndarray, classes: np.ndarray) -> None:
    for reduction, reduce in (("max", np.max), ("sum", np.sum)):
        expected = np.zeros((4, classes.max() + 1), np.float32)
        for c in set(classes.tolist()):
            expected[:, c] = reduce(weights[:, classes == c], axis=1)
        found = fold(csr_array(weights), classes, reduction)
        np.testing.assert_array_equal(found.toarray(), expected)
        assert found.dtype == np.float32
        assert found.has_canonical_format
        assert (found.data > 0).all()


def test_folding_nothing() -> None:
    assert fold(csr_array((0, 3), dtype=np.float32), np.array([0, 1, 1])).shape == (0, 2)
    assert fold(csr_array((2, 3), dtype=np.float32), np.array([0, 1, 1])).nnz == 0


@pytest.mark.parametrize(
    ("classes", "reduction"),
    [([0, 1, 2], "mean"), ([0, 1], "max"), ([0.0, 1.0, 2.0], "max"), ([0, -1, 2], "max")],
)
def test_classes_and_reductions_that_do_not_fit_are_refused(classes: list[float], reduction: str) -> None:
    with pytest.raises(ArgumentError):
        fold(csr_array(np.eye(3, dtype=np.float32)), np.array(classes), reduction)  # type: ignore[arg-type]


def test_negative_weights_are_refused() -> None:
    with pytest.raises(VectorsError):
        fold(csr_array(-np.eye(3, dtype=np.float32)), np.arange(3))


@pytest.mark.parametrize("family", ["wordpiece", "byte-level", "unigram"])
def test_the_classes_of_real_tokenizers(tokenizers: dict[str, PreTrainedTokenizerFast], family: str) -> None:
    """Pair by pair: two tokens share a class if, and only if, the normalizers make their texts equal."""
    found = token_surfaces(tokenizers[family])
    stem = Stemmer.Stemmer("porter").stemWord

    def normal(surface: Surface) -> tuple[str, bool]:
        text = unicodedata.normalize("NFD", surface.text.lower())
        text = "".join(c for c in text if not unicodedata.combining(c))
        return (stem(text) if surface.kind == "word" else text), surface.initial

    classes = coarse_graining(found, case_folding, accent_stripping, porter_stem, size=len(found) + 3)
    assert classes.shape == (len(found) + 3,)
    assert sorted(set(classes.tolist())) == list(range(classes.max() + 1))
    counts = np.bincount(classes)
    for i, surface in enumerate([*found, None, None, None]):
        if surface is None or surface.kind in ("special", "bytes"):
            assert counts[classes[i]] == 1
            continue
        for j, other in enumerate(found[:i]):
            alone = other is None or other.kind in ("special", "bytes")
            assert (classes[i] == classes[j]) == (not alone and normal(surface) == normal(other))


def test_each_further_normalizer_merges_more(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    found = token_surfaces(tokenizers["byte-level"])
    ladder = [(), (case_folding,), (case_folding, accent_stripping), (case_folding, accent_stripping, porter_stem)]
    sizes = [coarse_graining(found, *normalizers).max() + 1 for normalizers in ladder]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[1] < sizes[0] == len(found)


def test_position_in_the_word_keeps_tokens_apart() -> None:
    words = [Surface("An", True, "word"), Surface("an", False, "continuation"), Surface("an", True, "word"), None]
    assert coarse_graining(words, case_folding).tolist() == [0, 1, 0, 2]


def test_a_vocabulary_size_that_is_too_small_is_refused() -> None:
    with pytest.raises(ArgumentError):
        coarse_graining([None, None], size=1)
