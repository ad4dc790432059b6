"""What to move a model onto: a tokenizer, and the model that goes with it where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.checkpoint import load_tokenizer
from vocable.encoder.load import locate
from vocable.errors import ModelError


class Target(NamedTuple):
    """A vocabulary to move to."""

    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel | None  # None for a tokenizer alone; without an output layer for an encoder without a head


def load_target(name: str | Path) -> Target:
    """The tokenizer of a folder, a Hub id, or `package:NAME/FOLDER`, with its model if there is one, in float32.

    Raises:
        ModelError: no tokenizer is there, or the model beside it is damaged.
    """
    try:
        return Target(load_tokenizer(name), _model(locate(name)))
    except SafetensorError as error:
        raise ModelError(f"{name}: its weights are damaged ({error})") from error


def _model(place: str) -> PreTrainedModel | None:
    try:
        model, loading = AutoModelForMaskedLM.from_pretrained(place, dtype="float32", output_loading_info=True)
        if loading["missing_keys"]:  # an encoder alone: the host library would make a head up, at random
            model = AutoModel.from_pretrained(place, dtype="float32")
    except (OSError, ValueError, HFValidationError):  # no configuration, or no weights
        return None
    return model
