"""The log of a training: a line for the person who waits, the last line, and the figure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from vocable.core.figures import empty_panels, save_figure
from vocable.core.tables import counted, short
from vocable.encoding.protocol import Role
from vocable.training.advice import USUAL_TERMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Figures = Mapping[str, float]

LOG = "log.jsonl"  # file in the folder of a run
FIGURE = "training.png"  # file beside it
BLOCKS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 20  # characters of a curve


def read_log(path: Path) -> list[dict[str, float]]:
    """Return the lines of a log; a line that was not written whole is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def state_of(first: Figures, newest: Figures, measured: Figures) -> str:
    """Return the loss from the first to the newest figures, the terms, and the first of the measures.

    >>> terms = {"query_terms": 46.3, "document_terms": 881.0}
    >>> state_of({"loss": 1.791}, {"loss": 1.009} | terms, {"nDCG@10": 0.4123})
    'loss 1.79 → 1.01, 46 terms a query, 881 a document (usual 20 to 512), nDCG@10 0.412'
    """
    began = "" if first is newest else f"{short(first.get('loss', 0.0))} → "
    parts = [f"loss {began}{short(newest['loss'])}"] if "loss" in newest else []
    parts += _terms(newest)
    parts += [f"{name.replace('_', ' ')} {value:.3f}" for name, value in list(measured.items())[:1]]
    return ", ".join(parts)


def _terms(figures: Figures) -> list[str]:
    """Return the terms of a query and of a document, and the usual numbers of a side that is beyond them."""
    counts: dict[Role, float] = {side: figures[key] for side in USUAL_TERMS if (key := f"{side}_terms") in figures}
    texts, are_usual = list[str](), True
    for side, count in counts.items():
        low, high = USUAL_TERMS[side]
        usual = low <= count <= high
        are_usual &= usual
        noun = "terms a" if not texts else "a"
        texts.append(f"{count:,.0f} {noun} {side}{'' if usual else f' (usual {low} to {high})'}")
    return [f"{', '.join(texts)}{', as usual' if are_usual else ''}"] if texts else []


def curve(values: Sequence[float]) -> str:
    """Draw values as a line of at most 20 characters, each the mean of its part.

    >>> curve([4.0, 3.0, 2.0, 1.0])
    '█▆▃▁'
    """
    count = min(CURVE_WIDTH, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)] if count else []
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    if not means:
        return ""
    low, span = min(means), max(means) - min(means)
    return "".join(BLOCKS[round((mean - low) / span * (len(BLOCKS) - 1)) if span else 0] for mean in means)


def summary(lines: Sequence[Figures], steps: int, seconds: float) -> str:
    """Return the last line of a training: its steps, and the minutes of this run."""
    losses = [line for line in lines if "loss" in line]
    text = state_of(losses[0], losses[-1], {})
    if len(losses) > 1:
        text = f"{text} {curve([line['loss'] for line in losses])}"
    return f"{counted(steps, 'step')}, {seconds / 60:.1f} minutes: {text}"


def draw(lines: Sequence[Figures], path: Path) -> None:
    """Draw the losses, the terms and the gradient of a training."""
    steps = [line for line in lines if "base_loss" in line]
    figure = empty_panels(3, 3)
    loss, terms, gradient = figure.axes
    regularizers = [key for key in steps[-1] if key.endswith("_regularizer_loss")]
    _plot(loss, steps, ["base_loss", *regularizers], "loss")
    _plot(terms, steps, [f"{side}_terms" for side in USUAL_TERMS], "active terms of a text", scale="symlog")
    for number, (side, band) in enumerate(USUAL_TERMS.items()):
        terms.axhspan(*band, color=f"C{number}", alpha=0.08, label=f"usual of a {side}")
    terms.legend(fontsize="small")
    _plot(gradient, steps, ["grad_norm"], "norm of the gradient")
    save_figure(figure, path)


def _plot(axes: Axes, lines: Sequence[Figures], keys: Sequence[str], label: str, scale: str = "linear") -> None:
    for key in keys:
        points = [(line["step"], line[key]) for line in lines if key in line]
        axes.plot(*zip(*points, strict=True), label=key.removesuffix("_loss").replace("_", " "))
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.set_yscale(scale)
    if scale == "linear":
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if len(keys) > 1:
        axes.legend(fontsize="small")
