"""Commands that analyze logits, stored vectors and the terms that a model adds."""

from __future__ import annotations

from typing import Any

import vocable as vo
from vocable.cli.command import Command, Outcome
from vocable.cli.inputs import texts_of


def _analyze_logits(texts: list[str], **given: Any) -> Outcome:
    return Outcome(vo.analyze_logits(texts=texts_of(texts), **given))


ANALYSIS_COMMANDS = (
    Command(
        "analyze-logits", "model texts...", "bert-base-uncased texts.txt --clusters 50", _analyze_logits, "named reads"
    ),
    Command("analyze-weights", "vectors...", "vectors --min-count 2,10"),
    Command("analyze-postings", "vectors...", "vectors --max-terms all,20,10"),
    Command("measure-wackiness", "models...", "MODEL --queries q.tsv --corpus d.tsv -o w", traits="resumes"),
    Command("ablate", "model datasets...", "vocable-mini beir:scifact -o removed", traits="named resumes"),
)
