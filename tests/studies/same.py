"""Compare the cells of two reproductions of a study, one made by two processes: python same.py ONE TWO."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """Exit with what differs if it is more than a cell in fifty: sums in another order may turn a rank."""
    one, two = map(cells_of, sys.argv[1:])
    far = [f"{where}: {ours} and {two[where]}" for where, ours in one.items() if not near(ours, two[where])]
    print(f"{sys.argv[1]}: {len(one)} cells, {len(far)} differ between one process and two")
    sys.exit("\n".join(far[:20]) if len(far) > len(one) // 50 else 0)


def near(one: Any, two: Any) -> bool:
    """Compare numbers, or words."""
    if any(isinstance(word, str) for value in one if isinstance(value, list) for word in value):
        return bool(one == two)
    return bool(np.allclose(np.array(one, float), np.array(two, float), rtol=0.02, atol=0.02, equal_nan=True))


def cells_of(folder: str) -> dict[str, Any]:
    """Our values by exhibit, row and column."""
    exhibits = json.loads((Path(folder) / "results.json").read_text(encoding="utf-8"))["cells"]
    return {
        f"{exhibit} {row} {column}": cell["ours"]
        for exhibit, rows in exhibits.items()
        for row, cells in rows.items()
        for column, cell in cells.items()
    }


if __name__ == "__main__":
    main()
