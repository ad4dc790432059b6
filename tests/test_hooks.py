"""The GitHub Action and the pre-commit hook: their commands run as they stand there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import vocable as vo
from vocable.cli import COMMANDS
from vocable.publishing.manifest import MANIFEST

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables of a shell that finds the command vocable, and a folder `docs` with a page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "install.md").write_text("# Install\n\nPut it on a disk.\n", encoding="utf-8")
    command = tmp_path / "bin" / "vocable"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m vocable "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def test_the_action_publishes_a_search(tmp_path: Path, environment: dict[str, str]) -> None:
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    *_, step = action["runs"]["steps"]
    # Inputs reach the script as variables alone: their text cannot become a command.
    assert not [each for each in action["runs"]["steps"] if "${{" in each.get("run", "")]
    used = set(re.findall(r"inputs\.([\w-]+)", str(step["env"])))
    assert used == action["inputs"].keys()
    required = {name for name, value in action["inputs"].items() if value.get("required")}
    assert required == {name for name, value in action["inputs"].items() if "default" not in value} == {"base-url"}
    given = {"DOCS": "docs", "BASE_URL": "https://example.org", "OUTPUT": "site", "TITLE": "A & B", "INDEX": "index"}
    assert step["env"].keys() == given.keys()
    run(["bash", "-euo", "pipefail", "-c", step["run"]], tmp_path, environment | given)
    assert (tmp_path / "site" / MANIFEST).is_file()
    with vo.open_index(tmp_path / "index") as index:
        assert [document.fields["url"] for document in index.all_documents()] == [
            "https://example.org/install/#install"
        ]


def test_the_hook_adds_changed_pages(tmp_path: Path, environment: dict[str, str]) -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    command, verb = shlex.split(hook["entry"])
    assert command == "vocable"
    assert verb in COMMANDS
    assert re.search(hook["files"], "docs/a.md")
    assert not re.search(hook["files"], "src/a.py")
    vo.index("vocable-mini", tmp_path / "docs", tmp_path / "my-index", device="cpu").close()
    (tmp_path / "docs" / "search.md").write_text("# Search\n\nAsk a question.\n", encoding="utf-8")
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    [arguments] = re.findall(r"id: vocable-add, args: \[(.*?)\]", text)
    run([command, verb, *arguments.split(", ")], tmp_path, environment)
    with vo.open_index(tmp_path / "my-index") as index:
        assert [document.id for document in index.all_documents()] == ["install.md#install", "search.md#search"]
