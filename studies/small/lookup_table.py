"""Train the weights of looked-up queries, the table of `vocable-mini-doc`, while the documents stay as they are.

A token t weighs m_t^p exp(a . e_t): m_t is its mean weight in encoded queries, and e_t its input embedding at length 1.
The 385 numbers p and a learn the scores of teachers for each query's best documents: the mean of the sparse model with
encoded queries, a dense model and BM25, each standardized. MEANS is the table of `vocable make-inference-free
vocable-mini --weights mean`.

    python -m studies.small.lookup_table SOURCES... --means MEANS -o query_weights.safetensors

Letters: q queries, k documents of a query, v tokens, d size of an embedding, z terms that queries and documents share.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array
from torch import Tensor, nn

from vocable.core.progress import track
from vocable.data.read import read_examples
from vocable.encoding.dense_models import document_vectors, load_dense, query_vectors
from vocable.encoding.hub import BUILT_IN_DENSE, BUILT_IN_MODEL, BY_LOOKUP
from vocable.encoding.load import load, load_encoder
from vocable.encoding.text_encoder import TextEncoder
from vocable.indexes.bm25 import BM25Index
from vocable.objectives.losses import ensemble, kl

READ, DOCUMENTS, QUERIES, WORDS = 20_000, 1200, 800, 100  # pairs of a source, of which some are drawn; words of a text
CANDIDATES, QUERIES_OF_A_BATCH, BATCHES_OF_A_STEP = 64, 50, 4
TEACHER_TEMPERATURE, DECAY = 0.3, 1e-3


class Shared(NamedTuple):
    """The terms that queries share with their candidates, and the teachers' scores."""

    cells: Tensor  # [z] int64, query times k plus candidate
    tokens: Tensor  # [z] int64
    factors: Tensor  # [z], the document's weight times the token's IDF to the model's power
    scores: Tensor  # [q, k], of the teachers


class Table(nn.Module):
    """Weights of v tokens: their weights so far [v], their embeddings [v, d], and the numbers to learn."""

    def __init__(self, weights: Tensor, embeddings: Tensor) -> None:
        super().__init__()
        self.logs, self.embeddings = weights.clamp(min=1e-6).log(), nn.functional.normalize(embeddings, dim=1)
        self.direction = nn.Parameter(torch.zeros(embeddings.shape[1]))
        self.power, self.temperature = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(4.0).log())

    def log_weights(self) -> Tensor:
        """Return the logarithms of the weights [v]."""
        return self.power * self.logs + self.embeddings @ self.direction

    def loss(self, shared: Shared) -> Tensor:
        """Return KL(teachers || scores by the table), and a penalty on long directions."""
        products = self.log_weights()[shared.tokens].exp() * shared.factors
        scores = products.new_zeros(shared.scores.numel()).index_add(0, shared.cells, products)
        logits = scores.view(shared.scores.shape) / self.temperature.exp()
        taught = kl(logits, shared.scores, teacher_temperature=TEACHER_TEMPERATURE)
        return taught + DECAY * self.direction.square().sum()


def fit(table: Table, batches: Sequence[Shared], steps: int, seed: int) -> None:
    """Train a table with Adam."""
    generator, rates = random.Random(seed), {table.direction: 0.01, table.power: 0.02, table.temperature: 0.02}
    optimizer = torch.optim.Adam([{"params": [parameter], "lr": rate} for parameter, rate in rates.items()])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, 2 * (1 - step / steps)))
    for _ in track(range(steps), "fit"):
        loss = torch.stack([table.loss(batch) for batch in generator.choices(batches, k=BATCHES_OF_A_STEP)]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def shared_terms(queries: csr_array, documents: csr_array, best: Tensor, scores: Tensor) -> Shared:
    """Return the terms that each of q queries [q, v], weighed by IDFs, shares with its `best` documents [q, k]."""
    cells, tokens, factors = [], [], []
    for number, rows in enumerate(best.numpy()):
        terms = queries.indices[queries.indptr[number] : queries.indptr[number + 1]]
        shared = (documents[rows][:, terms] * queries.data[queries.indptr[number] : queries.indptr[number + 1]]).tocoo()
        cells.append(shared.row + number * len(rows))
        tokens.append(terms[shared.col])
        factors.append(shared.data)
    columns = [torch.from_numpy(np.concatenate(column)) for column in (cells, tokens, factors)]
    return Shared(columns[0].long(), columns[1].long(), columns[2].float(), scores)


def batches_of(source: str, seed: int) -> list[Shared]:
    """Encode a sample of the pairs of a source, and return its queries with their best documents by the teachers."""
    pairs = list(islice(read_examples(source), READ))
    random.Random(seed).shuffle(pairs)
    texts = list(dict.fromkeys(" ".join(pair.positive.split()[:WORDS]) for pair in pairs[:DOCUMENTS]))
    queries = [pair.query for pair in pairs[:QUERIES]]
    sparse, lookup, dense = load_encoder(BUILT_IN_MODEL), load_encoder(BY_LOOKUP), load_dense(BUILT_IN_DENSE)
    words, embedded = BM25Index(texts), document_vectors(dense, texts)
    documents = TextEncoder(sparse, "document").encode(texts)
    encoder = TextEncoder(sparse, "query")
    encoder.know_collection(np.bincount(documents.indices, minlength=documents.shape[1]), len(texts))
    encoded, tokens = encoder.encode(queries), TextEncoder(lookup, "query").encode(queries)
    tokens = encoder.weighed(csr_array((np.ones_like(tokens.data), tokens.indices, tokens.indptr), shape=tokens.shape))
    batches = []
    for start in range(0, len(queries), QUERIES_OF_A_BATCH):
        part = slice(start, start + QUERIES_OF_A_BATCH)
        by_words = (words.query_vectors(queries[part]) @ words.get().T).toarray()
        cosines = query_vectors(dense, queries[part]) @ embedded.T
        taught = [torch.from_numpy(each) for each in ((encoded[part] @ documents.T).toarray(), cosines, by_words)]
        best = ensemble(taught).topk(min(CANDIDATES, len(texts))).indices
        scores = ensemble([each.gather(1, best) for each in taught])
        batches.append(shared_terms(tokens[part], documents, best, scores))
    return batches


def main(words: Sequence[str] | None = None) -> None:
    """Train a table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sources", nargs="+", help="training pairs, one source each")
    parser.add_argument("--means", type=Path, required=True, help="table of mean weights")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3, help="tables whose mean is written, each of another sample")
    given = parser.parse_args(words)
    start = load_file(given.means)["weights"].astype(np.float32)
    model: Any = load(BUILT_IN_MODEL, runtime="torch")
    embeddings = model[0].auto_model.get_input_embeddings().weight
    logs = []
    for seed in range(given.seeds):
        table = Table(torch.from_numpy(start), embeddings.detach().float())
        fit(table, [batch for source in given.sources for batch in batches_of(source, seed)], given.steps, seed)
        weights = table.log_weights().detach()
        logs.append(weights - weights.median())  # the scale does not matter
        print(f"seed {seed}: power {table.power.item():.2f}, direction of length {table.direction.norm().item():.2f}")
    mean = torch.stack(logs).mean(dim=0).exp().numpy() * np.median(start)
    save_file({"weights": np.where(start > 0, mean, 0).astype(np.float16)}, given.output)


if __name__ == "__main__":
    main()
