"""The outline of a file of Python, from its syntax tree: nothing of it is run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable

from vocable.data.code.outline import Definition, Outline

DEFINED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def python_outline(text: str) -> Outline:
    """Return the outline of a text in Python; raise `SyntaxError` or `ValueError` for another text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # strings with invalid escapes
        tree = ast.parse(text)
    starts = frozenset(node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt))
    return Outline(tuple(_definitions(tree.body)), starts)


def _definitions(body: Iterable[ast.stmt]) -> Iterable[Definition]:
    """Yield the definitions of a body, with definitions under conditions such as `if TYPE_CHECKING`."""
    for node in body:
        if isinstance(node, DEFINED):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            inner = tuple(_definitions(node.body))
            is_class = isinstance(node, ast.ClassDef)
            yield Definition(node.name, first, node.end_lineno or node.lineno, inner, is_class)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for name in ("body", "handlers", "orelse", "finalbody"):
                for part in getattr(node, name, ()):
                    yield from _definitions(part.body if isinstance(part, ast.ExceptHandler) else [part])
