"""Embed texts and cluster them by k-means, for test sets, pseudo-classes and the analysis of logits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix

from vocable.data.texts import as_texts
from vocable.encoding.torch_library import torch_library
from vocable.errors import ArgumentError, DataError, require_extra
from vocable.language.words import words

LEXICAL = "lexical"
FULL_BATCH = 20_000  # more texts are clustered by mini-batch k-means
STARTS = 4  # runs of k-means; the best is kept

ClusteredVectors: TypeAlias = NDArray[np.floating[Any]] | csr_array


def text_embeddings(texts: Sequence[str], model: str = LEXICAL, device: str | None = None) -> ClusteredVectors:
    """Return unit vectors [n, d] of n texts.

    `model` is a dense model of sentence-transformers: a folder, `package:NAME/FOLDER` or a Hub id. With "lexical", the
    vectors are tf-idf weights of the texts' words, without a model. The model runs on `device`.
    """
    texts = as_texts(texts)
    if model == LEXICAL:
        vectorizer = require_extra("sklearn.feature_extraction.text", "train").TfidfVectorizer

        analyzer = partial(words, letters=True)
        try:
            return csr_array(vectorizer(analyzer=analyzer, sublinear_tf=True).fit_transform(texts))
        except ValueError as error:  # an empty vocabulary
            raise DataError("no text has a word to cluster by") from error
    from sentence_transformers import SentenceTransformer

    encoder = torch_library().open_model(model, partial(SentenceTransformer, model_kwargs={"dtype": "float32"}), device)
    vectors = encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True)
    return cast(ClusteredVectors, vectors)


def cluster(embeddings: ClusteredVectors, count: int, seed: int = 0) -> NDArray[np.int64]:
    """Return the cluster of each row of `embeddings` [n, d] by k-means, int64 [n] below `count`.

    More than 20,000 rows are clustered by mini-batch k-means.
    """
    require_extra("sklearn", "train")
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    n = embeddings.shape[0]
    if not 2 <= count <= n:
        raise ArgumentError(f"clusters must be between 2 and the {n:,} different texts, not {count:,}")
    settings = {"n_clusters": count, "random_state": seed, "n_init": STARTS}
    kmeans = KMeans(**settings) if n <= FULL_BATCH else MiniBatchKMeans(**settings, batch_size=max(1024, 3 * count))
    rows = csr_matrix(embeddings) if isinstance(embeddings, csr_array) else embeddings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal rows: fewer clusters than requested
        labels: NDArray[np.int64] = kmeans.fit_predict(rows).astype(np.int64)
    return labels
