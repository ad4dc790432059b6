"""Rankings of the judged queries of a dataset, by an index alone."""

from __future__ import annotations

from scipy.sparse import csr_array

from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import Encoded
from vocable.evaluation.plans import Judged
from vocable.evaluation.quality import DEFAULT_DEPTH
from vocable.evaluation.retrievers import DatasetRetriever, SpaceIndex, judged_queries, sparse_index
from vocable.indexes.ranking import Ranking


def index_ranking(
    index: SpaceIndex, dataset: Dataset, k: int = DEFAULT_DEPTH, vectors: csr_array | None = None
) -> Ranking:
    """The k best documents [q, k] of an index, which knows its queries, or takes their `vectors` [q, v]."""
    retriever = DatasetRetriever("toy", dataset, {"sparse": index})
    return Judged(retriever, judged_queries(dataset, vectors), dataset, ["nDCG@10"]).search({"sparse": 1.0}, k)


def sparse_ranking(encoded: Encoded, k: int = DEFAULT_DEPTH) -> Ranking:
    """The k best documents [q, k] by sparse vectors."""
    return index_ranking(sparse_index(encoded), encoded.dataset, k, encoded.queries)
