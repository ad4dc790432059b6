"""Measure pruning by wackiness: quality, cost and W-AUC, compared with pruning the same number of lightest weights.

    python benchmarks/wacky_pruning.py vocable-mini beir:FOLDER... --scores SCORES.parquet

Queries and documents lose the N wackiest terms (by the scores of vocable measure-wackiness) where they are expansions.
As a control, they lose the same number of their lightest entries. W-AUC is measured with the pruned queries in the
pruned collection.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.encoding.load import load
from vocable.encoding.term_scores import read_wackiest
from vocable.encoding.terms import input_terms, remove_expansions, terms
from vocable.encoding.vectors import selected
from vocable.evaluation.cost import active_terms, flops
from vocable.evaluation.dataset import load_dataset
from vocable.evaluation.encoded import encode_dataset
from vocable.evaluation.measures import JudgedMeasures, parse_measures
from vocable.evaluation.significance import paired_t_test
from vocable.indexes.exact_index import ExactIndex
from vocable.options import check
from vocable.training_options import WackinessOptions
from vocable.wackiness.expansions import expansion_data
from vocable.wackiness.measure import wackiness_of

MEASURE, DEPTH = "nDCG@10", 100
HEADER = ["pruned", "L0_q", "L0_d", "FLOPS", MEASURE, "p", "W-AUC"]


def without_lightest(vectors: csr_array, count: int) -> csr_array:
    """`vectors` [n, v] without their `count` smallest entries."""
    kept = np.ones(vectors.nnz, dtype=bool)
    kept[np.argsort(vectors.data, kind="stable")[:count]] = False
    return selected(vectors, kept)


def prunings(
    queries: csr_array,
    documents: csr_array,
    input_counts: tuple[csr_array, csr_array],
    wackiest: np.ndarray,
    tops: list[int],
) -> Iterator[tuple[str, csr_array, csr_array]]:
    """Yield the name of each pruning, and the queries and documents after it."""
    yield "nothing", queries, documents
    for top in tops:
        columns = wackiest[:top]
        pruned = [remove_expansions(*both, columns) for both in zip((queries, documents), input_counts, strict=True)]
        yield f"{len(columns):,} wackiest", *pruned
        gone = [before.nnz - after.nnz for before, after in zip((queries, documents), pruned, strict=True)]
        yield "as many of the lightest", without_lightest(queries, gone[0]), without_lightest(documents, gone[1])


def measured_rows(model: SparseEncoder, place: str, wackiest: np.ndarray, tops: list[int]) -> list[list[str]]:
    """Return a row of the table for each pruning."""
    encoded = encode_dataset(model, load_dataset(place))
    queries, documents = encoded.dataset.queries, encoded.dataset.documents
    texts = [one.text for one in queries], [one.full for one in documents]
    input_counts = input_terms(model, texts[0]), input_terms(model, texts[1])
    judged = JudgedMeasures(parse_measures([MEASURE]), encoded.dataset)
    full, rows = None, []
    for name, pruned_queries, collection in prunings(encoded.queries, encoded.documents, input_counts, wackiest, tops):
        ranking = ExactIndex(collection, encoded.document_ids).search(pruned_queries, DEPTH)
        values = judged.per_query({query.id: dict(ranking.hits(row)) for row, query in enumerate(queries)})
        p = "" if full is None else f"{paired_t_test(full[MEASURE], values[MEASURE]):.3f}"
        full = full or values
        vectors = {"vectors": collection, "query_vectors": pruned_queries, "ids": encoded.document_ids}
        data = expansion_data(model, *texts, name=name, **vectors)
        w_auc = wackiness_of(data, check(WackinessOptions, {"bootstrap": 0})).record["w_auc"] or float("nan")
        cost = [active_terms(pruned_queries), active_terms(collection), flops(pruned_queries, collection)]
        quality = judged.aggregated(values)[MEASURE]
        rows.append([name, *(f"{value:.2f}" for value in cost), f"{quality:.3f}", p, f"{w_auc:.3f}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--scores", required=True, help="what vocable measure-wackiness wrote for this model")
    parser.add_argument("--tops", type=int, nargs="+", default=[100, 1000, 1_000_000], help="how many terms to remove")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    model = load(options.model, device="cpu")
    wackiest = read_wackiest(options.scores, terms(model))
    results: dict[str, list[list[str]]] = {}
    for place in options.datasets:
        rows = results[place] = measured_rows(model, place, wackiest, options.tops)
        if not options.json:
            print(f"\n{place}")
            for row in [HEADER, *rows]:
                print(f"{row[0]:26}" + "".join(f"{cell:>10}" for cell in row[1:]))
    if options.json:
        print(json.dumps({"header": HEADER, "datasets": results}, indent=1))


if __name__ == "__main__":
    main()
