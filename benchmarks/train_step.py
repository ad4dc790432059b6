"""One training step: a fused model beside the stock sentence-transformers one, in one run.

    python benchmarks/train_step.py                              # 16 pairs + hard negatives, 24 / 128 tokens

The step is SparseEncoderTrainer's: SpladeLoss over SparseMultipleNegativesRankingLoss, backward, clipping, AdamW. Every
side runs in a process of its own from the same checkpoint on the same batch, so that its peak memory above the loaded
model (gradients and optimizer included) is its own. The first losses are compared before anything is printed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from machine import NOT_NATIVE, figure, machine, peak_memory, print_machine, ratio
from random_model import DESCRIPTION, write_random_model
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss
from torch import Tensor

from vocable.data import read_texts
from vocable.encoder.fuse import fuse
from vocable.encoder.load import locate
from vocable.encoder.precision import native_bfloat16
from vocable.training.dropout import set_dropout


class Side(NamedTuple):
    """What runs: the head, the number type (by autocast) and the dropout rate (None: the checkpoint's own)."""

    fused: bool
    bfloat16: bool
    dropout: float | None


SIDES = {
    "sentence-transformers float32": Side(False, False, None),
    "sentence-transformers float32, dropout 0": Side(False, False, 0.0),
    "sentence-transformers bfloat16, dropout 0": Side(False, True, 0.0),
    "vocable float32, dropout 0": Side(True, False, 0.0),
    "vocable bfloat16, dropout 0": Side(True, True, 0.0),
}
PEER = "sentence-transformers float32"


def measure(side: Side, path: str, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds a step, peak MiB above the loaded model, the first loss and the sparsity; in its own process."""
    device = torch.device(options.device)
    torch.manual_seed(0)
    model = SparseEncoder(path, device=options.device).float().train()
    if side.fused:
        fuse(model)
    if side.dropout is not None:
        set_dropout(model, side.dropout)
    ranking = SparseMultipleNegativesRankingLoss(model)
    loss = SpladeLoss(model, ranking, document_regularizer_weight=3e-5, query_regularizer_weight=5e-5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    batch = draw(model, texts, options)
    losses: list[float] = []
    milliseconds: list[float] = []

    def step() -> None:
        start = time.perf_counter()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=side.bfloat16):
            total = torch.stack(list(loss([dict(features) for features in batch], None).values())).sum()
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(total.detach()))  # waits for the device
        milliseconds.append(1e3 * (time.perf_counter() - start))

    memory = peak_memory(lambda: [step() for _ in range(options.steps + 1)], device)
    with torch.no_grad():
        active = (model(dict(batch[1]))["sentence_embedding"] > 0).float().mean()
    return {
        "milliseconds": median(milliseconds[1:]),
        "MiB": memory,
        "loss": losses[0],
        "active share of a document": float(active),
    }


def draw(model: SparseEncoder, texts: list[str], options: argparse.Namespace) -> list[dict[str, Tensor]]:
    """Queries, positives and one hard negative each, cut from running text to the exact length: no padding."""
    tokenizer = model.tokenizer
    running = iter(tokenizer(" ".join(texts), add_special_tokens=False, verbose=False)["input_ids"])
    batch = []
    for length in (options.query_length, options.document_length, options.document_length):
        rows = [
            [tokenizer.cls_token_id, *islice(running, length - 2), tokenizer.sep_token_id] for _ in range(options.pairs)
        ]
        ids = torch.tensor(rows, device=model.device)
        batch.append({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    return batch


def check(results: dict[str, dict[str, Any]]) -> None:
    same = [part["loss"] for name, part in results.items() if name.endswith("float32, dropout 0")]
    if max(same) - min(same) > 1e-3 * abs(same[0]):
        raise SystemExit(f"the losses differ: {same}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model to use in place of a random MiniLM")
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--query-length", type=int, default=24, help="tokens of a query")
    parser.add_argument("--document-length", type=int, default=128, help="tokens of a positive or negative")
    parser.add_argument("--steps", type=int, default=7, help="steps to measure, after one to warm up")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args()
    device = torch.device(options.device)
    described = machine(device)
    native = native_bfloat16(device)
    texts = list(islice(read_texts("pydocs:"), 5000))
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = locate(options.model) if options.model else str(write_random_model(Path(folder), texts))
        for name, side in SIDES.items():
            if native or not side.bfloat16:
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                    results[name] = process.submit(measure, side, path, texts, options).result()
    check(results)
    for part in results.values():
        part["times faster than the peer"] = ratio(results[PEER]["milliseconds"], part["milliseconds"])
        part["memory share"] = ratio(part["MiB"], results[PEER]["MiB"])
    batch = f"{options.pairs} pairs + hard negatives, {options.query_length} / {options.document_length} tokens"
    name = options.model or DESCRIPTION
    if options.json:
        print(json.dumps({"machine": described, "model": name, "batch": batch, "results": results}, indent=1))
        return
    print_machine(described)
    active = results[PEER]["active share of a document"]
    print(f"{name}   {batch}   {active:.1%} of terms active in these documents\n")
    print(f"{'':44}{'ms a step':>10}{'faster':>9}{'MiB':>8}{'memory':>9}")
    for side, part in results.items():
        print(
            f"{side:44}{part['milliseconds']:10.0f}{part['times faster than the peer']:8.2f}x"
            f"{figure(part['MiB'], '.0f'):>8}{figure(part['memory share'], '.2f'):>8}x"
        )
    if not native:
        print(NOT_NATIVE)


if __name__ == "__main__":
    main()
