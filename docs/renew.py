"""Renew what the pages show: run their marked blocks and write the output into them.

    python docs/renew.py                         every page, slow blocks left as they are
    python docs/renew.py docs/guides/*.md --check        print what differs, change nothing, exit with 1
    python docs/renew.py --slow                  slow blocks, too
    python docs/renew.py --link pydocs-index     what a slow block would make is there already: link it

The files of `FILES` are renewed, too. A mark stands on the line before a fenced block:

    <!-- run -->            a `console` block: each line that begins with "$ " is run, what follows it is its output;
                            a `python` block: it is run, its output is the `text` block that follows, if there is one
    <!-- run: slow -->      left alone without --slow
    <!-- file: NAME -->     the block is what the file holds: one of the repository, or else it is written for the page
    <!-- setup: COMMAND -->      run, and shown nowhere
    <!-- generated: NAME -->     up to <!-- end -->: what the function NAME of this file returns

Pages are carried out in the order of `PAGES`, in one temporary folder: what a page makes, later pages may use. Python
blocks of a page share their names. In place of speeds and times, which are of the machine and the moment, stands a …
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import types
import typing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "docs/guides/search-my-documents.md",
    "docs/guides/other-languages.md",
    "docs/guides/train-a-retriever.md",
    "docs/guides/ask-why-it-works.md",
    "README.md",
    "docs/serve.md",
    "docs/train.md",
    "docs/recipe-keys.md",
    "docs/versions.md",
    "docs/adapt.md",
    "docs/analyze.md",
    "docs/experiments/tuning.md",
)
FILES = {"src/vocable/recipes/recipe.schema.json": "recipe_schema"}  # what a function of this file returns
BLOCK = re.compile(
    r"^<!-- run(?P<slow>: slow)? -->\n```(?P<kind>console|python)\n(?P<body>.*?)^```\n"
    r"(?:\n```text\n(?P<output>.*?)^```\n)?"
    r"|^<!-- setup: (?P<setup>[^\n]*) -->\n"
    r"|^<!-- file: (?P<file>[^\n]*) -->\n```\w*\n(?P<content>.*?)^```\n"
    r"|^<!-- generated: (?P<name>\w+) -->\n(?P<made>.*?)^<!-- end -->\n",
    re.MULTILINE | re.DOTALL,
)
NOT_IN_SCHEMA = {  # keys whose name says nearly all, and what the schema leaves to its checks
    "about": "what it is, in words",
    "activation_rate": "share of the vocabulary to be active, between 0 and 1; this or `shift`",
    "base": "a recipe in the same folder, on which this one stands",
    "batch_size": "windows of a batch",
    "datasets": "sources with documents, queries and judgments; `dataset: SOURCE` will do for one",
    "document_length": "most tokens of a document; the rest is cut",
    "dropout": "of the encoder",
    "factor": "a number above 0, or `auto`",
    "gradient_accumulation": "batches of a step",
    "guard": "what happens when a run collapses",
    "learning_rate": "the highest rate",
    "log_every": "steps",
    "masking": "which tokens are guessed",
    "measures": "names of measures",
    "pooling": "how the tokens of a text become one vector",
    "query_length": "most tokens of a query; the rest is cut",
    "ramp": "how the weight rises",
    "regularizers.document": "a weight alone, or its keys; 3e-5 by default",
    "regularizers.joint": "a weight alone, or its keys: joint FLOPS",
    "regularizers.overlap": "the same keys: a query and its positive share few terms",
    "regularizers.query": "a weight alone, or the same keys; 5e-5 by default",
    "save_every": "steps between checkpoints",
    "saved.dtype": "of the weights on disk",
    "schedule": "how the rate falls",
    "seed": "decides order, masks and dropout",
    "shift": "what is taken from the output bias, in logits",
    "steps": "optimizer steps",
    "warmup_share": "share of the steps in which the rate rises",
    "weight": "what it is multiplied by",
    "weight_decay": "of AdamW",
}


def main() -> int:
    arguments = argparse.ArgumentParser(description="Renew the outputs that the pages show.")
    arguments.add_argument("pages", nargs="*", default=PAGES)
    arguments.add_argument("--check", action="store_true", help="print what differs and change nothing")
    arguments.add_argument("--slow", action="store_true", help="run slow blocks, too")
    arguments.add_argument("--link", nargs="+", default=[], metavar="PATH", help="outputs that are there already")
    given = arguments.parse_args()
    os.environ.update(COLUMNS="80", NO_COLOR="1")
    links = [Path(one).resolve() for one in given.link]
    pages = [Path(one).resolve() if Path(one).exists() else ROOT / one for one in given.pages]
    stale = 0
    for name, function in FILES.items():
        made = globals()[function]()
        if made != (ROOT / name).read_text():
            stale += 1
            print(f"{name} differs")
            if not given.check:
                (ROOT / name).write_text(made)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for one in links:
            Path(one.name).symlink_to(one)
        for page in pages:
            print(page, file=sys.stderr, flush=True)
            old = page.read_text()
            new = renewed(old, slow=given.slow)
            if new != old:
                stale += 1
                names = (str(page), f"{page} (renewed)")
                print(*difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm=""), sep="\n")
                if not given.check:
                    page.write_text(new)
    return int(given.check and stale > 0)


def renewed(text: str, *, slow: bool) -> str:
    """Return the page `text` with the outputs of its blocks as they are now."""
    names: dict[str, Any] = {"__name__": "__docs__"}

    def renew(match: re.Match[str]) -> str:
        block, parts = match[0], match.groupdict()
        if parts["setup"]:
            run(parts["setup"])
        elif parts["file"] and (ROOT / parts["file"]).is_file():
            head = block[: len(block) - len(parts["content"]) - 4]
            return f"{head}{(ROOT / parts['file']).read_text()}```\n"
        elif parts["file"]:
            Path(parts["file"]).write_text(parts["content"])
        elif parts["name"]:
            return f"<!-- generated: {parts['name']} -->\n{globals()[parts['name']]()}\n<!-- end -->\n"
        elif slow or not parts["slow"]:
            made = console(parts["body"]) if parts["kind"] == "console" else python(parts["body"], names)
            if parts["kind"] == "console":
                return block.replace(parts["body"], made)
            if parts["output"] is not None:
                return block[: block.rindex("```text\n") + 8] + made + "```\n"
        return block

    return BLOCK.sub(renew, text)


def console(body: str) -> str:
    """Return the block with the output of each of its commands after it."""
    commands = re.findall(r"^\$ (.*(?:\\\n.*)*)$", body, re.MULTILINE)
    return "".join(f"$ {command}\n{run(command)}" for command in commands)


def run(command: str) -> str:
    """Run a line of shell; vocable itself in this process, which has loaded its libraries already."""
    words = shlex.split(command)
    if words[0] != "vocable" or set(words) & {"|", ">", "<"}:
        python = shlex.quote(sys.executable)
        script = f'vocable() {{ {python} -m vocable "$@"; }}\n{command}'
        return tidy(subprocess.run(["bash", "-ec", script], check=True, capture_output=True, text=True).stdout)
    from vocable.cli import main as vocable

    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = vocable(words[1:])
    if status != 0:
        raise SystemExit(f"{command}: status {status}")
    return tidy(output.getvalue())


def python(body: str, names: dict[str, Any]) -> str:
    """Return what a block of Python prints."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(body, "<docs>", "exec"), names)
    return tidy(output.getvalue())


