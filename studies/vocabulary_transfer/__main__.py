"""Geng and Yang 2026: encoders with a raw, cased vocabulary moved to a normalized one.

    python -m studies.vocabulary_transfer --dry-run
    python -m studies.vocabulary_transfer --only table-2 --override data_folder=DATA -o OUT

The rows are variants of the recipes in the folder of this script, which have the published figures.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.beir import BEIR, DEV, DEV_QUERIES, DL_2019, DL_2019_QUERIES, MSMARCO_SIZE, QUERIES, SIZES
from studies.common import main
from studies.dense import INNER_PRODUCT
from studies.measurements import fragmentation, new_tokens, pretraining_log, quality
from studies.plan import Exhibit, Figure, Model, Study
from studies.public import FLOPS as PUBLIC_FLOPS
from studies.public import NDCG, RECALL, public_figures

RECIPE = "vocabulary-transfer"
# fmt: off
COLLECTIONS = {  # the paper's name: that of BEIR
    "Arg": "arguana", "Cli": "climate-fever", "DBP": "dbpedia", "FEV": "fever", "FiQA": "fiqa", "Hot": "hotpotqa",
    "NFC": "nfcorpus", "NQ": "nq", "Quo": "quora", "SCI": "scidocs", "SciF": "scifact", "Tou": "touche",
    "TREC": "trec-covid",
}
# fmt: on
CHEMISTRY = {"ChemHotpotQA": "beir:ChemHotpotQA", "ChemNQ": "beir:ChemNQ"}
ABLATION = (
    "random-all-direct random-all-adapted random-new-direct random-new-adapted mean-direct mean-adapted "
    "subtoken-direct subtoken-adapted semantic-direct semantic-adapted semantic-500-steps without-pda-direct "
    "without-pda-adapted without-omc-adapted without-apc-direct without-apc-adapted"
)
INITIALIZATIONS = ["random-all", "random-new", "mean", "subtoken", "semantic"]
COMPONENTS = ["without-pda", "without-omc", "without-apc"]
BESIDE = {  # table 3: the rows under "Direct" and "Adapted"
    "modernbert": ("modernbert", "Direct"),
    **{
        f"{name}-{heading.lower()}": (name, heading)
        for name in [*INITIALIZATIONS, *COMPONENTS]
        for heading in ("Direct", "Adapted")
    },
    "semantic-500-steps": ("semantic-500-steps", "Adapted"),
}
TEACHERS = {  # table 2: the numbers of teachers
    **dict.fromkeys(["Co-SelfDistil", "Co-EnsembleDistil", "bert", "bert-further-mlm", "modernbert"], "1"),
    **dict.fromkeys(["modernbert-further-mlm", "modernbert-lowercase", "vt"], "1"),
    "SPLADE-v3": "5",
}
YES = "✓"
BY_IDF = dict.fromkeys(["Geng-et-al", "modernbert", "modernbert-lowercase", "vt-idf", "vt-idf-l0"], YES)
L0_MASKED = dict.fromkeys(["modernbert", "modernbert-lowercase", "vt-idf-l0"], YES)
SIZES_OF_VOCABULARIES = {"modernbert": "50k", **{f"vt-{size}": size for size in ("10k", "20k", "30k", "40k", "50k")}}

QUALITY = ["BEIR nDCG@10", "MSM MRR@10", "MSM R@1k", "DL-19 nDCG@10", "DL-19 R@1k"]

HARD_NEGATIVES = (
    "hf download sentence-transformers/msmarco-hard-negatives msmarco-hard-negatives.jsonl.gz "
    "cross-encoder-ms-marco-MiniLM-L-6-v2-scores.pkl.gz --repo-type dataset --local-dir DATA"
)

# As the authors' code measures: FLOPs and Doc_Len are means over the collections of BEIR (evaluate_beir.py), and recall
# on DL counts every grade above 0 (evaluate_marco.py, by BEIR's `EvaluateRetrieval`).
BEIR_MEAN = quality("nDCG@10", "BEIR", times=100)
LENGTH = quality("L0_d", "BEIR")
FLOPS = quality("FLOPS", "BEIR")
BM25_NOTE = "the published DL-19 R@1k of BM25 is quoted, and counts grades 2 and 3 alone: Pyserini has .7450 to .7501"

TABLE_1 = ["Doc_Len", "FLOPs", *COLLECTIONS, "BEIR nDCG@10"]
# Rows that the paper measures or quotes, as public checkpoints. Figures of table 1, then the others of table 2.
PUBLIC = {
    label: Model(
        model,
        dict(zip([*TABLE_1, *QUALITY[1:]], figures, strict=True)),
        f"Geng and Yang 2026, tables 1 and 2, {label}",
    )
    for label, model, *figures in (
        ("Co-SelfDistil", "naver/splade-cocondenser-selfdistil", 197.0, 11.1, 49.3, 26.2, 44.1, 81.6, 36.2, 69.3, 35.4,
         54.2, 85.0, 16.0, 71.5, 24.8, 72.4, 51.2, 37.5, 98.5, 73.5, 83.4),
        ("Co-EnsembleDistil", "naver/splade-cocondenser-ensembledistil", 159.5, 7.8, 50.8, 24.4, 43.6, 80.0, 35.5, 68.7,
         35.3, 53.9, 83.4, 15.8, 70.8, 27.3, 72.5, 50.9, 38.3, 98.3, 73.1, 83.0),
        ("SPLADE-v3", "naver/splade-v3", 213.2, 8.0, 48.7, 25.6, 45.1, 81.0, 38.1, 69.2, 36.3, 58.7, 81.4, 15.6, 71.6,
         31.2, 73.1, 52.0, 40.0, 98.7, 72.7, 83.2),
    )
}  # fmt: skip
PAPERS_MODELS = PUBLIC | {
    "BM25": Model(  # of table 2 and of table 8, whose means differ
        "bm25",
        {**dict(zip(QUALITY, (43.7, 18.4, 85.3, 50.6, 74.5), strict=True)), "nDCG@10": 44.5},
        "Geng and Yang 2026, tables 2 and 8, BM25",
    ),
    "SPLADE-v3-doc": Model(
        "naver/splade-v3-doc",
        {"nDCG@10": 46.8, "FLOPS": 3.3, "doc_len": 240.3},
        "Geng and Yang 2026, table 8, SPLADE-v3-doc",
        change="look up queries",  # its checkpoint is a plain masked language model, which would expand queries
    ),
    "Geng-et-al": Model(
        "opensearch-project/opensearch-neural-sparse-encoding-doc-v2-distill",
        {"nDCG@10": 50.4, "FLOPS": 2.1, "doc_len": 248.6},
        "Geng and Yang 2026, table 8, Geng et al.",
    ),
    "CoCondenser": Model(
        "dense-cls:Luyu/co-condenser-marco-retriever",
        dict(zip(QUALITY, (42.0, 38.2, 98.4, 67.4, 82.0), strict=True)),
        "Geng and Yang 2026, table 2, CoCondenser, quoted there",
    ),
    **{
        label: Model(kind + name, {}, "a public checkpoint; the authors' is not published")
        for label, kind, name in (
            ("TAS-B", INNER_PRODUCT, "sentence-transformers/msmarco-distilbert-base-tas-b"),
            ("Contriever", "dense:", "facebook/contriever-msmarco"),
            ("gte-modernbert", "dense:", "Alibaba-NLP/gte-modernbert-base"),
        )
    },
}

MODELS = {
    label: model._replace(published={**model.published, **public_figures(model.model, ["DL-19"], times=100)})
    for label, model in PAPERS_MODELS.items()
}

STUDY = Study(
    folder=Path(__file__).parent,
    about="Geng and Yang 2026, encoders with a raw, cased vocabulary moved to a normalized one",
    datasets={"MSM": DEV, "DL-19": DL_2019, **{name: BEIR[one] for name, one in COLLECTIONS.items()}, **CHEMISTRY},
    corpora={"DL-19": "MSM", "Cli": "FEV"},
    groups={"BEIR": " ".join(COLLECTIONS)},
    sizes={"MSM": MSMARCO_SIZE, **{name: SIZES[one] for name, one in COLLECTIONS.items() if name != "Cli"}},
    queries={
        "MSM": DEV_QUERIES,
        "DL-19": DL_2019_QUERIES,
        **{name: QUERIES[one] for name, one in COLLECTIONS.items()},
    },
    fetch={
        "*msmarco-hard-negatives.jsonl.gz": HARD_NEGATIVES,
        "cross-encoder-*-scores.pkl.gz": HARD_NEGATIVES,
        "*wikipedia.jsonl.gz": "python -m studies.data wikipedia -o DATA",
        "*bookcorpus.jsonl.gz": "python -m studies.data bookcorpus -o DATA",
        "*dolma-chem.jsonl.gz": "python -m studies.data chem-texts -o DATA",
        "*chem-pairs.jsonl.gz": "python -m studies.data chem-pairs -o DATA",
        "beir:*Chem*": "python -m studies.data chem-collections -o DATA",
    },
    models=MODELS,
    columns={
        "BEIR nDCG@10": BEIR_MEAN,
        "MSM MRR@10": quality("RR@10", "MSM", times=100),
        "MSM R@1k": quality("R@1000", "MSM", times=100),
        "DL-19 nDCG@10": quality("nDCG@10", "DL-19", times=100),
        "DL-19 R@1k": quality("R@1000", "DL-19", times=100),
        NDCG.format(year="DL-19"): quality("nDCG@10", "DL-19", times=100),
        RECALL.format(year="DL-19"): quality("R(rel=2)@1000", "DL-19", times=100),
        PUBLIC_FLOPS: FLOPS,
        "Doc_Len": LENGTH,
        "FLOPs": FLOPS,
        **{name: quality("nDCG@10", name, times=100) for name in COLLECTIONS},
        "nDCG@10": BEIR_MEAN,  # these three as table 8 spells them
        "FLOPS": FLOPS,
        "doc_len": LENGTH,
        **{f"{name} Frag.": fragmentation("tokens_per_word", name) for name in CHEMISTRY},
        **{
            f"{name} nDCG@10": quality("nDCG@10", name, query_max_terms=128, document_max_terms=128)
            for name in CHEMISTRY
        },
        "new tokens": new_tokens("neighbours", words=["collaborations", "nationalists", "clears", "centimetres"]),
        "step": pretraining_log("step", of="loss"),
        "loss": pretraining_log("loss", of="loss"),
    },
    exhibits={
        "table-1": Exhibit(
            "BEIR, collection by collection",
            rows={RECIPE: "bert vt"},
            models=[*PUBLIC],
            columns=TABLE_1,
            order=" ".join(PUBLIC),
        ),
        "table-2": Exhibit(
            "BEIR, MS MARCO and DL 2019",
            rows={RECIPE: "bert bert-further-mlm modernbert modernbert-further-mlm modernbert-lowercase vt"},
            models=["BM25", "CoCondenser", *PUBLIC],
            columns=QUALITY,
            order=" ".join(["BM25", "CoCondenser", *PUBLIC]),
            words={"Teach.": TEACHERS},
            note=BM25_NOTE,
        ),
        "public-figures": Exhibit(
            "Public checkpoints: the paper's columns and those of public figures (not in the paper)",
            models=["BM25", *PUBLIC, "Geng-et-al"],
            columns=[
                "DL-19 nDCG@10",
                NDCG.format(year="DL-19"),
                "DL-19 R@1k",
                RECALL.format(year="DL-19"),
                "FLOPS",
                PUBLIC_FLOPS,
            ],
            note=BM25_NOTE,
        ),
        "figure-1": Exhibit(
            "Dense and sparse retrievers of BERT and of ModernBERT; the dense ones are public checkpoints",
            rows={RECIPE: "bert modernbert"},
            models=["TAS-B", "CoCondenser", "Contriever", "gte-modernbert"],
            columns=QUALITY,
            order="TAS-B CoCondenser Contriever gte-modernbert",
            figure=Figure(x=[], y=QUALITY),
        ),
        "table-3": Exhibit(
            "How embeddings are initialized, and what each part brings",
            rows={RECIPE: f"modernbert {ABLATION}"},
            columns=["BEIR nDCG@10", "MSM MRR@10"],
            beside=BESIDE,
        ),
        "table-4": Exhibit(
            "The sub-tokens of new tokens, and the old tokens that make them, with weights",
            rows={RECIPE: "vt"},
            columns=["new tokens"],
        ),
        "table-5": Exhibit(
            "The share of terms that is active when training begins",
            rows={"activation-rate": "all"},
            columns=["BEIR nDCG@10", "FLOPs", "MSM MRR@10", "MSM R@1k"],
        ),
        "table-6": Exhibit(
            "The whole vocabulary moved against the output head alone",
            rows={"head-only-transfer": "head-only-direct vt-direct head-only-emlm head-only-sap vt-adapted"},
            columns=QUALITY,
        ),
        "sap": Exhibit(
            "Alignment with all weights or the head's alone, and longer (not in the paper)",
            rows={"head-only-transfer": "head-only-sap head-only-sap-head head-only-sap-140k head-only-sap-head-140k"},
            columns=QUALITY,
        ),
        "table-7": Exhibit("Other backbones", rows={"vocabulary-transfer-backbones": "all"}, columns=QUALITY),
        "table-8": Exhibit(
            "Queries by lookup",
            rows={"inference-free": "all"},
            models=["BM25", "SPLADE-v3-doc", "Geng-et-al"],
            columns=["nDCG@10", "FLOPS", "doc_len"],
            order="BM25 SPLADE-v3-doc Geng-et-al",
            words={"+IDF": BY_IDF, "+l0": L0_MASKED},
        ),
        "table-9": Exhibit(
            "Vocabularies of chemistry, five seeds a row",
            rows={"vocabulary-transfer-domain": "all"},
            seeds=[1, 2, 3, 4, 5],
            columns=[f"{name} {value}" for name in CHEMISTRY for value in ("Frag.", "nDCG@10")],
            words={"Vocab Size": SIZES_OF_VOCABULARIES},
        ),
        "table-10": Exhibit(
            "Table 2's last row, seed by seed",
            rows={RECIPE: "vt-seed-42 vt-seed-1 vt-seed-2 vt-seed-3 vt-seed-4"},
            columns=QUALITY,
        ),
        "table-10-mean": Exhibit(
            "The same, mean and standard deviation", rows={RECIPE: "vt"}, seeds=[42, 1, 2, 3, 4], columns=QUALITY
        ),
        "norm": Exhibit(
            "Norms matched inside the transfer, with calibration and in its place (not in the paper)",
            rows={RECIPE: "vt vt-norm without-apc-adapted vt-norm-without-apc"},
            columns=QUALITY,
        ),
        "pre-training": Exhibit(
            "The loss of adaptation (not in the paper)",
            rows={RECIPE: "vt random-all-adapted subtoken-adapted"},
            figure=Figure(x=["step"], y=["loss"]),
        ),
    },
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
