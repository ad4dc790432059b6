"""Guard of a retrieval training: stops a collapsed run and names the likely cause and repair.

The rules are in `vocable.adapt.statistics.RULES`; docs/guard.md gives the reason for every figure. If scores are too
large from the start, each repair is tried on a copy of the model, and the start of the copy is measured. Otherwise the
cause follows from the statistics of the batches.
"""

from __future__ import annotations

import logging
import shlex
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from sentence_transformers import SparseEncoder
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_callback import ExportableState

from vocable.adapt.calibrate import calibrate
from vocable.adapt.rescale import FACTORS, choose_factor
from vocable.adapt.stages import RATE, stage
from vocable.adapt.statistics import RULES, Start, measure_start, probe_texts, row_norms
from vocable.core.storage import read_record, write_record
from vocable.core.tables import short
from vocable.encoding.pooling import POOLINGS
from vocable.errors import CollapseError, DataError, ModelError
from vocable.objectives.settings import Cosine, InfoNCE
from vocable.torch_models.fuse import parts, splade_modules
from vocable.torch_models.output_vocabulary import has_bias, output_layer
from vocable.training import distributed
from vocable.training.callbacks import last_checkpoint
from vocable.training.objective import BatchStatistics, Monitor
from vocable.training.recipe import Recipe, TrainingSettings

logger = logging.getLogger(__name__)

Side = Literal["query", "document"]
PLURAL: dict[Side, str] = {"query": "queries", "document": "documents"}

FALL = 0.75  # a smaller share of the active terms of the previous COMPARED_STEPS steps is a fall
COMPARED_STEPS = 20
PROBE_SIZE = 64  # texts, two batches: the user is waiting
FIRST_STEPS = 40
SPREADS = 0.75  # a temperature that suits scores, in standard deviations of a query's scores
CHANGE = 10  # factor by which a rate or a weight is lowered or raised
STOPPED = "stopped.json"  # file in the folder of the run


class CollapseKind(StrEnum):
    """Kinds of failed trainings."""

    NON_FINITE = "a number that is not finite"
    HOPELESS = "hopeless scores"
    DENSE_COLLAPSE = "dense collapse"
    UNSTABLE = "scores that stay too large"
    DENSE = "vectors that stay dense"
    EMPTY = "dead vectors"
    SHRINKING = "shrinking vectors"
    IDLE = "nothing to learn"
    ALIKE = "texts that are all alike"


class Collapse(NamedTuple):
    """A detected collapse."""

    kind: CollapseKind
    step: int
    batch: BatchStatistics
    first: BatchStatistics  # the first batch of the run


