"""Count signs of unclear English in the package: phrases of its docstrings, and vague names of variables.

    python tests/plain_english.py [FOLDER...]

prints each phrase and each name with its place, and the counts. `tests/test_layout.py` holds the bounds.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Phrases that stand for a noun that could be said again, or turn a sentence around.
PHRASES = re.compile(
    r"\b(those of|that of|(?:of|in|by|for|from|with|to|at|on|after|before|over|under) which|beside|in place of|is none|"
    r"are none|no \w+ is|(?:the|this|that|each|any|every|no|another|other) ones?|so many|as many|is of|are of|"
    r"of (?:its|their) own)\b"
)
VAGUE = {"one", "some", "found", "made", "own", "before", "there"}
COMPREHENSIONS = ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Iterate over the docstrings of a module with their lines."""
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and (text := ast.get_docstring(node)) is not None:  # type: ignore[arg-type]
            yield node.body[0].lineno, text  # type: ignore[attr-defined]


def phrases(path: Path) -> tuple[list[tuple[int, str]], int]:
    """Return the phrases in a file's docstrings with the lines of the docstrings, and the number of all words."""
    texts = [*docstrings(ast.parse(path.read_text(encoding="utf-8")))]
    found = [(line, match[0]) for line, text in texts for match in PHRASES.finditer(" ".join(text.split()))]
    return found, sum(len(text.split()) for _, text in texts)


def vague_names(path: Path) -> list[tuple[int, str]]:
    """Return the vague names that a file binds with their lines, outside comprehensions and lambdas of one line."""
    tree, places = ast.parse(path.read_text(encoding="utf-8")), []
    short = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, COMPREHENSIONS) and node.lineno == node.end_lineno
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        bound = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        name = node.id if isinstance(node, ast.Name) and bound else node.arg if isinstance(node, ast.arg) else ""
        if name in VAGUE and id(node) not in short:
            places.append((node.lineno, name))  # type: ignore[attr-defined]
    return places


def main() -> None:
    folders = [Path(name) for name in sys.argv[1:]] or [Path("src/vocable")]
    marks = words = names = 0
    for path in sorted(file for folder in folders for file in folder.rglob("*.py")):
        listed, count = phrases(path)
        vague = vague_names(path)
        marks, words, names = marks + len(listed), words + count, names + len(vague)
        for line, text in [*listed, *vague]:
            print(f"{path}:{line}: {text}")
    print(f"{1e4 * marks / max(1, words):.1f} phrases in 10,000 words of docstrings; {names} vague names")


if __name__ == "__main__":
    main()
