"""Layouts of checkpoints that transformers computes without the checkpoints' code: GTE and decoders; lost buffers.

`Alibaba-NLP/gte-en-mlm-base` and its relatives (`model_type` "new") come with code for transformers 4. transformers has
the same architecture as `GteForMaskedLM` and maps the names of their weights, but cannot read their configuration,
which is translated here. A saved model has the layout of transformers.

A sparse encoder with a decoder, such as `naver/splade-code-06B`, has the logits of a causal language model. In most
such encoders each token sees the whole text, as their configuration says: `is_causal` is false.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sentence_transformers
import torch
import transformers
from sentence_transformers.util import import_from_string, load_file_path
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    GteConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.initialization import no_init_weights

from vocable.encoding.hub import MODULES, PICKLES, ROUTES, WEIGHTS, pickled
from vocable.errors import ModelError

NEW = "new"  # the model type of GTE's checkpoints
SAME_KEYS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size"),
    *("initializer_range", "layer_norm_eps", "pad_token_id", "tie_word_embeddings", "classifier_dropout", "dtype"),
)
# Values that `GteForMaskedLM` computes; other values belong to variants that it does not have.
COMPUTED = {
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "pack_qkv": True,
    "hidden_act": "gelu",
}
# Endings of the names of architectures without a masked-language-model head.
OTHER_KINDS = {
    "ForCausalLM": "a causal language model: one that is a sparse encoder has SpladePooling in its modules.json",
    "ForConditionalGeneration": "an encoder-decoder, not a masked language model or a sparse encoder",
    "ForTokenClassification": "a tagger of tokens, not a masked language model or a sparse encoder",
    "ForSequenceClassification": "a classifier or a reranker, not a masked language model or a sparse encoder",
}


class NewLayoutConfig(GteConfig):
    """Reader of a configuration of GTE's checkpoints; it returns a `GteConfig`."""

    model_type = NEW

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Return the `GteConfig` of a configuration in the checkpoints' layout."""
        try:
            return GteConfig.from_dict(gte_settings(config_dict), **kwargs)
        except ValueError as error:
            raise ModelError(f"{kwargs.get('name_or_path', NEW)}: {error}") from error


def gte_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a configuration in the layout of GTE's code to the settings of an equivalent `GteConfig`.

    GTE's rotary tables with NTK scaling by f have the frequencies (base f)^(-2i/d) f^(-2/d), at every length, i.e. base
    f * base with linear scaling by f^(2/d), in transformers' terms.

    Raises:
        ValueError: transformers does not have this variant.
    """
    for key, computed in COMPUTED.items():
        if (value := given.get(key, computed)) != computed:
            raise ValueError(f"{key} {value!r} in config.json: transformers computes GTE with {computed!r} alone")
    base, scaling = given.get("rope_theta", 10000.0), given.get("rope_scaling")
    rope = {"rope_type": "default", "rope_theta": base}
    if scaling is not None:
        if scaling.get("type") != "ntk" or scaling.get("mixed_b") is not None:
            raise ValueError(f"rope_scaling {scaling} in config.json: transformers has no such rotary table for GTE")
        factor, size = scaling["factor"], given["hidden_size"] // given["num_attention_heads"]
        rope = {"rope_type": "linear", "rope_theta": base * factor, "factor": factor ** (2 / size)}
    architectures = [name.replace("New", "Gte", 1) for name in given.get("architectures") or []]
    same = {key: given[key] for key in SAME_KEYS if key in given}
    return same | {"model_type": GteConfig.model_type, "architectures": architectures, "rope_parameters": rope}


@contextmanager
def reading_layouts() -> Iterator[None]:
    """Let transformers read GTE's checkpoints within the context with its classes, not with the checkpoints' code."""
    nested = NEW in CONFIG_MAPPING
    if not nested:
        CONFIG_MAPPING.register(NEW, NewLayoutConfig)
    try:
        yield
    finally:
        if not nested:
            del CONFIG_MAPPING._extra_content[NEW]


@contextmanager
def reading_decoders(model_types: Collection[str]) -> Iterator[None]:
    """Let transformers read decoders of these types as masked language models within the context."""
    masked, causal = MODEL_FOR_MASKED_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
    configs = [CONFIG_MAPPING[model_type] for model_type in model_types if model_type in CONFIG_MAPPING]
    decoders = [config for config in configs if config not in masked and config in causal]
    for config in decoders:
        masked.register(config, causal[config], exist_ok=True)
    try:
        yield
    finally:
        for config in decoders:
            del masked._extra_content[config]


def is_decoder(model: PreTrainedModel) -> bool:
    """Return whether a model is a causal language model."""
    return type(model).__name__.endswith("ForCausalLM")


def check_kind(place: str) -> None:
    """Raise `ModelError` for a checkpoint whose configuration names an architecture without a head for terms."""
    config, _ = PreTrainedConfig.get_config_dict(place)
    for name in config.get("architectures") or []:
        for ending, kind in OTHER_KINDS.items():
            if name.endswith(ending):
                raise ModelError(f"{place}: {name} is {kind}")


def check_modules(place: str) -> None:
    """Raise `ModelError` for a module that sentence-transformers does not have, and for pickled weights of a module."""
    for file in (MODULES, ROUTES):
        if (path := load_file_path(place, file)) is None:
            continue
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        kinds = content["types"] if file == ROUTES else {module["path"]: module["type"] for module in content}
        for folder, kind in kinds.items():
            try:
                if kind.startswith("sentence_transformers."):
                    import_from_string(kind)
            except ImportError as error:
                library = f"sentence-transformers {sentence_transformers.__version__}"
                advice = f"{library} does not have: take a later revision of the model"
                raise ModelError(f"{place}: {file} names the module {kind}, which {advice}") from error
            safe = not folder or load_file_path(place, f"{folder}/{WEIGHTS}") is not None
            if not safe and load_file_path(place, f"{folder}/{PICKLES}") is not None:
                raise ModelError(f"{place}: {pickled(place)}")


def check_buffers(name: str | Path, model: PreTrainedModel) -> None:
    """Raise `ModelError` if a model with its own code has lost buffers that are not saved.

    transformers 5 makes a model without memory and fills in the weights that it reads. Buffers that are not saved, such
    as positions and rotary tables, are left to the model's `_init_weights`. Code for transformers 4 does not fill them
    there, so that they would hold whatever was in memory.
    """
    buffers = dict(model.named_non_persistent_buffers())
    if type(model).__module__.startswith("transformers.") or not buffers:
        return
    with no_init_weights(), torch.device("cpu"):
        fresh = type(model)(model.config)
    for key, buffer in fresh.named_non_persistent_buffers():
        if key in buffers and not torch.equal(buffers[key].cpu().to(buffer.dtype), buffer):
            raise ModelError(
                f"{name}: the code that comes with it is for transformers 4: {transformers.__version__} loses {key}, "
                "which is computed and not saved"
            )


def comes_with_code(name: str | Path) -> bool:
    """Return whether the configuration of a model, in a folder or the cache, names its own code."""
    try:
        config, _ = PreTrainedConfig.get_config_dict(str(name), local_files_only=True)
    except (OSError, ValueError):
        return False
    return "auto_map" in config
