"""Cases of `break.py` about a model whose files have changed since it made an index or vectors: all verbs refuse it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from break_input import Row
from break_toys import Toys, changed_commit
from preloaded import run

CHANGES: dict[str, tuple[str, dict[str, Any], str]] = {
    "normalizer": ("tokenizer.json", {"normalizer": None}, "tokenizer"),
    "length": ("tokenizer_config.json", {"model_max_length": 9}, "max_length: "),
    "activation": ("config.json", {"hidden_act": "relu"}, 'hidden_act: "gelu", now "relu"'),
    "epsilon": ("config.json", {"layer_norm_eps": 0.5}, "layer_norm_eps: 1e-12, now 0.5"),
    "IDF": ("config.json", {"query_idf": 1.5}, "query_idf: 0.0, now 1.5"),
    "terms": ("config.json", {"active_terms": {"query": 2}}, "query.max_terms: null, now 2"),
    "a bit of a weight": ("model.safetensors", {}, "weights"),
}


def stale_cases(toys: Toys) -> Iterator[Row]:
    """Each change before each verb that encodes for what the model made."""
    commands: dict[str, Callable[[Path], list[object]]] = {
        "search": lambda folder: ["search", folder / "store", "the list"],
        "explain": lambda folder: ["explain", folder / "store", "the list", "d0"],
        "add": lambda folder: ["add", folder / "store", toys.pairs.with_name("more.jsonl")],
        "publish": lambda folder: ["publish", folder / "store", "-o", folder / "out"],
        "evaluate": lambda folder: ["evaluate", folder / "store", "--dataset", f"beir:{toys.beir}"],
        "evaluate of vectors": lambda folder: ["evaluate", folder / "vectors", "--dataset", f"beir:{toys.beir}"],
    }
    toys.pairs.with_name("more.jsonl").write_text(json.dumps({"_id": "more", "text": toys.texts[0]}) + "\n")
    for change, (file, settings, says) in CHANGES.items():
        for verb, command in commands.items():
            yield f"{verb}: {change}", partial(_changed, toys, file, settings, command), ("has changed", says), None


def _changed(
    toys: Toys, file: str, settings: dict[str, Any], command: Callable[[Path], list[object]], folder: Path
) -> Any:
    """Copy the model and what it made, change a file of the model, and return the command."""
    model = folder / "model"
    shutil.copytree(toys.model, model)
    if "vectors" in str(command(folder)):
        run(folder, ["encode", model, toys.corpus, "-o", folder / "vectors"])
    shutil.copytree(toys.store, folder / "store")
    changed_commit(folder / "store", lambda commit: commit["settings"].update(model=str(model)))
    if file.endswith(".json"):
        content = json.loads((model / file).read_text())
        (model / file).write_text(json.dumps(content | settings))
    else:
        weights = bytearray((model / file).read_bytes())
        weights[-1] ^= 1
        (model / file).write_bytes(weights)
    return command(folder), b""
