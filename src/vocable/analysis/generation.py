"""Texts that a generative model writes: what Query2Doc and docT5query expand with.

Letters: b prompts, r samples of each.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from sentence_transformers.util import get_device_name
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from vocable.encoder.load import locate
from vocable.errors import ArgumentError, ModelError

Kind = Literal["causal", "seq2seq"]
LOADERS = {"causal": AutoModelForCausalLM, "seq2seq": AutoModelForSeq2SeqLM}
BATCH = 64  # texts written at a time


class Generator(NamedTuple):
    """A model that writes, with its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def load_generator(name: str | Path, kind: Kind, *, device: str | None = None) -> Generator:
    """Load a generative model in its own number type, from safetensors, without code of its own.

    Args:
        name: a folder or a Hub id.
        kind: "causal" continues a text, "seq2seq" answers one.
        device: where to put it; by default a GPU if there is one.

    Raises:
        ModelError: nothing is there, it is of another kind, or its weights are not safetensors.
    """
    place, safe = locate(name), {"trust_remote_code": False}
    options = {"dtype": "auto", "use_safetensors": True, "output_loading_info": True}
    try:
        _check_kind(name, AutoConfig.from_pretrained(place, **safe), kind)
        model, loading = LOADERS[kind].from_pretrained(place, **options, **safe)
        tokenizer = AutoTokenizer.from_pretrained(place, **safe)
    except (OSError, ValueError, HFValidationError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(f"{name}: no {kind} language model could be read here ({reason})") from error
    if loading["missing_keys"]:  # the host library makes them up, at random
        missing = ", ".join(sorted(loading["missing_keys"])[:3])
        raise ModelError(f"{name} is no {kind} language model, or not all of one (no {missing})")
    if kind == "causal":
        tokenizer.padding_side = "left"  # a continuation begins where its prompt ends
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Generator(model.to(device or get_device_name()).eval(), tokenizer)


def _check_kind(name: str | Path, config: PreTrainedConfig, kind: Kind) -> None:
    """Refuse at once what would be refused slowly, and encoders, which the host library would let write nonsense."""
    architectures = config.architectures or []
    masked = any(architecture.endswith("ForMaskedLM") for architecture in architectures)
    if masked or config.is_encoder_decoder != (kind == "seq2seq"):
        found = ", ".join(architectures) or config.model_type
        raise ModelError(f"{name} is no {kind} language model (its configuration names {found})")


def generate(
    generator: Generator,
    prompts: Sequence[str],
    *,
    new_tokens: int,
    samples: int = 1,
    top_k: int = 0,
    max_length: int | None = None,
    seed: int = 0,
    advance: Callable[[int], object] = lambda done: None,
) -> list[list[str]]:
    """Sample continuations of b prompts, or answers to them, at temperature 1.

    The same prompts with the same seed give the same texts on the same machine; torch's own random numbers stay as
    they were.

    Args:
        generator: from `load_generator`.
        prompts: b texts.
        new_tokens: of a sample, at most.
        samples: r of each prompt.
        top_k: sample from so many of the likeliest tokens, from all of them if it is 0.
        max_length: tokens of a prompt, longer ones are cut; by default none is.
        seed: of the sampling.
        advance: called with the number of prompts done after every batch.

    Returns:
        r texts for each of the b prompts.

    Raises:
        ArgumentError: a number out of its range, or more tokens than the model has positions for.
    """
    if min(new_tokens, samples) < 1 or top_k < 0:
        message = "new_tokens and samples must be at least 1 and top_k not negative"
        raise ArgumentError(f"{message}, not {new_tokens}, {samples} and {top_k}")
    model, tokenizer = generator
    cut: dict[str, Any] = {"truncation": max_length is not None, "max_length": max_length, "verbose": False}
    lengths = [len(ids) for ids in tokenizer(list(prompts), **cut)["input_ids"]] if prompts else []
    _check_room(model, max(lengths, default=0), new_tokens)
    settings = _settings(generator, new_tokens, samples, top_k)
    written: list[list[str]] = [[] for _ in prompts]
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []), torch.inference_mode():
        torch.manual_seed(seed)
        for rows in _batches(lengths, max(1, BATCH // samples)):
            batch = tokenizer([prompts[row] for row in rows], padding=True, return_tensors="pt", **cut)
            inputs = {name: batch[name].to(model.device) for name in ("input_ids", "attention_mask")}
            ids = model.generate(**inputs, generation_config=settings)
            start = 0 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
            texts = tokenizer.batch_decode(ids[:, start:], skip_special_tokens=True)
            for place, row in enumerate(rows):
                written[row] = [text.strip() for text in texts[place * samples : (place + 1) * samples]]
            advance(len(rows))
    return written


def _settings(generator: Generator, new_tokens: int, samples: int, top_k: int) -> GenerationConfig:
    """The model's own settings (which tokens begin and end a text), but for how it samples."""
    settings = copy.deepcopy(generator.model.generation_config)
    settings.update(do_sample=True, temperature=1.0, top_k=top_k, top_p=1.0, num_beams=1)
    settings.update(max_new_tokens=new_tokens, max_length=None, num_return_sequences=samples)
    settings.update(pad_token_id=generator.tokenizer.pad_token_id)
    return settings


def _check_room(model: PreTrainedModel, longest: int, new_tokens: int) -> None:
    """Raise `ArgumentError` if prompts and answers do not fit the model's positions, where it has an end of them."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    needed = max(longest, new_tokens) if model.config.is_encoder_decoder else longest + new_tokens
    if positions is not None and needed > positions:
        raise ArgumentError(
            f"the longest prompt has {longest} tokens and {new_tokens} are to be written: "
            f"more than the model's {positions} positions"
        )


def _batches(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """The rows, longest prompt first, so that a batch has little padding."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    for start in range(0, len(order), size):
        yield order[start : start + size]
