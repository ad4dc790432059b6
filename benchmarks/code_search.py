"""Are functions of source code found by what their comments say of them?

    python benchmarks/code_search.py scipy=PATH/scipy/signal mathjs=PATH/lib/esm --queries 300
    python benchmarks/code_search.py scipy=PATH/scipy/signal --variants

A corpus is a folder of source code, read as `vocable index` reads it. Of each function and class that has a docstring,
or a comment above it, the first sentence is a query, and the whole docstring or comment is removed from the files. A
function of the corpus is found by any of its parts. With `--tests`, the queries are the names of tests of at least
three words, one test for each function: the first that calls it and no other function of the corpus, by their names.
The intervals are of 95 % (Student's t over the queries). `--variants` encodes other texts of the documents with both
models.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from machine import machine

import vocable as vo
from vocable.core.code_files import code_language
from vocable.core.folders import files_of
from vocable.core.tables import Table
from vocable.data import Document, read_corpus
from vocable.data.code.outline import Definition
from vocable.data.code.python import python_outline
from vocable.data.code.trees import has_grammar, tree_outline
from vocable.data.pydocs import divide
from vocable.evaluation.significance import mean_interval
from vocable.language.words import NAME_IN_CODE, NAME_PART

FEWEST_WORDS = 4  # of a query
DEPTH = 50  # hits, of which parts of one function count once
MARKS = re.compile(r"^\s*(?:///?!?|/\*[*!]?|\*/|\*|#+(?!\w))\s?|\s*\*/\s*$")
ATTRIBUTE = re.compile(r"\s*#\[")  # of Rust, between a comment and its function
BUILT_IN = {
    name for owner in (builtins, bytes, dict, list, set, str) for name in dir(owner)
}  # not only the corpus' own
TESTS = re.compile(r"(^|/)(tests?|testing|conftest\.py|test_[^/]*)(/|$)")
SPACES = {"vocable-mini": "sparse", "dense": "dense", "hybrid of the three": None}


class Known(NamedTuple):
    """A sentence that describes a function, and the id of the function."""

    query: str
    id: str


def described(text: str, file: str) -> tuple[str, list[Known]]:
    """Return a text of source code without its descriptions, and the descriptions' first sentences."""
    lines, removed, found = text.split("\n"), set[int](), list[Known]()
    if code_language(file) == "python":
        docstrings = _docstrings(ast.parse(text))
        outline = python_outline(text)
    else:
        docstrings, outline = {}, tree_outline(text, file)

    def visit(definitions: tuple[Definition, ...], above: tuple[str, ...]) -> None:
        for one in definitions:
            names = (*above, one.name)
            first, last, comment = docstrings.get(one.first, (0, -1, ""))
            if not comment and not docstrings:
                first, last, comment = _comment(lines, one.first)
            removed.update(range(first, last + 1))
            sentence = divide(re.sub(rf"\A{re.escape(one.name)}\b *(\(\))?[\s:-]+", "", comment, count=1))[0]
            if len(re.findall(r"[^\W\d]\w+", sentence)) >= FEWEST_WORDS and "\ufffd" not in sentence:
                found.append(Known(sentence, f"{file}#{'.'.join(names)}"))
            visit(one.inner if one.holds else (), names)

    visit(outline.definitions, ())
    return "\n".join(line for number, line in enumerate(lines, start=1) if number not in removed), found


