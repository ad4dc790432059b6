"""Write a model as a graph of ONNX or OpenVINO, pooling included, and compare the two on texts before it is there.

The graph is made of standard operations. It has three outputs: all `weights` of a text, and the `query_weights` and
`document_weights` that the model gives a text of that role, which are its heaviest terms. Padding cannot win: in max
pooling its states are replaced by those of the text's first token, which change no maximum; in sum pooling they count
nothing. Padding at the beginning is moved to the end, so that every token has the position that it has alone.

Letters: b texts, s tokens, d size of the decoder's input, v output terms, k heaviest terms.
"""

from __future__ import annotations

import copy
import logging
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from scipy.sparse import csr_array, vstack
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from vocable.data import read_texts
from vocable.data.texts import iter_texts
from vocable.encoder.asymmetric import Role, route, static_embedding, terms_kept
from vocable.encoder.export_card import card
from vocable.encoder.fuse import splade_modules, without_logits
from vocable.encoder.graph import (
    GRAPHS,
    INPUTS,
    OUTPUT,
    ExportedPooling,
    ExportedTransformer,
    Graph,
    import_openvino,
    refuse_exported,
)
from vocable.encoder.hub import CARD
from vocable.encoder.load import load
from vocable.encoder.output_vocabulary import output_vocabulary
from vocable.encoder.pooling import Activation, activate
from vocable.encoder.provenance import checksum, model_name, record
from vocable.encoder.special_terms import keeps_special_terms
from vocable.encoder.terms import terms
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ArgumentError, ModelError, require_extra
from vocable.options import Share, checked
from vocable.progress import progress
from vocable.pruning import prune
from vocable.storage import finished, read_record, replacing_folder, write_record
from vocable.tables import NONE, Table, Tabular, counted, short

GraphFormat = Literal["onnx", "openvino"]

RECORD = "exported.json"
OPSET = 18
TEXTS, TOP, WORDS, QUERIES = 64, 10, 8, 20  # compared: texts, their heaviest terms; timed: words of a query, queries
TOLERANCE = 1e-3  # of a weight in float32; rounding alone gives about 1e-5


class Speed(NamedTuple):
    """What one side of the comparison takes."""

    megabytes: float
    texts_per_second: float
    milliseconds: float  # of one text of 8 words, the median


@dataclass(frozen=True)
class ExportedModel(Tabular):
    """A graph beside the model that it was made from, in float32: how far they are apart, and what each takes."""

    format: GraphFormat
    int8: bool
    texts: int
    threads: int
    before: Speed
    after: Speed
    largest_error: float  # of a weight
    heaviest: float  # weight
    same_top: float  # share of the texts' ten heaviest terms that are the same

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return asdict(self) | {"before": self.before._asdict(), "after": self.after._asdict()}

    def table(self) -> Table:
        """A row for each side."""
        name = f"{self.format}{', int8' if self.int8 else ''}"
        apart = [f"{self.largest_error:.1e}", f"{self.same_top:.1%}"]
        rows = [
            [side, *(short(figure) for figure in speed), *figures]
            for side, speed, figures in (("torch", self.before, [NONE, NONE]), (name, self.after, apart))
        ]
        header = ["", "MB", "texts/s", "ms a query", "largest error", f"same top {TOP}"]
        size = f"{counted(self.texts, 'text')}, {counted(self.threads, 'thread')}"
        return Table(f"{size}, weights up to {self.heaviest:.2f}", header, rows)


