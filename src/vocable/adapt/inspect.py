"""Inspect a backbone before training: head (Jang et al. 2026), vocabulary (Geng and Yang 2026), start, and repairs.

The thresholds are in `vocable.adapt.statistics`; the training's guard uses the same thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from io import StringIO
from pathlib import Path
from textwrap import wrap

from rich.console import Console
from rich.table import Table
from rich.text import Text
from sentence_transformers import SparseEncoder
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.alignment import Matched, align
from vocable.adapt.rescale import choose_factor
from vocable.adapt.stages import stage
from vocable.adapt.statistics import RULES, Start, anisotropy, measure_start, probe_texts, row_norms
from vocable.adapt.train_vocabulary import ACCENTS, CASES, redundancy, tells_apart
from vocable.core.tables import line_width, short, text_width
from vocable.data.bad_lines import tolerant
from vocable.encoding.graph import refuse_exported
from vocable.encoding.hub import BUILT_IN_MODEL
from vocable.errors import ArgumentError, ModelError
from vocable.language.coverage import Coverage, foreign
from vocable.options import CountOrZero, checked
from vocable.torch_models.asymmetric import route, static_embedding
from vocable.torch_models.fuse import plain_decoder, splade_modules
from vocable.torch_models.layouts import is_decoder
from vocable.torch_models.opening import load_tokenizer
from vocable.torch_models.output_vocabulary import has_bias, output_layer
from vocable.torch_models.provenance import Step, provenance
from vocable.torch_models.sparse_encoder import load_sparse_encoder
from vocable.torch_models.torch_model import HostTokenization

BUILT_IN_TEXTS = "pydocs:"  # always available; English about programming, no substitute for the texts to be searched
TARGET = BUILT_IN_MODEL  # it has the vocabulary of bert-base-uncased (Geng and Yang 2026), and needs no network
FORMULAS = {"relu": "log(1 + ReLU(x))", "log1p_relu": "log(1 + log(1 + ReLU(x)))"}


@dataclass(frozen=True)
class Obstacle:
    """A statistic beyond its threshold, with its repair."""

    text: str
    figure: float
    threshold: float
    source: str  # where the threshold comes from
    command: str | None  # the command that repairs it; None if nothing does


@dataclass(frozen=True)
class Head:
    """The output matrix W [v, d]."""

    terms: int  # v, including padding columns
    dimensions: int  # d
    norm_mean: float  # of the L2 norms of the rows
    norm_max: float
    norm_std: float
    anisotropy: float  # mean cosine of two rows
    tied: bool  # the same matrix as the input embeddings
    biased: bool
    own_terms: bool = False  # the terms are not the tokenizer's tokens


@dataclass(frozen=True)
class TokenizerFigures:
    """The vocabulary of the tokenizer."""

    size: int
    cased: bool
    accents: bool  # kept, not stripped
    redundancy: float  # share of tokens that repeat another token's form
    tokens_per_word: float  # on the probe texts, as `Coverage` counts them
    unit: str = "word"  # or character, in scripts without spaces
    foreign: str = ""  # figures of probe texts in another language


@dataclass(frozen=True)
class VocabularyOverlap:
    """The share of a target's vocabulary that the model also has."""

    target: str
    share: float
    classes: dict[str, Matched]