class CollapseDetector:
    """Judges the batch of each step, given the warm-up, the ramps and the regularized sides of the run."""

    def __init__(self, settings: TrainingSettings) -> None:
        parts = settings.regularizers
        self._warm = round(settings.steps * settings.warmup_share)
        self._contrastive = all(isinstance(loss, InfoNCE | Cosine) for loss in settings.losses)
        self._sides = [
            (part.weight > 0 or parts.joint.weight > 0, round(settings.steps * max(part.share, parts.joint.share)))
            for part in (parts.query, parts.document)
        ]
        self._running: Counter[CollapseKind] = Counter()
        self._terms: deque[tuple[float, float]] = deque(maxlen=2 * COMPARED_STEPS)
        self._first: BatchStatistics | None = None

    def state(self) -> dict[str, object]:
        """Return the state for a checkpoint, as JSON values; no checkpoint is written while a condition holds."""
        return {"first": None if self._first is None else asdict(self._first), "terms": [*map(list, self._terms)]}

    def restore(self, state: dict[str, Any]) -> None:
        self._first = BatchStatistics(**state["first"]) if state["first"] else None
        self._terms.extend((queries, documents) for queries, documents in state["terms"])

    @property
    def suspicious(self) -> bool:
        """True while a condition holds, even if it has not held for long enough yet."""
        return bool(self._running)

    def see(self, step: int, batch: BatchStatistics) -> Collapse | None:
        """Judge the batch of a step, counted from 1; return the first rule that is met, if any."""
        self._first = self._first or batch
        self._terms.append((batch.query_terms, batch.document_terms))
        holding = set(self._conditions(step, batch))
        self._running = Counter({kind: self._running[kind] + 1 for kind in holding})
        met = [kind for kind in CollapseKind if self._running[kind] >= RULES[kind.name.lower()].patience]
        return Collapse(met[0], step, batch, self._first) if met else None

    def _conditions(self, step: int, batch: BatchStatistics) -> list[CollapseKind]:
        if not batch.finite:
            return [CollapseKind.NON_FINITE]
        unstable = not batch.stable
        shares = (batch.query_terms / batch.terms, batch.document_terms / batch.terms)
        shrinking = False
        if len(self._terms) == 2 * COMPARED_STEPS:
            halves = [
                (fmean(side[:COMPARED_STEPS]), fmean(side[COMPARED_STEPS:])) for side in zip(*self._terms, strict=True)
            ]
            limit = RULES["shrinking"].threshold
            shrinking = any(now < limit and now <= FALL * earlier for earlier, now in halves)
        conditions = {
            CollapseKind.HOPELESS: RULES["hopeless"].beyond(batch.loss, batch.chance),
            CollapseKind.DENSE_COLLAPSE: unstable and RULES["dense_collapse"].beyond(max(shares)),
            CollapseKind.UNSTABLE: unstable and step > self._warm,
            CollapseKind.DENSE: any(
                RULES["dense"].beyond(share) and penalized and step > ramp
                for share, (penalized, ramp) in zip(shares, self._sides, strict=True)
            ),
            CollapseKind.EMPTY: max(batch.empty_queries, batch.empty_documents) >= RULES["empty"].threshold,
            CollapseKind.SHRINKING: shrinking,
            # Later such a loss is success.
            CollapseKind.IDLE: self._contrastive
            and step <= FIRST_STEPS
            and not RULES["idle"].beyond(batch.loss, batch.chance),
            CollapseKind.ALIKE: batch.alike and step > self._warm,
        }
        return [kind for kind, holds in conditions.items() if holds]


def describe(collapse: Collapse, recipe: Recipe) -> str:
    """Return the statistics that show a collapse."""
    batch, side = collapse.batch, _side(collapse, recipe)
    if collapse.kind is CollapseKind.NON_FINITE:
        return "the loss or its gradient is not finite"
    if collapse.kind is CollapseKind.EMPTY:
        empty = max(batch.empty_queries, batch.empty_documents)
        return f"{empty:.0%} of the {PLURAL[side]} have no active term"
    count = batch.query_terms if side == "query" else batch.document_terms
    if collapse.kind is CollapseKind.SHRINKING:
        return f"{count:.1f} of {batch.terms:,} terms active in a {side}, and falling"
    if collapse.kind is CollapseKind.IDLE:
        return f"the loss is almost 0 ({batch.loss:.1g}; chance {short(batch.chance)})"
    loss = f"loss {short(batch.loss)}, the loss of chance is {short(batch.chance)}"
    return f"{count:,.0f} of {batch.terms:,} terms active in a {side}, {loss}"


def advise(collapse: Collapse, recipe: Recipe, model: SparseEncoder, texts: Sequence[str]) -> str:
    """Return the likely cause of a collapse and its repair; repairs are tried on a copy of the model."""
    first, side = collapse.first, _side(collapse, recipe)
    if not first.finite:
        return f"this was already so at step 1: inspect the model, `vocable inspect {shlex.quote(recipe.model)}`"
    if collapse.kind is CollapseKind.IDLE:
        return _harder(collapse.batch, recipe)
    if collapse.kind in (CollapseKind.EMPTY, CollapseKind.SHRINKING):
        if max(first.empty_queries, first.empty_documents) >= RULES["empty"].threshold:
            factor = _factor(recipe)
            less = f", or rescale less (`rescale.factor: {factor / 2:g}` in the recipe)" if factor > 1 else ""
            return f"this was already so at step 1, the output bias is too low: {_calibration(recipe)}{less}"
        name, weight = _regularizer(recipe, side)
        return _changed(f"regularizers.{name}", weight, weight / CHANGE) if weight else _lower_rate(recipe)
    if collapse.kind is CollapseKind.DENSE:
        name, weight = _regularizer(recipe, side)
        other = _changed(f"regularizers.{name}", weight, weight * CHANGE) if weight else _lower_rate(recipe)
        return f"{other}, or {_calibration(recipe)}"
    if collapse.kind is CollapseKind.ALIKE and first.alike:
        again = "pre-train the model, at a lower rate if it was pre-trained"
        return f"this was already so at step 1: {again}, or {_calibration(recipe)}"
    if not first.stable:
        return f"this was so from the start: {_for_the_unstable(collapse, recipe, model, texts)}"
    return f"this was not yet so at step 1: {_lower_rate(recipe)}"


