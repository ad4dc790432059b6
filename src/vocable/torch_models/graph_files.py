"""Write a module of PyTorch as the file of an ONNX or OpenVINO graph."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.base.modules import Transformer
from torch import nn
from transformers import PreTrainedModel

from vocable.encoding.graph_sessions import INPUTS, import_openvino
from vocable.errors import ModelError, require_extra
from vocable.torch_models.layouts import is_decoder

COMPARISON = "exported.json"  # how a graph compares with its model
COMPARED_TEXTS = 64
ROUNDED_TEXTS = 192  # texts that give the ranges of 8-bit inputs
OPSET, OPSET_INT8 = 20, 23  # 20 has GELU as a single operation, 23 also attention


def graph_inputs(transformer: Transformer, texts: list[str]) -> dict[str, NDArray[np.int64]]:
    """Return the inputs of a model for texts, each int64 [texts, tokens]."""
    features, read = transformer.preprocess(texts), transformer.model_forward_params
    return {name: features[name].cpu().numpy() for name in INPUTS if name in features and (not read or name in read)}


def write_graph(
    module: nn.Module,
    encoder: PreTrainedModel,
    inputs: Mapping[str, NDArray[np.int64]],
    outputs: list[str],
    path: Path,
    *,
    for_int8: bool,
) -> None:
    """Write a module, whose `encoder` is changed for it, as an ONNX graph for inputs of any size.

    With `for_int8` it has operations that `quantize` makes fast. Raises `ModelError` for a module that has no graph.
    """
    from onnx_ir.passes.common import DeduplicateInitializersPass

    old = not for_int8 or is_decoder(encoder)  # ONNX Runtime does not run the rotary positions of a decoder in opset 23
    fused = not old and encoder._supports_sdpa
    encoder.set_attn_implementation("sdpa" if fused else "eager")  # before opset 23, sdpa becomes more operations
    with torch.no_grad(), _silently():
        try:
            program: Any = torch.onnx.export(
                module,
                kwargs={name: torch.from_numpy(values) for name, values in inputs.items()},
                input_names=list(inputs),
                output_names=outputs,
                dynamic_shapes={name: {0: "batch", 1: "length"} for name in inputs},
                opset_version=OPSET if old else OPSET_INT8,
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = str(error.__cause__ or error).strip().partition("\n")[0]
            raise ModelError(f"{type(encoder).__name__} cannot be written as a graph: {reason}") from error
        # The exporter transposes a matrix for each layer that uses it: ALBERT's would be stored twelve times.
        DeduplicateInitializersPass(size_limit=sys.maxsize)(program.model)
        program.save(path)


def onnx_to_openvino(plain: Path, path: Path, int8: bool) -> None:
    """Convert an ONNX graph to OpenVINO, in float32 or with 8-bit weights."""
    openvino = import_openvino()
    with _silently():
        graph = openvino.convert_model(plain)
        if int8:
            graph = require_extra("nncf", "openvino").compress_weights(graph)
        openvino.save_model(graph, path, compress_to_fp16=False)


@contextmanager
def _silently() -> Iterator[None]:
    """Suppress the logs and warnings of the libraries that write graphs within the context."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
