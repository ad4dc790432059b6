"""The figure of Normalized Wackiness Curves, drawn with matplotlib (`pip install 'vocable[figures]'`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from vocable.analysis.wackiness_curve import area
from vocable.errors import ArgumentError, require_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = (7.0, 4.5)  # inches
STYLES = ("-", "--", "-.", ":")


def wackiness_curves(curves: Mapping[str, np.ndarray]) -> Figure:
    """Draw the curve of each model ("Understanding Wacky Weights: A Dissection of SPLADE's Learned Term Importance",
    figure 4), the least wacky model first in the legend. `vocable.analysis.figures.save_figure` writes it to a file.

    Args:
        curves: by the model's name, what `vocable.analysis.wackiness_curve.curve` gives; one of nan alone (a model
            that expands nothing) has no place.

    Raises:
        ArgumentError: there is nothing to draw.
        MissingExtraError: matplotlib is not installed.
    """
    require_extra("matplotlib", "figures")
    from matplotlib.figure import Figure

    shown = {name: heights for name, heights in curves.items() if not np.isnan(heights).any()}
    if not shown:
        raise ArgumentError("nothing to draw: no term is an expansion")
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    for number, (name, heights) in enumerate(sorted(shown.items(), key=lambda pair: area(pair[1]))):
        places = np.linspace(0, 100, len(heights)) if len(heights) > 1 else np.array([50.0])
        style, marker = STYLES[number // 10 % len(STYLES)], "" if len(heights) > 1 else "o"
        axes.plot(places, heights, style, marker=marker, color=f"C{number}", label=f"{name} ({area(heights):.3f})")
    axes.set_xlabel("terms that are expansions, wackiest first (%)")
    axes.set_ylabel("mean Wackiness Score")
    axes.set_ylim(-0.02, 1.02)
    axes.grid(alpha=0.3)
    axes.legend(title="W-AUC", frameon=False, loc="lower left")
    return figure
