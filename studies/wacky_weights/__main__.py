"""Polyakov et al. 2026: expansion terms that mean nothing.

    python -m studies.wacky_weights --dry-run
    python -m studies.wacky_weights --only table-1 --override data_folder=DATA -o OUT

The rows are variants of wacky-weights.yaml, which has the published figures, and models that the paper measures.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.beir import (
    BEIR,
    DEV,
    DEV_QUERIES,
    DL_2019,
    DL_2019_QUERIES,
    DL_2020,
    DL_2020_QUERIES,
    MSMARCO_SIZE,
    QUERIES,
    SIZES,
    TRAIN,
    TRAIN_QUERIES,
)
from studies.common import main
from studies.measurements import LEXICAL, example, quality, removal, wackiness
from studies.plan import Exhibit, Figure, Model, Study
from studies.public import NDCG, RECALL, public_figures
from studies.restriction import Restriction
from studies.runs import Change

RECIPE = "wacky-weights"
# fmt: off
OUT_OF_DOMAIN = [
    "arguana", "climate-fever", "dbpedia", "fiqa", "nfcorpus", "quora", "scidocs", "scifact", "trec-covid", "touche",
]
# fmt: on
YEARS = ["DL-19", "DL-20"]
QUALITY = ["MSM MRR@10", "MSM R@1k", "DL-19 nDCG@10", "DL-19 R@1k", "DL-20 nDCG@10", "DL-20 R@1k"]
MODELS = ["BM25+RM3", "SPLADE-v3", "SPLADE-v2"]
TABLE_1 = "BM25+RM3 SPLADE-v3 SPLADE-v2 v2 v2-l1 v2-distilroberta v2-modernbert v2-nq v2-sum v2-cls"
TABLE_2 = "BM25+RM3 v2-l1 SPLADE-v3 v2 SPLADE-v2 v2-sum v2-nq v2-cls v2-modernbert v2-distilroberta"


def published(label: str, model: str, *figures: float) -> Model:
    """Return a model, its special tokens kept as in the paper's table 3, with its published quality and W-AUC."""
    values = {**dict(zip([*QUALITY, "W-AUC", "W-AUC ±"], figures, strict=True)), **public_figures(model, YEARS)}
    change: Change | None = None if model in LEXICAL else "keep special terms"
    return Model(model, values, f"Polyakov et al. 2026, tables 1 and 2, {label}", change)


# A measure by the number of removed terms, without the wackiest and without random ones.
MEASURES = ["RR@10", "R@10", "R@100", "R@1000"]  # in domain, on MS MARCO
SCORED = {"scored": "train"}  # the wackiness of a model's terms is that of table 2
ON_BEIR = [*OUT_OF_DOMAIN, "nDCG@10"]  # each collection, and the mean of all
COLLECTIONS = {**{name: name for name in OUT_OF_DOMAIN}, "nDCG@10": "BEIR"}
LINES = {"the wackiest": "wacky", "random ones": "random", "random ones, low": "low", "random ones, high": "high"}
REMOVALS = {
    f"{name} without {ones}": removal(f"{measure} {value}", dataset, measures=measures, **SCORED)
    for name, measure, dataset, measures in (
        *((name, name, "MSM", MEASURES) for name in MEASURES),
        *((name, "nDCG@10", dataset, ["nDCG@10"]) for name, dataset in COLLECTIONS.items()),
    )
    for ones, value in LINES.items()
}


EXAMPLE = "androgen receptor define"  # that section 2 quotes; the copy of the paper lacks the query of figure 1
RESTRICTED: tuple[Restriction, ...] = ("own terms", "stop words", "half of the terms")


def removal_figure(terms: str, names: list[str]) -> Figure:
    """Return a figure with a panel for each name."""
    return Figure(
        x=[terms] * len(names),
        y=[f"{name} without the wackiest" for name in names],
        dashed=[f"{name} without random ones" for name in names],
        bands=[(f"{name} without random ones, low", f"{name} without random ones, high") for name in names],
        apart=True,
        log_x=True,
    )