def _harder(batch: BatchStatistics, recipe: Recipe) -> str:
    """Return the advice for a loss of almost 0: a temperature that suits the scores, or else hard negatives."""
    temperature = float(f"{SPREADS * batch.spread:.2g}")
    negatives = "add hard negatives (vocable mine, data.negatives)"
    if temperature <= recipe.training.monitored_loss.temperature:
        return negatives
    loss = f"{{name: {recipe.training.losses[0].name}, temperature: {temperature:g}}}"
    return f"divide the scores by more (`training.losses: [{loss}]` in the recipe), or {negatives}"


def _changed(key: str, now: float, then: float) -> str:
    return f"{'raise' if then > now else 'lower'} training.{key} from {now:g} to {then:g}"


def _lower_rate(recipe: Recipe) -> str:
    rate = recipe.training.learning_rate
    return _changed("learning_rate", rate, rate / CHANGE)


def _for_the_unstable(collapse: Collapse, recipe: Recipe, model: SparseEncoder, texts: Sequence[str]) -> str:
    """Return the repairs that make the start stable; all repairs unless a single repair is enough and can be tried."""
    try:
        tried = list(_tried(recipe, model, texts))
    except (DataError, ModelError):  # too few texts for a probe, or a head that cannot be changed
        tried = []
    if not tried:
        batch = collapse.batch
        ratio = batch.loss / (RULES["unstable"].threshold * batch.chance)
        factor = next((k for k in FACTORS[1:] if k**2 >= ratio), FACTORS[-1])  # a score is a product of two vectors
        return f"{_calibration(recipe)}, or {_rescaling(recipe, factor)}"
    if helping := [repair for repair, helps in tried if helps]:
        return ", or ".join(helping)
    return f"{', and '.join(repair for repair, _ in tried)}; neither is enough alone"


