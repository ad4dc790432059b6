"""Pickled weights to safetensors, which `vocable.load` reads.

A pickle can run code. A separate process with limits reads it, by PyTorch's reader of tensors (`weights_only`),
which makes tensors and nothing else. A file with more than named tensors is refused.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path

from vocable.core.processes import limited, worker_pool
from vocable.core.storage import finished, regular, replacing_folder
from vocable.core.tables import Tabled
from vocable.encoding.hub import converted_name, first_line, locate, remedy
from vocable.errors import ModelError, require_extra
from vocable.options import checked

SETTINGS_FILES = (".json", ".jsonl", ".txt", ".model", ".md")  # endings of the files that are copied, not converted
PICKLE_PATTERNS = ("pytorch_model*.bin", "adapter_model.bin", "sparse_linear.pt")
INDEX = "pytorch_model.bin.index.json"
# Readers of tensors in earlier versions can be made to write outside their memory (CVE-2026-24747).
SAFE_TORCH = (2, 10)
NOT_IMPORTED = re.compile(
    r"(?:GLOBAL|function) ([\w.]+)"
)  # in the error of PyTorch's reader: a name that it does not import
SECONDS, SECONDS_PER_GB = 60.0, 60.0  # of a processor
MEMORY, MEMORY_PER_BYTE = 2 << 30, 4


class Converted(Tabled):
    """The files that were converted, with their numbers of tensors."""

    def __init__(self, files: dict[str, int]) -> None:
        self.files = files

    def table(self) -> list[str]:
        """Return a line for each file."""
        return [f"{name}: {tensors} tensors" for name, tensors in self.files.items()]

    def to_json(self) -> dict[str, object]:
        """Return the numbers of tensors by file."""
        return {"tensors": self.files}


@checked
def convert(model: str | Path, output: str | Path) -> Converted:
    """Write the pickled weights of a checkpoint as safetensors.

    A separate process reads tensors alone: a pickle that would run code is refused, and nothing of it runs.
    Settings, vocabularies and safetensors are copied; code, graphs and other files are not.

    Args:
        model: a folder or a Hub id, such as naver/splade_v2_max.
        output: folder for the converted checkpoint (written atomically).

    Returns:
        the numbers of tensors by file.

    Raises:
        ModelError: the model does not exist, is gated, or has no pickled weights, or a pickle has more than tensors.
        ArgumentError: the output is something else.
        MissingExtraError: PyTorch is not installed.
    """
    require_extra("torch", "train")
    source = _folder(model)
    # The new name of each pickle that lacks safetensors.
    names = {path.relative_to(source): converted_name(path.relative_to(source)) for path in _pickled(source)}
    if not names:
        raise ModelError(f"{model}: nothing to convert: no {PICKLE_PATTERNS[0]} that lacks safetensors")
    settings = {"model": str(model), "bytes": {str(name): (source / name).stat().st_size for name in names}}
    if not finished(output, settings):
        with replacing_folder(output, settings) as folder:
            _copy(source, folder)
            for name, new in names.items():
                _convert_file(source / name, folder / new)
    from safetensors import safe_open

    # Count the tensors in the result, whether it is new or was there.
    counts = dict[str, int]()
    for new in names.values():
        with safe_open(Path(output, new), "pt") as tensors:
            counts[str(new)] = len(tensors.keys())
    return Converted(counts)


def _folder(model: str | Path) -> Path:
    """Return the folder of a model, which is downloaded from the Hub if necessary."""
    if (place := Path(locate(model))).is_dir():
        return place
    from huggingface_hub import snapshot_download

    patterns = [f"*{ending}" for ending in SETTINGS_FILES] + [f"*{name}" for name in PICKLE_PATTERNS]
    try:
        return Path(snapshot_download(str(place), allow_patterns=[*patterns, "*.safetensors"]))
    except Exception as error:  # of the Hub, the network or the disk
        raise ModelError(f"{model}: {remedy(model, error) or first_line(error)}") from error


def _pickled(source: Path) -> Iterator[Path]:
    """Yield the pickles of a folder without safetensors of the same name."""
    for pattern in PICKLE_PATTERNS:
        for path in sorted(source.rglob(pattern)):
            stem = converted_name(path).name.partition(".")[0].partition("-")[0]  # of model-00001-of-00002 as well
            if not any(path.parent.glob(f"{stem}*.safetensors")):
                yield path


def _copy(source: Path, folder: Path) -> None:
    """Copy settings, vocabularies and safetensors; translate the names of shards in an index of weights."""
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.suffix not in (*SETTINGS_FILES, ".safetensors") or path.is_dir():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if path.name != INDEX:
            shutil.copyfile(regular(path), folder / name)
            continue
        try:
            index = json.loads(regular(path).read_bytes())
            index["weight_map"] = {key: str(converted_name(Path(file))) for key, file in index["weight_map"].items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(f"{path}: the index of the weights is damaged ({first_line(error)})") from error
        (folder / converted_name(name)).write_text(json.dumps(index), encoding="utf-8")


def _convert_file(pickle: Path, target: Path) -> None:
    """Write the tensors of a pickle as safetensors in a separate process."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        size = regular(pickle).stat().st_size
        with worker_pool(1, _get_ready) as pool:
            seconds = SECONDS + SECONDS_PER_GB * size / 1e9
            fault = pool.submit(write_tensors, pickle, target, seconds, MEMORY + MEMORY_PER_BYTE * size).result()
    except BrokenExecutor:
        fault = "reading it ends its process: it is damaged, or needs too much memory or time"
    except OSError as error:
        fault = f"it cannot be read ({error.strerror})"
    if fault:
        raise ModelError(f"{pickle}: {fault}")


def _get_ready() -> None:
    """Import the libraries before the limits count."""
    import safetensors.torch  # noqa: F401


def write_tensors(pickle: Path, target: Path, seconds: float, memory: int) -> str:
    """Write the tensors of a pickle as safetensors, within limits; return what is wrong with the pickle, or nothing."""
    import torch
    from safetensors.torch import save_file

    if tuple(map(int, torch.__version__.split(".")[:2])) < SAFE_TORCH:
        return f"pickles are read by PyTorch {'.'.join(map(str, SAFE_TORCH))} or later: this is {torch.__version__}"
    # PyTorch reads only tensors. Its messages advise to allow everything, so they are replaced.
    try:
        with limited(seconds, memory):
            tensors = torch.load(pickle, map_location="cpu", weights_only=True)
            if not isinstance(tensors, dict) or not all(
                isinstance(tensor, torch.Tensor) for tensor in tensors.values()
            ):
                return "it has more than named tensors, and nothing else is read"
            whole = {str(name): tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
            save_file(whole, target, {"format": "pt"})
    except (TimeoutError, MemoryError) as error:
        return f"reading it takes too much {'time' if isinstance(error, TimeoutError) else 'memory'}"
    except Exception as error:  # of any type, for a file that is damaged or would run code
        if isinstance(error, RuntimeError) and "memory" in str(error):
            return "reading it takes too much memory"
        if (refused := NOT_IMPORTED.search(str(error))) is not None:
            return f"it asks for {refused[1]}, which is no tensor and can run code: nothing of it has run"
        return "it is damaged, or has more than tensors in PyTorch's format"
    return ""
