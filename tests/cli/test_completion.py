"""Completion of commands, options and values, as shells do it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.command_line import done, refused
from vocable.cli import COMMANDS
from vocable.cli.completion import SHELLS, script
from vocable.cli.words import options_of
from vocable.training.recipe_files import recipes

MODELS = ["vocable-mini", "vocable-mini-doc", "vocable-mini-dense"]
ENTRIES = ["a.jsonl", "my docs", "x*y"]
# What may follow some words, in all shells; the last word is the beginning of what is completed.
LINES = {
    "vocable ": [*COMMANDS],
    "vocable se": ["search", "select", "serve"],
    "vocable search i --fu": ["--fusion", "--full"],
    "vocable search i --fusion ": ["weighted", "reciprocal-rank"],
    "vocable search index --fusion r": ["reciprocal-rank"],
    "vocable search i -k ": [],
    "vocable search i --wacky a": ["a.jsonl"],
    "vocable train ": [*recipes(), *ENTRIES],
    "vocable train b": ["backbone-to-retriever"],
    "vocable recipes ": [*recipes()],
    "vocable index vocable-mini ": [*MODELS, *ENTRIES],
    "vocable index vocable-mini m": ["my docs"],
    "vocable publish i --no": ["--no-bm25"],
    "vocable --install-completion ": [*SHELLS],
}
BASH = 'source "$1"; COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); _vocable; printf "%s\\n" "${COMPREPLY[@]}"'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, which has a few files."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "x*y"):
        Path(name).touch()
    Path("my docs").mkdir()
    return tmp_path


def written(shell: str, folder: Path) -> Path:
    """Write the script of a shell outside the current folder."""
    file = folder.parent / f"script-of-{folder.name}.{shell}"
    file.write_text(script(shell, COMMANDS))
    return file


def bash(script: Path, words: list[str]) -> list[str]:
    """Return what bash completes the last word to."""
    command = ["bash", "--norc", "-c", BASH, "bash", script, *words]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert shown.stderr == ""
    return shown.stdout.splitlines()


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes(folder: Path) -> None:
    file = written("bash", folder)
    for line, expected in LINES.items():
        words = shlex.split(line) + [""] * line.endswith(" ")
        assert sorted(filter(None, bash(file, words))) == sorted(expected), line
    assert bash(file, ["vocable", "search", "i", "--fusion", "=", "re"]) == ["reciprocal-rank"]
    assert bash(file, ["vocable", "search", "i", "--fusion", "="]) == ["weighted", "reciprocal-rank"]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_every_option_of_every_command(folder: Path) -> None:
    file = written("bash", folder)
    for name, command in COMMANDS.items():
        options = [one for key, one in command.parameters.items() if key not in command.words]
        spellings = {spelling for one in options for spelling in options_of(one)}
        assert {*bash(file, ["vocable", name, "-"])} == spellings | {"-h", "--help"}, name


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
def test_fish_completes(folder: Path) -> None:
    file = written("fish", folder)
    for line, expected in LINES.items():
        command = ["fish", "-N", "-c", f"source {file}; complete -C {shlex.quote(line)}"]
        environment = os.environ | {"HOME": str(folder.parent)}
        shown = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, env=environment)
        found = {row.partition("\t")[0].removesuffix("/") for row in shown.stdout.splitlines()}
        # Fish shows names that contain the word, too.
        assert found & {*expected} == {*expected}, line
        assert line[-1] != " " or found == {*expected}, line


def test_zsh_gets_every_command_option_and_word() -> None:
    text = script("zsh", COMMANDS)
    assert text.startswith("#compdef vocable\n")
    for name, command in COMMANDS.items():
        _, _, rest = text.partition(f"\n        {name}) _arguments")
        body = rest.partition(" ;;\n")[0]
        for key, one in command.parameters.items():
            if key not in command.words:
                assert all(f"'*{spelling}[" in body for spelling in options_of(one)), (name, key)
    assert ": :((weighted reciprocal-rank))'" in text
    if shutil.which("zsh"):
        checked = subprocess.run(["zsh", "-n"], input=text, text=True, capture_output=True, timeout=30, check=True)
        assert checked.stderr == ""


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", ".local/share/bash-completion/completions/vocable"),
        ("zsh", ".zfunc/_vocable"),
        ("fish", ".config/fish/completions/vocable.fish"),
    ],
)
def test_a_second_installation_changes_nothing(
    shell: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    file = tmp_path / place
    assert done(capsys, "--install-completion").splitlines()[0] == f"written: {file}"
    written = file.stat().st_ino, file.stat().st_mtime_ns
    shown = done(capsys, "--install-completion", shell)
    assert shown.splitlines()[0] == f"already there: {file}"
    assert shell == "fish" or str(file if shell == "bash" else file.parent) in shown
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == written
    assert done(capsys, "--show-completion").rstrip("\n") == file.read_text().rstrip("\n")
    file.write_text("of another version")
    assert done(capsys, "--install-completion").startswith("written")


def test_mistakes_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert "tcsh" in refused(capsys, "--install-completion")
    monkeypatch.delenv("SHELL")
    assert "fish" in refused(capsys, "--show-completion")
    assert "'twice'" in refused(capsys, "--show-completion", "bash", "twice")
    (tmp_path / ".local").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert str(tmp_path / ".local") in refused(capsys, "--install-completion", "bash")
