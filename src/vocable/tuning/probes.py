"""The figures that a tuning measures before its plan: of the documents, and of this machine with the model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

import torch
from psutil import Process
from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerBase

from vocable.data import Document
from vocable.encoding.load import load_encoder
from vocable.encoding.text_encoder import TextEncoder
from vocable.evaluation.cost import spread
from vocable.language.coverage import Coverage
from vocable.language.words import spaced_pieces
from vocable.torch_models.cpu import in_bfloat16
from vocable.torch_models.fuse import freeze_embeddings, splade_modules
from vocable.torch_models.torch_model import HostTokenization
from vocable.training.micro_batches import embedded, in_parts
from vocable.tuning.plan import Reading, TuningSpeed
from vocable.tuning.recipe import DOCUMENT_LENGTH, MICRO_BATCH, QUERY_LENGTH, QUESTIONS_PER_STEP, made_examples

VOCABULARY_TEXTS = 256  # texts that are cut into tokens to judge the vocabulary
SPEED_TEXTS, ROUNDS = 32, 2  # texts and rounds of the measured speed
# Largest resident memory of a tuning, as a multiple of measured passes and states: 2.8 GB in 250 steps, for 1.6. It is
# more because of the trainer, the vectors of a step, code that oneDNN compiles for new shapes, and holes in the heap.
RESIDENT_GROWTH = 1.8


def read_words(documents: Sequence[Document], repeated: int, tokenizer: PreTrainedTokenizerBase) -> Reading:
    """Measure how well the vocabulary knows the words of evenly spread documents."""
    sample = [documents[row] for row in spread(len(documents), VOCABULARY_TEXTS)]
    texts = [document.full for document in sample]
    coverage = Coverage.of(texts, HostTokenization(tokenizer))
    return Reading(
        documents=len(documents) + repeated,
        repeated=repeated,
        words=median(len(spaced_pieces(text)) for text in texts),
        tokens_per_word=coverage.tokens_per_word,
        unit=coverage.unit,
        unknown=coverage.unknown_share,
        questions=len(made_examples(sample, 0, sys.maxsize)) / len(sample),
    )


def measure_speed(name: str, model: SparseEncoder, documents: Sequence[Document], device: str | None) -> TuningSpeed:
    """Time the encoding of documents, and the passes of a training over them, a micro batch at a time."""
    texts = sorted((documents[row].full for row in spread(len(documents), SPEED_TEXTS)), key=len, reverse=True)
    encoder = TextEncoder(load_encoder(name, device), "document")
    # The fastest round: the first round warms up caches, and other programs slow some rounds down.
    rates = [len(texts) / _seconds(lambda: encoder.encode(texts)) for _ in range(ROUNDS)]
    freeze_embeddings(model)
    passes = [_passes(model, texts) for _ in range(ROUNDS)]
    seconds = min(seconds for seconds, _ in passes) * QUESTIONS_PER_STEP / len(texts)
    # The initial weights, for the mean, and AdamW's two moments of the weights that learn.
    states = sum(4 * weight.numel() * (1 + 2 * weight.requires_grad) for weight in model.parameters())
    needed = RESIDENT_GROWTH * (max(resident for _, resident in passes) + states)
    seconds *= 1 + QUERY_LENGTH / DOCUMENT_LENGTH  # queries are shorter
    return TuningSpeed(max(rates), seconds, needed / 1e9)


def _seconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def _passes(model: SparseEncoder, texts: Sequence[str]) -> tuple[float, float]:
    """Return the seconds of a training's passes over texts, and the largest number of resident bytes.

    With gradient caching, each micro batch passes twice forward, first without gradients, and once backward. On a CPU
    `embedded` divides a batch.
    """
    transformer, divided = splade_modules(model)[-1][0], in_parts(model)
    lengths, resident, start = transformer.document_length, 0, perf_counter()
    # Use the lengths and parts of the training.
    transformer.document_length = DOCUMENT_LENGTH
    together = len(texts) if divided else MICRO_BATCH
    try:
        for first in range(0, len(texts), together):
            # Pass forward as the training does, then backward.
            tokens = model.preprocess(texts[first : first + together], task="document")
            tokens = {name: part.to(model.device) if hasattr(part, "to") else part for name, part in tokens.items()}
            with torch.autocast(model.device.type, torch.bfloat16, enabled=in_bfloat16("auto", model.device)):
                if not divided:
                    with torch.no_grad():
                        embedded(model, [tokens])
                [vectors] = embedded(model, [tokens], MICRO_BATCH)
            vectors.float().sum().backward()
            resident = max(resident, Process().memory_info().rss)  # glibc keeps what the passes have freed
        # Wait for the GPU, which computes in the background.
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        return perf_counter() - start, resident
    finally:
        transformer.document_length = lengths
        model.zero_grad(set_to_none=True)