@dataclass(frozen=True)
class Inspection:
    """The figures of `inspect`; `str()` is a table with the verdict below."""

    name: str  # the model's name, for the next command
    architecture: str
    parameters: int
    head: Head
    vocabulary: TokenizerFigures
    overlap: VocabularyOverlap | None
    start: Start
    factor: int  # the best rescaling by `choose_factor`; 1, without a trial, if it could not help
    probe: str  # source of the probe texts, for the next command
    provenance: list[Step] = field(default_factory=list)  # as `vocable.provenance`
    kind: str = ""  # how a sparse encoder makes vectors from documents and queries

    @cached_property
    def findings(self) -> tuple[Obstacle, ...]:
        """The obstacles to a training, in the order of their repairs; empty if the model is ready.

        The vocabulary comes first, because a transfer replaces the head. The start shows whether the scale is wrong.
        The norm of the head shows which of two repairs a wrong scale needs.
        """
        head, rate, figures = self.head, self.start.pooled_rate, dict[str, float]()
        # The vocabulary. A model with separate output terms uses the tokenizer only to read.
        if not head.own_terms:
            if self.vocabulary.foreign:
                figures["foreign"] = self.vocabulary.tokens_per_word
            if self.vocabulary.cased and RULES["redundant"].beyond(self.vocabulary.redundancy):
                figures["redundant"] = self.vocabulary.redundancy
            if self.overlap is not None and self.overlap.share < RULES["overlap"].threshold:
                figures["overlap"] = self.overlap.share
        # The scale. If a training starts stably, only the number of active terms can be wrong.
        if self.start.stable:
            if RULES["dense"].beyond(rate):
                figures["dense"] = rate
            if rate < RULES["too_sparse"].threshold:
                figures["too_sparse"] = rate
        elif RULES["long_rows"].beyond(head.norm_mean) and self.factor > 1:
            figures["long_rows"] = head.norm_mean
        else:  # the head is not too large, or cannot be divided: too many terms are active
            figures["unstable"] = self.start.loss
        # The command of each repair takes the model that the previous repair makes.
        obstacles, model = list[Obstacle](), self.name
        for name, figure in figures.items():
            obstacle, model = self._finding(name, figure, model)
            obstacles.append(obstacle)
        return tuple(obstacles)

    def _finding(self, name: str, figure: float, model: str) -> tuple[Obstacle, str]:
        """Apply a rule; return the obstacle, and the model that the next repair starts from.

        The command repairs `model`, and its output folder is named after the inspected model.
        """
        rule, repair, factor, command = RULES[name], RULES[name].repair, str(self.factor), None
        limit = rule.threshold * (self.start.chance if name == "unstable" else 1)
        target = TARGET if self.overlap is None else self.overlap.target
        values = {"target": target, "threshold": rule.threshold, "limit": limit}
        for record in (self.head, self.vocabulary, self.start, self.overlap):
            values = {**(vars(record) if record is not None else {}), **values}
        if repair == "calibrate" and not self.head.biased:  # nothing to shift
            repair, factor = "rescale", "auto"
        if repair is not None:
            repairing = stage(repair)
            output = f"{Path(self.name).name}-{repairing.repair.outcome}"
            command = repairing.command(model, output, target=target, factor=factor, texts=self.probe)
            model = output
        return Obstacle(rule.message.format(**values), figure, limit, rule.source, command), model

    @property
    def next(self) -> str | None:
        """The next command; None when the model is ready to be trained."""
        return next((finding.command for finding in self.findings if finding.command), None)

    def to_json(self) -> dict[str, object]:
        """Return the inspection as JSON values."""
        values = asdict(self)
        if self.overlap is not None:
            values["overlap"]["classes"] = {kind: count._asdict() for kind, count in self.overlap.classes.items()}
        return values | {"findings": [asdict(finding) for finding in self.findings], "next": self.next}

    @property
    def verdict(self) -> str:
        """The findings as running text. Commands stay on one line, to be copied."""
        if not self.findings:
            return "Nothing to repair: ready to be trained."
        lines = []
        for number, finding in enumerate(self.findings, start=1):
            lines += wrap(f"{number}. {finding.text}", text_width(), subsequent_indent="   ")
            lines += wrap(f"({finding.source})", text_width(), initial_indent="   ", subsequent_indent="   ")
            if finding.command is not None:
                lines.append(f"   {finding.command}")
        return "\n".join(lines)

    def __str__(self) -> str:
        title = Text(f"{self.name} ({self.architecture})")
        table = Table(title=title, title_justify="left", box=None, show_header=False, padding=(0, 1, 0, 0))
        for label, value in _lines(self):
            table.add_row(Text(label), Text(value))
        console = Console(file=StringIO(), width=line_width())
        with console.capture() as rendered:
            console.print(table)
        lines = (line.rstrip() for line in rendered.get().splitlines())
        return "\n".join([*lines, "", self.verdict])