STUDY = Study(
    folder=Path(__file__).parent,
    about="Polyakov et al. 2026, expansion terms that mean nothing",
    datasets={"MSM": DEV, "DL-19": DL_2019, "DL-20": DL_2020, "train": TRAIN}
    | {name: BEIR[name] for name in OUT_OF_DOMAIN},
    corpora={"DL-19": "MSM", "DL-20": "MSM", "train": "MSM"},
    groups={"BEIR": " ".join(OUT_OF_DOMAIN)},
    sizes={"MSM": MSMARCO_SIZE, **{name: SIZES[name] for name in OUT_OF_DOMAIN}},
    queries={
        "MSM": DEV_QUERIES,
        "DL-19": DL_2019_QUERIES,
        "DL-20": DL_2020_QUERIES,
        "train": TRAIN_QUERIES,
        **{name: QUERIES[name] for name in OUT_OF_DOMAIN},
    },
    fetch={
        "*nq-triplets.jsonl.gz": "python -m studies.data nq-pairs -o DATA, then "
        "vocable mine MODEL DATA/nq-pairs.jsonl.gz -o DATA/nq-triplets.jsonl.gz",
        "*scored.jsonl.gz": "vocable teacher-scores CROSS-ENCODER "
        "hf:sentence-transformers/msmarco-msmarco-distilbert-base-v3:triplet-50 -o scored.jsonl.gz",
    },
    models={
        "BM25+RM3": published("BM25+RM3", "bm25+rm3", 0.194, 0.877, 0.526, 0.767, 0.509, 0.776, 0.833, 0.057),
        "SPLADE-v3": published("SPLADE-v3", "naver/splade-v3", 0.403, 0.987, 0.722, 0.879, 0.751, 0.844, 0.947, 0.033),
        "SPLADE-v2": published(
            "SPLADE-v2", "naver/splade_v2_max", 0.340, 0.966, 0.683, 0.826, 0.672, 0.755, 0.959, 0.002
        ),
    },
    # W-AUC: 10,000 queries, and 10,000 documents, drawn from MS MARCO's training set. The paper does not name the
    # grades of recall: SPLADE-v3 has the public figure at grade 2 on DL 2019 (.8791), and .06 less on DL 2020 (.9039).
    columns={
        "MSM MRR@10": quality("RR@10", "MSM"),
        "MSM R@1k": quality("R@1000", "MSM"),
        "DL-19 nDCG@10": quality("nDCG@10", "DL-19"),
        "DL-19 R@1k": quality("R(rel=2)@1000", "DL-19"),
        "DL-20 nDCG@10": quality("nDCG@10", "DL-20"),
        "DL-20 R@1k": quality("R@1000", "DL-20"),
        "DL-19 R@1k, all grades": quality("R@1000", "DL-19"),
        **{NDCG.format(year=year): quality("nDCG@10", year) for year in YEARS},
        **{RECALL.format(year=year): quality("R(rel=2)@1000", year) for year in YEARS},
        "W-AUC": wackiness("w_auc", "train", limit=10000),
        "W-AUC ±": wackiness("std", "train", limit=10000),
        "terms, wackiest first": wackiness("places", "train", limit=10000),
        "wackiness of query terms": wackiness("curve", "train", limit=10000),
        "document terms, wackiest first": wackiness("places", "train", limit=10000, role="document"),
        "wackiness of document terms": wackiness("curve", "train", limit=10000, role="document"),
        "the wackiest terms": wackiness("wackiest", "train", limit=10000),
        "removed terms": removal("terms", "MSM", measures=MEASURES, **SCORED),
        "terms removed on BEIR": removal("terms", "BEIR", measures=["nDCG@10"], **SCORED),
        **REMOVALS,
        **{f"{only} {name}": quality(name, "MSM", only=only) for only in RESTRICTED for name in ("RR@10", "L0_d")},
        "terms of the example": example("terms", text=EXAMPLE),
    },
    exhibits={
        "table-1": Exhibit(
            "Quality of SPLADE-v2 with other poolings, penalties, backbones or data",
            rows={RECIPE: "all"},
            models=MODELS,
            columns=QUALITY,
            order=TABLE_1,
            baseline="v2",  # the paper does not name the row against which it marks p
        ),
        "public-figures": Exhibit(
            "Public checkpoints: the paper's columns and those of public figures (not in the paper)",
            models=["BM25+RM3", "SPLADE-v3"],
            columns=[
                "DL-19 nDCG@10",
                NDCG.format(year="DL-19"),
                "DL-19 R@1k",
                "DL-19 R@1k, all grades",
                RECALL.format(year="DL-19"),
                "DL-20 nDCG@10",
                NDCG.format(year="DL-20"),
                "DL-20 R@1k",
                RECALL.format(year="DL-20"),
            ],
            note="RM3 is not the public one: the paper's MRR@10 on MS MARCO is .194, Pyserini's .157",
        ),
        "table-2": Exhibit(
            "Their wackiness; the published ± of v2-nq and v2-distilroberta is below 0.001",
            rows={RECIPE: "all"},
            models=MODELS,
            columns=["W-AUC", "W-AUC ±"],
            order=TABLE_2,
        ),
        "table-3": Exhibit(
            "Their 20 wackiest terms", rows={RECIPE: "v2 v2-l1 v2-nq v2-modernbert"}, columns=["the wackiest terms"]
        ),
        "restricted": Exhibit(
            "With some terms of queries and documents only (section 2, after Mackenzie et al. 2023, who train so)",
            rows={RECIPE: "v2"},
            models=["SPLADE-v3", "SPLADE-v2"],
            columns=["MSM MRR@10", *(f"{only} {name}" for only in RESTRICTED for name in ("RR@10", "L0_d"))],
        ),
        "figure-1": Exhibit(
            f"The terms of a query, {EXAMPLE!r}; + marks expansions",
            rows={RECIPE: "v2 v2-modernbert"},
            models=["SPLADE-v3", "SPLADE-v2"],
            columns=["terms of the example"],
        ),
        "figure-2": Exhibit(
            "In domain, what the wackiest expansion terms of queries are worth; dashed, random ones, mean ± 2 std",
            rows={RECIPE: "v2"},
            models=["SPLADE-v3", "SPLADE-v2"],
            columns=["W-AUC"],  # whose scores the removal takes
            figure=removal_figure("removed terms", MEASURES),
        ),
        "figure-3": Exhibit(
            "Out of domain, nDCG@10 on ten collections of BEIR and their mean; dashed, random ones, mean ± 2 std",
            rows={RECIPE: "v2"},
            models=["SPLADE-v3", "SPLADE-v2"],
            columns=["W-AUC"],
            figure=removal_figure("terms removed on BEIR", ON_BEIR),
        ),
        "figure-4": Exhibit(
            "Wackiness over all terms",
            rows={RECIPE: "all"},
            models=MODELS,
            figure=Figure(x=["terms, wackiest first"], y=["wackiness of query terms"]),
        ),
        "figure-4-documents": Exhibit(
            "The same of documents",
            rows={RECIPE: "all"},
            models=MODELS,
            figure=Figure(x=["document terms, wackiest first"], y=["wackiness of document terms"]),
        ),
    },
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
