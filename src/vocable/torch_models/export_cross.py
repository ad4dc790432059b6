"""Write a cross encoder of sentence-transformers as a graph, and compare the two on pairs of a query and a text.

Letters: b pairs, s tokens.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn

from vocable.core.storage import finished, read_record, replacing_folder, write_record
from vocable.core.tables import NONE, Table, Tabular, counted
from vocable.data import read_texts
from vocable.data.texts import iter_texts
from vocable.encoding.cross_graph import CROSS_GRAPH, CrossGraph, CrossGraphSettings
from vocable.encoding.dense_models import dense_fingerprint
from vocable.encoding.graph import TOKENIZER
from vocable.encoding.graph_sessions import GRAPHS, SCORES
from vocable.encoding.model_fingerprint import digest
from vocable.errors import ArgumentError, ModelError, require_extra
from vocable.options import checked
from vocable.torch_models.graph_files import COMPARED_TEXTS, COMPARISON, ROUNDED_TEXTS, graph_inputs, write_graph
from vocable.torch_models.quantize import quantize

LARGEST_DIFFERENCE = 1e-3  # of a score, in float32
LEAST_CORRELATION = 0.95  # of ranks, with 8 bits
QUERY_OF_TEXT = 8  # words of a text that are the query of its pairs


@dataclass(frozen=True)
class ExportedCrossEncoder(Tabular):
    """Comparison of a graph with its cross encoder in float32: scores of pairs, size and speed."""

    int8: bool
    pairs: int
    megabytes: float
    largest_error: float  # of a score
    spread: float  # standard deviation of the scores
    correlation: float  # Spearman's, of the scores
    milliseconds: float  # of a pair
    torch_milliseconds: float

    def to_json(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return asdict(self)

    def table(self) -> Table:
        """Return a table with a row for the model and a row for the graph."""
        figures = [f"{self.megabytes:.1f}", f"{self.milliseconds:.1f}", f"{self.largest_error:.1e}"]
        rows = [
            ["torch", NONE, f"{self.torch_milliseconds:.1f}", NONE, NONE],
            [f"onnx{', int8' if self.int8 else ''}", *figures, f"{self.correlation:.4f}"],
        ]
        title = f"{counted(self.pairs, 'pair')}, standard deviation of scores {self.spread:.2g}"
        return Table(title, ["", "MB", "ms a pair", "largest error", "rank correlation"], rows)


class PairScores(nn.Module):
    """Token ids [b, s] -> scores [b, 1], in operations of ONNX."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model, self.activation = model, model.activation_fn

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return the scores of pairs, as `CrossEncoder.predict` does."""
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            features["token_type_ids"] = token_type_ids
        scores: Tensor = self.activation(self.model(features)["scores"])
        return scores


@checked
def export_cross(
    model: CrossEncoder, output: str | Path, *, int8: bool = False, texts: Iterable[str] | None = None
) -> ExportedCrossEncoder:
    """Write a cross encoder as an ONNX graph, for reranking without PyTorch.

    The graph is compared with the model on 64 pairs, and written only if no score differs by more than 0.001, or with
    `int8` if the rank correlation of the scores (Spearman) is at least 0.95.

    Args:
        model: with one label, from sentence-transformers; it is not changed.
        output: output folder (written atomically).
        int8: write 8-bit weights: a quarter of the size, with slightly different results.
        texts: the first words of a text and a text are a pair. The first 64 pairs are compared; the first 192 give the
            ranges of an 8-bit graph. By default texts of pydocs:.

    Raises:
        MissingExtraError: a package that writes or runs the graph is not installed.
        ModelError: the model cannot be written as a graph, or the graph does not agree with it.
        ArgumentError: the output exists already, or there are no texts.
    """
    folder, made_from = Path(output), {"digest": digest(dense_fingerprint(model)), "int8": int8}
    if finished(folder, made_from):
        return read_record(folder / COMPARISON, ExportedCrossEncoder)
    require_extra("onnxscript", "train")  # before the work
    pairs = _pairs(islice(read_texts("pydocs:") if texts is None else iter_texts(texts), ROUNDED_TEXTS))
    if not pairs:
        raise ArgumentError("no text to compare the graph with the model")
    # The graph is written in float32 on the CPU, and compared there.
    plain = copy.deepcopy(model).cpu().float().eval()
    with replacing_folder(folder, made_from) as part:
        _write(plain, part, int8, pairs)
        result = _compared(plain, CrossGraph(part), pairs[:COMPARED_TEXTS])
        if int8 and not result.correlation >= LEAST_CORRELATION:
            raise ModelError(f"the rank correlation of scores is {result.correlation:.3f}; nothing is written")
        if not int8 and not result.largest_error <= LARGEST_DIFFERENCE:
            raise ModelError(f"a score differs by {result.largest_error:.1e}; nothing is written")
        write_record(part / COMPARISON, result)
    return result


def _pairs(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of the first words of a text and, by turns, the same or the next text; blank texts are left out."""
    known = [text for text in texts if text.split()]
    queries = [" ".join(text.split()[:QUERY_OF_TEXT]) for text in known]
    return [(query, known[(row + row % 2) % len(known)]) for row, query in enumerate(queries)]