@checked
@tolerant
def inspect(
    model: str | Path | PreTrainedModel | SparseEncoder,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    target: str | Path | PreTrainedTokenizerBase | None = None,
    texts: str | Path | Sequence[str] = BUILT_IN_TEXTS,
    device: str | None = None,
    skip_bad: CountOrZero = 0,
) -> Inspection:
    """Measure what a model needs before it is trained.

    The figures are of the head, the vocabulary and the start of a training. The result ends with the next command.

    Args:
        model: a folder, a Hub id, vocable-mini or package:NAME/FOLDER; in Python also a SPLADE `SparseEncoder`, or a
            masked language model with its `tokenizer`.
        tokenizer: the tokenizer of a masked language model; other models bring their own.
        target: a vocabulary to compare with: a folder or a Hub id; in Python also a tokenizer.
        texts: source of the probe texts, best from your own corpus; in Python also the texts. At most 128 texts of at
            least 8 words are used, evenly spread.
        device: device of the models, such as cpu, cuda or cuda:1; by default the best available.
        skip_bad: number of malformed lines to skip; one more is an error.

    Raises:
        ModelError: no such model, no masked-language-model head, or a tokenizer that cannot be read.
        ArgumentError: a masked language model without its tokenizer.
        DataError: fewer than two usable probe texts, or a source that cannot be read.
    """
    name = str(model) if isinstance(model, str | Path) else None
    if isinstance(model, str | Path):
        model = load_sparse_encoder(model, device=device)
    refuse_exported(model)
    # Find the masked language model, and what was done to it.
    steps, kind = list[Step](), f"max pooling of {FORMULAS['relu']}"  # the default of `load` for a checkpoint
    if isinstance(model, SparseEncoder):
        if not (pairs := splade_modules(model)):
            raise ModelError("this SparseEncoder has no masked-language-model head to inspect: it is no SPLADE model")
        transformer, steps, kind = pairs[0][0], provenance(model), _kind(model)
        mlm, tokenizer = transformer.auto_model, tokenizer or transformer.tokenizer
    else:
        mlm = model
    if tokenizer is None:
        raise ArgumentError("a masked language model needs its tokenizer: inspect(mlm, tokenizer=...)")
    # Compare with the target vocabulary.
    overlap = None
    if target is not None:
        other = load_tokenizer(target) if isinstance(target, str | Path) else target
        alignment = align(tokenizer, other)
        label = str(target) if isinstance(target, str | Path) else other.name_or_path or "TARGET"
        overlap = VocabularyOverlap(label, alignment.overlap, alignment.classes)
    # Measure the start of a training. Factors are tried only if the rows are long.
    probe = probe_texts(texts)
    start = measure_start(mlm, tokenizer, probe)
    coverage = Coverage.of(probe, HostTokenization(tokenizer))
    head = head_of(mlm)
    long = RULES["long_rows"].beyond(head.norm_mean)
    return Inspection(
        name=name or mlm.name_or_path or "MODEL",
        architecture=type(mlm).__name__,
        parameters=mlm.num_parameters(),
        head=head,
        vocabulary=TokenizerFigures(
            size=len(tokenizer),
            cased=tells_apart(tokenizer, CASES),
            accents=tells_apart(tokenizer, ACCENTS),
            redundancy=redundancy(tokenizer),
            tokens_per_word=coverage.tokens_per_word,
            unit=coverage.unit,
            foreign=foreign(coverage.tokens_per_word, coverage.unknown_share, coverage.unit),
        ),
        overlap=overlap,
        start=start,
        factor=choose_factor(mlm, tokenizer, probe, start)[0] if long else 1,
        probe=str(texts) if isinstance(texts, str | Path) else "TEXTS",
        provenance=steps,
        kind=kind,
    )


