"""Dense retrievers as rows of a study: models of sentence-transformers, searched exhaustively.

Letters: q queries, n documents, d dimensions, k results.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import load_file_path

from vocable.encoding.hub import locate
from vocable.indexes.ranking import Ranking
from vocable.torch_models.opening import open_model

# Beginnings of a dense model's name, and the pooling of a checkpoint that is not of sentence-transformers.
POOLINGS = {"dense:": "mean", "dense-cls:": "cls", "dense-dot:": "mean"}
INNER_PRODUCT = "dense-dot:"  # of models whose files name no similarity, but which are trained by inner products
BLOCK = 1 << 14  # documents that are scored at once
TOKENS_READ = 512  # of a text, at most: as of Geng and Yang 2026, section 5.3


def kind_of(model: str) -> str:
    """Return the beginning of a dense model's name, as "dense:"; "" for other models."""
    return next((kind for kind in POOLINGS if model.startswith(kind)), "")


def load_retriever(model: str) -> SentenceTransformer:
    """Load "dense:NAME".

    A checkpoint without the settings of sentence-transformers is compared by inner products, as Contriever and
    coCondenser are trained, and so is "dense-dot:NAME", as TAS-B is trained.
    """
    kind = kind_of(model)
    name = model.removeprefix(kind)
    retriever = open_model(name, SentenceTransformer)
    if load_file_path(locate(name), "modules.json") is None:
        retriever[1] = Pooling(retriever.get_embedding_dimension(), POOLINGS[kind])
        retriever.similarity_fn_name = "dot"
    if kind == INNER_PRODUCT:
        retriever.similarity_fn_name = "dot"
    retriever.max_seq_length = min(retriever.max_seq_length or TOKENS_READ, TOKENS_READ)
    return retriever


def rank(
    model: SentenceTransformer,
    queries: np.ndarray,
    parts: Iterable[tuple[np.ndarray, np.ndarray]],
    k: int,
    ids: list[str],
) -> Ranking:
    """Return the k documents that are most similar to each of `queries` [q, d], by the model's similarity.

    A part of the documents is the rows [n] and the vectors [n, d]; `ids` are the names of all rows.
    """
    sought = torch.from_numpy(queries.astype(np.float32)).to(model.device)
    scores = sought.new_full((len(queries), k), -torch.inf)
    rows = torch.full(scores.shape, -1, device=model.device)
    for numbers, vectors in parts:
        for start in range(0, len(numbers), BLOCK):
            block = torch.from_numpy(vectors[start : start + BLOCK].astype(np.float32)).to(model.device)
            new = torch.from_numpy(numbers[start : start + BLOCK]).to(rows).expand(len(queries), -1)
            scores, places = torch.cat([scores, model.similarity(sought, block)], dim=1).topk(k)
            rows = torch.cat([rows, new], dim=1).gather(1, places)
    kept = rows.cpu().numpy().astype(np.int32)
    return Ranking(kept, np.where(kept < 0, 0, scores.cpu().numpy()).astype(np.float32), ids)
