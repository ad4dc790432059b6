"""The settings of an exported model in graph.json, and the checksum of the weights that its graph was made from.

A folder with a graph and other weights is refused.

Letters: v output terms.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Le

from vocable.core.storage import read_record, regular
from vocable.core.verified import remembered
from vocable.encoding.protocol import Role
from vocable.errors import ModelError
from vocable.options import Count, CountOrZero

GRAPH_SETTINGS = "graph.json"
BOTH_ROLES: tuple[Role, ...] = get_args(Role)

GraphFormat = Literal["onnx", "openvino"]
Length = Annotated[int, Ge(1), Le(2**31 - 1)]


@dataclass(frozen=True)
class GraphRole:
    """The settings of a role of an exported model, most of them as in `RoleEncoder`."""

    folder: Literal["", "query", "document"]  # folder in the model's folder, with the tokenizer and the graph
    tokens: Count  # rows of the table of tokens
    prompt: str | None
    max_length: Length | None
    positions: Length | None  # the model's number of positions; None without a limit
    max_terms: Length | None
    query_idf: Annotated[float, Ge(0), Le(10)]
    pooling: str
    keeps_special: bool
    looked_up: bool
    special: list[int]  # ids of the special tokens
    unknown: int | None
    padding: CountOrZero  # id of the token for padding


@dataclass(frozen=True)
class GraphSettings:
    """The settings of an exported model; `size` is v."""

    format: GraphFormat
    int8: bool
    model: str  # name of the model that was exported
    weights: str  # checksum of its files of weights; "" if the export had no files, or the model differed from them
    size: Count
    roles: dict[Role, GraphRole]
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)


def read_graph_settings(place: Path) -> GraphSettings:
    """Return the settings in the folder of an exported model; raise `ModelError` if they are missing or damaged."""
    try:
        settings = read_record(place / GRAPH_SETTINGS, GraphSettings)
        _check_roles(settings.roles)
    except Exception as error:  # missing, or damaged in any way
        raise ModelError(f"{place}: {GRAPH_SETTINGS} is damaged: export the model again ({error})") from error
    return settings


def _check_roles(roles: Mapping[Role, GraphRole]) -> None:
    """Raise `ModelError` for settings that an export never writes."""
    for name in BOTH_ROLES:
        if (role := roles.get(name)) is None:
            raise ModelError(f"roles: {name} is missing")
        if role.max_length is not None and role.positions is not None and role.max_length > role.positions:
            raise ModelError(f"roles: {name}: max_length {role.max_length} is above positions {role.positions}")
        if role.padding >= role.tokens:
            raise ModelError(f"roles: {name}: padding {role.padding} is not among {role.tokens} tokens")


READ_BYTES = 1 << 20  # bytes that are read at a time
WEIGHT_FILES = "model*.safetensors"  # of a model or a module, perhaps in shards


def files_checksum(files: Sequence[Path]) -> str:
    """Return eight hexadecimal digits that change with the content of files; unchanged files are not read again."""

    def checksum() -> str:
        total = 0
        for file in files:
            with regular(file).open("rb") as content:
                while part := content.read(READ_BYTES):
                    total = zlib.crc32(part, total)
        return f"{total:08x}"

    return remembered("crc32", files, checksum) if files else checksum()


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
