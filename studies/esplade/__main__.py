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
from studies.measurements import (
    logits,
    postings,
    pretraining_log,
    quality,
    shared_terms,
    term_weights,
    terms_of_a_text,
)
from studies.plan import Exhibit, Figure, Model, Study

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
QUERIES_LEFT = {"full": {}, "top7": {"max_terms": 7}, "top5": {"max_terms": 5}}
DOCUMENTS_LEFT = {"full": {}, "top20": {"max_terms": 20}, "top10": {"max_terms": 10}, "top5": {"max_terms": 5}}
OFTEN = {"": 10000, "5k ": 5000, "1k ": 1000}  # occurrences of a term in table 8, by the beginning of a column's name
VALIDATION = {"L0_q": "L0_q", "L0_d": "L0_d", "MRR@10": "RR@10", "R@10": "R@10", "R@100": "R@100"}
BM25 = {"L0_q": 0, "L0_d": 0, "FLOPS": 0.00277, "MRR@10": 0.203, "R@10": 0.2527}
EMLM = {  # logits of the pre-trained model
    **{
        f"EMLM doc-score-{name}{top and f'@{top}'}": logits(
            f"doc_score_{name}", "positives", **({"top_k": top} if top else {})
        )
        for name in ("avg", "std")
        for top in (10, 100, "")
    },
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
    models={"bm25": Model("bm25", BM25, "Kim et al. 2026, table 2, bm25")},
    columns={
        **{
            f"{pruned}{name}": quality(value, "evaluation", **options)
            for pruned, options in PRUNED.items()
            for name, value in MEASURES.items()
        },
        **{f"val {name}": quality(value, "validation") for name, value in VALIDATION.items()},
        **{
            f"{left} postings {value}": postings(value, "positives", **options)
            for left, options in LEFT.items()
            for value in ("mean", "variance", "std")
        },
        **EMLM,
        **{
            f"{often}{left} {name}": term_weights(value, "evaluation", min_count=count, **options)
            for often, count in OFTEN.items()
            for name, value in (("logit-score-std", "logit_score_std"), ("logit-cnt", "logit_cnt"))
            for left, options in LEFT.items()
        },
        **{
            f"{left} L0_q-std": terms_of_a_text("std", "evaluation", role="query", **options)
            for left, options in QUERIES_LEFT.items()
        },
        **{
            f"{left} L0_d-std": terms_of_a_text("std", "evaluation", role="document", **options)
            for left, options in DOCUMENTS_LEFT.items()
        },
        **{f"{left} pos-ls-len-std": postings("std", "evaluation", **options) for left, options in LEFT.items()},
        "shared words %": shared_terms("share", of="overlap-repeat-lr-l", times=100),
        "step": pretraining_log("step", of="loss"),
        "loss": pretraining_log("loss", of="loss"),
        "checked step": pretraining_log("step", of="held_out_accuracy"),
        "accuracy": pretraining_log("held_out_accuracy", of="held_out_accuracy"),
        **{
            f"{name} of {part} sub-words": pretraining_log(f"held_out_{name}_{group}", of="held_out_accuracy")
            for name in ("accuracy", "loss")
            for part, group in (("first", "first_sub-word"), ("later", "later_sub-words"))
        },
    },
    exhibits={
        "table-2": Exhibit(
            "Quality and cost, unpruned and pruned to N terms of a query and M of a document (qN dM)",
            rows={RECIPE: MODELS},
            models=["bm25"],
            columns=[f"{pruned}{name}" for pruned in PRUNED for name in MEASURES],
        ),
        "table-3": Exhibit(
            "Lengths of postings lists",
            rows={RECIPE: MODELS},
            columns=[
                f"{left} postings {value}" for left in ("d0", "d20", "d10") for value in ("mean", "variance", "std")
            ],
        ),
        "table-5": Exhibit("The validation set", rows={RECIPE: MODELS}, columns=[f"val {name}" for name in VALIDATION]),
        "table-6": Exhibit("Logits after pre-training", rows={RECIPE: MODELS}, columns=[*EMLM]),
        "table-7": Exhibit("Logits after more steps of pre-training", rows={RECIPE: LONGER}, columns=[*EMLM]),
        "table-8": Exhibit(
            "How much a term's weights differ, over terms with at least 10,000 occurrences; 5,000 (5k) and 1,000 (1k)",
            rows={RECIPE: WITH_RANDOM},
            columns=[
                f"{often}{left} {name}" for often in OFTEN for name in ("logit-score-std", "logit-cnt") for left in LEFT
            ],
        ),
        "table-9": Exhibit(
            "Spread of the numbers of terms, and of the lengths of postings lists",
            rows={RECIPE: WITH_RANDOM},
            columns=[
                *(f"{left} L0_q-std" for left in QUERIES_LEFT),
                *(f"{left} L0_d-std" for left in DOCUMENTS_LEFT),
                *(f"{left} pos-ls-len-std" for left in LEFT),
            ],
        ),
        "vocabularies": Exhibit(
            "Words that the vocabulary of general titles shares with that of the training titles (section 3.1)",
            rows={RECIPE: "overlap-repeat-lr-l indep-repeat-lr-l"},
            columns=["shared words %"],
        ),
        "figure-1": Exhibit(
            "Quality against cost, unpruned and pruned",
            rows={RECIPE: MODELS},
            figure=Figure(
                x=[f"{pruned}FLOPS" for pruned in PRUNED], y=[f"{pruned}MRR@10" for pruned in PRUNED], log_x=True
            ),
        ),
        "figure-2": Exhibit(
            "Accuracy while pre-training, of all sub-words, the first and the later ones of held-out words",
            rows={RECIPE: MODELS},
            figure=Figure(
                x=["checked step"] * 3,
                y=["accuracy", "accuracy of first sub-words", "accuracy of later sub-words"],
                apart=True,
            ),
        ),
        "figure-3": Exhibit(
            "Loss while pre-training, and that of held-out words",
            rows={RECIPE: MODELS},
            figure=Figure(
                x=["step", "checked step", "checked step"],
                y=["loss", "loss of first sub-words", "loss of later sub-words"],
                apart=True,
            ),
        ),
        "figure-4": Exhibit(
            "Loss and accuracy over more steps of pre-training",
            rows={RECIPE: LONGER},
            figure=Figure(x=["step", "checked step"], y=["loss", "accuracy"], apart=True),
        ),
    },
    not_here={"table-1": "describes the authors' data", "table-4": "describes the authors' data"},
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
