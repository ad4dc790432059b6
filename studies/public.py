"""Public figures of checkpoints that the papers measure, too, beside which a study shows its own.

Pyserini and Anserini publish recall on TREC DL at grades 2 and 3, as the track counts it, and nDCG@10 at all grades
(Pyserini's reproductions of msmarco-v1-passage; Anserini's regressions for SPLADE-v3). A paper whose recall is far from
theirs, while its nDCG@10 is theirs, counts other grades. FLOPS is that of the card of OpenSearch's model: a mean over
the 13 collections of BEIR.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

NDCG, RECALL = "public {year} nDCG@10", "public {year} R@1k, grades 2 and 3"  # names of columns
FLOPS = "public FLOPS"

# fmt: off
FIGURES = {  # checkpoint: nDCG@10 and R@1000 at grade 2 on DL 2019, the same on DL 2020
    "bm25": (0.5058, 0.7501, 0.4796, 0.7863),  # k1 = 0.9, b = 0.4
    "bm25+rm3": (0.5216, 0.8136, 0.4896, 0.8236),
    "naver/splade-cocondenser-selfdistil": (0.7358, 0.8761, 0.7282, 0.9024),
    "naver/splade-cocondenser-ensembledistil": (0.7308, 0.8728, 0.7197, 0.8998),
    "naver/splade-v3": (0.7264, 0.8791, 0.7522, 0.9039),
}
# fmt: on
FLOPS_OF_CARDS = {"opensearch-project/opensearch-neural-sparse-encoding-doc-v2-distill": 1.8}


def public_figures(model: str, years: Iterable[str], *, times: float = 1) -> Mapping[str, float]:
    """Return the public figures of a checkpoint by column, for "DL-19" and "DL-20", in units of 1 / `times`.

    >>> public_figures("naver/splade-v3", ["DL-20"])
    {'public DL-20 nDCG@10': 0.7522, 'public DL-20 R@1k, grades 2 and 3': 0.9039}
    """
    figures: dict[str, float] = {}
    if model in FIGURES:
        by_year = {"DL-19": FIGURES[model][:2], "DL-20": FIGURES[model][2:]}
        for year in years:
            ndcg, recall = by_year[year]
            figures |= {NDCG.format(year=year): times * ndcg, RECALL.format(year=year): times * recall}
    if model in FLOPS_OF_CARDS:
        figures[FLOPS] = FLOPS_OF_CARDS[model]
    return figures
