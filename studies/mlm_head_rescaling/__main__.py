"""Jang et al. 2026: SPLADE from seven backbones, whose output matrix is divided by k before training.

    python -m studies.mlm_head_rescaling --dry-run
    python -m studies.mlm_head_rescaling --only table-2 --override data_folder=DATA -o OUT

The rows are variants of mlm-head-rescaling.yaml, which has the published figures.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.beir import BEIR, DEV, DEV_QUERIES, DL_2019, DL_2019_QUERIES, MSMARCO_SIZE, QUERIES, SIZES
from studies.common import main
from studies.measurements import head, quality, recipe_key, training_log
from studies.plan import Exhibit, Figure, Study

RECIPE = "mlm-head-rescaling"
CORPORA = {"dl19": "dev", "climate-fever": "fever"}  # share nearly all documents
# fmt: off
NANO = {  # NanoBEIR: source, documents
    "nano-climate-fever": ("beir:NanoClimateFEVER", 3408), "nano-dbpedia": ("beir:NanoDBPedia", 6045),
    "nano-fever": ("beir:NanoFEVER", 4996), "nano-fiqa": ("beir:NanoFiQA2018", 4598),
    "nano-hotpotqa": ("beir:NanoHotpotQA", 5090), "nano-msmarco": ("beir:NanoMSMARCO", 5043),
    "nano-nfcorpus": ("beir:NanoNFCorpus", 2953), "nano-nq": ("beir:NanoNQ", 5035),
    "nano-quora": ("beir:NanoQuoraRetrieval", 5046), "nano-scidocs": ("beir:NanoSCIDOCS", 2210),
    "nano-arguana": ("beir:NanoArguAna", 3635), "nano-scifact": ("beir:NanoSciFact", 2919),
    "nano-touche": ("beir:NanoTouche2020", 5745),
}
# fmt: on


def divided(backbones: str, *factors: int) -> str:
    """Return the variants of these backbones at each factor."""
    return " ".join(f"{name}-k{k}" for name in backbones.split() for k in factors)


SMALL_NORM = "bert distilbert albert gte-mlm"  # backbones whose output matrix has a small norm
LARGE_NORM = "modernbert ettin"
AS_THEY_ARE = divided(f"{SMALL_NORM} roberta {LARGE_NORM}", 1)
ALL_FACTORS = (1, 2, 4, 8, 16)

STUDY = Study(
    folder=Path(__file__).parent,
    about="Jang et al. 2026, SPLADE backbones whose output matrix is divided by k",
    datasets={"dev": DEV, "dl19": DL_2019, **BEIR, **{name: source for name, (source, _) in NANO.items()}},
    corpora=CORPORA,
    groups={"BEIR-13": " ".join(BEIR), "NanoBEIR": " ".join(NANO)},
    sizes={
        "dev": MSMARCO_SIZE,
        **{name: size for name, size in SIZES.items() if name not in CORPORA},
        **{name: size for name, (_, size) in NANO.items()},
    },
    queries={"dev": DEV_QUERIES, "dl19": DL_2019_QUERIES, **QUERIES, **dict.fromkeys(NANO, 50)},
    trec_eval=[*NANO],  # as the evaluator of sentence-transformers counts
    fetch={
        "beir:Nano*": "python -m studies.data nano-beir -o DATA",
    },
    columns={
        "parameters (B)": head("parameters", times=1e-9),
        "norm": head("norm_mean"),
        "largest norm": head("norm_max"),
        "anisotropy": head("anisotropy"),
        "k": recipe_key("rescale.factor", otherwise=1),
        "MSMARCO DEV MRR@10": quality("RR@10", "dev"),
        "MSMARCO DEV Recall@1000": quality("R@1000", "dev"),
        "TREC 2019 nDCG@10": quality("nDCG@10", "dl19"),
        "BEIR-13 nDCG@10": quality("nDCG@10", "BEIR-13"),
        "NanoBEIR nDCG@10": quality("nDCG@10", "NanoBEIR"),
        "NanoBEIR FLOPS": quality("FLOPS", "NanoBEIR"),
        "step": training_log("step", of="loss"),
        "loss": training_log("loss", of="loss"),
    },
    exhibits={
        "table-1": Exhibit(
            "The output matrix of each backbone",
            rows={RECIPE: AS_THEY_ARE},
            columns=["parameters (B)", "norm", "largest norm", "anisotropy"],
        ),
        "table-2": Exhibit(
            "Retrieval with the output matrix divided by k",
            rows={RECIPE: f"{divided(SMALL_NORM, 1)} {divided(f'roberta {LARGE_NORM}', *ALL_FACTORS)}"},
            columns=[
                "norm",
                "MSMARCO DEV MRR@10",
                "MSMARCO DEV Recall@1000",
                "TREC 2019 nDCG@10",
                "BEIR-13 nDCG@10",
            ],
        ),
        "figure-1": Exhibit(
            "Quality of each backbone as it is against the norm of its output matrix",
            rows={RECIPE: AS_THEY_ARE},
            figure=Figure(x=["norm"], y=["BEIR-13 nDCG@10"]),
        ),
        "figure-2": Exhibit(
            "Quality against FLOPS, without and with rescaling; the FLOPS weights are chosen here",
            rows={RECIPE: "bert-k1 distilbert-k1 modernbert-k1 modernbert-k8 ettin-k1 ettin-k16"},
            sweep="training.regularizers={query: 1.0e-5, document: 6.0e-6},{query: 5.0e-5, document: 3.0e-5}, "
            "{query: 2.5e-4, document: 1.5e-4},{query: 1.0e-3, document: 6.0e-4}",
            columns=["NanoBEIR FLOPS", "NanoBEIR nDCG@10"],
            figure=Figure(x=["NanoBEIR FLOPS"], y=["NanoBEIR nDCG@10"], log_x=True, curves="(.+)-regularizers.+"),
        ),
        "figure-3": Exhibit(
            "Backbones of small norm, divided by k",
            rows={RECIPE: divided(SMALL_NORM, *ALL_FACTORS)},
            columns=["BEIR-13 nDCG@10"],
            figure=Figure(x=["k"], y=["BEIR-13 nDCG@10"], log_x=True, curves="(.+)-k[0-9]+"),
        ),
        "figure-4": Exhibit(
            "The loss of ModernBERT and Ettin while they are trained",
            rows={RECIPE: divided(LARGE_NORM, *ALL_FACTORS)},
            figure=Figure(x=["step"], y=["loss"]),
        ),
    },
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
