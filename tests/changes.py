"""Count the files of src/ that branches touch, beside the bounds in CONTRIBUTING's table of changes.

    python tests/changes.py [--base main] BRANCH...

A branch bears the name of a row ("an adapt verb" is `adapt-verb`), after any folder and before any `--`:
`trial/engine--faiss` is a try of the row "an engine". The exit code is 1 if a branch is above its bound or has no row.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TITLE = "## Changes, and what they touch"


def bounds(text: str) -> dict[str, int]:
    """Return the largest number of files of each row of the table in CONTRIBUTING, by the name of its branch."""
    rows = re.findall(
        r"^\| (.+?) \|.*\| (\d+) \| \d+ \|$", text.partition(TITLE)[2].partition("\n## ")[0], re.MULTILINE
    )
    return {
        re.sub(r"[^a-z]+", "-", name.lower().removeprefix("an ").removeprefix("a ")): int(most) for name, most in rows
    }


def touched(base: str, branch: str) -> list[str]:
    """Return the files of src/ that a branch changes, adds or removes since it left `base`."""
    command = ["git", "diff", "--name-only", f"{base}...{branch}", "--", "src/"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each branch: its row, its number of files, the bound, and the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="main")
    parser.add_argument("branches", nargs="+", metavar="BRANCH")
    options = parser.parse_args(arguments)
    known, above = bounds((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")), False
    for branch in options.branches:
        row = branch.rpartition("/")[2].partition("--")[0]
        files, most = touched(options.base, branch), known.get(row)
        above |= most is None or len(files) > most
        print(f"{row}: {len(files)} of at most {most}: {', '.join(files) or 'none'}")
    return int(above)


if __name__ == "__main__":
    sys.exit(main())