def _kind(model: SparseEncoder) -> str:
    """Describe how a sparse encoder makes vectors from documents, and from queries."""
    transformer, pooling = splade_modules(model)[-1]  # queries come first
    mlm, queries = transformer.auto_model, route(model, "query")
    phrases = [f"{pooling.pooling_strategy} pooling of {FORMULAS[pooling.activation_function]}"]
    if is_decoder(mlm):
        causal = getattr(mlm.config, "is_causal", True)
        phrases.append("a token sees only earlier tokens" if causal else "a token sees the whole text")
    if static_embedding(model, "query") is not None:
        phrases.append("queries looked up in token weights")
    elif queries[0] is not route(model, "document")[0]:
        phrases.append(f"queries encoded by a separate {type(queries[0].auto_model).__name__}")
    elif len(queries) > 2:
        phrases.append("queries keep only the terms of their own tokens")
    return ", ".join(phrases)


def head_of(mlm: PreTrainedModel) -> Head:
    """Measure the output matrix of a masked language model."""
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
        biased=has_bias(layer),
        own_terms=layer is not decoder,
    )


def _lines(inspection: Inspection) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line of the table."""
    head, vocabulary, start = inspection.head, inspection.vocabulary, inspection.start
    ties = "own terms" if head.own_terms else "tied to the input embeddings" if head.tied else "not tied"
    for i, step in enumerate(inspection.provenance):
        shown = {k: f"{value:.4g}" if isinstance(value, float) else value for k, value in step.items() if k != "verb"}
        figures = [f"{k} {value}" for k, value in shown.items() if isinstance(value, str | int)]
        yield ("" if i else "provenance"), ", ".join([step["verb"], *figures])
    yield "kind", inspection.kind
    yield "parameters", f"{inspection.parameters:,}"
    yield "head", f"{head.terms:,} x {head.dimensions}, {ties}, {'with' if head.biased else 'without'} bias"
    yield "row norms", f"mean {head.norm_mean:.3f}, max {head.norm_max:.3f}, std {head.norm_std:.3f}"
    yield "anisotropy", f"{head.anisotropy:.3f}"
    case, accents = "cased" if vocabulary.cased else "uncased", "kept" if vocabulary.accents else "stripped"
    yield "vocabulary", f"{vocabulary.size:,} tokens, {case}, accents {accents}"
    yield "", f"{vocabulary.redundancy:.1%} of them repeat another token's form"
    yield "", f"{vocabulary.tokens_per_word:.2f} tokens per {vocabulary.unit} on the probe texts"
    if inspection.overlap is not None:
        yield "overlap", f"{inspection.overlap.share:.1%} of {inspection.overlap.target}"
        shares = [f"{kind} {c.matched / c.total:.0%}" for kind, c in inspection.overlap.classes.items() if c.total]
        yield "", ", ".join(shares)
    yield "probe", f"{start.pairs} pairs of half texts from {inspection.probe}, {start.batch} per batch"
    yield "active", f"{start.pooled_rate:.2%} of the terms in a text, {start.token_rate:.2%} in a token"
    yield "", f"{start.terms_mean:,.0f} terms per text, 99th percentile {start.terms_p99:,.0f}"
    any_score = f"{short(start.score_mean)} ± {short(start.score_std)}"
    yield "scores", f"own document {short(start.positive_mean)}, any {any_score}"
    yield "", f"largest {short(start.score_max)}; own document first {start.accuracy:.0%}"
    stable = f"{RULES['unstable'].threshold:g} times the loss of chance, {start.chance:.2f}"
    yield "loss", f"{start.loss:,.2f} at the start; stable up to {stable}"
