"""Likely causes of a failed retrieval training, from its figures, and repairs.

If scores are too large from the start, each repair is tried on a copy of the model, and the start of the copy is
measured. Otherwise a setting is named only if its own figures are large: the share of a regularizer in the loss, the
movement of the weights in a step, or the spread of the scores per temperature.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from sentence_transformers import SparseEncoder

from vocable.adapt.calibrate import calibrate
from vocable.adapt.rescale import FACTORS, choose_factor
from vocable.adapt.stages import RATE, stage
from vocable.adapt.statistics import RULES, Start, measure_start, probe_texts, row_norms
from vocable.core.tables import short
from vocable.encoding.pooling import POOLINGS
from vocable.encoding.protocol import Role
from vocable.errors import DataError, ModelError
from vocable.torch_models.fuse import parts, splade_modules
from vocable.torch_models.output_vocabulary import has_bias, output_layer
from vocable.training.detector import Collapse, CollapseKind, History
from vocable.training.objective import BatchStatistics
from vocable.training.recipe import Recipe

PLURAL: dict[Role, str] = {"query": "queries", "document": "documents"}

# Usual numbers of active terms: trained models of the papers and of ours have 20 to 70 and 60 to 350.
USUAL_TERMS: dict[Role, tuple[int, int]] = {"query": (5, 128), "document": (20, 512)}
PROBE_SIZE = 64  # texts, two batches: the user is waiting
SPREADS = 0.75  # a temperature that suits scores, in standard deviations of a query's scores
SUITABLE = (0.02, 50.0)  # standard deviations of a query's scores per temperature, beyond which it is the cause
CHANGE = 10  # factor by which a rate or a weight is lowered or raised


def describe(collapse: Collapse, recipe: Recipe) -> str:
    """Return the statistics that show a collapse."""
    batch, side = collapse.batch, _side(collapse, recipe)
    if collapse.kind is CollapseKind.NON_FINITE:
        return "the loss or its gradient is not finite"
    if collapse.kind is CollapseKind.EMPTY:
        empty = max(batch.empty_queries, batch.empty_documents)
        return f"{empty:.0%} of the {PLURAL[side]} have no active term"
    if collapse.kind is CollapseKind.SHRINKING:
        count = batch.query_terms if side == "query" else batch.document_terms
        return f"{count:.1f} of {batch.terms:,} terms active in a {side}, and falling"
    if collapse.kind is CollapseKind.LOST:
        first = short(collapse.first.loss)
        return f"loss {short(batch.loss)}, as by guessing ({short(batch.chance)}), and {first} at step 1"
    if collapse.kind is CollapseKind.IDLE:
        return f"the loss is almost 0 ({batch.loss:.1g}; chance {short(batch.chance)})"
    return _size(batch, side)


def _size(batch: BatchStatistics, side: Role) -> str:
    count = batch.query_terms if side == "query" else batch.document_terms
    loss = f"loss {short(batch.loss)}, the loss of chance is {short(batch.chance)}"
    return f"{count:,.0f} of {batch.terms:,} terms active in a {side}, {loss}"


def at_the_start(first: BatchStatistics, recipe: Recipe, model: SparseEncoder, texts: Sequence[str]) -> str | None:
    """Return the figures of a first batch that hinders a training, and the repair; None for another first batch."""
    densest: Role = "query" if first.query_terms > first.document_terms else "document"
    dense = RULES["dense"].beyond(max(first.query_terms, first.document_terms) / first.terms)
    if not first.finite or (first.stable and not dense and not _too_warm(first, recipe)):
        return None
    if first.stable and not dense:
        return f"loss {short(first.loss)}, as by guessing; {_temperature(first, recipe)}"
    return f"{_size(first, densest)}; {_for_the_unstable(first, recipe, model, texts)}"


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
        return likely_cause(collapse.history, recipe)
    if collapse.kind is CollapseKind.LOST:
        return likely_cause(collapse.history, recipe)
    if collapse.kind is CollapseKind.DENSE:
        share = (first.query_terms if side == "query" else first.document_terms) / first.terms
        if RULES["restless"].beyond(collapse.history.movement) and not RULES["dense"].beyond(share):
            return f"this was not yet so at step 1, and {_moved(collapse.history)}: {_lower_rate(recipe)}"
        name, weight = _regularizer(recipe, side)
        other = _changed(f"regularizers.{name}", weight, weight * CHANGE) if weight else _lower_rate(recipe)
        return f"{other}, or {_calibration(recipe)}"
    if collapse.kind is CollapseKind.ALIKE and first.alike:
        if _too_warm(first, recipe):
            return f"this was already so at step 1: {_temperature(first, recipe)}"
        again = "pre-train the model, at a lower rate if it was pre-trained"
        return f"this was already so at step 1: {again}, or {_calibration(recipe)}"
    if not first.stable:
        return f"this was so from the start: {_for_the_unstable(first, recipe, model, texts)}"
    return f"this was not yet so at step 1: {_lower_rate(recipe)}"


def likely_cause(history: History, recipe: Recipe) -> str:
    """Return the likely cause of lost terms or a lost loss, with its figures, and the repair."""
    if (cause := known_cause(history, recipe)) is not None:
        return cause
    costs = [f", the {name} regularizer at most {share:.1%} of the loss" for name, share in history.shares.items()]
    figures = f"{_moved(history)}{''.join(costs)}"
    return f"{figures}: no setting explains it; look at the examples, then {_lower_rate(recipe)}"


def known_cause(history: History, recipe: Recipe) -> str | None:
    """Return the settings whose own figures are large, with these figures and the repair; None for a sound run."""
    if RULES["restless"].beyond(history.movement):
        return f"{_moved(history)}: {_lower_rate(recipe)}"
    active = recipe.training.regularizers.active
    costly = {name: share for name, share in history.shares.items() if RULES["costly"].beyond(share)}
    if not costly:
        return None
    shares = " and ".join(f"{share:.0%} ({name})" for name, share in costly.items())
    weights = {name: active[name].weight for name in costly}
    repairs = [_changed(f"regularizers.{name}", weight, weight / CHANGE) for name, weight in weights.items()]
    return f"regularizers reached {shares} of the loss: {', and '.join(repairs)}"


def _moved(history: History) -> str:
    return f"a step moved the weights by up to {history.movement:.1%}"


def _harder(batch: BatchStatistics, recipe: Recipe) -> str:
    """Return the advice for a loss of almost 0: a temperature that suits the scores, or else hard negatives."""
    negatives = "add hard negatives (vocable mine, data.negatives)"
    if _suitable(batch) <= recipe.training.monitored_loss.temperature:
        return negatives
    return f"divide the scores by more ({_loss_with(_suitable(batch), recipe)}), or {negatives}"


def _suitable(batch: BatchStatistics) -> float:
    """Return a temperature that suits the scores of a batch."""
    return float(f"{SPREADS * batch.spread:.2g}")


def _loss_with(temperature: float, recipe: Recipe) -> str:
    loss = f"{{name: {recipe.training.losses[0].name}, temperature: {temperature:g}}}"
    return f"`training.losses: [{loss}]` in the recipe"


def _too_warm(batch: BatchStatistics, recipe: Recipe) -> bool:
    """Return whether scores differ, and the temperature is so large that the loss does not show it."""
    least = SUITABLE[0] * recipe.training.monitored_loss.temperature
    guesses = abs(batch.loss - batch.chance) <= RULES["lost"].threshold * batch.chance
    return guesses and batch.spread < least and batch.spread > SUITABLE[0] * abs(batch.score)


def _too_cold(batch: BatchStatistics, recipe: Recipe) -> bool:
    """Return whether vectors are sparse, so that scores are too large for the temperature alone."""
    is_sparse = max(batch.query_terms, batch.document_terms) <= RATE * batch.terms
    return is_sparse and batch.spread > SUITABLE[1] * recipe.training.monitored_loss.temperature


def _temperature(batch: BatchStatistics, recipe: Recipe) -> str:
    given = recipe.training.monitored_loss.temperature
    figures = f"the scores of a query differ by {batch.spread:.2g}, and are divided by {given:g}"
    return f"{figures}: {_loss_with(_suitable(batch), recipe)}"


def _changed(key: str, now: float, then: float) -> str:
    return f"{'raise' if then > now else 'lower'} training.{key} from {now:g} to {then:g}"


def _lower_rate(recipe: Recipe) -> str:
    rate = recipe.training.learning_rate
    return _changed("learning_rate", rate, rate / CHANGE)


def _for_the_unstable(batch: BatchStatistics, recipe: Recipe, model: SparseEncoder, texts: Sequence[str]) -> str:
    """Return the repairs that make the start stable; all repairs unless a single repair is enough and can be tried."""
    if _too_cold(batch, recipe):
        return _temperature(batch, recipe)
    try:
        tried = list(_tried(recipe, model, texts))
    except (DataError, ModelError):  # too few texts for a probe, or a head that cannot be changed
        tried = []
    if not tried:
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


def _regularizer(recipe: Recipe, side: Role) -> tuple[str, float]:
    """Return the key and weight of the regularizer that acts on a side: its own, or else the joint regularizer."""
    regularizers = recipe.training.regularizers
    weight = (regularizers.query if side == "query" else regularizers.document).weight
    return (side, weight) if weight else ("joint", regularizers.joint.weight)


def _side(collapse: Collapse, recipe: Recipe) -> Role:
    batch = collapse.batch
    if collapse.kind is CollapseKind.EMPTY:
        return "query" if batch.empty_queries > batch.empty_documents else "document"
    if collapse.kind is CollapseKind.SHRINKING:
        return "query" if batch.query_terms < batch.document_terms else "document"
    counts: dict[Role, float] = {"query": batch.query_terms, "document": batch.document_terms}
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
