"""Graphs of ONNX and OpenVINO on a CPU, as functions from tokens to vectors.

Letters: b or m texts, s tokens, v output terms, d dimensions of dense vectors (1 of scores).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from vocable.core.threads import cpu_threads
from vocable.encoding.graph_settings import GraphFormat, has_weights
from vocable.errors import ModelError, VocableError, require_extra

# The file of a graph, in float32 and with 8-bit weights, as Transformers.js and Optimum name it.
GRAPHS: dict[GraphFormat, tuple[str, str]] = {
    "onnx": ("onnx/model.onnx", "onnx/model_quantized.onnx"),
    "openvino": ("openvino/openvino_model.xml", "openvino/openvino_model_int8.xml"),
}
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT, DENSE_OUTPUT = "weights", "dense"  # the weights of all terms, or the dense vectors; others are of one role
SCORES = "scores"  # of pairs of texts, by a cross encoder
GRAPH_BATCH_TOKENS = 512  # padding included: a batch should stay in the cache

RUNTIME = "1.23"  # the first ONNX Runtime with all operations of the graphs that vocable export-model writes
TOO_NEW = re.compile("NOT_IMPLEMENTED|[Oo]pset|IR version")  # in an error of ONNX Runtime

RunGraph = Callable[[dict[str, NDArray[np.int64]]], list[NDArray[np.float32]]]


class Session(NamedTuple):
    """A loaded graph: the names of its inputs, v, d, and the function that returns weights and dense vectors."""

    inputs: list[str]
    size: int | None
    dimensions: int | None
    run: RunGraph


def padded(
    ids: Sequence[Sequence[int]], padding: int, inputs: Sequence[str], types: Sequence[Sequence[int]] = ()
) -> dict[str, NDArray[np.int64]]:
    """Return the inputs [b, s] of a graph for the tokens of b texts, padded at the end, by default of type 0."""
    tokens = np.full((len(ids), max(map(len, ids))), padding, dtype=np.int64)
    mask, kinds = np.zeros_like(tokens), np.zeros_like(tokens)
    for row, text_ids in enumerate(ids):
        tokens[row, : len(text_ids)], mask[row, : len(text_ids)] = text_ids, 1
    for row, text_types in enumerate(types):
        kinds[row, : len(text_types)] = text_types
    values = dict(zip(INPUTS, (tokens, mask, kinds), strict=True))
    return {name: values[name] for name in inputs}


def in_batches(
    session: Session, ids: Sequence[Sequence[int]], padding: int, d: int, types: Sequence[Sequence[int]] = ()
) -> NDArray[np.float32]:
    """Return what a graph computes of the tokens of m texts, float32 [m, d]: longest texts first, a thread a batch."""
    vectors = np.zeros((len(ids), d), dtype=np.float32)
    order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
    batches = list[list[int]]()
    while order:
        size = max(1, GRAPH_BATCH_TOKENS // max(1, len(ids[order[0]])))
        batches.append(order[:size])
        order = order[size:]

    def compute(batch: list[int]) -> None:
        of_batch = [types[row] for row in batch] if types else ()
        [vectors[batch]] = session.run(padded([ids[row] for row in batch], padding, session.inputs, of_batch))

    if len(batches) == 1:
        compute(batches[0])
    else:
        with ThreadPoolExecutor(cpu_threads()) as pool:
            list(pool.map(compute, batches))
    return vectors


def open_session(
    path: Path, format: GraphFormat, size: int | None, dimensions: int | None, vectors: str = DENSE_OUTPUT
) -> Session:
    """Load a graph with v = `size` terms or d = `dimensions`; `ModelError` if it is missing, damaged or other.

    None stands for a graph of dense vectors, or of terms; `vectors` names the output with d columns.
    """
    if not path.is_file():
        other = "; or name the runtime torch, for its weights" if has_weights(path.parent.parent) else ""
        raise ModelError(f"{path}: the graph is missing: copy or export the model again{other}")
    try:
        session = (_onnx if format == "onnx" else _openvino)(path, (OUTPUT, vectors))
    except VocableError:
        raise
    except Exception as error:  # the runtimes raise errors of their own
        raise ModelError(f"{path}: the graph is damaged ({str(error).strip().partition(chr(10))[0]})") from error
    if not set(session.inputs) <= set(INPUTS) or session.size != size or session.dimensions != dimensions:
        read = ", ".join(session.inputs)
        raise ModelError(f"{path}: not a graph that vocable export-model wrote: it reads {read}")
    return session


def import_onnxruntime() -> ModuleType:
    """Import ONNX Runtime without its telemetry, which would report its use over the network and keep a device's id."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime


def _onnx(path: Path, known: tuple[str, str]) -> Session:
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    # Level "all" fuses sums and layer norms into an operation that is slower on a CPU.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4  # an error is raised, and not written to stderr as well
    try:
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if not TOO_NEW.search(str(error)):
            raise
        needed = f"a later ONNX Runtime than {ort.__version__}, at least {RUNTIME}: pip install -U onnxruntime"
        raise ModelError(f"{path}: the graph needs {needed}") from error
    sizes = {output.name: output.shape[-1] for output in session.get_outputs() if isinstance(output.shape[-1], int)}
    outputs = [name for name in known if name in sizes]
    names = [graph_input.name for graph_input in session.get_inputs()]
    return Session(names, sizes.get(known[0]), sizes.get(known[1]), lambda given: session.run(outputs, given))


def import_openvino() -> ModuleType:
    """Import OpenVINO without its telemetry, which would report its use over the network."""
    cast(Any, sys.modules).setdefault("openvino_telemetry", None)
    return require_extra("openvino", "openvino")


def _openvino(path: Path, known: tuple[str, str]) -> Session:
    openvino = import_openvino()
    # On a CPU with bfloat16, OpenVINO would compute in bfloat16 by default, and its results would differ from the
    # results that the export checked.
    # All threads on one batch, 114 texts/s on two cores, are faster than a batch in each thread, 92.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": cpu_threads()}
    core = openvino.Core()
    graph = core.read_model(path)
    results = graph.get_results()
    named = {name: result for name in known for result in results if name in result.output(0).get_names()}
    reduced = openvino.Model([*named.values()], graph.get_parameters(), OUTPUT)  # without the other outputs
    compiled = core.compile_model(reduced, "CPU", {"PERFORMANCE_HINT": "LATENCY", **settings})
    shapes = {name: output.partial_shape[1] for name, output in zip(named, compiled.outputs, strict=True)}
    sizes = {name: size.get_length() for name, size in shapes.items() if size.is_static}

    def run(given: dict[str, NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        results = compiled.create_infer_request().infer(given)  # threads do not share requests
        return [results[place].copy() for place in range(len(named))]

    names = [graph_input.get_any_name() for graph_input in compiled.inputs]
    return Session(names, sizes.get(known[0]), sizes.get(known[1]), run)
