"""What a transferred model remembers of its making: `transfer.json` in its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.checkpoint import save_checkpoint
from vocable.adapt.transfer import Transfer
from vocable.encoder.load import locate
from vocable.errors import ModelError, VectorsError
from vocable.unfinished import as_json, read_json

TRANSFER = "transfer.json"


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
    save_checkpoint(transferred.mlm, transferred.tokenizer, output, beside={TRANSFER: as_json(values)})


def save_adapted(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, output: str | Path, *, source: str | Path
) -> None:
    """`save_checkpoint`, with what `source` remembers of its transfer: new tokens stay new until the training ends.

    Raises:
        ArgumentError: `output` is there already.
    """
    remembered = Path(locate(source)) / TRANSFER
    beside = {TRANSFER: remembered.read_bytes()} if remembered.is_file() else {}
    save_checkpoint(mlm, tokenizer, output, beside=beside)


def new_tokens(folder: str | Path) -> NDArray[np.int64] | None:
    """The ids [n] of the tokens that were new to the model when it was transferred; None for any other model.

    Raises:
        ModelError: `transfer.json` is there, but damaged.
    """
    path = Path(folder) / TRANSFER
    if not path.is_file():
        return None
    try:
        return np.asarray(read_json(path)["new_tokens"], dtype=np.int64)
    except (VectorsError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: damaged: no list of new tokens") from error