def _docstrings(tree: ast.Module) -> dict[int, tuple[int, int, str]]:
    """Return the first and last line and the text of each docstring, by the first line of its definition."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and len(node.body) > 1:
            text, first = ast.get_docstring(node), node.body[0]
            if text and first.lineno > node.lineno and node.body[1].lineno > (first.end_lineno or 0):
                start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                found[start] = (first.lineno, first.end_lineno or first.lineno, text)
    return found


def _comment(lines: list[str], first: int) -> tuple[int, int, str]:
    """Return the first and last line and the text of the comment right above a line."""
    at = first - 1
    while at >= 1 and (MARKS.match(lines[at - 1]) or (lines[at - 1].strip() and "*/" in lines[at - 1])):
        at -= 1
    kept = [line for line in lines[at : first - 1] if not ATTRIBUTE.match(line)]
    text = "\n".join(MARKS.sub("", MARKS.sub("", line)) for line in kept)
    return at + 1, first - 1, text.partition("\n@")[0].strip()


def known_items(folder: Path, copy: Path) -> list[Known]:
    """Write the code of a folder, without descriptions, into another; return the known items."""
    found = list[Known]()
    for file in files_of(folder, code=True).files:
        if code_language(file) and not TESTS.search(file) and (code_language(file) == "python" or has_grammar(file)):
            try:
                text, items = described((folder / file).read_text(encoding="utf-8"), file)
            except (UnicodeDecodeError, SyntaxError):
                continue
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            (copy / file).write_text(text, encoding="utf-8")
            found += items
    sentences, ids = Counter(one.query.lower() for one in found), Counter(one.id for one in found)
    return [one for one in found if sentences[one.query.lower()] == 1 and ids[one.id] == 1]


def of_tests(folder: Path, documents: list[Document]) -> list[Known]:
    """Return the names of tests in words, each with the one function of the corpus that the test calls."""
    firsts = [one for one in documents if "~" not in one.id]
    places = Counter(str(one.title) for one in firsts)
    id_of = {one.title: one.id for one in firsts if places[one.title] == 1 and "#" in one.id}
    functions, found = id_of.keys() - BUILT_IN, dict[str, Known]()
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
                names = {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls}
                query = " ".join(node.name.split("_")[1:])
                if len(called := names & functions) == 1 and query.count(" ") >= 2:
                    [name] = called
                    found.setdefault(id_of[name], Known(query, id_of[name]))
    return sorted(found.values())


def split_names(text: str) -> str:
    """Return a text with the parts of camelCase after each name, as `english+code` counts them."""

    def parts(name: re.Match[str]) -> str:
        found = NAME_PART.findall(name[0])
        return " ".join([name[0], *found]) if len(found) > 1 and "_" not in name[0] else name[0]

    return NAME_IN_CODE.sub(parts, text)


def head_of(text: str) -> str:
    """Return the first lines of a text, up to the line that ends a signature."""
    lines = text.split("\n")
    end = next((at for at, line in enumerate(lines) if line.rstrip().endswith((":", "{", ";", ")"))), len(lines) - 1)
    return "\n".join(lines[: end + 1])


VARIANTS: dict[str, Callable[[Document], Document]] = {
    "as it is": lambda one: one,
    "names also split": lambda one: Document(one.id, split_names(one.full)),
    "no path": lambda one: Document(one.id, one.text, one.title),
    "path and signature": lambda one: Document(one.id, f"{one.heading} {head_of(one.text)}"),
}


def values(ranked: Iterator[list[str]], items: list[Known]) -> dict[str, dict[str, float]]:
    """Return nDCG@10 and RR@10 of each query for the ids of its hits; parts of a function are one hit."""
    result: dict[str, dict[str, float]] = {"nDCG@10": {}, "RR@10": {}}
    for number, (hits, item) in enumerate(zip(ranked, items, strict=True)):
        functions = list(dict.fromkeys(re.sub(r"~\d+$", "", hit) for hit in hits))[:10]
        rank = functions.index(item.id) + 1 if item.id in functions else 0
        result["nDCG@10"][str(number)] = 1 / np.log2(1 + rank) if rank else 0.0
        result["RR@10"][str(number)] = 1 / rank if rank else 0.0
    return result


def row(name: str, found: dict[str, dict[str, float]], base: dict[str, dict[str, float]] | None) -> list[str]:
    cells = [name]
    for measure, of_query in found.items():
        mean, (low, _) = float(np.mean([*of_query.values()])), mean_interval(of_query)
        cells.append(f"{mean:.3f} ±{mean - low:.3f}")
        if base is not None:
            difference = {query: value - base[measure][query] for query, value in of_query.items()}
            middle, (least, _) = float(np.mean([*difference.values()])), mean_interval(difference)
            cells[-1] += f" ({middle:+.3f} ±{middle - least:.3f})"
    return cells


def of_words(documents: list[Document], items: list[Known], language: str) -> dict[str, dict[str, float]]:
    """Return the quality of BM25 in a language."""
    index = vo.BM25Index([one.full for one in documents], language=language)
    hits = index.search([item.query for item in items], k=DEPTH)
    return values(([documents[one].id for one in found if one >= 0] for found in hits.rows), items)


def measure(name: str, documents: list[Document], items: list[Known], arguments: argparse.Namespace) -> None:
    """Print the table of a corpus."""

    def ranked(index: vo.Collection, weights: str | None) -> Iterator[list[str]]:
        queries = [item.query for item in items]
        answers = vo.search(index, queries, k=DEPTH, weights=weights, plain=True, sections=True)
        return ([hit.document.id for hit in answer.hits] for answer in answers)

    rows, base = list[list[str]](), dict[str, dict[str, dict[str, float]]]()
    if arguments.words:
        for language in ("english", "english+code"):
            rows.append(row(f"BM25, {language}", of_words(documents, items, language), None))
    elif arguments.variants:
        for variant, changed in VARIANTS.items():
            index = vo.index("vocable-mini", list(map(changed, documents)), bm25=False, device="cpu")
            for space in ("sparse", "dense"):
                found = values(ranked(index, space), items)
                rows.append(row(f"{space}: {variant}", found, base.get(space)))
                base.setdefault(space, found)
                print(" | ".join(rows[-1]), flush=True)
    else:
        words = vo.index("vocable-mini", documents[:1], device="cpu")  # loads the models before the clock starts
        words.close()
        start = time.perf_counter()
        index = vo.index("vocable-mini", documents, language="english+code", device="cpu")
        seconds = time.perf_counter() - start
        rows.append(row("BM25, english", of_words(documents, items, "english"), None))
        for system, weights in {"BM25, english+code": "bm25", **SPACES}.items():
            rows.append(row(system, values(ranked(index, weights), items), None))
        print(f"{len(documents) / seconds:,.0f} documents a second with both models and words")
    print(f"\n{name}: {len(documents):,} documents, {len(items)} queries\n")
    print(Table("", ["searched by", "nDCG@10", "RR@10"], rows).markdown(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", metavar="NAME=FOLDER", help="folders of source code")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--most", type=int, help="documents of a corpus, of its first files")
    parser.add_argument("--words", action="store_true", help="measure BM25 alone")
    parser.add_argument("--tests", action="store_true", help="queries are the names of tests in the folder")
    parser.add_argument("--variants", action="store_true", help="compare texts that the models read")
    arguments = parser.parse_args()
    print(machine(torch.device("cpu")))
    for corpus in arguments.corpora:
        name, _, folder = corpus.partition("=")
        with TemporaryDirectory() as copy:
            items = known_items(Path(folder), Path(copy))
            documents = list(islice(read_corpus(copy, folder=copy, code=True), arguments.most))
            if arguments.tests:
                items = of_tests(Path(folder), documents)
        present = {re.sub(r"~\d+$", "", one.id) for one in documents}
        items = [item for item in items if item.id in present]
        items = Random(0).sample(items, min(arguments.queries, len(items)))
        measure(name, documents, items, arguments)


if __name__ == "__main__":
    main()
