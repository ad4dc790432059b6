"""Run notebooks and renew their outputs, without Jupyter.

    python docs/notebook.py docs/notebooks/*.ipynb

A cell shows what it prints, the value of its last expression and its figures, as in Jupyter.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def renewed(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells as they are now."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell = {**cell, "execution_count": number, "outputs": outputs("".join(cell["source"]), names, number)}
        cells.append(cell)
    return {**notebook, "cells": cells}


def outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Return the outputs of a cell."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    shown: list[dict[str, Any]] = []
    if text := printed.getvalue():
        shown.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
    if value is not None:
        text = repr(value).splitlines(keepends=True)
        result = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        shown.append({**result, "data": {"text/plain": text}})
    return [*shown, *figures()]


def figures() -> list[dict[str, Any]]:
    """Return the open figures of Matplotlib as outputs, and close them."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    import matplotlib.pyplot as plt

    images = []
    for number in plt.get_fignums():
        image = io.BytesIO()
        plt.figure(number).savefig(image, format="png", dpi=110, metadata={"Software": None})
        images.append(base64.b64encode(image.getvalue()).decode())
    plt.close("all")
    return [{"output_type": "display_data", "metadata": {}, "data": {"image/png": image}} for image in images]


def main() -> None:
    """Run the notebooks that the arguments name, each in an empty folder, and write them."""
    os.environ.update(COLUMNS="90", NO_COLOR="1", MPLBACKEND="agg")
    for path in map(Path.resolve, map(Path, sys.argv[1:])):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            notebook = renewed(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
