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
from vocable.encoding.cross_graph import CrossGraph, is_cross_graph
from vocable.encoding.hub import check_files, check_model
from vocable.encoding.torch_library import torch_library
from vocable.errors import ModelError, require_extra
from vocable.indexes.ranking import Ranking, falling
from vocable.options import RerankOptions, check, checked

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

RERANK_DEPTH = 100  # hits of an evaluation, and of a search that has the time
RERANK_BUDGET = 1000.0  # milliseconds of an answer's reranking, if neither its depth nor its time is given
FIRST_BATCH = 4  # hits that a limited reranking scores first, to measure its speed; no later batch has fewer

TextsOf: TypeAlias = Callable[[int, Sequence[str]], Sequence[str]]  # number of a query, ids of documents -> texts


class Reranker(Protocol):
    """A model that scores a query together with texts."""

    def predict(self, pairs: list[tuple[str, str]], *, batch_size: int, show_progress_bar: bool) -> Any:
        """Return the score of each pair of a query and a text, float [p], as `CrossEncoder.predict` does."""


@lru_cache(maxsize=2)
def load_reranker(name: str, device: str | None = None) -> Reranker:
    """Load a cross encoder with one label, or its graph, which computes on a CPU; the last two stay loaded.

    Raises:
        ModelError: no such model, it is damaged, or not such a cross encoder.
        MissingExtraError: PyTorch is not installed.
    """
    if is_cross_graph(name):
        check_files(name)
        return CrossGraph(name)
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
    size, limit = options["rerank_batch_size"], options["rerank_ms"]
    depth = options["rerank_depth"] or RERANK_DEPTH
    rows, scores, first = ranking.rows.copy(), ranking.scores.copy(), ranking.scores.copy()
    times, counts = np.zeros(len(ranking)), np.zeros(len(ranking), dtype=np.int32)
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
        times[number], counts[number] = 1000 * (perf_counter() - started), len(new)
    return replace(ranking, rows=rows, scores=scores, first_scores=first, rerank_ms=times, reranked=counts)


def within_budget(options: RerankOptions) -> RerankOptions:
    """Return the options of a reranking that somebody waits for: `RERANK_BUDGET`, unless depth or time are given."""
    if options["rerank"] is None or options["rerank_depth"] is not None or options["rerank_ms"] is not None:
        return options
    return check(RerankOptions, {**options, "rerank_ms": RERANK_BUDGET})


def _moved_below(new: NDArray[np.float32], others: NDArray[np.float32]) -> list[np.float32]:
    """Return the scores of the other hits, moved by one number so that all are below the scores `new`."""
    below = float(np.nextafter(new.min(), np.float32(-np.inf), dtype=np.float32)) if len(new) else 0.0
    return falling([below + float(score - others[0]) for score in others])


def pair_scores(
    model: Reranker, query: str, texts: Sequence[str], batch_size: int, limit: float | None = None
) -> NDArray[np.float32]:
    """Return the scores of a query with p texts, as `CrossEncoder.predict` gives them.

    Within `limit` ms, `FIRST_BATCH` texts are scored first. A later batch has at most `batch_size` texts, and
    only texts that finish in time at the speed so far. Returns scores of the texts scored so far.
    """
    predict = partial(model.predict, batch_size=batch_size, show_progress_bar=False)
    pairs, begun = [(query, text) for text in texts], perf_counter()
    batches, done = [np.empty(0, dtype=np.float32)], 0
    size = len(pairs) if limit is None else min(FIRST_BATCH, batch_size)  # the model sorts all texts by length
    while done < len(pairs) and size:
        stop_if_cancelled()
        batches.append(predict(pairs[done : done + size]))
        done += size
        if limit is not None:
            seconds = perf_counter() - begun
            in_time = int((limit / 1000 - seconds) * done / max(seconds, 1e-9))
            size = min(in_time, batch_size) if in_time >= min(FIRST_BATCH, len(pairs) - done) else 0
    scores = np.concatenate(batches, dtype=np.float32)
    if not np.isfinite(scores).all():
        raise ModelError(f"the cross encoder gives scores that are not finite, for one to query {query[:40]!r}")
    return scores