@checked
def export_model(
    model: SparseEncoder,
    output: str | Path,
    *,
    format: GraphFormat = "onnx",
    int8: bool = False,
    texts: Iterable[str] | None = None,
    min_overlap: Share = 0.8,
) -> ExportedModel:
    """Write a model as a graph with its pooling inside, which `vocable.load` reads and other runtimes run.

    It is compared with the model on texts, and written only if they agree: in float32 every weight to 0.001.

    Args:
        model: from `vocable.load`; it is not changed. Of one with two encoders, both are written.
        output: the folder; there only when it is whole.
        format: onnx is for ONNX Runtime and Transformers.js, openvino for OpenVINO.
        int8: write 8-bit weights, which are a quarter in size and change what comes out.
        texts: what the two are compared on, the first 64; by default of pydocs:.
        min_overlap: with `int8`, the share of the texts' ten heaviest terms that must be the same.

    Raises:
        MissingExtraError: what writes or runs the format is not installed.
        ModelError: the model cannot be written in this format, or what was written does not agree with it.
        ArgumentError: something is at the output already, there are no texts, or no such format.
    """
    if format not in GRAPHS:
        raise ArgumentError(f"format must be {' or '.join(GRAPHS)}, not {format!r}")
    compared = read_texts("pydocs:") if texts is None else iter_texts(texts)
    refuse_exported(model)
    made_from = {"model": model_name(model), "weights": checksum(model), "format": format, "int8": int8}
    made_from["pooling"] = [[p.pooling_strategy, p.activation_function] for _, p in splade_modules(model)]
    folder = Path(output)
    if finished(folder, made_from):
        return read_record(folder / RECORD, ExportedModel)
    require_extra("onnxscript", format)  # before the work
    if format == "onnx":
        require_extra("onnxruntime", format)
    else:
        import_openvino()
        require_extra("nncf", format)
    sample = list(islice(compared, TEXTS))
    if not any(text.split() for text in sample):
        raise ArgumentError("there is no text to compare the two on")
    with replacing_folder(folder, made_from) as part, progress("export-model", 3) as advance:
        with TemporaryDirectory(dir=part) as work:
            made = _with_graphs(model, Path(work), format, int8)
            record(made, "export-model", format=format, int8=int8)
            made.save_pretrained(str(part), create_model_card=False)
        made = load(part)
        (part / CARD).write_text(card(made, model, format), encoding="utf-8")
        advance(1)
        result = _compared(model, made, part, sample, format, int8)
        advance(2)
        _check(result, min_overlap)
        write_record(part / RECORD, result)
    return result


def _with_graphs(model: SparseEncoder, work: Path, format: GraphFormat, int8: bool) -> SparseEncoder:
    """A copy of `model` with graphs, which are written to folders in `work`, for its masked language models."""
    graphs: dict[int, Any] = {}
    for number, (transformer, pooling) in enumerate(splade_modules(model)):
        mlm = transformer.auto_model
        path = work / str(number) / GRAPHS[format][int8]
        path.parent.mkdir(parents=True)
        plain = work / f"{number}.onnx" if format == "openvino" or int8 else path
        _write_onnx(transformer, pooling.pooling_strategy, pooling.activation_function, _limits(model, number), plain)
        if format == "openvino":
            _onnx_to_openvino(plain, path, int8)
        elif int8:
            _quantize(plain, path)
        layer = output_vocabulary(mlm)
        names = None if layer is None else list(layer.terms)
        graphs[id(mlm)] = Graph(path, copy.deepcopy(mlm.config), names)
    made = copy.deepcopy(model, graphs).cpu()
    for transformer, pooling in splade_modules(made):
        transformer.__class__, pooling.__class__ = ExportedTransformer, ExportedPooling
        transformer.unpad_inputs = False
        pooling.__dict__.pop("forward", None)
    return made


Limits = dict[Role, int | None]  # how many of a text's terms are kept, None for all


def _limits(model: SparseEncoder, number: int) -> Limits:
    """The roles that the encoder of this number serves, with their limits."""
    encoder, _ = splade_modules(model)[number]
    roles: tuple[Role, ...] = get_args(Role)
    return {role: terms_kept(model, role) for role in roles if route(model, role)[0] is encoder}


