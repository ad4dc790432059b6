"""Masked-language-model checkpoints in and out: what every adaptation starts from and leaves.

They are stock checkpoints, unless the output vocabulary is another than the tokenizer's (`output_vocabulary`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from vocable.encoder.load import NO_TOKENIZER, check_tokenizer, check_weights, locate
from vocable.encoder.output_vocabulary import (
    TERMS,
    output_vocabulary,
    restore_output_vocabulary,
    weights_expected,
    write_terms,
)
from vocable.errors import ModelError
from vocable.storage import replacing_folder
from vocable.unfinished import refuse_taken


def load_checkpoint(name: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The masked language model and the tokenizer of a folder, a Hub id, or `package:NAME/FOLDER`, in float32.

    Raises:
        ModelError: nothing is there, weights or its tokenizer are missing, it has no masked-language-model head, or its
            output vocabulary is damaged.
        DataError: the terms of its output vocabulary are.
    """
    place = locate(name)
    try:
        with weights_expected():
            mlm, loading = AutoModelForMaskedLM.from_pretrained(place, dtype="float32", output_loading_info=True)
    except (OSError, ValueError, HFValidationError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(f"{name}: no masked language model could be read here ({reason})") from error
    body = f"{mlm.base_model_prefix}."
    check_weights(name, mlm, [key for key in loading["missing_keys"] if key.startswith(body)])
    if loading["missing_keys"]:  # the host library makes them up, at random
        missing = ", ".join(sorted(loading["missing_keys"])[:3])
        raise ModelError(
            f"{name} has no masked-language-model head, or not all of it (no {missing}): "
            "a recipe with head: new gives it one (vocable train)"
        )
    restore_output_vocabulary(mlm, place)
    return mlm, load_tokenizer(name)


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder, a Hub id, or `package:NAME/FOLDER`, whatever model is or is not there.

    Raises:
        ModelError: no tokenizer is there.
    """
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(locate(name))
    except (OSError, ValueError, HFValidationError) as error:
        if str(error).startswith(NO_TOKENIZER):
            raise ModelError(f"{name}: its tokenizer is missing") from error
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(f"{name}: no tokenizer could be read here ({reason})") from error
    check_tokenizer(name, tokenizer)
    return tokenizer


def save_checkpoint(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    output: str | Path,
    *,
    beside: Mapping[str, bytes] | None = None,
) -> None:
    """Write both to the folder `output`, whole or not at all.

    Args:
        mlm: the model.
        tokenizer: what goes with it.
        output: a folder that is not there yet.
        beside: further files of the folder, {name: content}.

    Raises:
        ArgumentError: `output` is there already, or is being made by another command.
    """
    output = Path(output)
    refuse_taken(output)
    with replacing_folder(output) as unfinished:
        mlm.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        layer = output_vocabulary(mlm)
        if layer is not None:
            write_terms(unfinished / TERMS, layer.terms)
        for name, content in (beside or {}).items():
            (unfinished / name).write_bytes(content)
