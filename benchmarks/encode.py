"""Texts a second: `vocable.encode` and sentence-transformers' `SparseEncoder.encode_document`, in the same run.

    python benchmarks/encode.py                                          # a random MiniLM on the built-in corpus
    python benchmarks/encode.py --model MODEL --texts beir:DIR --count 500
    python benchmarks/encode.py --busy                                   # ours alone, while a process uses a core

All sides read the same checkpoint and the same texts. Each uses its best batch size, which is searched first on the
same texts. If onnxscript is installed, our export to 8 bits is measured, too. FastEmbed, if installed, runs the same
graph with its own session, tokenizer and batches, in the order of the texts. Its texts are cut at the model's limit,
which its tokenizer_config.json does not have. The vectors are compared before anything is printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import NOT_NATIVE, machine, medians, print_machine
from random_model import DESCRIPTION, write_random_model
from scipy.sparse import csr_array
from scipy.sparse.linalg import norm
from sentence_transformers import SparseEncoder

from vocable.data import read_texts
from vocable.encoding.encode import encode
from vocable.encoding.graph import GraphEncoder, GraphModel
from vocable.encoding.graph_sessions import GRAPHS
from vocable.encoding.hub import locate
from vocable.encoding.load import load_encoder
from vocable.encoding.terms import special_terms, terms
from vocable.torch_models.cpu import native_bfloat16
from vocable.torch_models.export import export_model
from vocable.torch_models.sparse_encoder import load_sparse_encoder as load
from vocable.torch_models.torch_model import BATCH_TOKENS

OUR_BATCHES = {"cpu": (512, 1024, 2048, 4096), "cuda": (8192, 32768, 131072)}  # tokens
THEIR_BATCHES = {"cpu": (4, 8, 16, 32), "cuda": (32, 128, 512)}  # texts
FASTEMBED_BATCHES: dict[str, tuple[int, ...]] = {"cpu": (1, 4, 16, 64, 256)}  # texts; 256 is its default
FASTEMBED = "pip install fastembed==0.9.1"
EXPORTED, BY_FASTEMBED = "vocable ONNX int8", "FastEmbed, the same graph"
Encode = Callable[[int], Any]  # batch size -> vectors


def ours(model: SparseEncoder, texts: list[str], dtype: Any) -> Encode:
    def run(batch: int) -> csr_array:
        BATCH_TOKENS[model.device.type] = batch
        return encode(model, texts, dtype=dtype, max_terms=len(terms(model)))  # all terms, as the peer gives them

    return run


def theirs(model: SparseEncoder, texts: list[str]) -> Encode:
    return lambda batch: model.encode_document(texts, batch_size=batch, show_progress_bar=False)


def in_8_bits(model: GraphModel, texts: list[str]) -> Encode:
    def run(batch: int) -> csr_array:
        GraphEncoder.batch_tokens = batch
        return encode(model, texts, max_terms=len(model.terms))

    return run


def by_fastembed(model: GraphModel, texts: list[str]) -> Encode:
    """The graph run by FastEmbed's base class of its text models, which yields terms and weights of each text."""
    from fastembed.common.onnx_model import OnnxOutputContext
    from fastembed.sparse.sparse_embedding_base import SparseEmbedding
    from fastembed.text.onnx_text_model import OnnxTextModel

    class Exported(OnnxTextModel[SparseEmbedding]):
        ONNX_OUTPUT_NAMES = ["weights"]  # noqa: RUF012 - as the base class has it

        def _post_process_onnx_output(self, output: OnnxOutputContext, **_: Any) -> Iterator[SparseEmbedding]:
            for row in output.model_output:  # as its SPLADE models do, after their pooling
                terms = row.nonzero()[0]
                yield SparseEmbedding(values=row[terms], indices=terms)

    runner = Exported()
    runner._model_dir = model.place
    runner._load_onnx_model(model.place, GRAPHS["onnx"][model.settings.int8], threads=None)
    runner.tokenizer.enable_truncation(model.settings.roles["document"].max_length or 512)
    return lambda batch: list(runner._embed_documents("", "", texts, batch_size=batch))


def stacked(vectors: list[Any], size: int) -> csr_array:
    """Return FastEmbed's vectors as a matrix [texts, size]."""
    indptr = np.cumsum([0, *(len(vector.indices) for vector in vectors)])
    values, indices = (np.concatenate([getattr(vector, name) for vector in vectors]) for name in ("values", "indices"))
    return csr_array((values, indices, indptr), shape=(len(vectors), size))


def best_batch(run: Encode, batches: tuple[int, ...], device: torch.device) -> int:
    seconds = medians({str(batch): partial(run, batch) for batch in batches}, 1, device)
    return int(min(seconds, key=seconds.__getitem__))


def compare(vectors: csr_array, expected: torch.Tensor, special: np.ndarray) -> dict[str, float]:
    """Compare our vectors with theirs: relative norm of the difference, and the share of terms that are not in both.

    Only the stock head lets `special` terms through.
    """
    dense = expected.float().cpu().to_dense().numpy()
    dense[:, special] = 0
    our_weights = vectors.toarray()
    return {
        "relative difference": float(np.linalg.norm(our_weights - dense) / np.linalg.norm(dense)),
        "terms in one only": float(((our_weights > 0) != (dense > 0)).sum() / (dense > 0).sum()),
    }


def relative(vectors: csr_array, expected: csr_array) -> float:
    return float(norm(vectors - expected) / norm(expected))


