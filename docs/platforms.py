"""Which systems have wheels of all packages that vocable needs: the table of docs/install.md.

    python docs/platforms.py            write the table
    python docs/platforms.py --check    print what differs, and exit with 1 if a system is lost

`uv pip compile` (`pip install uv`) asks the package index for metadata alone. A cell is "yes", or the first package
without a wheel.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "install.md"
SYSTEMS = {
    "Linux x86-64, glibc": "x86_64-manylinux_2_28",
    "Linux ARM64, glibc": "aarch64-manylinux_2_28",
    "Linux x86-64, Alpine": "x86_64-unknown-linux-musl",
    "macOS 14, ARM64": "aarch64-apple-darwin",
    "macOS 14, Intel": "x86_64-apple-darwin",
    "Windows x86-64": "x86_64-pc-windows-msvc",
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = ("train", "seismic")  # tried with Python 3.12
TABLE = re.compile(r"(?<=<!-- made by docs/platforms.py -->\n).*?(?=<!-- end -->)", re.DOTALL)
LACKING = re.compile(r"Because (?:only )?(?:the following versions of )?([\w.-]+)")


def solution(system: str, python: str, extra: str | None) -> str:
    """Return "yes", or the first package without a wheel."""
    command = ["uv", "pip", "compile", "-q", "--only-binary", ":all:", "--python-platform", system]
    command += ["--python-version", python, "pyproject.toml", *(["--extra", extra] if extra else [])]
    environment = os.environ | {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return "yes"
    found = LACKING.search(done.stderr)
    if "No solution" not in done.stderr or found is None:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return found[1]


def table() -> str:
    """Return the table of all systems."""
    columns = [(python, None) for python in PYTHONS] + [("3.12", extra) for extra in EXTRAS]
    with ThreadPoolExecutor(4) as pool:
        rows = [
            [name, *pool.map(lambda column, system=system: solution(system, *column), columns)]  # type: ignore[misc]
            for name, system in SYSTEMS.items()
        ]
    header = ["", *(f"Python {python}" for python in PYTHONS), *(f"`{extra}`" for extra in EXTRAS)]
    lines = [header, [":--"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main() -> int:
    arguments = argparse.ArgumentParser(description="Renew the table of systems in docs/install.md.")
    arguments.add_argument("--check", action="store_true", help="change nothing")
    given = arguments.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    [before], after = TABLE.findall(page), table()
    print(after)
    if not given.check:
        PAGE.write_text(TABLE.sub(lambda _: after, page), encoding="utf-8")
        return 0
    lost = [
        (old, new)
        for old, new in zip(before.split("|"), after.split("|"), strict=False)
        if old.strip() == "yes" and new.strip() != "yes"
    ]
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
