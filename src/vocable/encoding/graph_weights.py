"""The checksum of the weights that a graph was made from; a folder with that graph and other weights is refused."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

from vocable.core.storage import regular
from vocable.errors import ModelError

READ_BYTES = 1 << 20  # bytes that are read at a time
WEIGHT_FILES = "model*.safetensors"  # of a model or a module, perhaps in shards


def files_checksum(files: Iterable[Path]) -> str:
    """Return eight hexadecimal digits that change with the content of files."""
    total = 0
    for file in files:
        with regular(file).open("rb") as content:
            while part := content.read(READ_BYTES):
                total = zlib.crc32(part, total)
    return f"{total:08x}"


def weight_files(place: Path) -> list[Path]:
    """Return the files of weights of a model and of its modules, but not of models inside, such as checkpoints."""
    modules = [file for file in place.glob(f"*/{WEIGHT_FILES}") if not (file.parent / "modules.json").exists()]
    return sorted([*place.glob(WEIGHT_FILES), *modules])


def check_weights(place: Path, checksum: str) -> None:
    """Raise `ModelError` if the weights in the folder of a graph have another checksum; "" allows any weights."""
    if checksum and (files := weight_files(place)) and files_checksum(files) != checksum:
        changed = f"the graph was made from other weights than {files[0].name}"
        raise ModelError(f"{place}: {changed}: export the model again, or name the runtime torch")


def has_weights(place: str | Path) -> bool:
    """Return whether a folder has weights for PyTorch, with or without a graph."""
    return any(Path(place).rglob("model*.safetensors"))