def tidy(output: str) -> str:
    """Return the output without speeds and times, blanks at the ends of lines and empty lines at its own."""
    lines, timed = [], False
    for line in output.strip("\n").splitlines():
        kept = re.sub(r"[\d,]+ texts/s", "… texts/s", line.rstrip())
        timed = kept.endswith(" ms") or (timed and kept != "")  # a table whose last columns are docs/s, p50 and p95
        if timed:
            times = re.compile(r"[\d.]+ +[\d.]+ +[\d.]+$")
            kept = times.sub(lambda three: re.sub(r"[\d.]+", lambda one: f"{'…':>{len(one[0])}}", three[0]), kept)
        lines.append(f"{kept}\n")
    return "".join(lines)


def recipe_schema() -> str:
    """Return the JSON Schema of recipes for editors.

    No key is required, since a recipe may leave it to its base.
    """
    from vocable.training.recipe import Recipe

    schema = Recipe.model_json_schema()
    schema["properties"] |= {"base": {"type": "string", "description": NOT_IN_SCHEMA["base"]}}
    evaluation = schema["$defs"]["EvaluationSettings"]["properties"]
    evaluation["dataset"] = evaluation["datasets"]
    for section in [schema, *schema["$defs"].values()]:
        section.pop("required", None)
        for name, key in section["properties"].items():
            key.pop("title", None)
            if name in NOT_IN_SCHEMA:
                key.setdefault("description", NOT_IN_SCHEMA[name])
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=1) + "\n"


