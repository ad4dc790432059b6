"""Look at a backbone before training it: what its head and its vocabulary are like, and where a training would start.

The figures are those that the papers on rescaling and on vocabulary transfer find at the root of failed trainings.

What an inspection means: which repair a model needs before it is trained, in the order of the repairs.

Each finding names its figure, the threshold, and where the threshold comes from. The vocabulary comes first, because a
transfer makes the head anew; scale and bias come after it. The start that was measured says whether something is wrong
with the scale; the norm of the head says which of the two repairs it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from sentence_transformers import SparseEncoder
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.alignment import Matched, align
from vocable.adapt.rescale import CALM, STARVED, best_factor, is_calm
from vocable.adapt.statistics import BUILT_IN, Start, anisotropy, measure_start, probe_texts, row_norms
from vocable.adapt.vocabulary import fragmentation, is_cased, keeps_accents, redundancy
from vocable.encoder.fuse import plain_decoder, splade_modules
from vocable.encoder.load import load_checkpoint, load_tokenizer
from vocable.encoder.output_vocabulary import output_layer
from vocable.errors import ArgumentError, ModelError
from vocable.tables import short

WIDTH = 80
NORM = 2.0
DENSE = 0.6
REDUNDANT = 0.15
OVERLAP = 0.5
TARGET = "bert-base-uncased"  # Geng and Yang 2026's
RATE = 0.05  # what calibrate is told to aim at

SOURCES = {
    "redundant": "measured here: bert-base-uncased 8.9 %, bert-base-cased 22.5 %, ModernBERT 34.3 %, RoBERTa 34.5 %; "
    "Geng and Yang 2026, tables 2 and 7: BEIR 47.7 to 52.4 (ModernBERT), 10.6 to 50.2 (bert-base-cased) by a transfer",
    "overlap": "Geng and Yang 2026, §5.2 and §6.4: transfers from 56.4 to 60.9 % were tried, none from less",
    "loss": "measured here: a start at 2.2 log(batch) learned well, one at 181 log(batch) was the broken one",
    "norm": "Jang et al. 2026, tables 1 and 2: heads of mean norm up to 1.66 train as they are, those from 2.55 on "
    "gain from k = 2 to 16",
    "dense": "Geng and Yang 2026, table 5: BEIR falls where more than 60 % are active",
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


@dataclass(frozen=True)
class Head:
    """The output matrix W [v, d]."""

    terms: int  # v, with the columns that some models are padded by
    dimensions: int  # d
    norm_mean: float  # of the L2 norms of the rows
    norm_max: float
    norm_std: float
    anisotropy: float  # mean cosine of two rows
    tied: bool  # the same matrix as the input embeddings
    biased: bool
    own_terms: bool = False  # other ones than the tokenizer's tokens


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer."""

    size: int
    cased: bool
    accents: bool  # whether it keeps them
    redundancy: float  # share of tokens that repeat another one's form
    tokens_per_word: float  # on the probe texts


@dataclass(frozen=True)
class Overlap:
    """What of a target's vocabulary the model has, too."""

    target: str
    share: float
    classes: dict[str, Matched]


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found; `str()` shows it as a table with the verdict below."""

    name: str  # as the next command has to call the model
    architecture: str
    parameters: int
    head: Head
    vocabulary: Vocabulary
    overlap: Overlap | None
    start: Start
    factor: int  # the best rescaling by `choose_factor`; 1, without a trial, where the start is calm
    probe: str  # where the probe texts came from, as the next command has to call it

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What stands in the way of a training, in the order in which it is to be repaired."""
        return tuple(findings(self))

    @property
    def next(self) -> str | None:
        """The next command; None when the model is ready to be trained."""
        return next((finding.command for finding in self.findings if finding.command), None)

    def to_json(self) -> dict[str, Any]:
        """The inspection as JSON values."""
        values = asdict(self)
        if self.overlap is not None:
            values["overlap"]["classes"] = {kind: count._asdict() for kind, count in self.overlap.classes.items()}
        return values | {"findings": [asdict(finding) for finding in self.findings], "next": self.next}

    def table(self) -> Table:
        """The figures as a rich table."""
        title = Text(f"{self.name} ({self.architecture})")
        table = Table(title=title, title_justify="left", box=None, show_header=False, padding=(0, 1, 0, 0))
        for label, value in _lines(self):
            table.add_row(Text(label), Text(value))
        return table

    @property
    def verdict(self) -> str:
        """The findings in words, with their commands."""
        return in_words(self.findings)

    def __str__(self) -> str:
        console = Console(file=StringIO(), width=WIDTH)
        with console.capture() as rendered:
            console.print(self.table())
        lines = (line.rstrip() for line in rendered.get().splitlines())
        return "\n".join([*lines, "", self.verdict])