def _tried(recipe: Recipe, model: SparseEncoder, texts: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield rescaling and calibration with the start after each, the likelier repair first; nothing if already stable.

    The second value is True if the repair helps: the start is stable, and not because terms are missing.
    """
    transformer, pooling = splade_modules(model)[-1]
    mlm, tokenizer = transformer.auto_model, transformer.tokenizer
    probe = probe_texts(texts)[:PROBE_SIZE]
    options: Any = {
        "temperature": recipe.training.monitored_loss.temperature,
        "pooling": pooling.pooling_strategy,
        "activation": pooling.activation_function,
    }
    factor, starts = choose_factor(mlm, tokenizer, probe, **options)
    if factor == 1 and starts[1].stable:
        return
    repairs = []
    if factor > 1:
        repairs.append((_after(_rescaling(recipe, factor), starts[factor]), starts[factor].stable))  # has active terms
    layer = output_layer(mlm)
    if has_bias(layer):
        documents = SparseEncoder(modules=[transformer, pooling], device=str(model.device))
        calibrated = parts(calibrate(documents, probe, activation_rate=RATE)).mlm
        start = measure_start(calibrated, tokenizer, probe, **options)
        helps = start.stable and start.score_max > 0 and start.alive(starts[1])
        repairs.append((_after(_calibration(recipe), start), helps))
    long = float(row_norms(layer.weight).mean()) > RULES["long_rows"].threshold
    yield from repairs if long else reversed(repairs)


def _after(repair: str, start: Start) -> str:
    return f"{repair}, after which the loss starts at {short(start.loss)} (chance {short(start.chance)})"


def _regularizer(recipe: Recipe, side: Side) -> tuple[str, float]:
    """Return the key and weight of the regularizer that acts on a side: its own, or else the joint regularizer."""
    regularizers = recipe.training.regularizers
    weight = (regularizers.query if side == "query" else regularizers.document).weight
    return (side, weight) if weight else ("joint", regularizers.joint.weight)


def _side(collapse: Collapse, recipe: Recipe) -> Side:
    batch = collapse.batch
    if collapse.kind is CollapseKind.EMPTY:
        return "query" if batch.empty_queries > batch.empty_documents else "document"
    if collapse.kind is CollapseKind.SHRINKING:
        return "query" if batch.query_terms < batch.document_terms else "document"
    counts: dict[Side, float] = {"query": batch.query_terms, "document": batch.document_terms}
    if collapse.kind is CollapseKind.DENSE:  # a side without a regularizer may be dense
        counts = {side: count for side, count in counts.items() if _regularizer(recipe, side)[1]}
    return max(counts, key=lambda side: counts[side])


def _rescaling(recipe: Recipe, factor: int) -> str:
    key = stage("rescale").repair.key.format(factor=f"{_factor(recipe) * factor:g}")
    return f"rescale by {factor} (`{key}` in the recipe)"


def _calibration(recipe: Recipe) -> str:
    pooling = ["--pooling", recipe.pooling] if not POOLINGS[recipe.pooling].stock else []
    calibrating = stage("calibrate")
    command = calibrating.command(recipe.model, "DIR", *pooling, texts="TEXTS")
    return f"calibrate to {RATE:.0%} (`{command}`, or `{calibrating.repair.key}` in the recipe)"


def _factor(recipe: Recipe) -> float:
    return 1.0 if recipe.rescale is None or recipe.rescale.factor == "auto" else recipe.rescale.factor


class Guard(TrainerCallback, ExportableState):
    """Judges every step and, by `training.guard`, stops the trainer or warns once; tries repairs with `texts`.

    Checkpoints keep its state. No checkpoint is written while a condition holds, so the guard comes after the callbacks
    of transformers, which decide about checkpoints. All processes judge the batch of the first process.
    """

    def __init__(
        self, recipe: Recipe, model: SparseEncoder, texts: Sequence[str], monitor: Monitor, work: Path
    ) -> None:
        self._recipe, self._model, self._texts, self._monitor, self._work = recipe, model, texts, monitor, work
        self._detector = None if recipe.training.guard == "off" else CollapseDetector(recipe.training)
        self._gradient_is_finite = True
        self._collapse: Collapse | None = None

    def state(self) -> dict[str, object]:
        # There is no detector after a warning, or with the guard off.
        return {"args": {}, "attributes": {"watch": None if self._detector is None else self._detector.state()}}

    def on_train_begin(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
        kept = state.stateful_callbacks[type(self).__name__]["attributes"]["watch"]
        if kept is None:
            self._detector = None
        elif self._detector is not None:
            self._detector.restore(kept)

    def on_pre_optimizer_step(self, args: object, state: object, control: object, **kwargs: object) -> None:
        if self._detector is not None:
            gradients = [weight.grad for weight in self._model.parameters() if weight.grad is not None]
            self._gradient_is_finite = bool(nn.utils.get_total_norm(gradients).isfinite())

    def on_step_end(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        batch = self._monitor.newest
        if self._detector is None or batch is None:
            return
        batch = distributed.from_first(replace(batch, finite=batch.finite and self._gradient_is_finite))
        collapse = self._detector.see(state.global_step, batch)
        if self._detector.suspicious:
            control.should_save = False
        if collapse is None:
            return
        self._detector = None
        if self._recipe.training.guard == "stop":
            self._collapse = collapse
            control.should_training_stop = True
        elif distributed.is_first():
            logger.warning(self._message(collapse))

    def check(self) -> None:
        """Raise `CollapseError` after a training that was stopped, and write the reason to the run's folder."""
        if self._collapse is None:
            return
        with distributed.first_alone():
            if distributed.is_first():
                checkpoint = last_checkpoint(self._work / "train")
                kept = "" if checkpoint is None else f"; the last good checkpoint is {checkpoint}"
                reason = f"stopped at {self._message(self._collapse)}{kept}"
                write_record(self._work / STOPPED, {"reason": reason})
            refuse_stopped(self._work)

    def _message(self, collapse: Collapse) -> str:
        advice = advise(collapse, self._recipe, self._model, self._texts)
        return f"step {collapse.step}, {collapse.kind}: {describe(collapse, self._recipe)}; {advice}"


def refuse_stopped(work: Path) -> None:
    """Raise `CollapseError` if an earlier call stopped the run in `work`, with its reason."""
    if (work / STOPPED).exists():
        raise CollapseError(read_record(work / STOPPED, dict[str, str])["reason"])
