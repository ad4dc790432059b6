"""Write a model as a graph of ONNX or OpenVINO, with its pooling, and compare the two on texts.

The graph consists of standard operations, except for 8-bit products in ONNX (see `quantize`). Its outputs are all
`weights` of a text, and `query_weights` and `document_weights`, the terms that the model keeps for the role.
Padding has no effect: max pooling replaces its states by the state of the text's first token, which changes no maximum;
sum pooling multiplies them by zero. Padding at the beginning is moved to the end, so that every token has the same
position as without padding.

Letters: b texts, s tokens, d size of the decoder's input, v output terms, k heaviest terms.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from scipy.sparse import csr_array, vstack
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from vocable.core.progress import progress
from vocable.core.storage import finished, read_record, replacing_folder, write_record
from vocable.core.tables import NONE, Table, Tabular, counted, short
from vocable.core.threads import cpu_threads
from vocable.data import read_texts
from vocable.data.texts import iter_texts
from vocable.encoding.graph import QUERY_WEIGHTS, TOKENIZER, GraphModel, refuse_exported
from vocable.encoding.graph_sessions import GRAPHS, OUTPUT, import_openvino
from vocable.encoding.graph_settings import (
    BOTH_ROLES,
    GRAPH_SETTINGS,
    GraphFormat,
    GraphRole,
    GraphSettings,
    files_checksum,
    weight_files,
)
from vocable.encoding.hub import CARD, locate
from vocable.encoding.models import model_digest, model_name
from vocable.encoding.own_terms import TERMS_FILE, write_terms
from vocable.encoding.pooling import activate
from vocable.encoding.protocol import EncodingModel, Role
from vocable.encoding.pruning import prune
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, ModelError, VocableError, require_extra
from vocable.options import Activation, DType, Share, checked
from vocable.torch_models.asymmetric import positions, role_config, route, terms_kept
from vocable.torch_models.fuse import WORD_POSITIONS, splade_modules, without_logits
from vocable.torch_models.graph_files import (
    COMPARED_TEXTS,
    COMPARISON,
    ROUNDED_TEXTS,
    card,
    graph_inputs,
    onnx_to_openvino,
    write_graph,
)
from vocable.torch_models.output_vocabulary import keeps_special_terms, output_vocabulary
from vocable.torch_models.quantize import quantize
from vocable.torch_models.sparse_encoder import load_sparse_encoder
from vocable.torch_models.torch_model import TorchModel

DECODER_BLOCK = 1920  # terms in one product of an 8-bit decoder; ONNX Runtime's maximum is slow over rows of 4 or 8 KB
COMPARED_TERMS = 10
TIMED_QUERIES, QUERY_WORDS = 20, 8
TOLERANCE = 1e-3  # largest error of a weight in float32; rounding alone gives about 1e-5


class Speed(NamedTuple):
    """Size and speed of a model or a graph."""

    megabytes: float
    texts_per_second: float
    milliseconds: float  # for one text of 8 words, the median


@dataclass(frozen=True)
class ExportedModel(Tabular):
    """Comparison of a graph with its model in float32: differences of weights, size and speed."""

    format: GraphFormat
    int8: bool
    texts: int
    threads: int
    before: Speed
    after: Speed
    largest_error: float  # of a weight
    heaviest: float  # largest weight
    same_top: float  # share of equal terms among the ten with the largest weights

    def to_json(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return asdict(self) | {"before": self.before._asdict(), "after": self.after._asdict()}

    def table(self) -> Table:
        """Return a table with a row for the model and a row for the graph."""
        name = f"{self.format}{', int8' if self.int8 else ''}"
        differences = [f"{self.largest_error:.1e}", f"{self.same_top:.1%}"]
        rows = [
            [side, *(short(figure) for figure in speed), *figures]
            for side, speed, figures in (("torch", self.before, [NONE, NONE]), (name, self.after, differences))
        ]
        header = ["", "MB", "texts/s", "ms a query", "largest error", f"same top {COMPARED_TERMS}"]
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
    """Write a model as an ONNX or OpenVINO graph.

    The graph contains the pooling. It is compared with the model on texts, and written only if the two agree: in
    float32, every weight to 0.001. The table shows their difference and their speed.

    Args:
        model: from `vocable.load`; it is not changed. Both encoders of an asymmetric model are written.
        output: output folder (written atomically).
        format: onnx is for ONNX Runtime and Transformers.js, openvino for OpenVINO.
        int8: write 8-bit weights: a quarter of the size, with slightly different results.
        texts: texts to compare on, the first 64. The first 192 give the ranges of an 8-bit ONNX graph, and should
            include all kinds of texts that the model reads. By default texts of pydocs:.
        min_overlap: with `int8`: least share of equal terms among the ten terms with the largest weights.

    Raises:
        MissingExtraError: a package that writes or runs the format is not installed.
        ModelError: the model cannot be written in this format, or the graph does not agree with it.
        ArgumentError: the output exists already, there are no texts, or the format is unknown.
    """
    # An export of the same weights is not repeated.
    compared = read_texts("pydocs:") if texts is None else iter_texts(texts)
    refuse_exported(model)
    made_from = {"model": model_name(model), "digest": model_digest(model), "format": format, "int8": int8}
    made_from["pooling"] = [[p.pooling_strategy, p.activation_function] for _, p in splade_modules(model)]
    folder = Path(output)
    if finished(folder, made_from):
        return read_record(folder / COMPARISON, ExportedModel)
    # Refuse what would fail after the work.
    require_extra("onnxscript", "train")
    if format == "openvino":
        import_openvino()
        require_extra("nncf", format)
    sample = list(islice(compared, ROUNDED_TEXTS if int8 and format == "onnx" else COMPARED_TEXTS))
    if not any(text.split() for text in sample):
        raise ArgumentError("no text to compare the graph with the model")
    # Write the graph, open it as a user would, and compare. Only a graph that agrees stays.
    with replacing_folder(folder, made_from) as part, progress("export-model", 3) as advance:
        _write_model(model, part, format, int8, sample)
        exported = GraphModel(part)
        (part / CARD).write_text(card(exported, model), encoding="utf-8")
        advance(1)
        result = _compared(model, exported, sample[:COMPARED_TEXTS])
        advance(2)
        _check(result, min_overlap)
        write_record(part / COMPARISON, result)
    return result


def _write_model(model: SparseEncoder, folder: Path, format: GraphFormat, int8: bool, texts: Sequence[str]) -> None:
    """Write the files of an exported model: the encoders of its roles, and the settings of each role.

    `texts` give the ranges of 8-bit numbers.
    """
    # Names of the folders of encoders: both roles may share one.
    encoding, roles = TorchModel(model), dict[Role, GraphRole]()
    names: dict[int, Literal["", "query", "document"]] = {}
    for role in BOTH_ROLES:
        # Refuse modules and settings that a graph cannot have.
        first: Any = route(model, role)[0]
        if rest := route(model, role)[2:]:
            raise ModelError(f"a {role} goes through {type(rest[0]).__name__} after its pooling, which no graph has")
        if getattr(role_config(model, role), WORD_POSITIONS, False):
            raise ModelError("the positions of special tokens are not pooled, which no graph leaves out")
        encoder = encoding.encoder(role, "float32")
        # Write each encoder once, with its tokenizer. Looked-up queries are a table [v].
        if id(first) not in names:
            names[id(first)] = role if isinstance(model[0], Router) else ""
            inner = folder / names[id(first)]
            inner.mkdir(exist_ok=True)
            first.tokenizer.save_pretrained(inner)
            if not (inner / TOKENIZER).is_file():
                raise ModelError(f"{type(first.tokenizer).__name__} cannot be exported: it has no {TOKENIZER}")
            if encoder.looked_up:
                save_file({"weights": first.weight.detach().float().cpu().contiguous()}, inner / QUERY_WEIGHTS)
            else:
                _write_encoder(model, first, inner, format, int8, texts)
        # The settings of the role.
        of_role, looked_up = encoder.settings, encoder.looked_up
        tokens = first.weight.numel() if looked_up else first.auto_model.get_input_embeddings().num_embeddings
        roles[role] = GraphRole(
            folder=names[id(first)],
            tokens=tokens,
            prompt=of_role.prompt,
            max_length=of_role.max_length,
            positions=None if looked_up else positions(first),
            max_terms=of_role.max_terms,
            query_idf=of_role.query_idf,
            pooling=encoder.pooling,
            keeps_special=of_role.keeps_special,
            looked_up=looked_up,
            special=sorted(first.tokenizer.all_special_ids),
            unknown=first.tokenizer.unk_token_id,
            padding=first.tokenizer.pad_token_id or 0,
        )
    # The settings of the model, with this step in its provenance.
    step = json.loads(json.dumps({"verb": "export-model", "format": format, "int8": int8}))
    notes = {**encoding.notes, "provenance": [*encoding.notes.get("provenance", []), step]}
    size = len(encoding.terms)
    prompts = dict(encoding.prompts)
    default = encoding.default_prompt
    name, weights = Path(encoding.name).name, weights_on_disk(model)
    settings = GraphSettings(
        format=format,
        int8=int8,
        model=name,
        weights=weights,
        size=size,
        roles=roles,
        prompts=prompts,
        default_prompt=default,
        notes=notes,
    )
    write_record(folder / GRAPH_SETTINGS, settings)


def _write_encoder(
    model: SparseEncoder, encoder: Transformer, folder: Path, format: GraphFormat, int8: bool, texts: Sequence[str]
) -> None:
    """Write the graph of an encoder with its pooling, its configuration and its terms."""
    [pool] = [pooling for transformer, pooling in splade_modules(model) if transformer is encoder]
    path = folder / GRAPHS[format][int8]
    layer = output_vocabulary(encoder.auto_model)
    path.parent.mkdir()
    encoder.auto_model.config.save_pretrained(folder)
    if layer is not None:
        write_terms(folder / TERMS_FILE, layer.terms)
    limits = {role: terms_kept(model, role) for role in BOTH_ROLES if route(model, role)[0] is encoder}
    with TemporaryDirectory(dir=folder) as work:
        plain = Path(work, "model.onnx") if format == "openvino" or int8 else path
        _write_onnx(encoder, pool.pooling_strategy, pool.activation_function, limits, int8 and format == "onnx", plain)
        if format == "openvino":
            onnx_to_openvino(plain, path, int8)
        elif int8:
            quantize(plain, path, (graph_inputs(encoder, [text]) for text in texts))


POOLED = ("max", "sum", "cls", "mean-before-head")  # poolings that `PooledTerms` computes
RoleLimits = dict[Role, int | None]  # number of terms kept of a text; None for all terms


class PooledTerms(nn.Module):
    """Token ids [b, s] -> term weights [b, v], in operations of ONNX; `mlm` does not compute its logits.

    `known` [tokens] is 1 for ordinary tokens, 0 for special tokens: a text without an ordinary token has no terms.
    """

    known: Tensor

    def __init__(
        self,
        mlm: PreTrainedModel,
        layer: nn.Linear,
        pooling: str,
        activation: Activation,
        known: Tensor,
        limits: RoleLimits,
        in_blocks: bool = False,
    ) -> None:
        super().__init__()
        self.mlm, self.layer, self.pooling, self.activation = mlm, layer, pooling, activation
        self.limits, self.blocks = limits, nn.ParameterList(layer.weight.split(DECODER_BLOCK) if in_blocks else [])
        self.register_buffer("known", known)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return all weights [b, v] of texts [b, s], and the largest weights by role."""
        tokens = torch.ones_like(input_ids).sum(1, keepdim=True)  # s, as a tensor: ONNX has no remainder of a number
        first = attention_mask.argmax(1, keepdim=True)
        places = (torch.arange(input_ids.shape[1]) + first) % tokens  # padding goes to the end
        ids, mask = input_ids.gather(1, places), attention_mask.gather(1, places)
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids.gather(1, places)}
        weights = self.pooled(ids, mask, types)
        readable = (self.known[ids] * mask).amax(1, keepdim=True) > 0
        weights = torch.where(readable, weights, torch.zeros_like(weights))
        return weights, *(_heaviest(weights, limit) for limit in self.limits.values())

    def pooled(self, input_ids: Tensor, attention_mask: Tensor, types: dict[str, Tensor]) -> Tensor:
        """Return the weights [b, v] of texts [b, s] padded at the end; arbitrary for a text without a token."""
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
            states = torch.where(mask > 0, hidden, first.unsqueeze(1))
            if self.blocks:
                logits = torch.cat([linear(states, block).amax(1) for block in self.blocks], 1)
            else:
                logits = linear(states.flatten(0, 1), weight).unflatten(0, (texts, tokens)).amax(1)
        # The same bias for every token: adding it to the winner alone gives the same maximum.
        return activate(logits if bias is None else logits + bias, self.activation)


