"""Work that a run of tests does once: batches of the built-in models, and graphs of equal modules."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import vocable
from vocable.encoding.graph_sessions import Session

BUILT_IN = Path(vocable.__file__).parent / "builtin"

Load = Callable[[Path, tuple[str, str]], Session]


def computed_once(load: Load) -> Load:
    """Load each graph of the built-in models once in a process, and let it compute each batch once.

    A batch is known by all of its tokens, padding included, so results are the same to the last bit.
    """

    @cache
    def built_in(path: Path, known: tuple[str, str]) -> Session:
        session = load(path, known)
        computed = dict[tuple[Any, ...], list[csr_array]]()

        def run(given: dict[str, np.ndarray]) -> list[np.ndarray]:
            key = tuple((name, values.shape, values.tobytes()) for name, values in given.items())
            if key not in computed:
                computed[key] = [csr_array(output) for output in session.run(given)]
            return [output.toarray() for output in computed[key]]

        return session._replace(run=run)

    return lambda path, known: (built_in if path.is_relative_to(BUILT_IN) else load)(path, known)


def written_once(write: Callable[..., None], folder: Path) -> Callable[..., None]:
    """Let `write_graph` trace a module once: all modules of the same code, settings and weights have one graph.

    All processes of the run keep their graphs in `folder`.
    """

    def write_graph(module: Any, encoder: Any, inputs: Any, outputs: Any, path: Path, *, for_int8: bool) -> None:
        config = {name: value for name, value in encoder.config.to_dict().items() if name != "_name_or_path"}
        plain = {name: value for name, value in vars(module).items() if isinstance(value, str | bool | int | dict)}
        plain = {name: value for name, value in plain.items() if not name.startswith("_")}
        known = hashlib.sha256(json.dumps([repr(module), config, plain], sort_keys=True, default=str).encode())
        known.update(repr((sorted(inputs), outputs, for_int8)).encode())
        for name, weights in module.state_dict().items():
            known.update(f"{name} {tuple(weights.shape)}".encode() + weights.contiguous().numpy().tobytes())
        kept = folder / f"{known.hexdigest()}.onnx"
        if not kept.exists():
            write(module, encoder, inputs, outputs, path, for_int8=for_int8)
            shutil.copy(path, part := kept.with_suffix(f".{os.getpid()}"))
            part.replace(kept)
        else:
            shutil.copy(kept, path)

    return write_graph
