"""Draw the way of a search and the way of a training: which function calls which, from outside to inside.

    python docs/design.py

Both are carried out, on three sentences and on toys, and the calls of the functions below are recorded. A function that
is not called on its way is an error. Beside each stands the first sentence of its docstring.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import tempfile
import types
from collections.abc import Callable
from functools import reduce
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SEARCH = """
collection.answers:search
collection.search:CollectionSearch.plan
collection.plan:Depths.of
collection.search:CollectionSearch.rank
collection.plan:SearchPlan.rankings
encoding.text_encoder:TextEncoder.encode_both
encoding.idf:weighed
engines.numbered_words:NumberedWords.query_vectors
collection.models:CollectionModels.dense_queries
engines.base:Store.search_all
engines.snapshot:Snapshot.search
indexes.postings:Postings.search
engines.snapshot:Snapshot.search_words
indexes.words:WeighedWords.weigh
engines.snapshot:Snapshot.search_dense
indexes.dense_index:DenseIndex.search
collection.verbatim:verbatim
collection.plan:SearchPlan.carry_out
indexes.fusion:fused
collection.answers:Answers._answer
collection.copies:merged
explanation.highlights:snippet
"""
TRAIN = """
training.train:train
training.recipe_files:read_recipe
training.run:carry_out
training.stages:carry_out_stages
training.run:_fine_tune
torch_models.sparse_encoder:load_sparse_encoder
training.data:load_training_data
training.prepared:prepare
training.objective:make_objective
training.objective:Objective.forward
training.micro_batches:embedded
torch_models.head:sparse_head
training.objective:WeightedLosses.__call__
objectives.losses:info_nce
objectives.regularizers:flops
training.detector:CollapseDetector.see
training.outcome:report
training.run:_save
"""
SENTENCES = ["The fox reads at night.", "A librarian indexes sparse vectors.", "Owls forget the lazy dog."]
RECIPE = """\
model: {folder}/backbone
data:
  examples: [{folder}/pairs.jsonl]
training:
  steps: 2
  batch_size: 4
  losses: [{{name: info_nce}}]
"""
COLOURS = ("#4c78a8", "#4f8a3d", "#a8700a", "#c44e52", "#75609c", "#21867a", "#8c6d5a", "#b83c72", "#5b6270")
ROW, STEP, WIDTH, CHARACTER = 26, 24, 1240, 7.3  # pixels: of a row, a depth, the drawing, and a character


class Call(NamedTuple):
    """The first call of a function: how deep it lies among the others, its name, and what it does."""

    depth: int
    name: str
    does: str


def search_drawing() -> str:
    """Return the drawing of a search with all kinds, of an index in a folder."""
    import vocable as vo

    with tempfile.TemporaryDirectory() as folder:
        index = vo.index("vocable-mini", SENTENCES, Path(folder, "index"))
        return drawing(calls(SEARCH, lambda: vo.search(index, ["a fox at night"], 2)[0]))


def train_drawing() -> str:
    """Return the drawing of a training of a toy."""
    sys.path.insert(0, str(ROOT))  # the studies are not installed
    import vocable as vo
    from studies.toy_models import make_backbone, make_tokenizer

    texts = [f"{sentence} {number}" for number in range(12) for sentence in SENTENCES]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_backbone("bert", make_tokenizer("wordpiece", texts), texts, folder / "backbone")
        pairs = ({"query": f"who or what: {text}", "positive": text} for text in texts)
        (folder / "pairs.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
        (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder))
        return drawing(calls(TRAIN, lambda: vo.train(folder / "recipe.yaml", folder / "model")))


def calls(names: str, way: Callable[[], object]) -> list[Call]:
    """Carry out a way, and return the first call of each named function, in order."""
    names_of: dict[types.CodeType, str] = {}
    does: dict[str, str] = {}
    for name in names.split():
        function = named(name)
        names_of[function.__code__] = name
        does[name] = first_sentence(function)
    active, found = list[types.FrameType](), dict[str, Call]()

    def record(frame: types.FrameType, event: str, _: object) -> None:
        name = names_of.get(frame.f_code)
        if name is not None and event == "call":
            found.setdefault(name, Call(len(active), name, does[name]))
            active.append(frame)
        elif name is not None and event == "return" and frame in active:
            active.remove(frame)

    sys.setprofile(record)
    try:
        way()
    finally:
        sys.setprofile(None)
    if missing := does.keys() - found.keys():
        raise SystemExit(f"not called: {', '.join(sorted(missing))}")
    return list(found.values())


def named(name: str) -> Any:
    """Return the function `room.file:Class.function` of vocable, without its wrappers."""
    module, _, path = name.partition(":")
    function: Any = reduce(getattr, path.split("."), importlib.import_module(f"vocable.{module}"))
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def first_sentence(function: Any) -> str:
    """Return the first sentence of a docstring, up to a semicolon, without the papers that it names."""
    first = re.sub(r" \([^()]*\d{4}[^()]*\)", "", " ".join(function.__doc__.split("\n\n")[0].split()))  # no papers
    return re.split(r"[.;:] |[.:]$", first)[0].replace("`", "")


def drawing(rows: list[Call]) -> str:
    """Return an SVG with a line for each call, moved to the right by its depth, in the colour of its room."""
    rooms = list(dict.fromkeys(call.name.partition(".")[0] for call in rows))
    does_at = max(call.depth * STEP + CHARACTER * len(label(call)) for call in rows) + 32
    lines, above = [], dict[int, int]()
    for number, call in enumerate(rows):
        x, y = call.depth * STEP + 8, number * ROW + 8
        above[call.depth] = y
        if call.depth:  # an arm from the caller
            arm = f"M{x - STEP + 8} {above[call.depth - 1] + 20}V{y + 10}H{x}"
            lines.append(f'<path d="{arm}" fill="none" stroke="#9aa0a6"/>')
        colour, width = COLOURS[rooms.index(call.name.partition(".")[0])], CHARACTER * len(label(call)) + 12
        lines.append(f'<rect x="{x}" y="{y}" width="{width:.0f}" height="20" rx="4" fill="{colour}"/>')
        lines.append(f'<text x="{x + 6}" y="{y + 14}" fill="#fff">{escape(label(call))}</text>')
        lines.append(f'<text x="{does_at:.0f}" y="{y + 14}" class="does">{escape(call.does)}</text>')
    height = len(rows) * ROW + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="12">\n'
        "<style>text{font-family:monospace}.does{font-family:sans-serif;fill:#3c4043}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n' + "\n".join(lines) + "\n</svg>\n"
    )


def label(call: Call) -> str:
    """Return the file and the function of a call."""
    module, _, function = call.name.partition(":")
    return f"{module.replace('.', '/')}.py  {function}"


if __name__ == "__main__":
    for part in ("search", "train"):
        (ROOT / "docs" / f"design-{part}.svg").write_text(globals()[f"{part}_drawing"]())
