"""A tuning in a second: few documents and steps, in this process or in one that is killed."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.kill_moments import kill_at_call

FIGURES = {
    "QUESTIONS_PER_STEP": 8,
    "MICRO_BATCH": 4,
    "TRAINING_STEPS": 6,
    "SAVE_EVERY": 2,
    "DOCUMENT_LENGTH": 48,
}
MODULES = ("plan", "probes", "recipe", "tune")


def small_figures() -> Iterator[tuple[Any, str, object]]:
    """Yield the module, the name and the value of each figure that makes a tuning small."""
    for name in MODULES:
        module = import_module(f"vocable.tuning.{name}")
        yield from ((module, figure, value) for figure, value in FIGURES.items() if hasattr(module, figure))


def make_small() -> None:
    """Make the tunings of this process small."""
    for module, figure, value in small_figures():
        setattr(module, figure, value)


def write_corpus(path: Path, texts: list[str], count: int) -> Path:
    """Write documents of twelve sentences, each with a title, of random words of these texts."""
    rng, rows = random.Random(0), []
    words = sorted({word.strip(".,?!()").lower() for text in texts for word in text.split()})
    for number in range(count):
        sentences = [" ".join(rng.choices(words, k=rng.randint(5, 9))) + "." for _ in range(12)]
        rows.append({"_id": f"p{number}", "title": " ".join(rng.choices(words, k=4)), "text": " ".join(sentences)})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def tune_small(model: str, corpus: str, output: str, kill: tuple[str, str, int] | None = None) -> None:
    """Tune, in a process of its own that is killed at the n-th call of a function of a module, if one is given."""
    make_small()
    vars(os)["fsync"] = lambda file: None  # the power stays on
    if kill is not None:
        kill_at_call(*kill)
    import_module("vocable.tuning.tune").tune(model, corpus, output, device="cpu")
