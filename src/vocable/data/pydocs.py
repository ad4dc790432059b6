"""The built-in corpus: the documentation of Python's standard library, and a known-item test.

The documents are the distinct docstrings of public modules, classes, functions and methods, with the dotted name
(`json.dumps`) as id: a few thousand, slightly different in each Python version. Modules in Python are parsed and not
imported, so that none of their code runs; modules in C are imported.

A query of the test is the first sentence of a document, and the sentence is removed from the document.
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec
from inspect import cleandoc, isclass, isfunction, isroutine
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from vocable.data.records import Document, Qrel, Query

SPLITS = ("train", "test")
QUERY_WORDS = 3
REST_WORDS = 8
# Tests, demos, programs, jokes, retired build tools, and modules with side effects on the terminal.
LEFT_OUT = frozenset(
    {"antigravity", "distutils", "idlelib", "lib2to3", "pydoc_data", "test", "tests", "this", "turtledemo"}
    | {"_tkinter", "_curses", "_curses_panel", "readline", "xxlimited", "xxlimited_35", "xxsubtype"}
)
PUBLIC_NAME = {"posix": "os", "nt": "os", "_thread": "threading"}  # C modules whose contents have another public name
# First lines of C docstrings, such as "range(start, stop[, step]) -> range object".
SIGNATURE = re.compile(r"([\w.]+\([^\n]*\)([ \t]*(-+>|=)[^\n]*)?\s*(\n|$))+")
SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\betc)[.!?][\"')]*(?=\s|$)")

Named = tuple[str, object]  # a dotted name and its docstring, if it is a str


class KnownItem(NamedTuple):
    """A document with a query: its name, its first sentence (the query), the rest of its text, and its split."""

    id: str
    sentence: str
    rest: str
    split: str


@cache
def documents() -> tuple[Document, ...]:
    """Return all documents, with their whole texts, in the order of their names."""
    texts_of: dict[str, str] = {}
    keys: set[str] = set()
    for name, docstring in (*_parsed(), *_imported()):
        text = cleandoc(docstring).strip() if isinstance(docstring, str) else ""
        key = _normalized(text)
        if divide(text)[0] and name not in texts_of and key not in keys:
            texts_of[name] = text
            keys.add(key)
    return tuple(Document(name, texts_of[name], title=name) for name in sorted(texts_of))


@cache
def known_items() -> tuple[KnownItem, ...]:
    """Return the documents with a query: their first sentences and their rests have enough words and are unique.

    Thus a query has one answer and one split.
    """
    parts = {document.id: divide(document.text) for document in documents()}
    sentences = Counter(_normalized(sentence) for sentence, _ in parts.values())
    rests = Counter(_normalized(rest) for _, rest in parts.values())
    return tuple(
        KnownItem(name, sentence, rest, split_of(name))
        for name, (sentence, rest) in parts.items()
        if _words(sentence) >= QUERY_WORDS
        and _words(rest) >= REST_WORDS
        and sentences[_normalized(sentence)] == 1
        and rests[_normalized(rest)] == 1
    )


def known_item_documents() -> Iterator[Document]:
    """Return all documents for the test, without the sentences that are queries.

    The documents have no titles, since a dotted name repeats words of the sentence.
    """
    rests = {item.id: item.rest for item in known_items()}
    return (Document(document.id, rests.get(document.id, document.text)) for document in documents())


def queries(split: str) -> Iterator[Query]:
    """Return the queries of a split: the first sentences of its known items."""
    return (Query(_query_id(item), item.sentence) for item in known_items() if item.split == split)


def judgments(split: str) -> Iterator[Qrel]:
    """Return the judgments of a split: for each query the document that it comes from."""
    return (Qrel(_query_id(item), item.id, 1) for item in known_items() if item.split == split)


def split_of(name: str) -> str:
    """Return the split of a dotted name by its hash, which all Python versions share.

    >>> split_of("json.dumps"), split_of("json.loads")
    ('train', 'test')
    """
    return SPLITS[blake2b(name.encode(), digest_size=8).digest()[0] & 1]


def divide(text: str) -> tuple[str, str]:
    """Return the first sentence of a docstring, on one line, and its rest, both without a leading signature.

    >>> divide("len(obj)\\n\\nReturn the length, e.g. of a list.  It is\\nat least 0.\\n\\nNever negative.")
    ('Return the length, e.g. of a list.', 'It is\\nat least 0.\\n\\nNever negative.')
    >>> divide("Convert a string\\n\\nThe first paragraph needs no full stop.")
    ('Convert a string', 'The first paragraph needs no full stop.')
    """
    signature = SIGNATURE.match(text)
    body = text[signature.end() :].strip() if signature else text
    paragraph = re.split(r"\n\s*\n", body, maxsplit=1)[0]
    stop = SENTENCE_END.search(paragraph)
    end = stop.end() if stop else len(paragraph)
    return " ".join(body[:end].split()), body[end:].strip()


def _query_id(item: KnownItem) -> str:
    # Differs from the id of the document: some evaluation tools drop hits with the id of their query.
    return f"query:{item.id}"


def _normalized(text: str) -> str:
    return " ".join(text.lower().split())


def _words(text: str) -> int:
    return len(re.findall(r"\w+", text))


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _parsed() -> Iterator[Named]:
    """Yield the docstrings of the Python files of the standard library."""
    root = Path(sysconfig.get_path("stdlib"))
    names = filter(_is_public, sys.stdlib_module_names - LEFT_OUT)
    files = sorted(file for name in names for file in (root / f"{name}.py", *(root / name).rglob("*.py")))
    for path in files:  # files that do not exist are skipped below
        parts = path.relative_to(root).with_suffix("").parts
        if not LEFT_OUT.intersection(parts):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # strings with invalid escapes
                    tree = ast.parse(path.read_bytes())
            except (OSError, SyntaxError, ValueError):
                continue
            # Contents of a private module count as those of its package: `pathlib._local.Path` is `pathlib.Path`.
            name = ".".join(filter(_is_public, parts))
            if parts[-1] == "__init__" or all(map(_is_public, parts)):
                yield name, ast.get_docstring(tree, clean=False)
            yield from _of_body(name, tree.body)


def _of_body(prefix: str, body: Iterable[ast.stmt]) -> Iterator[Named]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(node.name):
            name = f"{prefix}.{node.name}"
            yield name, ast.get_docstring(node, clean=False)
            if isinstance(node, ast.ClassDef):
                yield from _of_body(name, node.body)


def _imported() -> Iterator[Named]:
    """Yield the docstrings of the C modules of the standard library."""
    for module_name in sorted(sys.stdlib_module_names - LEFT_OUT):
        name = PUBLIC_NAME.get(module_name, module_name.lstrip("_"))
        if name not in sys.stdlib_module_names or module_name.startswith(("_test", "_xx")) or not _is_c(module_name):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some are deprecated
            try:
                module = import_module(module_name)
            except ImportError:
                continue
            yield from _of_module(name, module)


def _is_c(module_name: str) -> bool:
    if module_name in sys.builtin_module_names:
        return True
    try:
        spec = find_spec(module_name)
    except (ImportError, ValueError):
        return False
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)


def _of_module(name: str, module: ModuleType) -> Iterator[Named]:
    if name == module.__name__:
        yield name, module.__doc__
    attributes = vars(module)
    for attribute in sorted(attributes):
        value = attributes.get(f"__{attribute}__", attributes[attribute])  # sys.excepthook may have been replaced
        if not _is_public(attribute) or isfunction(value) or not (isclass(value) or isroutine(value)):
            continue
        yield f"{name}.{attribute}", value.__doc__
        if isclass(value):
            for member, inner in sorted(vars(value).items()):
                if _is_public(member) and isroutine(inner):
                    yield f"{name}.{attribute}.{member}", inner.__doc__
