"""Reranking: a cross encoder reads a query together with each of the first hits, and its scores order them anew.

It sees both texts at once (Nogueira and Cho 2019), while a vector is made of one text alone. It costs a forward pass
for each hit.

Letters: q queries, k results, p texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from vocable.core.cancelling import stop_if_cancelled
from vocable.core.progress import track
from vocable.encoding.hub import check_model
from vocable.encoding.runtimes import torch_library
from vocable.errors import ModelError, require_extra
from vocable.indexes.ranking import Ranking, falling
from vocable.options import RerankOptions, checked

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

TextsOf: TypeAlias = Callable[[int, Sequence[str]], Sequence[str]]  # number of a query, ids of documents -> texts


class Reranker(Protocol):
    """A model that scores a query together with texts."""

    def predict(self, pairs: list[tuple[str, str]], *, batch_size: int, show_progress_bar: bool) -> Any:
        """Return the score of each pair of a query and a text, float [p], as `CrossEncoder.predict` does."""


@lru_cache(maxsize=2)
def load_reranker(name: str, device: str | None = None) -> Reranker:
    """Load a cross encoder with one label; the last two stay loaded.

    Raises:
        ModelError: no such model, it is damaged, or not such a cross encoder.
        MissingExtraError: PyTorch is not installed.
    """
    check_model(name)
    library = require_extra("sentence_transformers", "train")
    torch = torch_library()
    try:
        kind = torch.model_kind(name)
    except ModelError as error:
        raise ModelError(f"{name} is not a cross encoder: {str(error).removeprefix(f'{name}: ')}") from error
    if kind != "cross":
        raise ModelError(f"{name} is not a cross encoder: its configuration says {kind}")
    model: CrossEncoder = torch.open_model(name, library.CrossEncoder, device)
    if model.num_labels != 1:
        raise ModelError(f"{name}: a cross encoder with {model.num_labels} labels gives a hit no single score")
    return cast(Reranker, model)


@checked
def reranked(
    ranking: Ranking,
    queries: Sequence[str],
    texts_of: TextsOf,
    *,
    device: str | None = None,
    **options: Unpack[RerankOptions],
) -> Ranking:
    """Return the ranking of q `queries` with its first hits in the order of a cross encoder's scores.

    The other hits follow in their order, with scores moved below; `first_scores` has the scores of the given ranking,
    and `rerank_ms` the milliseconds of each query, without the loading of the model. `texts_of` reads texts of hits.
    """
    model = load_reranker(options["rerank"] or "", device)
    depth, size, limit = options["rerank_depth"], options["rerank_batch_size"], options["rerank_ms"]
    rows, scores, first = ranking.rows.copy(), ranking.scores.copy(), ranking.scores.copy()
    times = np.zeros(len(ranking))
    for number, query in enumerate(track(queries, "rerank")):
        started = perf_counter()
        names = [identifier for identifier, _ in ranking.hits(number)]
        # New scores of the first s hits [s]: s is less than `depth` if hits or time are lacking.
        new = pair_scores(model, query, texts_of(number, names[:depth]), size, limit)
        order = sorted(range(len(new)), key=lambda place: (-new[place], names[place]))
        # Sort the first s hits; the others stay in their places.
        rows[number, : len(new)] = rows[number, order]
        first[number, : len(new)] = first[number, order]
        scores[number, : len(names)] = [*new[order], *_moved_below(new, scores[number, len(new) : len(names)])]
        times[number] = 1000 * (perf_counter() - started)
    return replace(ranking, rows=rows, scores=scores, first_scores=first, rerank_ms=times)


def _moved_below(new: NDArray[np.float32], others: NDArray[np.float32]) -> list[np.float32]:
    """Return the scores of the other hits, moved by one number so that all are below the scores `new`."""
    below = float(np.nextafter(new.min(), np.float32(-np.inf), dtype=np.float32)) if len(new) else 0.0
    return falling([below + float(score - others[0]) for score in others])


def pair_scores(
    model: Reranker, query: str, texts: Sequence[str], batch_size: int, limit: float | None = None
) -> NDArray[np.float32]:
    """Return the scores of a query with p texts, as `CrossEncoder.predict` gives them.

    A batch after the first starts only if, at the speed of the previous batch, it would finish within `limit` ms.
    Returns scores of the texts scored so far.
    """
    predict = partial(model.predict, batch_size=batch_size, show_progress_bar=False)
    pairs, begun = [(query, text) for text in texts], perf_counter()
    step = batch_size if limit is not None else max(1, len(pairs))  # the model sorts all texts by length
    batches, last_seconds = [np.empty(0, dtype=np.float32)], 0.0
    for start in range(0, len(pairs), step):
        stop_if_cancelled()
        batch_begun = perf_counter()
        if limit is not None and start and 1000 * (batch_begun - begun + last_seconds) > limit:
            break
        batches.append(predict(pairs[start : start + step]))
        last_seconds = perf_counter() - batch_begun
    scores = np.concatenate(batches, dtype=np.float32)
    if not np.isfinite(scores).all():
        raise ModelError(f"the cross encoder gives scores that are not finite, for one to query {query[:40]!r}")
    return scores
