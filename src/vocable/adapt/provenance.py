"""What a model remembers of its making, in its folder: `transfer.json` if it was transferred, `expand.json` if its
terms are words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.transfer import Transfer
from vocable.encoder.load import locate, save_checkpoint
from vocable.errors import ModelError, VectorsError
from vocable.storage import read_record, record_bytes

TRANSFER, EXPAND = "transfer.json", "expand.json"


def save_transfer(transferred: Transfer, output: str | Path, *, source: str, target: str, init: str, bias: str) -> None:
    """Write a transferred model, its tokenizer and `transfer.json` to the folder `output`, whole or not at all.

    Raises:
        ArgumentError: `output` is there already.
    """
    alignment = transferred.alignment
    classes = {name: count._asdict() for name, count in alignment.classes.items()}
    values = {
        "source": source,
        "target": target,
        "init": init,
        "bias": bias,
        "head_only": transferred.target is not transferred.tokenizer,
        "overlap": {"share": alignment.overlap, "classes": classes},
        "new_tokens": alignment.new.tolist(),
    }
    save_checkpoint(transferred.mlm, transferred.tokenizer, output, beside={TRANSFER: record_bytes(values)})


def save_adapted(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, output: str | Path, *, source: str | Path
) -> None:
    """`save_checkpoint`, with what `source` remembers of its making: new tokens stay new until the training ends.

    Raises:
        ArgumentError: `output` is there already.
    """
    save_checkpoint(mlm, tokenizer, output, beside=_remembered(locate(source)))


def save_expanded(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    output: str | Path,
    *,
    source: str,
    init: str,
    splitter: str,
    figures: Mapping[str, float],
) -> None:
    """Write an expanded model, its tokenizer, `expand.json` and what `source` remembers to the folder `output`.

    Args:
        source: what it was made from.
        init, splitter: how, and what a word of a text was, which pre-training has to know.
        figures: whatever else is known of the words.

    Raises:
        ArgumentError: `output` is there already.
    """
    values = {"source": source, "init": init, "splitter": splitter, **figures}
    save_checkpoint(mlm, tokenizer, output, beside={**_remembered(locate(source)), EXPAND: record_bytes(values)})


def splitter_name(folder: str | Path) -> str:
    """The name of the splitter that found the words of an expanded model; "words" for any other model.

    Raises:
        ModelError: `expand.json` is there, but damaged.
    """
    path = Path(folder) / EXPAND
    if not path.is_file():
        return "words"
    try:
        return str(read_record(path, dict[str, Any])["splitter"])
    except (VectorsError, KeyError) as error:
        raise ModelError(f"{path}: damaged: no name of a splitter") from error


def _remembered(folder: str) -> dict[str, bytes]:
    paths = [Path(folder) / name for name in (TRANSFER, EXPAND)]
    return {path.name: path.read_bytes() for path in paths if path.is_file()}


def new_tokens(folder: str | Path) -> NDArray[np.int64] | None:
    """The ids [n] of the tokens that were new to the model when it was transferred; None for any other model.

    Raises:
        ModelError: `transfer.json` is there, but damaged.
    """
    path = Path(folder) / TRANSFER
    if not path.is_file():
        return None
    try:
        return np.asarray(read_record(path, dict[str, Any])["new_tokens"], dtype=np.int64)
    except (VectorsError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: damaged: no list of new tokens") from error
