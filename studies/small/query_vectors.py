"""Train the table of `vocable-mini-dense` in which queries are looked up: a vector of each token.

The sum of the rows of a query's tokens, at length 1, learns the vector that the dense model gives the query. The loss
of a batch is 1 - cosine, and the KL divergence between the batch's similarities by the model and by the table. A row
starts as the model's vector of the token alone, shorter for a frequent token, so that a token without queries means
something, too.

    python -m studies.small.query_vectors SOURCES... --work FOLDER -o query_vectors.safetensors

FOLDER keeps the encoded queries for a call with the same sources and seed, also after a kill.

Letters: n queries, q queries of a batch, v tokens, d dimensions.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn
from torch.nn.functional import kl_div, normalize

from vocable.core.progress import track
from vocable.core.storage import replacing
from vocable.data.read import read_examples
from vocable.encoding.dense_models import DenseGraph, query_vectors
from vocable.encoding.graph_sessions import padded
from vocable.encoding.hub import BUILT_IN_DENSE, locate
from vocable.encoding.lookup import VectorTable

PART, BATCH, TOKENS_ALONE, WORDS = 4096, 512, 128, 60  # queries of a file, of a step; tokens at once; words of a query
HELD_OUT = 2048  # queries that are not learned, for the printed cosine
LEARNING_RATE, SCALE, KL_WEIGHT = 3e-3, 20.0, 0.3
COMMON, LENGTH = 1e-3, 0.3  # a token of frequency p starts at the length LENGTH * COMMON / (COMMON + p)


def queries_of(sources: Sequence[str], count: int, seed: int) -> list[str]:
    """Return a sample of the distinct queries of all sources."""
    distinct = dict.fromkeys(pair.query.strip() for source in sources for pair in read_examples(source))
    queries = [" ".join(query.split()[:WORDS]) for query in distinct if query]
    random.Random(seed).shuffle(queries)
    return queries[:count]


def stored(path: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Return the vectors in a file, and make them unless it is there."""
    if not path.exists():
        with replacing(path) as file:
            np.save(file, make().astype(np.float16))
    vectors: np.ndarray = np.load(path)
    return vectors


def encoded(graph: DenseGraph, queries: Sequence[str], work: Path) -> Tensor:
    """Return the unit vectors of queries [n, d], stored part by part in a folder."""
    parts = [
        stored(work / f"{start:08d}.npy", partial(query_vectors, graph, queries[start : start + PART]))
        for start in track(range(0, len(queries), PART), "encode")
    ]
    return normalize(torch.from_numpy(np.concatenate(parts)).float(), dim=1)


def alone(graph: DenseGraph) -> np.ndarray:
    """Return the vectors of all tokens, each in a text of its own, [v, d]; zeros for special tokens."""
    tokenizer, session = graph.tokenization.tokenizer, graph.session.result()
    begin, end = tokenizer.encode("").ids
    parts = list[np.ndarray]()
    for start in track(range(0, graph.settings.tokens, TOKENS_ALONE), "tokens"):
        ids = range(start, min(start + TOKENS_ALONE, graph.settings.tokens))
        parts += session.run(padded([[begin, i, end] for i in ids], graph.settings.padding, session.inputs))
    vectors = np.concatenate(parts)
    vectors[[i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special]] = 0
    return vectors


def first_rows(vectors: Tensor, counts: Tensor) -> Tensor:
    """Return the rows [v, d] to begin with, from vectors of single tokens, less their mean, and counts in queries."""
    shares = counts / counts.sum()
    centred = (vectors - shares @ vectors) * vectors.any(dim=1, keepdim=True)
    return centred * (LENGTH * COMMON / (COMMON + shares))[:, None]


def looked_up(rows: nn.EmbeddingBag, queries: Sequence[Sequence[int]]) -> Tensor:
    """Return the sums of the rows of each query's tokens, at length 1, [q, d]."""
    starts = torch.tensor([0, *map(len, queries[:-1])]).cumsum(0)
    return normalize(rows(torch.tensor([token for query in queries for token in query]), starts), dim=1)


def loss(found: Tensor, vectors: Tensor) -> Tensor:
    """Return 1 - cosine of q queries and their vectors [q, d], and the divergence of their similarities."""
    of_table, of_model = ((SCALE * queries @ vectors.T).log_softmax(dim=1) for queries in (found, vectors))
    divergence = kl_div(of_table, of_model, log_target=True, reduction="batchmean")
    return (1 - (found * vectors).sum(dim=1)).mean() + KL_WEIGHT * divergence


def fit(first: Tensor, queries: Sequence[Sequence[int]], vectors: Tensor, passes: int, seed: int) -> Tensor:
    """Return rows [v, d] that learned the vectors of n queries [n, d], from their first values."""
    rows = nn.EmbeddingBag.from_pretrained(first.clone(), freeze=False, mode="sum", sparse=True)
    optimizer = torch.optim.SparseAdam(rows.parameters(), lr=LEARNING_RATE)
    of_pass, generator = -(-len(queries) // BATCH), np.random.default_rng(seed)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (passes * of_pass))
    for _ in range(passes):
        for batch in track(np.array_split(generator.permutation(len(queries)), of_pass), "fit"):
            step_loss = loss(looked_up(rows, [queries[number] for number in batch]), vectors[batch])
            optimizer.zero_grad()
            step_loss.backward()
            optimizer.step()
            schedule.step()
    return rows.weight.detach() * first.any(dim=1, keepdim=True)


def main(words: Sequence[str] | None = None) -> None:
    """Train a table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sources", nargs="+", help="training pairs")
    parser.add_argument("--queries", type=int, default=69_632, help="at most so many of the pairs")
    parser.add_argument("--longer", nargs="*", default=[], help="sources of longer queries, such as cloze:texts.jsonl")
    parser.add_argument("--longer-queries", type=int, default=8_192, help="at most so many of these")
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, required=True, help="folder of the encoded queries")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(words)
    graph = DenseGraph(locate(BUILT_IN_DENSE))
    texts = queries_of(given.sources, given.queries, given.seed)
    texts += queries_of(given.longer, given.longer_queries, given.seed)
    given.work.mkdir(parents=True, exist_ok=True)
    vectors, tokens = encoded(graph, texts, given.work), graph.tokenization.ids(texts)
    single = torch.from_numpy(stored(given.work / "tokens.npy", lambda: alone(graph))).float()
    # A text without a token has nothing to learn.
    kept = [number for number, query in enumerate(tokens) if query]
    vectors, tokens = vectors[kept], [tokens[number] for number in kept]
    counts = torch.bincount(torch.tensor([token for query in tokens for token in query]), minlength=len(single))
    rows = fit(
        first_rows(normalize(single, dim=1), counts.float()),
        tokens[HELD_OUT:],
        vectors[HELD_OUT:],
        given.passes,
        given.seed,
    )
    table = VectorTable.of(rows.numpy())
    cosines = (table.looked_up(tokens[:HELD_OUT]) * vectors[:HELD_OUT].numpy()).sum(axis=1)
    print(f"{len(tokens) - HELD_OUT:,} queries; mean cosine of {len(cosines):,} others {cosines.mean():.4f}")
    save_file(table._asdict(), given.output)


if __name__ == "__main__":
    main()
