"""Texts in groups of similar meaning: k-means over the embeddings of a dense model, or over their words."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix

from vocable.encoder.load import locate, open_whole
from vocable.errors import ArgumentError, DataError, check_texts

LEXICAL = "lexical"
EXACT = 20_000  # texts up to which all of them are looked at in every step of k-means
STARTS = 4  # of which the best is taken

Embeddings: TypeAlias = NDArray[np.floating[Any]] | csr_array


def text_embeddings(texts: Sequence[str], model: str = LEXICAL) -> Embeddings:
    """Unit vectors [n, d] of texts.

    Args:
        texts: n of them.
        model: a sentence-transformers dense model (a folder, `package:NAME/FOLDER` or a Hub id), or "lexical" for the
            texts' words, weighted by tf-idf, which needs no model.

    Raises:
        ModelError: the model cannot be read.
        DataError: not one text has a word.
    """
    check_texts(texts)
    if model == LEXICAL:
        from sklearn.feature_extraction.text import TfidfVectorizer

        try:
            return csr_array(TfidfVectorizer(token_pattern=r"(?u)\b\w+\b", sublinear_tf=True).fit_transform(texts))
        except ValueError as error:  # an empty vocabulary
            raise DataError("there is no text with a word to cluster") from error
    from sentence_transformers import SentenceTransformer

    place = locate(model)
    encoder = open_whole(model, lambda: SentenceTransformer(place, model_kwargs={"dtype": "float32"}))
    found = encoder.encode(list(texts), normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True)
    return cast(Embeddings, found)


def cluster(embeddings: Embeddings, count: int, seed: int = 0) -> NDArray[np.int64]:
    """The cluster of each row of `embeddings` [n, d], int64 [n] below `count`, found by k-means.

    Of more than 20,000 rows a batch is looked at in each step.

    Raises:
        ArgumentError: fewer clusters than 2, or more than rows.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    n = embeddings.shape[0]
    if not 2 <= count <= n:
        raise ArgumentError(f"the number of clusters lies between 2 and {n:,}, the different texts, not {count:,}")
    settings = {"n_clusters": count, "random_state": seed, "n_init": STARTS}
    kmeans = KMeans(**settings) if n <= EXACT else MiniBatchKMeans(**settings, batch_size=max(1024, 3 * count))
    rows = csr_matrix(embeddings) if isinstance(embeddings, csr_array) else embeddings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rows that are alike: there are fewer clusters than asked
        labels: NDArray[np.int64] = kmeans.fit_predict(rows).astype(np.int64)
    return labels