class PooledTerms(nn.Module):
    """Token ids [b, s] -> term weights [b, v], in operations that ONNX has; `mlm` is without its logits.

    `known` [tokens], 1 or 0, says which tokens stand for a text: one without any has no terms.
    """

    known: Tensor

    def __init__(
        self, mlm: nn.Module, layer: nn.Linear, pooling: str, activation: Activation, known: Tensor, limits: Limits
    ) -> None:
        super().__init__()
        self.mlm, self.layer, self.pooling, self.activation = mlm, layer, pooling, activation
        self.limits = limits
        self.register_buffer("known", known)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the weights [b, v] of texts [b, s], and for each role those of its heaviest terms."""
        tokens = torch.ones_like(input_ids).sum(1, keepdim=True)  # s, as a tensor: a number has no remainder in ONNX
        first = attention_mask.argmax(1, keepdim=True)
        places = (torch.arange(input_ids.shape[1]) + first) % tokens  # with padding at the end
        ids, mask = input_ids.gather(1, places), attention_mask.gather(1, places)
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids.gather(1, places)}
        weights = self.pooled(ids, mask, types)
        readable = (self.known[ids] * mask).amax(1, keepdim=True) > 0
        weights = torch.where(readable, weights, torch.zeros_like(weights))
        return weights, *(_heaviest(weights, limit) for limit in self.limits.values())

    def pooled(self, input_ids: Tensor, attention_mask: Tensor, types: dict[str, Tensor]) -> Tensor:
        """The weights [b, v] of texts [b, s] that are padded at their ends; of one without a token, some numbers."""
        hidden = self.mlm(input_ids=input_ids, attention_mask=attention_mask, **types).logits  # [b, s, d]
        (texts, tokens, _), weight, bias = hidden.shape, self.layer.weight, self.layer.bias
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)  # [b, s, 1]
        if self.pooling == "sum":
            weights = activate(linear(hidden, weight, bias), self.activation)
            return (mask.transpose(1, 2) @ weights).squeeze(1)
        first = hidden[:, 0]  # [b, d]
        if self.pooling == "mean-before-head":
            logits = linear((hidden * mask).sum(1) / mask.sum(1), weight)
        elif self.pooling == "cls":
            logits = linear(first, weight)
        else:
            rows = torch.where(mask > 0, hidden, first.unsqueeze(1)).flatten(0, 1)
            logits = linear(rows, weight).unflatten(0, (texts, tokens)).amax(1)
        # The same bias for every token: adding it to the winner alone gives the same maximum.
        return activate(logits if bias is None else logits + bias, self.activation)


def _heaviest(weights: Tensor, limit: int | None) -> Tensor:
    """The `limit` heaviest terms of each row of `weights` [b, v], and zeros."""
    if limit is None or limit >= weights.shape[1]:
        return weights.clone()
    best = weights.topk(limit, dim=1)
    return torch.zeros_like(weights).scatter(1, best.indices, best.values)


def _known_tokens(transformer: Transformer, mlm: PreTrainedModel) -> Tensor:
    """Return 1 for each token id that stands for a text, else 0, int64 [tokens]; all 1 where special terms are kept."""
    known = torch.ones(mlm.get_input_embeddings().num_embeddings, dtype=torch.int64)
    if not keeps_special_terms(mlm.config):
        known[[i for i in transformer.tokenizer.all_special_ids if i < len(known)]] = 0
    return known


def _write_onnx(transformer: Transformer, pooling: str, activation: Activation, limits: Limits, path: Path) -> None:
    """Write a model with its pooling; the two dimensions of its inputs are free."""
    if pooling not in ("max", "sum", "cls", "mean-before-head"):
        raise ModelError(f"{pooling} pooling has no form in a graph: export a model with max or sum pooling")
    from onnx_ir.passes.common import DeduplicateInitializersPass

    mlm = copy.deepcopy(transformer.auto_model).cpu().float().eval()
    mlm.set_attn_implementation("eager")  # the others are taken apart into more operations
    features = transformer.preprocess(["two texts", "of which the second is longer"])
    taken = transformer.model_forward_params
    names = [name for name in INPUTS if name in features and (taken is None or name in taken)]
    with without_logits(mlm) as layer, torch.no_grad(), _silently():
        try:
            program: Any = torch.onnx.export(
                PooledTerms(mlm, layer, pooling, activation, _known_tokens(transformer, mlm), limits),
                kwargs={name: features[name].cpu() for name in names},
                input_names=names,
                output_names=[OUTPUT, *(f"{role}_{OUTPUT}" for role in limits)],
                dynamic_shapes={name: {0: "batch", 1: "length"} for name in names},
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = str(error.__cause__ or error).strip().partition("\n")[0]
            raise ModelError(f"{type(mlm).__name__} cannot be written as a graph: {reason}") from error
        # Matrices are transposed once for each layer that they serve: ALBERT's would be there twelve times.
        DeduplicateInitializersPass(size_limit=sys.maxsize)(program.model)
        program.save(path)


def _quantize(plain: Path, path: Path) -> None:
    """Write a graph with 8-bit weights of its matrices; what they are multiplied with is rounded when it runs."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # A tied decoder gets 8-bit columns of its own: to turn the embeddings round at each call is slower.
    with _silently():
        quantize_dynamic(plain, path, weight_type=QuantType.QInt8, per_channel=True)


