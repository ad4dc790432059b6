"""Compare the cells of two reproductions of a study, one made by two processes: python same.py ONE TWO."""

import json
import sys
from pathlib import Path

import numpy as np

one, two = (json.loads((Path(folder) / "results.json").read_text(encoding="utf-8"))["cells"] for folder in sys.argv[1:])
pairs = [
    (f"{exhibit} {row} {column}", cell["ours"], two[exhibit][row][column]["ours"])
    for exhibit, rows in one.items()
    for row, cells in rows.items()
    for column, cell in cells.items()
]
far = [
    f"{where}: {ours} and {theirs}"
    for where, ours, theirs in pairs
    if not np.allclose(np.array(ours, float), np.array(theirs, float), rtol=0.02, atol=0.02, equal_nan=True)
]
print(f"{sys.argv[1]}: {len(pairs)} cells, {len(far)} differ between one process and two")
sys.exit("\n".join(far[:20]) if len(far) > len(pairs) // 50 else 0)