def measure(path: Path | str, texts: list[str], repeats: int, device: torch.device, work: Path) -> dict[str, Any]:
    model = load(path, device=str(device))
    stock = SparseEncoder(str(path), device=str(device)).float()
    native = native_bfloat16(device)
    sides: dict[str, tuple[Encode, dict[str, tuple[int, ...]]]] = {
        "vocable float32": (ours(model, texts, "float32"), OUR_BATCHES),
        "sentence-transformers float32": (theirs(stock, texts), THEIR_BATCHES),
    }
    if native:
        half = SparseEncoder(str(path), device=str(device)).bfloat16()
        sides["vocable auto (bfloat16)"] = (ours(model, texts, "auto"), OUR_BATCHES)
        sides["sentence-transformers bfloat16"] = (theirs(half, texts), THEIR_BATCHES)
    if exports := device.type == "cpu" and find_spec("onnxscript") is not None:
        export_model(model, work / "int8", int8=True)
        graph = GraphModel(work / "int8")
        sides[EXPORTED] = in_8_bits(graph, texts), OUR_BATCHES
    if fastembed := exports and find_spec("fastembed") is not None:
        sides[BY_FASTEMBED] = by_fastembed(graph, texts), FASTEMBED_BATCHES
    batches = {name: best_batch(run, sizes[device.type], device) for name, (run, sizes) in sides.items()}
    runs = {name: lambda run=run, name=name: run(batches[name]) for name, (run, _) in sides.items()}
    special, reference = special_terms(model), runs["sentence-transformers float32"]()
    exact = compare(runs["vocable float32"](), reference, special)
    if exact["relative difference"] > 1e-4:
        raise SystemExit(f"the vectors differ: {exact}")
    compared = {"float32": exact}
    if native:
        compared["auto (bfloat16) against float32"] = compare(runs["vocable auto (bfloat16)"](), reference, special)
    if exports:
        compared["int8 against float32"] = compare(runs[EXPORTED](), reference, special)
    if fastembed:
        vectors = stacked(runs[BY_FASTEMBED](), len(graph.terms))
        compared["FastEmbed against int8"] = {"relative difference": relative(vectors, runs[EXPORTED]())}
    seconds = medians(runs, repeats, device)
    speeds = {name: len(texts) / value for name, value in seconds.items()}
    active = reference.coalesce().values().count_nonzero().item() / len(texts)
    return {
        "texts a second": speeds,
        "best batch": batches,
        "ratios": ratios(speeds),
        "compared": compared,
        "active terms a text": active,
    }


def beside_another(path: Path | str, texts: list[str], repeats: int, device: torch.device) -> dict[str, float]:
    """Texts a second by the default runtime, alone and while another process keeps one core busy."""
    model = load_encoder(path, str(device))

    def run() -> object:
        return encode(model, texts)

    speeds = {"quiet": len(texts) / medians({"ours": run}, repeats, device)["ours"]}
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            speeds["busy"] = len(texts) / medians({"ours": run}, repeats, device)["ours"]
        finally:
            other.kill()
    return speeds


def ratios(speeds: dict[str, float]) -> dict[str, float]:
    our_names = [name for name in speeds if name.startswith("vocable")]
    peers = [name for name in speeds if name not in our_names]
    return {f"{name} / {peer}": speeds[name] / speeds[peer] for name in our_names for peer in peers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model to use in place of a random MiniLM")
    parser.add_argument("--texts", default="pydocs:", help="a place of texts (default: the built-in corpus)")
    parser.add_argument("--count", type=int, default=250, help="texts to encode (default 250)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="quiet and beside a busy process, without the peer")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args()
    device = torch.device(options.device)
    described = machine(device)
    everything = list(islice(read_texts(options.texts), max(options.count, 5000)))
    step = max(1, len(everything) // options.count)
    texts = everything[::step][: options.count]
    with tempfile.TemporaryDirectory() as folder:
        path = locate(options.model) if options.model else write_random_model(Path(folder), everything)
        if options.busy:
            speeds = beside_another(path, texts, options.repeats, device)
            if options.json:
                print(json.dumps({"machine": described, **speeds}, indent=1))
                return
            print_machine(described)
            print(f"{speeds['quiet']:.1f} texts/s, beside a busy process {speeds['busy']:.1f}", end=": ")
            print(f"{speeds['busy'] / speeds['quiet']:.2f} of it")
            return
        results = measure(path, texts, options.repeats, device, Path(folder))
    results["model"] = options.model or DESCRIPTION
    results["texts"] = f"{len(texts)} of {options.texts}"
    if options.json:
        print(json.dumps({"machine": described, **results}, indent=1))
        return
    print_machine(described)
    print(f"{results['model']}   {results['texts']}   {results['active terms a text']:.0f} active terms a text\n")
    print(f"{'':34}{'texts/s':>9}{'best batch':>12}")
    for name, speed in results["texts a second"].items():
        unit = "tokens" if name.startswith("vocable") else "texts"
        print(f"{name:34}{speed:9.1f}{results['best batch'][name]:>12,} {unit}")
    print()
    for name, value in results["ratios"].items():
        print(f"{name:66}{value:6.2f}x")
    if BY_FASTEMBED not in results["best batch"] and device.type == "cpu":
        print(f"FastEmbed was not measured: {FASTEMBED}")
    if not native_bfloat16(device):
        print(NOT_NATIVE)
    for name, values in results["compared"].items():
        print(f"{name}: " + ", ".join(f"{what} {value:.1e}" for what, value in values.items()))


if __name__ == "__main__":
    main()
