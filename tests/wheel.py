"""Build the wheel, install it into a clean environment without the checkout, and run the README's first example there.

Run by `make wheel` and in CI: what the tests cannot see, since they run on an editable install with all extras.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command outside the checkout and return its output; exits with it where the command fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def main() -> None:
    """Print the example's output, and the size of the installation."""
    [example] = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[:1]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        venv.create(work / "venv", with_pip=True)
        python = work / "venv" / "bin" / "python"
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        run(*pip, "wheel", "-qq", "--no-deps", "-w", work, ROOT, cwd=work)
        [wheel] = work.glob("vocable-*.whl")
        run(*pip, "install", "-qq", "-c", ROOT / "constraints.txt", wheel, cwd=work)
        (work / "example.py").write_text(example)
        shown = run(python, "example.py", cwd=work)
        place = run(python, "-c", "import vocable; print(vocable.__file__)", cwd=work)
        assert "site-packages" in place, place
        size = sum(path.lstat().st_size for path in (work / "venv").rglob("*") if path.is_file()) / 1e6
        print(
            f"{shown}{wheel.name}: {wheel.stat().st_size / 1e6:.0f} MB; installed with its dependencies: {size:,.0f} MB"
        )


if __name__ == "__main__":
    main()
