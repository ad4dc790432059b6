"""Vectors restricted to some terms: terms of the text itself, stop words, or a random half of all terms.

Mackenzie et al. 2023, whom Polyakov et al. 2026 quote in section 2, train models on such vocabularies. Here the vectors
of a trained model lose the other terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from bm25s.stopwords import STOPWORDS_EN
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.encoding.terms import expansion_entries, input_terms, terms
from vocable.encoding.vectors import selected

Restriction = Literal["own terms", "stop words", "half of the terms"]
MARKS = "▁Ġ "  # that tokenizers put before a word
SEED = 0  # of the random half


def restricted(model: SparseEncoder, only: Restriction, matrix: csr_array, texts: Sequence[str]) -> csr_array:
    """Return the vectors [m, v] of these texts without all other terms."""
    if only == "own terms":
        return selected(matrix, ~expansion_entries(matrix, input_terms(model, texts)))
    names = terms(model)
    kept = np.zeros(len(names), dtype=bool)
    if only == "stop words":
        kept[:] = [name.lstrip(MARKS).lower() in STOPWORDS_EN for name in names]
    else:
        kept[np.random.default_rng(SEED).permutation(len(names))[: len(names) // 2]] = True
    return selected(matrix, kept[matrix.indices])
