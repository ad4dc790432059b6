"""What an inspection means: which repair a model needs before it is trained, in the order of the repairs.

Each finding names its figure, the threshold, and where the threshold comes from. The vocabulary comes first, because a
transfer makes the head anew; scale and bias come after it. The start that was measured says whether something is wrong
with the scale; the norm of the head says which of the two repairs it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from vocable.adapt.rescale import CALM, STARVED, is_calm

if TYPE_CHECKING:
    from vocable.adapt.inspection import Inspection

WIDTH = 80
NORM = 2.0
DENSE = 0.6
REDUNDANT = 0.15
OVERLAP = 0.5
TARGET = "bert-base-uncased"  # paper 001's
RATE = 0.05  # what calibrate is told to aim at

SOURCES = {
    "redundant": "measured here: bert-base-uncased 8.9 %, bert-base-cased 22.5 %, ModernBERT 34.3 %, RoBERTa 34.5 %; "
    "paper 001, tables 2 and 7: BEIR 47.7 to 52.4 (ModernBERT), 10.6 to 50.2 (bert-base-cased) by a transfer",
    "overlap": "paper 001, §5.2 and §6.4: transfers from 56.4 to 60.9 % were tried, none from less",
    "loss": "measured here: a start at 2.2 log(batch) learned well, one at 181 log(batch) was the broken one",
    "norm": "paper 000, tables 1 and 2: heads of mean norm up to 1.66 train as they are, those from 2.55 on gain from "
    "k = 2 to 16",
    "dense": "paper 001, table 5: BEIR falls where more than 60 % are active",
    "starved": "measured here: half of the 0.2 % that a finished retriever, vocable-mini, has on texts of 20 words",
}


@dataclass(frozen=True)
class Finding:
    """One thing that stands in the way of a training."""

    text: str
    figure: float
    threshold: float
    source: str  # of the threshold
    command: str | None  # the repair, if there is one


def findings(found: Inspection) -> Iterator[Finding]:
    """The findings of an inspection, in the order of the repairs; none when the model is ready."""
    if not found.head.own_terms:  # the tokenizer then only reads
        yield from _of_vocabulary(found)
    if is_calm(found.start):
        yield from _of_activation(found)
    elif found.head.norm_mean > NORM and found.factor > 1:
        yield _too_large(found)
    else:
        yield _too_loud(found)


def in_words(found: Sequence[Finding]) -> str:
    """The findings as lines of at most 80 columns; their commands, which are to be copied, are never broken."""
    if not found:
        return "Nothing to repair: ready to be trained."
    lines = []
    for number, finding in enumerate(found, start=1):
        lines += wrap(f"{number}. {finding.text}", WIDTH, subsequent_indent="   ")
        lines += wrap(f"({finding.source})", WIDTH, initial_indent="   ", subsequent_indent="   ")
        if finding.command is not None:
            lines.append(f"   {finding.command}")
    return "\n".join(lines)


def _of_vocabulary(found: Inspection) -> Iterator[Finding]:
    vocabulary, overlap = found.vocabulary, found.overlap
    target = TARGET if overlap is None else overlap.target
    if vocabulary.cased and vocabulary.redundancy > REDUNDANT:
        text = (
            f"{vocabulary.redundancy:.1%} of a cased vocabulary repeat another token's form (threshold {REDUNDANT:.0%})"
        )
        command = _command("transfer", found.name, "--target", target)
        yield Finding(text, vocabulary.redundancy, REDUNDANT, SOURCES["redundant"], command)
    if overlap is not None and overlap.share < OVERLAP:
        text = f"only {overlap.share:.1%} of {target} are shared tokens (threshold {OVERLAP:.0%})"
        yield Finding(text, overlap.share, OVERLAP, SOURCES["overlap"], None)


def _too_large(found: Inspection) -> Finding:
    """The scores are too large, and so is the head."""
    norm, start = found.head.norm_mean, found.start
    text = (
        f"the head's rows have a mean norm of {norm:.2f} (threshold {NORM:g}), and the loss starts at {start.loss:,.1f}"
    )
    command = _command("rescale", found.name, "--factor", str(found.factor))
    return Finding(text, norm, NORM, SOURCES["norm"], command)


def _too_loud(found: Inspection) -> Finding:
    """The scores are too large, although the head is not, or cannot be made smaller: too many terms are active."""
    start, limit = found.start, CALM * found.start.chance
    text = (
        f"the loss starts at {start.loss:,.1f} (threshold {limit:.1f}) with {start.pooled_rate:.0%} of the terms active"
    )
    return Finding(text, start.loss, limit, SOURCES["loss"], _calibration(found))


def _of_activation(found: Inspection) -> Iterator[Finding]:
    start = found.start
    if start.pooled_rate > DENSE:
        text = f"{start.pooled_rate:.0%} of the terms are active in a text (threshold {DENSE:.0%})"
        yield Finding(text, start.pooled_rate, DENSE, SOURCES["dense"], _calibration(found))
    if start.pooled_rate < STARVED:
        text = f"{start.pooled_rate:.2%} of the terms are active in a text (threshold {STARVED:.1%})"
        yield Finding(text, start.pooled_rate, STARVED, SOURCES["starved"], _calibration(found))


def _calibration(found: Inspection) -> str:
    if not found.head.biased:  # nothing to shift
        return _command("rescale", found.name, "--factor", "auto")
    return _command("calibrate", found.name, found.probe, "--activation-rate", f"{RATE:g}")


def _command(verb: str, model: str, *arguments: str) -> str:
    """A command line to be copied: its output is named after the model and the verb, in the current folder.

    >>> _command("rescale", "answerdotai/ModernBERT-base", "--factor", "8")
    'vocable rescale answerdotai/ModernBERT-base --factor 8 -o ModernBERT-base-rescaled'
    """
    done = {"rescale": "rescaled", "calibrate": "calibrated", "transfer": "transferred"}[verb]
    return shlex.join(["vocable", verb, model, *arguments, "-o", f"{Path(model).name}-{done}"])
