"""A training step of `vocable train` and of sentence-transformers, in the same run.

    python benchmarks/train_step.py                              # 16 pairs + hard negatives, 24 / 128 tokens
    python benchmarks/train_step.py --busy                       # the fastest of each, quiet and with a busy process

Both sides run SparseEncoderTrainer: theirs with SpladeLoss over SparseMultipleNegativesRankingLoss, ours with the same
loss as a recipe's objective. The time of a step is the time between the ends of two steps; it includes tokenization,
clipping and AdamW. Every side runs in a separate process, from the same checkpoint on the same texts. Its peak memory
above the loaded model includes gradients and optimizer. First losses in float32 are compared before anything is
printed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, nullcontext
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from datasets import Dataset, DatasetDict
from machine import NOT_NATIVE, figure, machine, peak_memory, print_machine, ratio
from random_model import DESCRIPTION, write_random_model
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder import SparseEncoderTrainer, SparseEncoderTrainingArguments
from sentence_transformers.sparse_encoder.callbacks.splade_callbacks import SpladeRegularizerWeightSchedulerCallback
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from vocable.data import read_texts
from vocable.encoding.hub import locate
from vocable.torch_models.cpu import float32_attention, native_bfloat16, use_few_shapes
from vocable.torch_models.fuse import fuse
from vocable.training.callbacks import ObjectiveState, set_dropout
from vocable.training.data import TrainingData
from vocable.training.objective import make_objective
from vocable.training.recipe import TrainingSettings


class Side(NamedTuple):
    """A side of the comparison: its head and loss, its number type (autocast), its dropout (None: the checkpoint's)."""

    ours: bool
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
LARGE_PAGES = "THP_MEM_ALLOC_ENABLE"  # which importing vocable would turn on for both sides


class Clock(TrainerCallback):
    """When each step ended, in seconds."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())


def measure(side: Side, path: str, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds a step, peak MiB above the loaded model, the first loss and the sparsity; in its own process."""
    device = torch.device(options.device)
    model = SparseEncoder(path, device=options.device).float()
    model[0].query_length, model[0].document_length = options.query_length, options.document_length
    if side.dropout is not None:
        set_dropout(model, side.dropout)
    loss, ramp = (our_loss if side.ours else their_loss)(model, "bfloat16" if side.bfloat16 else "float32", options)
    clock = Clock()
    model.model_card_data.generate_widget_examples = False
    examples = draw(texts, options)
    with tempfile.TemporaryDirectory() as folder:
        arguments = SparseEncoderTrainingArguments(
            output_dir=folder,
            max_steps=options.steps + 1,
            per_device_train_batch_size=options.pairs,
            learning_rate=1e-6,
            bf16=side.bfloat16,
            use_cpu=device.type == "cpu",
            dataloader_pin_memory=device.type == "cuda",
            router_mapping={"query": "query", "positive": "document", "negative": "document"},
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = SparseEncoderTrainer(model, arguments, train_dataset=examples, loss=loss, callbacks=[ramp, clock])
        trainer.remove_callback(PrinterCallback)
        with float32_attention(model[0].auto_model) if side.ours else nullcontext():  # as a recipe's training
            memory = peak_memory(trainer.train, device)
    active = model.encode_document(examples["positive"][: options.pairs], convert_to_tensor=True).to_dense() > 0
    return {
        "milliseconds": 1e3 * median(end - start for start, end in pairwise(clock.ends)),
        "MiB": memory,
        "loss": trainer.state.log_history[0]["loss"],
        "active share of a document": float(active.float().mean()),
    }


def our_loss(model: SparseEncoder, dtype: str, options: argparse.Namespace) -> tuple[Any, TrainerCallback]:
    """The objective of a recipe, as `vocable train` has it."""
    use_few_shapes(fuse(model)[0].auto_model)
    regularizers = {"query": 5e-5, "document": 3e-5}
    values = {
        "steps": options.steps + 1,
        "losses": [{"name": "info_nce"}],
        "regularizers": regularizers,
        "dtype": dtype,
    }
    settings = TrainingSettings.model_validate(values)
    objective = make_objective(model, settings, TrainingData(DatasetDict()))
    return objective, ObjectiveState(objective)


def their_loss(model: SparseEncoder, dtype: str, options: argparse.Namespace) -> tuple[Any, TrainerCallback]:
    """The host library's."""
    ranking = SparseMultipleNegativesRankingLoss(model)
    loss = SpladeLoss(model, ranking, document_regularizer_weight=3e-5, query_regularizer_weight=5e-5)
    return loss, SpladeRegularizerWeightSchedulerCallback(loss)


def draw(texts: list[str], options: argparse.Namespace) -> Dataset:
    """Return queries with a positive and a hard negative: running text, with a word for each token of the limit."""
    running = iter(" ".join(texts).split())
    lengths = {
        "query": options.query_length,
        "positive": options.document_length,
        "negative": options.document_length,
    }
    rows = options.pairs * (options.steps + 1)
    return Dataset.from_list(
        [{name: " ".join(islice(running, length)) for name, length in lengths.items()} for _ in range(rows)]
    )


def check(results: dict[str, dict[str, Any]]) -> None:
    same = [part["loss"] for name, part in results.items() if "float32, dropout 0" in name]
    if same and max(same) - min(same) > 1e-3 * abs(same[0]):
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
    parser.add_argument("--busy", action="store_true", help="quiet and beside a process that keeps one core busy")
    options = parser.parse_args()
    device = torch.device(options.device)
    described = machine(device)
    native = native_bfloat16(device)
    texts = list(islice(read_texts("pydocs:"), 5000))
    results = {}
    sides = {name: side for name, side in SIDES.items() if native or not side.bfloat16}
    if options.busy:
        sides = {name: side for name, side in sides.items() if side.bfloat16 == native and side.dropout == 0}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = locate(options.model) if options.model else str(write_random_model(Path(folder), texts))
        for beside in ("", ", busy") if options.busy else ("",):
            if beside:
                other = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                stack.callback(other.kill)
            for name, side in sides.items():
                os.environ[LARGE_PAGES] = str(int(side.ours))  # theirs as it comes
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                    results[name + beside] = process.submit(measure, side, path, texts, options).result()
    check(results)
    for part in results.values():
        peer = results.get(PEER, next(iter(results.values())))
        part["times faster than the peer"] = ratio(peer["milliseconds"], part["milliseconds"])
        part["memory share"] = ratio(part["MiB"], peer["MiB"])
    batch = f"{options.pairs} pairs + hard negatives, {options.query_length} / {options.document_length} tokens"
    name = options.model or DESCRIPTION
    if options.json:
        print(json.dumps({"machine": described, "model": name, "batch": batch, "results": results}, indent=1))
        return
    print_machine(described)
    active = next(iter(results.values()))["active share of a document"]
    print(f"{name}   {batch}   {active:.1%} of terms active in these documents\n")
    print(f"{'':44}{'ms a step':>10}{'faster':>9}{'MiB':>8}{'memory':>9}")
    for name, part in results.items():
        print(
            f"{name:44}{part['milliseconds']:10.0f}{part['times faster than the peer']:8.2f}x"
            f"{figure(part['MiB'], '.0f'):>8}{figure(part['memory share'], '.2f'):>8}x"
        )
    if not native:
        print(NOT_NATIVE)


if __name__ == "__main__":
    main()
