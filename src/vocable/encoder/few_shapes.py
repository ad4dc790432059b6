"""Products of few shapes: a processor's bfloat16 products with as many rows as few others have.

oneDNN compiles code for every shape of a bfloat16 product: 0.3 ms the first time, and 0.2 to 0.4 MB that stay for as
long as the process does. The number of tokens differs from batch to batch, so that a service or a training grows by
gigabytes. Here the rows are filled with zeros up to the next of sixteen numbers an octave, two percent more.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

LEAST = 8  # rows
TERMS = 256  # rows of a weight that are multiplied at once, where their number differs, too


def rounded(rows: int) -> int:
    """The number that so many rows are filled up to: 8, 16 ... 256, 272 ... 512, 544.

    >>> [rounded(rows) for rows in (1, 33, 64, 257, 1000)]
    [8, 40, 64, 272, 1024]
    """
    step = max(LEAST, 1 << max(0, (rows - 1).bit_length() - 5))
    return -(-rows // step) * step


def filled(rows: Tensor) -> Tensor:
    """[n, d] -> [`rounded(n)`, d], zeros below; the rows themselves where no code is compiled for their number."""
    missing = rounded(len(rows)) - len(rows)
    return functional.pad(rows, (0, 0, 0, missing)) if missing and compiles(rows) else rows


def product(rows: Tensor, weight: Tensor) -> Tensor:
    """rows [n, d] times weight [k, d], transposed: [n, k]; for a weight whose number of rows differs as well."""
    if not compiles(rows):
        return rows @ weight.T
    weight_rows = functional.pad(weight, (0, 0, 0, -len(weight) % TERMS))
    parts = [filled(rows) @ part.T for part in weight_rows.split(TERMS)]
    return torch.cat(parts, dim=1)[: len(rows), : len(weight)]


def compiles(rows: Tensor) -> bool:
    """Whether code is compiled for the product of such rows: on a processor in bfloat16."""
    if rows.device.type != "cpu":
        return False
    return rows.dtype == torch.bfloat16 or (
        torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    )


def use_few_shapes(mlm: PreTrainedModel) -> None:
    """Have the linear layers of a masked language model, in place, compute with few shapes where it is on a processor.

    Outputs and gradients stay. As `fuse` does it, only `forward` is replaced, on the instances; the decoder is its.
    """
    decoder = mlm.get_output_embeddings()
    for layer in mlm.modules() if mlm.device.type == "cpu" else ():
        if type(layer) is nn.Linear and layer is not decoder:
            layer.__dict__["forward"] = partial(_linear, layer)


def _linear(layer: nn.Linear, inputs: Tensor) -> Tensor:
    rows = inputs.reshape(-1, inputs.shape[-1])
    found: Tensor = functional.linear(filled(rows), layer.weight, layer.bias)
    kept = found[: len(rows)]
    return kept.view(*inputs.shape[:-1], kept.shape[1])