def _onnx_to_openvino(plain: Path, path: Path, int8: bool) -> None:
    """Write a graph of ONNX in OpenVINO's form, in float32 or with 8-bit weights."""
    openvino = import_openvino()
    with _silently():
        graph = openvino.convert_model(plain)
        if int8:
            graph = require_extra("nncf", "openvino").compress_weights(graph)
        openvino.save_model(graph, path, compress_to_fp16=False)


@contextmanager
def _silently() -> Iterator[None]:
    """Within the context the libraries that write graphs say nothing."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _compared(
    model: SparseEncoder, made: SparseEncoder, folder: Path, texts: Sequence[str], format: GraphFormat, int8: bool
) -> ExportedModel:
    """Encode texts with both, on the processor and in float32."""
    plain = model if model.device.type == "cpu" else copy.deepcopy(model).cpu()
    wanted, seconds, wait = _encoded(plain, texts)
    found, seconds_after, wait_after = _encoded(made, texts)
    size = sum(file.stat().st_size for file in folder.rglob(f"{format}/*"))
    weights = sum(parameter.numel() * 4 for parameter in plain.parameters())
    return ExportedModel(
        format,
        int8,
        len(texts),
        torch.get_num_threads(),
        Speed(weights / 1e6, len(texts) / seconds, wait),
        Speed(size / 1e6, len(texts) / seconds_after, wait_after),
        float(abs(found - wanted).max()),
        float(wanted.max()),
        _same_top(wanted, found),
    )


def _encoded(model: SparseEncoder, texts: Sequence[str]) -> tuple[csr_array, float, float]:
    """All weights of the texts [b, v], of each role that has an encoder, the seconds of one, and ms for 8 words."""
    roles: list[Role] = ["query", "document"] if isinstance(model[0], Router) else ["document"]
    rows = []
    for role in (one for one in roles if static_embedding(model, one) is None):
        encoder = TextEncoder(model, role, max_terms=len(terms(model)), dtype="float32")
        encoder.encode(texts[:1])  # not timed: what is made once
        started = time.perf_counter()
        rows.append(encoder.encode(texts))
        seconds = time.perf_counter() - started
    query, times = " ".join(" ".join(texts).split()[:WORDS]), []
    for _ in range(QUERIES):
        started = time.perf_counter()
        encoder.encode([query])
        times.append(time.perf_counter() - started)
    return csr_array(vstack(rows, format="csr")), seconds, 1000 * float(np.median(times))


def _same_top(wanted: csr_array, found: csr_array) -> float:
    """The share of the rows' ten heaviest terms in `wanted` [b, v] that are among those of `found` [b, v]."""
    best, other = (prune(vectors, TOP).astype(bool) for vectors in (wanted, found))
    return float(best.multiply(other).nnz / best.nnz) if best.nnz else 1.0


def _check(result: ExportedModel, min_overlap: float) -> None:
    """Raise `ModelError` if what was written gives something else than the model."""
    if not result.int8 and not result.largest_error <= TOLERANCE:
        apart = f"a weight differs by {result.largest_error:.1e}, and {TOLERANCE:g} is allowed"
        raise ModelError(f"the graph is not what the model is: {apart}; nothing is written")
    if result.same_top < min_overlap:
        stay = f"{result.same_top:.1%} of the heaviest terms stay"
        raise ModelError(f"min_overlap of {min_overlap:g} is not reached: {stay}; nothing is written")