def _heaviest(weights: Tensor, limit: int | None) -> Tensor:
    """Keep the `limit` largest weights of each row of `weights` [b, v], and set the others to zero."""
    if limit is None or limit >= weights.shape[1]:
        return weights.clone()
    best = weights.topk(limit, dim=1)
    return torch.zeros_like(weights).scatter(1, best.indices, best.values)


def _known_tokens(transformer: Transformer, mlm: PreTrainedModel) -> Tensor:
    """Return 0 for special tokens and 1 for other tokens, int64 [tokens]; 1 for all if special terms are kept."""
    known = torch.ones(mlm.get_input_embeddings().num_embeddings, dtype=torch.int64)
    if not keeps_special_terms(mlm.config):
        known[[i for i in transformer.tokenizer.all_special_ids if i < len(known)]] = 0
    return known


def _write_onnx(
    transformer: Transformer, pooling: str, activation: Activation, limits: RoleLimits, int8: bool, path: Path
) -> None:
    """Write a model with its pooling for inputs of any size; with `int8`, in a form that is fast in 8 bits."""
    if pooling not in POOLED:
        raise ModelError(f"{pooling} pooling cannot be exported, only {', '.join(POOLED)}")
    mlm = copy.deepcopy(transformer.auto_model).cpu().float().eval()
    inputs = graph_inputs(transformer, ["two texts", "the second one is longer"])
    outputs = [OUTPUT, *(f"{role}_{OUTPUT}" for role in limits)]
    with without_logits(mlm) as layer:
        pooled = PooledTerms(mlm, layer, pooling, activation, _known_tokens(transformer, mlm), limits, int8)
        write_graph(pooled, mlm, inputs, outputs, path, for_int8=int8)


