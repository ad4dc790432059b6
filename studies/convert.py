"""Convert a checkpoint with pickled weights to safetensors, in a separate process.

    hf auth login
    python -m studies.convert naver/splade-v3 -o splade-v3

vocable reads safetensors alone. PyTorch's loader of weights reads the pickle: it makes tensors and nothing else.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from vocable.core.storage import replacing_folder
from vocable.encoding.hub import first_line
from vocable.errors import ModelError, VocableError

PICKLED, CONVERTED = "pytorch_model.bin", "model.safetensors"
TEXTS = ["*.json", "*.txt", "*.model", "*/config.json"]  # all but weights
CONVERT = """
import sys
import torch
from safetensors.torch import save_file
tensors = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, sys.argv[2], {"format": "pt"})
"""


def gated(row: str, model: str) -> str:
    """Return what has to be done before a row can read a gated model with pickled weights."""
    folder, page = model.rpartition("/")[2], f"https://huggingface.co/{model}"
    return (
        f"for {row}: {model} is gated and its weights are pickled: accept its licence at {page}, "
        f"log in (hf auth login), convert it (python -m studies.convert {model} -o {folder}), and pass "
        f"--model {row}={folder}"
    )


def convert(model: str, output: Path) -> None:
    """Write the checkpoint `model`, a folder or a Hub id, with safetensors to the folder `output`.

    Raises:
        ModelError: no such model, no access to it, no pickled weights, or a pickle with more than tensors.
    """
    source = Path(model) if Path(model).is_dir() else _download(model)
    if not (source / PICKLED).is_file():
        raise ModelError(f"{model}: no {PICKLED}" + (f", but {CONVERTED}" if (source / CONVERTED).is_file() else ""))
    with replacing_folder(output) as work:
        for pattern in TEXTS:
            for path in source.glob(pattern):
                target = work / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        command = [sys.executable, "-c", CONVERT, str(source / PICKLED), str(work / CONVERTED)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            raise ModelError(f"{source / PICKLED} cannot be read as tensors alone: {reason[:200]}")


def _download(model: str) -> Path:
    try:
        return Path(snapshot_download(model, allow_patterns=[*TEXTS, PICKLED]))
    except GatedRepoError as error:
        raise ModelError(
            f"{model} is gated: accept its licence at https://huggingface.co/{model}, and log in"
        ) from error
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(f"{model}: {first_line(error)}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m studies.convert", description="Pickled weights to safetensors")
    parser.add_argument("model", help="folder or Hub id")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the converted checkpoint")
    options = parser.parse_args(arguments)
    try:
        convert(options.model, options.output)
    except (VocableError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(f"{options.output}: {CONVERTED}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
