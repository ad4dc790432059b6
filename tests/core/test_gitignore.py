from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vocable.core.gitignore import Rules, is_ignored, patterns, rules_in
from vocable.errors import DataError

PIECES = ["a", "b", "*", "**", "?", "[ab]", "[!a]", "[^b]", "[a-c]", "[]b]", "[[:alpha:]]", "[[:x:]]", "[b-a]", "[a-"]
PIECES += ["\\", "\\*", "\\ ", "/", "-", " ", "#", "!", ".", "é", "[", "]"]
LINES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
NAMES = st.text("aab-. é#!*]", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=4), min_size=1, max_size=10)


def ours(root: Path, folder: Path, rules: tuple[Rules, ...] = ()) -> set[str]:
    """Return the ignored files and folders below a folder, those in ignored folders included."""
    inner = "" if folder == root else f"{folder.relative_to(root)}/"
    rules += rules_in(folder, os.fsencode(inner))
    found = set[str]()
    for path in folder.iterdir():
        if path.name in (".git", ".gitignore"):
            continue
        name = inner + path.name
        if is_ignored(name, path.is_dir(), rules):
            found |= {name, *(str(one.relative_to(root)) for one in path.rglob("*") if one.name != ".gitignore")}
        elif path.is_dir():
            found |= ours(root, path, rules)
    return found


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(paths=PATHS, lines=st.lists(LINES, max_size=5), inner=st.lists(LINES, max_size=3))
def test_files_are_ignored_as_by_git(
    tmp_path_factory: pytest.TempPathFactory, paths: list[list[str]], lines: list[str], inner: list[str]
) -> None:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", root], check=True)
    for parts in paths:
        path = root.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        except (FileExistsError, NotADirectoryError):  # one path is both a file and a folder
            continue
    (root / ".gitignore").write_text("\n".join(lines), encoding="utf-8")
    if folder := next((path for path in sorted(root.iterdir()) if path.is_dir() and path.name != ".git"), None):
        (folder / ".gitignore").write_text("\n".join(inner), encoding="utf-8")
    files = [str(path.relative_to(root)) for path in root.rglob("*") if ".git" not in path.relative_to(root).parts]
    names = "\0".join(name for name in files if not name.endswith(".gitignore"))
    command = ["git", "-C", root, "check-ignore", "-z", "--stdin", "--no-index"]
    said = subprocess.run(command, input=names.encode(), capture_output=True, check=False).stdout.decode()
    assert ours(root, root) == set(filter(None, said.split("\0")))


@pytest.mark.parametrize(
    ("line", "path", "ignored"),
    [
        ("build/", "a/build", True),
        ("*.log", "a/b.log", True),
        ("/a", "b/a", False),
        ("docs/*.md", "docs/a/b.md", False),
        ("docs/**/b.md", "docs/b.md", True),
        ("a/**", "a/b/c", True),
        ("\\#a", "#a", True),
        ("?", "é", False),  # git compares bytes
        ("a\\", "a", False),
    ],
)
def test_patterns_ignore_the_paths_that_git_ignores(line: str, path: str, ignored: bool) -> None:
    assert is_ignored(path, True, (Rules(b"", tuple(patterns(line.encode()))),)) is ignored


def test_lines_that_are_no_patterns() -> None:
    assert not list(patterns(b"\xef\xbb\xbf# comment\r\n\n  \n"))


HARD = [("*a" * 30 + "*b", "a" * 200), ("*?" * 40 + "b", "a" * 200), ("*[!b]" * 40 + "b", "a" * 200)]
HARD += [
    ("**/" * 30 + "b", "a/" * 100),
    ("**/*a/" * 30 + "b", "a/" * 100),
    ("x/**/" + "*a*/" * 30 + "b", "x/" + "a/" * 100),
]


@pytest.mark.parametrize(("line", "path"), HARD)
def test_patterns_of_many_wildcards_match_without_backtracking(line: str, path: str) -> None:
    rules = (Rules(b"", tuple(patterns(line.encode()))),)
    assert is_ignored(path + "b", False, rules)
    assert not is_ignored(path + "c", False, rules)


def test_files_of_patterns_have_a_bound(tmp_path: Path) -> None:
    file = tmp_path / ".gitignore"
    file.write_bytes(b"a\n" * 10_000)
    assert len(rules_in(tmp_path, b"")[0].patterns) == 10_000
    for content in (b"a\n" * 10_001, b"a" * 1_000_001):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"\.gitignore: .*10,000 "):
            rules_in(tmp_path, b"")