def inspect(
    model: str | Path | PreTrainedModel | SparseEncoder,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    target: str | Path | PreTrainedTokenizerBase | None = None,
    texts: str | Path | Sequence[str] = BUILT_IN,
) -> Inspection:
    """Measure a model's head, vocabulary and start of training, and say which repair it needs.

    Args:
        model: a name (folder, Hub id, "vocable-mini", "package:NAME/FOLDER"), a masked language model with its
            `tokenizer`, or a SPLADE `SparseEncoder`.
        tokenizer: of a model that is given as an object; a name or a `SparseEncoder` brings its own.
        target: a vocabulary to compare with, that of a name or a tokenizer.
        texts: probe texts, or the place they are read from; of many, 128 evenly taken ones of at least 8 words are
            used. By default the built-in corpus.

    Raises:
        ModelError: nothing is there, no masked-language-model head, or a tokenizer that cannot be read.
        ArgumentError: a model without its tokenizer.
        DataError: fewer than two usable probe texts, or a place that cannot be read.
    """
    mlm, tokenizer = _parts(model, tokenizer)
    vocabulary = load_tokenizer(target) if isinstance(target, str | Path) else target
    probe = probe_texts(texts)
    start = measure_start(mlm, tokenizer, probe)
    return Inspection(
        name=str(model) if isinstance(model, str | Path) else mlm.name_or_path or "MODEL",
        architecture=type(mlm).__name__,
        parameters=mlm.num_parameters(),
        head=_head(mlm),
        vocabulary=_vocabulary(tokenizer, probe),
        overlap=None if vocabulary is None else _overlap(tokenizer, vocabulary, target),
        start=start,
        factor=best_factor(mlm, tokenizer, probe, start),
        probe=str(texts) if isinstance(texts, str | Path) else "TEXTS",
    )


def _parts(
    model: str | Path | PreTrainedModel | SparseEncoder, tokenizer: PreTrainedTokenizerBase | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The masked language model and its tokenizer."""
    if isinstance(model, str | Path):
        mlm, own = load_checkpoint(model)
    elif isinstance(model, SparseEncoder):
        pairs = splade_modules(model)
        if not pairs:
            raise ModelError("this SparseEncoder is no SPLADE model: it has no masked-language-model head to inspect")
        mlm, own = pairs[0][0].auto_model, pairs[0][0].tokenizer
    elif tokenizer is None:
        raise ArgumentError("a model that is given as an object needs its tokenizer: inspect(mlm, tokenizer=...)")
    else:
        mlm, own = model, tokenizer
    return mlm, tokenizer or own


def _head(mlm: PreTrainedModel) -> Head:
    decoder = plain_decoder(mlm)
    layer = output_layer(mlm)
    norms = row_norms(layer.weight)
    return Head(
        terms=layer.weight.shape[0],
        dimensions=layer.weight.shape[1],
        norm_mean=float(norms.mean()),
        norm_max=float(norms.max()),
        norm_std=float(norms.std(correction=0)),
        anisotropy=anisotropy(layer.weight),
        tied=layer.weight is mlm.get_input_embeddings().weight,
        biased=layer.bias is not None,
        own_terms=layer is not decoder,
    )


def _vocabulary(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Vocabulary:
    return Vocabulary(
        size=len(tokenizer),
        cased=is_cased(tokenizer),
        accents=keeps_accents(tokenizer),
        redundancy=redundancy(tokenizer),
        tokens_per_word=fragmentation(tokenizer, texts).tokens_per_word,
    )


def _overlap(tokenizer: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase, given: object) -> Overlap:
    alignment = align(tokenizer, target)
    name = str(given) if isinstance(given, str | Path) else target.name_or_path or "TARGET"
    return Overlap(name, alignment.overlap, alignment.classes)


def _lines(found: Inspection) -> Iterator[tuple[str, str]]:
    """Label and value of each line of the table, without the verdict."""
    head, vocabulary, start = found.head, found.vocabulary, found.start
    ties = "terms of its own" if head.own_terms else "tied to the input embeddings" if head.tied else "not tied"
    yield "parameters", f"{found.parameters:,}"
    yield "head", f"{head.terms:,} x {head.dimensions}, {ties}, {'with' if head.biased else 'without'} bias"
    yield "row norms", f"mean {head.norm_mean:.3f}, max {head.norm_max:.3f}, std {head.norm_std:.3f}"
    yield "anisotropy", f"{head.anisotropy:.3f}"
    case, accents = "cased" if vocabulary.cased else "uncased", "kept" if vocabulary.accents else "stripped"
    yield "vocabulary", f"{vocabulary.size:,} tokens, {case}, accents {accents}"
    yield "", f"{vocabulary.redundancy:.1%} of them repeat another one's form"
    yield "", f"{vocabulary.tokens_per_word:.2f} tokens a word on the probe texts"
    if found.overlap is not None:
        yield "overlap", f"{found.overlap.share:.1%} of {found.overlap.target}"
        shares = [f"{kind} {c.matched / c.total:.0%}" for kind, c in found.overlap.classes.items() if c.total]
        yield "", ", ".join(shares)
    yield "probe", f"{start.pairs} pairs of half texts from {found.probe}, {start.batch} a batch"
    yield "active", f"{start.pooled_rate:.2%} of the terms in a text, {start.token_rate:.2%} in a token"
    yield "", f"{start.terms_mean:,.0f} terms a text, 99th percentile {start.terms_p99:,.0f}"
    yield (
        "scores",
        f"own document {short(start.positive_mean)}, any {short(start.score_mean)} ± {short(start.score_std)}",
    )
    yield "", f"largest {short(start.score_max)}; own document first {start.accuracy:.0%}"
    yield "loss", f"{start.loss:,.2f}, that of guessing {start.chance:.2f}"
