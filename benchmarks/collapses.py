"""Trainings that are made to fail: what vocable says of each, and at which step.

    python benchmarks/collapses.py                            # every failure: some ten minutes on a core
    python benchmarks/collapses.py rate-x100 --override training.learning_rate=5e-4    # one, as its advice says

A failure changes one thing of the recipe `my-pairs`, of 30 steps on short texts. `--keep FOLDER` keeps models and logs.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import vocable as vo
from vocable.data import Example, read_examples
from vocable.errors import VocableError
from vocable.torch_models.fuse import splade_modules
from vocable.torch_models.output_vocabulary import output_layer

PAIRS = 700
STEPS = 30
FAILURES: Mapping[str, Sequence[str]] = {
    "healthy": (),
    "rate-x10": ("training.learning_rate=5e-4",),
    "rate-x100": ("training.learning_rate=5e-3",),
    "regularizers-x10": ("training.regularizers={query: 0.03, document: 0.008}",),
    "regularizers-x100": ("training.regularizers={query: 0.3, document: 0.08}",),
    "regularizers-x10000": ("training.regularizers={query: 30, document: 8}",),
    "large-head": ("rescale.factor=0.125",),
    "dead-head": ("model=dead",),
    "wrong-pairs": ("data.examples=[wrong.jsonl]",),
    "one-example": ("data.examples=[one.jsonl]",),
    "labels-swapped": ("data.examples=[swapped.jsonl]", "data.negatives=1"),
    "temperature-0.01": ("training.losses=[{name: info_nce, temperature: 0.01}]",),
    "temperature-1": ("training.losses=[{name: info_nce, temperature: 1}]",),
    "temperature-1000": ("training.losses=[{name: info_nce, temperature: 1000}]",),
    "overflow": ("rescale.factor=1e-37", "training.dtype=bfloat16"),
}


class Messages(logging.Handler):
    """Collects the messages of trainings."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def write_inputs(folder: Path, name: str) -> None:
    """Write examples of the kinds that fail, and the model without active terms."""
    pairs = list(islice(read_examples("pydocs:#train"), PAIRS))
    others = pairs[PAIRS // 2 :] + pairs[: PAIRS // 2]
    kinds = {
        "wrong": [Example(pair.query, other.positive) for pair, other in zip(pairs, others, strict=True)],
        "one": pairs[:1] * PAIRS,
        "swapped": [Example(p.query, other.positive, (p.positive,)) for p, other in zip(pairs, others, strict=True)],
    }
    for kind, examples in kinds.items():
        (folder / f"{kind}.jsonl").write_bytes(b"".join(example.line for example in examples))
    model: Any = vo.load(name)
    with torch.no_grad():
        output_layer(splade_modules(model)[0][0].auto_model).bias.sub_(100)
    model.save_pretrained(str(folder / "dead"))


def outcome(
    name: str, model: str, overrides: Sequence[str], inputs: Path, output: Path, messages: Messages
) -> list[str]:
    """Train with a failure; return the messages, the last of them the reason of a stop."""
    keys = [key.replace("=dead", f"={inputs / 'dead'}") for key in FAILURES[name]]
    common = ["training.query_length=12", "training.document_length=40", "training.log_every=1", f"model={model}"]
    common += [f"training.{key}={STEPS}" for key in ("steps", "save_every")]
    messages.texts.clear()
    try:
        vo.train("my-pairs", output, overrides=[f"data_folder={inputs}", *common, *keys, *overrides])
    except VocableError as error:
        messages.texts.append(str(error))
    return [text for text in messages.texts if not text.startswith("train: ")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("failures", nargs="*", metavar="FAILURE", help=f"of {', '.join(FAILURES)}; all by default")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--model", default="vocable-mini")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    messages = Messages()
    logging.getLogger("vocable").addHandler(messages)
    with TemporaryDirectory() as folder:
        write_inputs(Path(folder), given.model)
        for name in given.failures or FAILURES:
            output = (given.keep or Path(folder)) / "-".join([name, *given.override]).replace("/", "-")
            for text in outcome(name, given.model, given.override, Path(folder), output, messages):
                print(f"{name}: {text.replace(folder, '')}", flush=True)


if __name__ == "__main__":
    main()
