"""Kim et al. 2026: the pre-training of Expanded-SPLADE on web titles.

    python -m studies.esplade --dry-run
    python -m studies.esplade --only table-2 --override data_folder=DATA -o OUT

The rows are variants of esplade.yaml, which has the published figures. The authors' data are their company's; with
titles and clicks of your own the same tables are made.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.common import main
from studies.measurements import logits, postings, pretraining_log, quality, term_weights
from studies.plan import Exhibit, Figure, Study

RECIPE = "esplade"
MODELS = "overlap-repeat-lr-l overlap-repeat-lr-h indep-repeat-lr-l indep-repeat-lr-h indep-uniq-lr-l indep-uniq-lr-h"
WITH_RANDOM = f"rand-vocab-100k {MODELS}"
LONGER = "indep-uniq-lr-h indep-uniq-lr-h-1.2m indep-uniq-lr-h-2.9m"
MEASURES = {"L0_q": "L0_q", "L0_d": "L0_d", "FLOPS": "FLOPS", "MRR@10": "RR@10", "R@10": "R@10"}
# qN dM: only the N heaviest terms of a query and the M heaviest of a document; dM: of a document, all for d0.
PRUNED = {"": {}, "q7 d20 ": {"query_max_terms": 7, "document_max_terms": 20},
          "q5 d20 ": {"query_max_terms": 5, "document_max_terms": 20},
          "q5 d10 ": {"query_max_terms": 5, "document_max_terms": 10}}  # fmt: skip
LEFT = {"d0": {}, "d20": {"max_terms": 20}, "d10": {"max_terms": 10}, "d5": {"max_terms": 5}}
OFTEN = 10000  # occurrences of a term in table 8
EMLM = {  # logits of the pre-trained model
    "EMLM doc-score-avg@10": logits("doc_score_avg", "positives", top_k=10),
    "EMLM doc-score-avg": logits("doc_score_avg", "positives"),
    "EMLM doc-score-std@10": logits("doc_score_std", "positives", top_k=10),
    "EMLM doc-score-std": logits("doc_score_std", "positives"),
    "EMLM logit-score-std": logits("logit_score_std", "positives"),
    "EMLM non-neg-terms-avg": logits("non_neg_terms_avg", "positives"),
    "EMLM non-neg-terms-std": logits("non_neg_terms_std", "positives"),
}

STUDY = Study(
    folder=Path(__file__).parent,
    about="Kim et al. 2026, the pre-training of Expanded-SPLADE on web titles",
    datasets={
        "evaluation": "beir:evaluation",
        "validation": "beir:validation",
        "positives": "beir:validation-positives",
    },
    sizes={"evaluation": 20372952, "validation": 307901, "positives": 77482},
    fetch={
        "beir:*": "a BEIR folder of your own titles, queries and clicks; that of the authors is their company's",
        "*": "your own titles or clicked pairs; those of the authors are their company's",
    },
    columns={
        **{
            f"{pruned}{name}": quality(value, "evaluation", **options)
            for pruned, options in PRUNED.items()
            for name, value in MEASURES.items()
        },
        "val R@10": quality("R@10", "validation"),
        "val R@100": quality("R@100", "validation"),
        **{
            f"{left} postings {value}": postings(value, "positives", **options)
            for left, options in LEFT.items()
            for value in ("mean", "std")
        },
        **EMLM,
        **{
            f"{left} {name}": term_weights(value, "evaluation", min_count=OFTEN, **options)
            for name, value in (("logit-score-std", "logit_score_std"), ("logit-cnt", "logit_cnt"))
            for left, options in LEFT.items()
        },
        **{f"{left} pos-ls-len-std": postings("std", "evaluation", **options) for left, options in LEFT.items()},
        "step": pretraining_log("step", of="loss"),
        "loss": pretraining_log("loss", of="loss"),
        "checked step": pretraining_log("step", of="held_out_accuracy"),
        "accuracy": pretraining_log("held_out_accuracy", of="held_out_accuracy"),
    },
    exhibits={
        "table-2": Exhibit(
            "Quality and cost, unpruned and pruned to N terms of a query and M of a document (qN dM)",
            rows={RECIPE: MODELS},
            columns=[f"{pruned}{name}" for pruned in PRUNED for name in MEASURES],
        ),
        "table-3": Exhibit(
            "Lengths of postings lists",
            rows={RECIPE: MODELS},
            columns=[f"{left} postings {value}" for left in ("d0", "d20", "d10") for value in ("mean", "std")],
        ),
        "table-5": Exhibit("The validation set", rows={RECIPE: MODELS}, columns=["val R@10", "val R@100"]),
        "table-6": Exhibit("Logits after pre-training", rows={RECIPE: MODELS}, columns=[*EMLM]),
        "table-7": Exhibit("Logits after more steps of pre-training", rows={RECIPE: LONGER}, columns=[*EMLM]),
        "table-8": Exhibit(
            "How much a term's weights differ, over terms with at least 10,000 occurrences",
            rows={RECIPE: WITH_RANDOM},
            columns=[f"{left} {name}" for name in ("logit-score-std", "logit-cnt") for left in LEFT],
        ),
        "table-9": Exhibit(
            "Spread of the lengths of postings lists",
            rows={RECIPE: WITH_RANDOM},
            columns=[f"{left} pos-ls-len-std" for left in LEFT],
        ),
        "figure-1": Exhibit(
            "Quality against cost, unpruned and pruned",
            rows={RECIPE: MODELS},
            figure=Figure(
                x=[f"{pruned}FLOPS" for pruned in PRUNED], y=[f"{pruned}MRR@10" for pruned in PRUNED], log_x=True
            ),
        ),
        "figure-2": Exhibit(
            "Accuracy while pre-training", rows={RECIPE: MODELS}, figure=Figure(x=["checked step"], y=["accuracy"])
        ),
        "figure-3": Exhibit("Loss while pre-training", rows={RECIPE: MODELS}, figure=Figure(x=["step"], y=["loss"])),
        "figure-4": Exhibit(
            "Loss over more steps of pre-training", rows={RECIPE: LONGER}, figure=Figure(x=["step"], y=["loss"])
        ),
    },
    not_here={"table-1": "describes the authors' data", "table-4": "describes the authors' data"},
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
