"""Checkpoints of other programs: a masked language model whose weights and settings have other names.

Lightning IR (`webis/splade`) writes the settings of the backbone, and its head as `projection`. LSR
(`lsr42/splade`, learned-sparse-retrieval) writes the backbone's name alone, and the model as `model`; it does not pool
the positions of special tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sentence_transformers.util import load_file_path
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from vocable.encoding.hub import first_line, locate
from vocable.errors import ModelError, VocableError
from vocable.torch_models.fuse import WORD_POSITIONS
from vocable.torch_models.opening import check_sizes

BACKBONE_TYPE, BACKBONE_NAME = "backbone_model_type", "tf_base_model_name_or_dir"  # keys of Lightning IR and LSR
# Values of settings that vocable computes; other values belong to models that it does not have.
LIGHTNING = {
    "model_type": ("splade",),
    BACKBONE_TYPE: ("bert", "distilbert"),
    "projection": ("mlm", None),
    "sparsification": ("relu_log", "relu_2xlog"),
    "similarity_function": ("dot",),
    "normalize": (False,),
    "add_marker_tokens": (False,),
    "query_weighting": ("contextualized",),
    "doc_weighting": ("contextualized",),
    "query_pooling_strategy": ("max", "sum"),
    "doc_pooling_strategy": ("max", "sum"),
}
LSR = {
    "model_type": ("SPLADE", "MLM"),
    "pool": ("max", "sum"),
    "activation": ("relu",),
    "norm": ("log1p",),
    "term_importance": ("no", "allone"),
    "doc_quality": ("no", "allone"),
}


class Translation(NamedTuple):
    """A checkpoint in the terms of transformers and sentence-transformers."""

    config: PreTrainedConfig  # of the masked language model
    key_mapping: dict[str, str]  # patterns of the names of its weights
    tokenizer: str  # place of the tokenizer
    pooling: str
    activation: str = "relu"
    query_length: int | None = None
    document_length: int | None = None

    def load(self, place: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return the masked language model and its tokenizer."""
        config, mapping = self.config, self.key_mapping
        mlm = AutoModelForMaskedLM.from_pretrained(place, config=config, key_mapping=mapping, dtype="float32")
        mlm._weight_conversions = None  # else the saved weights would have the program's names
        tokenizer = AutoTokenizer.from_pretrained(self.tokenizer, config=config, tokenizer_type=config.model_type)
        return mlm, tokenizer


def translation(place: str) -> Translation | None:
    """Translate the settings of a checkpoint of Lightning IR or LSR; return None for any other model."""
    if load_file_path(place, "config.json") is None:
        return None
    settings, _ = PreTrainedConfig.get_config_dict(place)
    if BACKBONE_TYPE in settings:
        return _lightning(place, settings)
    return _lsr(place, settings) if BACKBONE_NAME in settings else None


def _check(place: str, settings: Mapping[str, Any], known: Mapping[str, tuple[object, ...]], program: str) -> None:
    for key, values in known.items():
        if (value := settings.get(key, values[0])) not in values:
            computed = " or ".join(map(repr, values))
            raise ModelError(f"{place}: {key} {value!r} in config.json of {program}: vocable computes {computed}")


def _lightning(place: str, settings: Mapping[str, Any]) -> Translation:
    """Translate a checkpoint of Lightning IR."""
    _check(place, settings, LIGHTNING, "Lightning IR")
    # With `query_weighting`, expansion adds terms; in earlier versions it added mask tokens to a text.
    expands = "query_weighting" in settings
    _check(place, settings, dict.fromkeys(("query_expansion", "doc_expansion"), (expands,)), "Lightning IR")
    poolings = {str(settings.get(f"{role}_pooling_strategy", "max")) for role in ("query", "doc")}
    if len(poolings) > 1:
        raise ModelError(f"{place}: queries and documents have different poolings in config.json of Lightning IR")
    kind = settings[BACKBONE_TYPE]
    keys = PreTrainedConfig().to_dict().keys() | CONFIG_MAPPING[kind]().to_dict().keys()
    config = CONFIG_MAPPING[kind].from_dict(
        {key: value for key, value in settings.items() if key in keys - {"model_type"}}
    )
    head = "cls." if kind == "bert" else ""
    return Translation(
        config,
        {rf"^({kind}\.)?projection\.": head, r"^(embeddings|encoder|transformer)\.": rf"{kind}.\1."},
        place,
        poolings.pop(),
        "log1p_relu" if settings.get("sparsification") == "relu_2xlog" else "relu",
        settings.get("query_length", 32),
        settings.get("doc_length", 512),
    )


def _lsr(place: str, settings: Mapping[str, Any]) -> Translation:
    """Translate a checkpoint of LSR, whose backbone's settings lie with the backbone."""
    _check(place, settings, LSR, "learned-sparse-retrieval")
    name = str(settings[BACKBONE_NAME])
    try:
        backbone = locate(name)
        config = AutoConfig.from_pretrained(backbone)
    except (VocableError, OSError, ValueError) as error:
        reason = first_line(error)
        raise ModelError(f"{place}: config.json names its backbone {name}, which cannot be read ({reason})") from error
    setattr(check_sizes(place, config), WORD_POSITIONS, True)
    has_tokenizer = any(
        load_file_path(place, file) is not None for file in ("tokenizer.json", "vocab.txt", "tokenizer_config.json")
    )
    return Translation(
        config, {r"^model\.": ""}, place if has_tokenizer else backbone, str(settings.get("pool", "max"))
    )