def _write(model: CrossEncoder, folder: Path, int8: bool, pairs: list[tuple[str, str]]) -> None:
    """Write the graph, its tokenizer and its settings."""
    transformer, path = model[0], folder / GRAPHS["onnx"][int8]
    if len(model) > 1 or not isinstance(transformer, Transformer) or model.default_prompt_name is not None:
        raise ModelError("a cross encoder with a prompt, or with modules after its transformer, cannot be exported")
    path.parent.mkdir()
    tokenizer: Any = transformer.tokenizer
    tokenizer.save_pretrained(folder)
    if not (folder / TOKENIZER).is_file():
        raise ModelError(f"{type(tokenizer).__name__} cannot be exported: it has no {TOKENIZER}")
    inputs = partial(graph_inputs, transformer)
    # The 8-bit graph is made of a plain one, which is not kept.
    with TemporaryDirectory(dir=folder) as work:
        plain = Path(work, "model.onnx") if int8 else path
        sample = inputs([("two texts", "the second one"), ("a pair", "it is longer than the first")])
        write_graph(PairScores(model), transformer.auto_model, sample, [SCORES], plain, for_int8=int8)
        if int8:
            quantize(plain, path, (inputs([pair]) for pair in pairs))
    settings = CrossGraphSettings(
        int8=int8,
        model=Path(transformer.auto_model.name_or_path).name,
        max_length=model.max_seq_length,
        tokens=transformer.auto_model.get_input_embeddings().num_embeddings,
        padding=tokenizer.pad_token_id or 0,
    )
    write_record(folder / CROSS_GRAPH, settings)


def _compared(model: CrossEncoder, graph: CrossGraph, pairs: list[tuple[str, str]]) -> ExportedCrossEncoder:
    """Compare a cross encoder and its graph on pairs."""
    wanted, seconds = _timed(lambda some: model.predict(some, show_progress_bar=False), pairs)
    scores, seconds_after = _timed(graph.predict, pairs)
    return ExportedCrossEncoder(
        int8=graph.settings.int8,
        pairs=len(pairs),
        megabytes=sum(file.stat().st_size for file in graph.place.rglob("onnx/*")) / 1e6,
        largest_error=float(np.abs(scores - wanted).max()),
        spread=float(wanted.std()),
        correlation=float(spearmanr(wanted, scores).statistic) if wanted.std() else 1.0,
        milliseconds=1000 * seconds_after / len(pairs),
        torch_milliseconds=1000 * seconds / len(pairs),
    )


def _timed(predict: Callable[[list[tuple[str, str]]], Any], pairs: list[tuple[str, str]]) -> tuple[Any, float]:
    """Return the scores of pairs, and the seconds that they take after a first pair."""
    predict(pairs[:1])
    started = time.perf_counter()
    return predict(pairs), time.perf_counter() - started
