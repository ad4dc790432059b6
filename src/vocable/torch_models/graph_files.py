"""Write a module of PyTorch as the file of an ONNX or OpenVINO graph, and the model card of an exported model."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.base.modules import Transformer
from torch import nn
from transformers import PreTrainedModel

from vocable.encoding.graph import QUERY_WEIGHTS, GraphModel
from vocable.encoding.graph_sessions import INPUTS, OUTPUT, import_openvino
from vocable.encoding.hub import licence
from vocable.encoding.models import Model, model_name
from vocable.encoding.protocol import Role
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ModelError, require_extra
from vocable.torch_models.layouts import is_decoder

COMPARISON = "exported.json"  # how a graph compares with its model
COMPARED_TEXTS = 64
ROUNDED_TEXTS = 192  # texts that give the ranges of 8-bit inputs
OPSET, OPSET_INT8 = 20, 23  # 20 has GELU as a single operation, 23 also attention


def graph_inputs(transformer: Transformer, texts: list[Any]) -> dict[str, NDArray[np.int64]]:
    """Return the inputs of a model for texts, or pairs of texts, each int64 [texts, tokens]."""
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


ABOUT_INPUTS = """\
The graph reads `input_ids`, `attention_mask` and, if it has this input, `token_type_ids`: int64 [texts, tokens]. Each
output is float32 [texts, terms]; a term has the number of its token. Padding may be on either side. A text without a
token in the vocabulary has no terms, and neither has a row with a mask of zeros."""
ABOUT_LIMITS = """\
Let the tokenizer truncate a text to this number of tokens, special tokens included. `{output}` has all terms of a
text."""
ABOUT_IDF = """\
In a search, vocable multiplies the weight of each query term by idf to the power {power:g}, with idf =
log(1 + (n - df + 0.5) / (df + 0.5)), n documents in the collection, and df documents with the term in their
`document_weights`. The graph does not know the collection: multiply `query_weights` in the same way."""
ABOUT_LOOKUP = f"""\
Queries have no graph: the weight of each distinct token of a query, without special tokens, is in
`query/{QUERY_WEIGHTS}`."""


def card(model: GraphModel, source: Model) -> str:
    """Return the card of `model`, an exported model made from `source`, as Markdown."""
    return "\n\n".join(_parts(model, source)) + "\n"


def _parts(model: GraphModel, source: Model) -> Iterator[str]:
    # The header that the Hub reads, then Markdown.
    stated, format = licence(model_name(source)), model.settings.format
    header = ["---", "library_name: vocable", "pipeline_tag: feature-extraction"]
    header += [] if stated is None else [f"license: {stated}"]
    yield "\n".join([*header, "tags:", "  - sparse-encoder", "  - splade", f"  - {format}", "---"])
    yield f"# A sparse encoder as a graph for {'ONNX Runtime' if format == 'onnx' else 'OpenVINO'}"
    yield "Written by `vocable export-model`; `vocable.load` reads the folder. Other programs read the graph:"
    yield ABOUT_INPUTS
    # Roles with a graph; the other role looks up its queries.
    roles: tuple[Role, ...] = get_args(Role)
    encoders = [TextEncoder(model, role) for role in roles if not model.looks_up(role)]
    rows = ["| role | output | tokens of a text | terms kept |", "|:--|:--|--:|--:|"]
    rows += [
        f"| {encoder.role} | `{encoder.role}_{OUTPUT}` | {encoder.max_length} | {encoder.max_terms or 'all'} |"
        for encoder in encoders
    ]
    yield "\n".join(rows)
    yield ABOUT_LIMITS.format(output=OUTPUT)
    if any(of_role.folder for of_role in model.settings.roles.values()):
        yield "Each graph is in a folder of the name of its role."
    if len(encoders) < len(roles):
        yield ABOUT_LOOKUP
    for encoder in encoders:
        if encoder.prompt:
            yield f"The text of a {encoder.role} begins with the prompt `{encoder.prompt}`."
    if power := TextEncoder(model, "query").query_idf:
        yield ABOUT_IDF.format(power=power)
