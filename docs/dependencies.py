"""Write docs/dependencies.md: the packages of the base installation, with their sizes and what needs them.

    python docs/dependencies.py

Sizes are of the installed files here. A package that several others need stands with the first of them.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

PAGE = Path(__file__).parent / "dependencies.md"
REASONS = {
    "scipy": "sparse matrices everywhere; Student's t of `compare`",
    "numpy": "all numbers",
    "onnxruntime": "encoding by a graph",
    "huggingface-hub": "models of the Hub",
    "tokenizers": "tokens",
    "pydantic": "recipes, HTTP",
    "msgspec": "records on disk",
    "rich": "tables, progress",
    "markdown-it-py": "pages in Markdown",
    "fastapi": "`serve`",
    "uvicorn": "`serve`",
    "h11": "`serve`",
    "prometheus-client": "metrics of `serve`",
    "httpx": "search of a service (`service.client`)",
    "pyyaml": "recipes, cards of models",
    "pystemmer": "stems of BM25's words",
    "bm25s": "stop words of BM25",
    "safetensors": "weights of looked-up queries, metadata of weights",
    "typing-extensions": "types of Python 3.12 and later",
}
ABOUT = """# Dependencies

Packages of the base installation, by `python docs/dependencies.py`, MB on Linux with Python 3.11. `errors.TRAIN` has
the packages of the extra `train`.
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(name: str) -> list[str]:
    """Return the packages that a package needs here, without its extras."""
    required = distribution(name).requires or []
    here = [
        line for line in required if "extra ==" not in line and not re.search(r"sys_platform == .(win32|emsc)", line)
    ]
    return [normal(re.split(r"[\s\[<>=!~;(]", line)[0]) for line in here]


def megabytes(name: str) -> float:
    files = distribution(name).files or []
    return sum(path.stat().st_size for file in files if (path := Path(str(file.locate()))).is_file()) / 1e6


def table() -> str:
    """Return the rows, the largest first."""
    placed, rows = set[str](), list[tuple[float, str]]()
    direct = needs("vocable")
    for name in sorted(direct, key=lambda one: (one != "numpy", one)):
        group, left = list[str](), [name]
        while left:
            package = left.pop()
            if package in placed or (package in direct and package != name):
                continue
            try:
                distribution(package)
            except PackageNotFoundError:
                continue  # for another system or Python
            placed.add(package)
            group.append(package)
            left += needs(package)
        size = sum(map(megabytes, group))
        more = f", with {', '.join(sorted(group[1:]))}" if group[1:] else ""
        rows.append((size, f"| {name}{more} | {size:.0f} | {REASONS[name]} |"))
    rows.sort(reverse=True)
    return "\n".join(["| package | MB | needed by |", "|:--|--:|:--|", *(row for _, row in rows)])


if __name__ == "__main__":
    PAGE.write_text(f"{ABOUT}\n{table()}\n", encoding="utf-8")
