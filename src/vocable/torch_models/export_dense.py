"""Write a dense model of sentence-transformers as a graph with its pooling, and compare the two on texts.

Letters: b texts, s tokens, d dimensions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import normalize

from vocable.core.storage import finished, read_record, replacing_folder, write_record
from vocable.core.tables import Table, Tabular, counted
from vocable.data import read_texts
from vocable.data.texts import iter_texts
from vocable.encoding.dense_models import DENSE_GRAPH, DenseGraph, DenseGraphSettings, dense_fingerprint, normalized
from vocable.encoding.graph import TOKENIZER
from vocable.encoding.graph_sessions import DENSE_OUTPUT, GRAPHS
from vocable.encoding.graph_settings import BOTH_ROLES
from vocable.encoding.model_fingerprint import digest
from vocable.errors import ArgumentError, ModelError, require_extra
from vocable.options import checked
from vocable.torch_models.graph_files import (
    COMPARED_TEXTS,
    COMPARISON,
    ROUNDED_TEXTS,
    graph_inputs,
    write_graph,
)
from vocable.torch_models.quantize import quantize

LEAST_COSINE, LEAST_COSINE_INT8 = 0.9999, 0.98


@dataclass(frozen=True)
class ExportedDenseModel(Tabular):
    """Comparison of a graph with its dense model in float32: the cosine of a text's two vectors, and the size."""

    int8: bool
    texts: int
    dimensions: int
    megabytes: float
    mean_cosine: float
    least_cosine: float

    def to_json(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return asdict(self)

    def table(self) -> Table:
        """Return a table with one row."""
        row = [f"onnx{', int8' if self.int8 else ''}", str(self.dimensions), f"{self.megabytes:.1f}"]
        header = ["", "dimensions", "MB", "mean cosine", "least cosine"]
        return Table(
            counted(self.texts, "text"), header, [[*row, f"{self.mean_cosine:.4f}", f"{self.least_cosine:.4f}"]]
        )


class PooledVectors(nn.Module):
    """Token ids [b, s] -> unit vectors [b, d], in operations of ONNX."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return the unit vectors of texts."""
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            features["token_type_ids"] = token_type_ids
        return normalize(self.model(features)["sentence_embedding"], dim=1)


@checked
def export_dense(
    model: SentenceTransformer, output: str | Path, *, int8: bool = False, texts: Iterable[str] | None = None
) -> ExportedDenseModel:
    """Write a dense model as an ONNX graph, for the dense vectors of `vocable index` without PyTorch.

    The graph is compared with the model on 64 texts, and written only if the cosine of a text's two vectors is at least
    0.9999, or 0.98 with `int8`.

    Args:
        model: from sentence-transformers; it is not changed.
        output: Output folder (written atomically).
        int8: write 8-bit weights: a quarter of the size, with slightly different results.
        texts: the graph is compared on the first 64. The first 192 give the ranges of an 8-bit graph, and should
            include all kinds of texts that the model reads. By default texts of pydocs:.

    Raises:
        MissingExtraError: a package that writes or runs the graph is not installed.
        ModelError: the model cannot be written as a graph, or the graph does not agree with it.
        ArgumentError: the output exists already, or there are no texts.
    """
    folder, made_from = Path(output), {"digest": digest(dense_fingerprint(model)), "int8": int8}
    if finished(folder, made_from):
        return read_record(folder / COMPARISON, ExportedDenseModel)
    require_extra("onnxscript", "train")  # before the work
    sample = list(islice(read_texts("pydocs:") if texts is None else iter_texts(texts), ROUNDED_TEXTS))
    if not any(text.split() for text in sample):
        raise ArgumentError("no text to compare the graph with the model")
    # The graph is written in float32 on the CPU, and compared there.
    plain = copy.deepcopy(model).cpu().float().eval()
    with replacing_folder(folder, made_from) as part:
        _write(plain, part, int8, sample)
        result = _compared(plain, DenseGraph(part), sample[:COMPARED_TEXTS])
        if not result.least_cosine >= (LEAST_COSINE_INT8 if int8 else LEAST_COSINE):
            cosine = f"the vectors of a text have a cosine of {result.least_cosine:.4f}"
            raise ModelError(f"the graph does not agree with the model: {cosine}; nothing is written")
        write_record(part / COMPARISON, result)
    return result


def _write(model: SentenceTransformer, folder: Path, int8: bool, texts: list[str]) -> None:
    """Write the graph, its tokenizer and its settings."""
    transformer, path = model[0], folder / GRAPHS["onnx"][int8]
    path.parent.mkdir()
    transformer.tokenizer.save_pretrained(folder)
    if not (folder / TOKENIZER).is_file():
        raise ModelError(f"{type(transformer.tokenizer).__name__} cannot be exported: it has no {TOKENIZER}")
    inputs = graph_inputs(transformer, ["two texts", "the second one is longer"])
    # The 8-bit graph is made of a plain one, which is not kept.
    with TemporaryDirectory(dir=folder) as work:
        plain = Path(work, "model.onnx") if int8 else path
        write_graph(PooledVectors(model), transformer.auto_model, inputs, [DENSE_OUTPUT], plain, for_int8=int8)
        if int8:
            quantize(plain, path, (graph_inputs(transformer, [text]) for text in texts))
    default = model.prompts.get(model.default_prompt_name or "", "")
    settings = DenseGraphSettings(
        format="onnx",
        int8=int8,
        model=Path(transformer.auto_model.name_or_path).name,
        dimensions=model.get_embedding_dimension() or 0,
        max_length=model.max_seq_length,
        tokens=transformer.auto_model.get_input_embeddings().num_embeddings,
        padding=transformer.tokenizer.pad_token_id or 0,
        prompts={role: model.prompts.get(role) or default for role in BOTH_ROLES},
    )
    write_record(folder / DENSE_GRAPH, settings)


def _compared(model: SentenceTransformer, graph: DenseGraph, texts: list[str]) -> ExportedDenseModel:
    """Compare a model and its graph on texts in both roles."""
    pairs = [
        (normalized(model.encode_query(texts, show_progress_bar=False)), graph.encode_query(texts)),
        (normalized(model.encode_document(texts, show_progress_bar=False)), graph.encode_document(texts)),
    ]
    cosines = np.concatenate([(wanted * vectors).sum(1) for wanted, vectors in pairs])
    settings, size = graph.settings, sum(file.stat().st_size for file in graph.place.rglob("onnx/*"))
    return ExportedDenseModel(
        int8=settings.int8,
        texts=len(texts),
        dimensions=settings.dimensions,
        megabytes=size / 1e6,
        mean_cosine=float(cosines.mean()),
        least_cosine=float(cosines.min()),
    )
