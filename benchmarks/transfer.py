"""Semantic initialization at full size: seconds and peak memory.

    python benchmarks/transfer.py                              # 30,000 onto 50,000 tokens, d = 768
    python benchmarks/transfer.py --source 3000 --target 5000  # a quick look

The matrices are random, with a common direction and clusters, so that a new token has a few dozen neighbours as in a
trained model; 56 % of the source's tokens are shared. What is timed is what `transfer` does with matrices: the weights
of all new tokens and the mixture of source rows. A block of the result is compared with a full sort first.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import torch
from entmax import sparsemax
from machine import figure, machine, medians, peak_memory, print_machine
from scipy.sparse import csr_array
from torch import Tensor

from vocable.adapt.initialization import mix, semantic_weights

SHARED = 0.56  # of the smaller vocabulary
CLUSTERS = 2000


def draw(tokens: int, size: int, seed: int) -> Tensor:
    """Embeddings [tokens, size] in clusters around a common direction."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLUSTERS, size, generator=generator)
    assigned = torch.randint(CLUSTERS, (tokens,), generator=generator)
    return centres[assigned] + torch.randn(tokens, size, generator=generator) + 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=int, default=30_000, help="tokens of the source (default 30,000)")
    parser.add_argument("--target", type=int, default=50_000, help="tokens of the target (default 50,000)")
    parser.add_argument("-d", type=int, default=768, help="hidden size (default 768)")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args()
    device = torch.device("cpu")
    described = machine(device, "entmax", "scipy")
    shared = int(SHARED * min(options.source, options.target))
    anchors, new = np.arange(shared), np.arange(shared, options.target)
    target, source = draw(options.target, options.d, 0), draw(options.source, options.d, 1)
    check(target, anchors, new[:64])
    held: dict[str, Any] = {}

    def run() -> None:
        weights = semantic_weights(target, anchors, new)
        held["neighbours"] = weights.nnz / len(new)
        over_source = csr_array((weights.data, weights.indices, weights.indptr), shape=(len(new), options.source))
        mix(over_source, source)

    memory = peak_memory(run, device)
    seconds = medians({"semantic": run}, options.repeats, device)["semantic"]
    inputs = (target.nbytes + source.nbytes) / 2**20
    results = {"seconds": seconds, "MiB": memory, "MiB of inputs": inputs, "neighbours a token": held["neighbours"]}
    shape = {"source": options.source, "target": options.target, "anchors": shared, "new": len(new), "d": options.d}
    if options.json:
        print(json.dumps({"machine": described, "shape": shape, "results": results}, indent=1))
        return
    print_machine(described)
    print("   ".join(f"{name} = {value:,}" for name, value in shape.items()) + "\n")
    print(f"semantic initialization: {seconds:.1f} s, {figure(memory, '.0f')} MiB above {inputs:.0f} MiB of inputs")
    print(f"neighbours a token, mean: {held['neighbours']:.0f}")


def check(embeddings: Tensor, anchors: np.ndarray, new: np.ndarray) -> None:
    """Compare a few rows with the library's sparsemax over the whole row, sorted."""
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    expected = sparsemax(unit[new] @ unit[anchors].T, dim=1).numpy()
    apart = float(np.abs(semantic_weights(embeddings, anchors, new).toarray() - expected).max())
    if apart > 1e-5:
        raise SystemExit(f"weights differ by {apart:.1e} from those of a full sort")


if __name__ == "__main__":
    main()
