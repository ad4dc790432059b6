"""What to move a model onto: a tokenizer, and the model that goes with it where there is one."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.checkpoint import load_tokenizer
from vocable.encoder.load import check_weights, locate
from vocable.errors import ModelError


class Target(NamedTuple):
    """A vocabulary to move to."""

    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel | None  # None for a tokenizer alone; without an output layer for an encoder without a head


def load_target(name: str | Path) -> Target:
    """The tokenizer of a folder, a Hub id, or `package:NAME/FOLDER`, with its model if there is one, in float32.

    Raises:
        ModelError: no tokenizer is there, or the model beside it is damaged or lacks weights.
    """
    try:
        return Target(load_tokenizer(name), _model(name))
    except SafetensorError as error:
        raise ModelError(f"{name}: its weights are damaged ({error})") from error


def _model(name: str | Path) -> PreTrainedModel | None:
    place = locate(name)
    try:
        model, loading = AutoModelForMaskedLM.from_pretrained(place, dtype="float32", output_loading_info=True)
        missing = loading["missing_keys"]
        if missing and _is_headless(model, missing):  # the host library has made a head up, at random
            model, loading = AutoModel.from_pretrained(place, dtype="float32", output_loading_info=True)
            missing = loading["missing_keys"]
    except (OSError, ValueError, HFValidationError):  # no configuration, or no weights
        return None
    check_weights(name, model, missing)
    return model


def _is_headless(mlm: PreTrainedModel, missing: Collection[str]) -> bool:
    """Whether not one weight of the head was there; what it shares with the encoder does not count."""
    encoder = {id(parameter) for parameter in mlm.base_model.parameters()}
    named = list(mlm.named_parameters(remove_duplicate=False))
    lost = {id(parameter) for name, parameter in named if name in missing}
    return all(id(parameter) in encoder | lost for _, parameter in named)