def _compared(model: SparseEncoder, exported: GraphModel, texts: Sequence[str]) -> ExportedModel:
    """Compare a model and its graph on texts, on the CPU and in float32."""
    plain = TorchModel(model if model.device.type == "cpu" else copy.deepcopy(model).cpu())
    roles: tuple[Role, ...] = BOTH_ROLES if isinstance(model[0], Router) else ("document",)
    wanted, seconds, wait = _encoded(plain, texts, roles)
    exported_weights, seconds_after, wait_after = _encoded(exported, texts, roles)
    size = sum(file.stat().st_size for file in exported.place.rglob(f"{exported.settings.format}/*"))
    return ExportedModel(
        format=exported.settings.format,
        int8=exported.settings.int8,
        texts=len(texts),
        threads=cpu_threads(),
        before=Speed((plain.parameters or 0) * 4 / 1e6, len(texts) / seconds, wait),
        after=Speed(size / 1e6, len(texts) / seconds_after, wait_after),
        largest_error=float(abs(exported_weights - wanted).max()),
        heaviest=float(wanted.max()),
        same_top=_same_top(wanted, exported_weights),
    )


def _encoded(model: EncodingModel, texts: Sequence[str], roles: Iterable[Role]) -> tuple[csr_array, float, float]:
    """Return the weights [., v] of texts for each role with an encoder, the seconds of a role, and ms per query."""
    rows = list[csr_array]()
    dtype: DType = "float32" if model.runtime == "torch" else "auto"
    encoders = [TextEncoder(model, role, max_terms=len(model.terms), dtype=dtype) for role in roles]
    for encoder in (encoder for encoder in encoders if not encoder.looked_up):
        encoder.encode(texts[:1])  # warm up before timing
        started = time.perf_counter()
        rows.append(encoder.encode(texts))
        seconds = time.perf_counter() - started
    query, times = " ".join(" ".join(texts).split()[:QUERY_WORDS]), []
    for _ in range(TIMED_QUERIES):
        started = time.perf_counter()
        encoder.encode([query])
        times.append(time.perf_counter() - started)
    return csr_array(vstack(rows, format="csr")), seconds, 1000 * float(np.median(times))