def recipe_keys() -> str:
    """Return the tables of all keys of a recipe, out of its schema."""
    from vocable.training.recipe import Recipe

    tables: list[str] = []
    seen: set[type] = set()
    shown_in: dict[str, str] = {}
    queue: list[tuple[str, type]] = [("", Recipe)]
    while queue:
        path, model = queue.pop(0)
        if model in seen:
            continue
        seen.add(model)
        rows, below, sections = ["| key | default | meaning |", "|:--|:--|:--|"], [], []
        for name, field in model.model_fields.items():  # type: ignore[attr-defined]
            if name == "name" and typing.get_origin(field.annotation) is typing.Literal:
                continue  # which of several it is, the table's title says
            models = parts_of(field.annotation)
            below += [(f"{path}.{name}".lstrip("."), one) for one in models]
            default = "" if field.is_required() or field.default_factory else shown(field.default)
            choices = "; ".join(f"`{one}`" for one in choices_of(field.annotation))
            within = f"{path.rpartition('.')[2]}.{name}"
            meaning = field.description or NOT_IN_SCHEMA.get(within) or NOT_IN_SCHEMA.get(name, "")
            if models and not meaning and not default:
                sections.append(f"`{name}`")
                continue
            if models and not meaning:
                meaning = f"see `{below[-1][0]}` below"
            meaning += f" ({choices})" if ";" in choices else ""
            rows.append(f"| `{name}` | {default} | {meaning.replace('|', chr(92) + '|')} |")
        queue += below
        title = f"`{path}`" if path else "The recipe"
        kind = model.model_fields.get("name")  # type: ignore[attr-defined]
        if kind is not None and typing.get_origin(kind.annotation) is typing.Literal:
            title += f", name {' or '.join(f'`{one}`' for one in typing.get_args(kind.annotation))}"
        listed = f"Sections, below: {', '.join(sections)}.\n\n" if sections else ""
        tables.append(f"## {title}\n\n{listed}" + without_repeated(rows, title, shown_in))
    return "\n\n".join(tables) + "\n"


def without_repeated(rows: list[str], title: str, shown_in: dict[str, str]) -> str:
    """Return a table of keys; rows that an earlier table has become one line, which names that table."""
    repeated: dict[str, list[str]] = {}
    new = rows[:2]
    for row in rows[2:]:
        earlier = shown_in.setdefault(row, title)
        if earlier == title:
            new.append(row)
        else:
            repeated.setdefault(earlier, []).append(row.split()[1])
    lines = [f"As for {earlier}: {', '.join(names)}." for earlier, names in repeated.items()]
    return "\n\n".join([*lines, *(["\n".join(new)] if len(new) > 2 else [])]) or "No keys of its own."


def formats() -> str:
    """Return the table of the formats on disk and their numbers."""
    from vocable.encoding.vectors import FORMAT
    from vocable.engines.base import STORE_FORMAT
    from vocable.engines.folder import COMMIT_FORMAT
    from vocable.publishing.manifest import SITE_FORMAT

    rows = [
        ("an index in a folder", COMMIT_FORMAT, "vocable index"),
        ("an index on a server", STORE_FORMAT, "vocable index --replace"),
        ("stored vectors", FORMAT, "vocable encode"),
        ("a published site", SITE_FORMAT, "vocable publish"),
    ]
    lines = (f"| {name} | {number} | `{verb}` |" for name, number, verb in rows)
    return "\n".join(["| format | number | made again by |", "|:--|--:|:--|", *lines])


def rules() -> str:
    """Return the table of what `inspect` finds, out of the rules that it goes by."""
    from vocable.adapt.statistics import RULES

    rows = ["| finding | threshold | where it comes from | repair |", "|:--|--:|:--|:--|"]
    for name, rule in RULES.items():
        if rule.message:
            repair = f"`{rule.repair}`" if rule.repair else "none: a caution"
            rows.append(f"| {name.replace('_', ' ')} | {rule.threshold:g} | {rule.source} | {repair} |")
    return "\n".join(rows)


def tuning_study() -> str:
    """Return the published table of the study of tunings."""
    [table] = _study().published().table()
    return str(table.markdown())


def _study() -> types.ModuleType:
    if str(ROOT) not in sys.path:  # the studies are not installed
        sys.path.append(str(ROOT))
    return importlib.import_module("studies.tuning.results")


def parts_of(annotation: Any) -> list[type]:
    """Return the models within an annotation, in order."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for one in typing.get_args(annotation) for model in parts_of(one)]


def choices_of(annotation: Any) -> list[str]:
    """Return the values that an annotation names."""
    if typing.get_origin(annotation) is typing.Literal:
        return [str(one) for one in typing.get_args(annotation)]
    if typing.get_origin(annotation) in (list, dict):
        return []
    return [choice for one in typing.get_args(annotation) for choice in choices_of(one)]


def shown(value: Any) -> str:
    """Return a default as a table has it."""
    from pydantic import BaseModel

    if value is None or value == [] or value == {}:
        return ""
    if isinstance(value, float):
        return "1/3" if value == 1 / 3 else f"{value:g}"
    if isinstance(value, BaseModel):
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(getattr(one, "name", str(one)) for one in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    sys.exit(main())