def _same_top(model_weights: csr_array, exported_weights: csr_array) -> float:
    """Return the share of the model's ten heaviest terms of each row that the export has among its ten heaviest."""
    best, exported = (prune(vectors, COMPARED_TERMS).astype(bool) for vectors in (model_weights, exported_weights))
    return float(best.multiply(exported).nnz / best.nnz) if best.nnz else 1.0


def _check(result: ExportedModel, min_overlap: float) -> None:
    """Raise `ModelError` if the graph does not agree with the model."""
    if not result.int8 and not result.largest_error <= TOLERANCE:
        difference = f"a weight differs by {result.largest_error:.1e}, and {TOLERANCE:g} is allowed"
        raise ModelError(f"the graph does not agree with the model: {difference}; nothing is written")
    if result.same_top < min_overlap:
        overlap = f"{result.same_top:.1%} of the largest terms are equal"
        raise ModelError(f"min_overlap of {min_overlap:g} is not reached: {overlap}; nothing is written")


def weights_on_disk(model: SparseEncoder) -> str:
    """Return the checksum of the files that a model was loaded from; "" if they do not hold its weights."""
    place = Path(locate(model_name(model)))
    if not (files := weight_files(place)):
        return ""
    try:
        on_disk = TorchModel(load_sparse_encoder(str(place), device="cpu"))
        wanted = TorchModel(model)
        same = on_disk.fingerprint(wanted.dtype)["weights"] == wanted.fingerprint()["weights"]
    except VocableError:  # it was loaded with options that its folder does not contain
        return ""
    return files_checksum(files) if same else ""
