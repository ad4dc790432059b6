"""What an agent's tools are worth: calls, bytes and solved tasks of a scripted client that finds, opens and goes on.

    python benchmarks/agent_tasks.py docs/ --source before=../before/src --source today=src --tools search

A process `vocable serve INDEX --mcp` of each source, over an index that the source makes of the folder, answers 30
tasks, whose answers are known by construction. No language model takes part:

    further   the question is a heading and its page's name, the answer a line 1,200 to 6,000 characters below it
    whole     the question is the first heading of a page and its name, the answer each line of prose of the page
    pages     which pages stand below a folder, or have names that begin so

A task is solved when its lines, or names, were in the answers. The client asks for as little as it can with the tools
that the service lists, in at most 20 calls: it reads on from the best hit to at most six sections that follow; then,
and for `whole`, it reads the page whole, or searches it section by section; names are listed, or searched in the
folder. `--tools` limits it once more, in a row of its own. Bytes are those of the texts that the client reads.
`largest` is the largest answer of each tool about documents with 300 fields.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

TASKS, MOST_CALLS, MOST_FOLLOWED, SEED = 10, 20, 6, 1
BELOW = (1_200, 6_000)  # characters between a heading and its answer
PROSE = re.compile(r"[A-Z][A-Za-z0-9 ,.;:()-]{39,}")  # a line without marks, which all readers of pages leave
HEADING = re.compile(r"^#{1,4} +([A-Za-z][\w ,.-]{3,60})$", re.MULTILINE)
FIELDS, FIELD_TEXT = 300, "a value of some length, such as an address or a sentence of a record "


class Task(NamedTuple):
    """A question, and what an answer must show; of pages, the pattern of their names."""

    kind: str
    question: str
    wanted: frozenset[str]


class Asked:
    """A client with some of a service's tools that counts its calls and what it has read."""

    def __init__(self, client: Any, tools: dict[str, str]) -> None:
        self.client, self.tools = client, tools
        self.calls, self.bytes, self.seen = 0, 0, ""

    async def ask(self, tool: str, **arguments: object) -> dict[str, Any]:
        """Return the answer of a tool; nothing after an error, or if too many calls were made."""
        if self.calls == MOST_CALLS:
            return {}
        self.calls += 1
        result = await self.client.call_tool(tool, arguments)
        text = result.content[0].text
        self.bytes += len(text.encode())
        if result.is_error:
            return {}
        value: dict[str, Any] = json.loads(text)
        for one in (value, *value.get("hits", []), *value.get("pages", [])):
            names = "" if value.get("start") else f"\n{one.get('group', '')} {one.get('id', '')}\n"  # else text goes on
            self.seen += names + one.get("text", "")
        return value

    def solved(self, task: Task) -> bool:
        seen = plain(self.seen)
        return all(line in seen for line in task.wanted)


def plain(text: str) -> str:
    """Return a text with single spaces."""
    return " ".join(text.split())


def tasks_of(folder: Path) -> list[Task]:
    """Return the tasks of a folder of Markdown, ten of each kind if it has as many."""
    texts = {path.relative_to(folder).as_posix(): path.read_text(errors="replace") for path in folder.rglob("*.md")}
    lines = defaultdict[str, int](int)
    headings = defaultdict[str, int](int)
    for text in texts.values():
        for line in text.splitlines():
            lines[line] += 1
        for heading in HEADING.findall(text):
            headings[heading] += 1
    further, whole = [], []
    for name, text in sorted(texts.items()):
        stem = Path(name).stem.replace("-", " ")
        prose = [line for line in text.splitlines() if PROSE.fullmatch(line) and lines[line] == 1]
        for match in HEADING.finditer(text):
            after = text[match.end() + BELOW[0] : match.end() + BELOW[1]].splitlines()[1:]
            answer = next((line for line in after if line in prose), None)
            if answer and headings[match[1]] == 1:
                further.append(Task("further", f"{match[1]} {stem}", frozenset({plain(answer)})))
        title = HEADING.search(text)
        if title and headings[title[1]] == 1 and len(prose) >= 5 and len(text) > BELOW[1]:
            whole.append(Task("whole", f"{title[1]} {stem}", frozenset(map(plain, prose))))
    groups = defaultdict[str, set[str]](set)
    for name in texts:
        place = name.rpartition("/")[0]
        for pattern in ("*", f"{place}/*", name[: len(place) + 2] + "*") if place else ():
            groups[pattern].add(name)
    pages = [Task("pages", pattern, frozenset(names)) for pattern, names in sorted(groups.items()) if len(names) > 1]
    kinds = (further, whole, [task for task in pages if all(fnmatch(one, task.question) for one in task.wanted)])
    return [task for kind in kinds for task in random.Random(SEED).sample(kind, min(TASKS, len(kind)))]


async def further(agent: Asked, task: Task) -> None:
    """Search; open the best hit, and what follows it in its page."""
    hits = (await agent.ask("search", query=task.question, k=3)).get("hits", [])
    if not hits:
        return
    following: str | None = hits[0]["id"] if "read" in agent.tools else None
    while following and not agent.solved(task) and agent.calls <= MOST_FOLLOWED:
        following = (await agent.ask("read", id=following)).get("fields", {}).get("next")
    await rest(agent, task, hits[0]["group"])


async def rest(agent: Asked, task: Task, page: str) -> None:
    """Read a page whole, or search in it, until the task is solved."""
    if "page" not in agent.tools.get("read", ""):
        await sections(agent, task, page)
        return
    start: int | None = 0
    while start is not None and not agent.solved(task) and agent.calls < MOST_CALLS:
        start = (await agent.ask("read", id=page, start=start, characters=16_000)).get("next")


async def sections(agent: Asked, task: Task, page: str) -> None:
    """Search in one page until there are no further hits."""
    offset = 0
    while not agent.solved(task) and agent.calls < MOST_CALLS:
        asked = {"query": task.question, "k": 10, "offset": offset, "filter": f'file="{page}"'}
        hits = (await agent.ask("search", **asked)).get("hits", [])
        if not hits:
            return
        offset += len(hits)
        for hit in hits:  # a text that was cut is opened
            if "read" in agent.tools and hit["text"].endswith("…") and not agent.solved(task):
                await agent.ask("read", id=hit["id"])


async def whole(agent: Asked, task: Task) -> None:
    """Search for a page, and read it to its end."""
    hits = (await agent.ask("search", query=task.question, k=3)).get("hits", [])
    if hits:
        await rest(agent, task, hits[0]["group"])


async def pages(agent: Asked, task: Task) -> None:
    """List pages, or search below their folder."""
    offset: int | None = 0
    place = task.question.rpartition("/")[0]
    while offset is not None and not agent.solved(task) and agent.calls < MOST_CALLS:
        if "list" in agent.tools:
            offset = (await agent.ask("list", pattern=task.question, offset=offset)).get("next")
            continue
        asked = {"query": place or "documentation", "k": 20, "offset": offset}
        hits = (await agent.ask("search", **asked, **({"filter": f"file^={place}/"} if place else {}))).get("hits", [])
        offset = offset + len(hits) if hits else None


async def carried_out(command: StdioServerParameters, tasks: list[Task], only: list[str]) -> list[str]:
    """Return the cells of a row: solved tasks, calls and bytes of each kind."""
    cells = []
    async with Client(command) as client:
        tools = {tool.name: tool.description or "" for tool in (await client.list_tools()).tools}
        tools = {name: text for name, text in tools.items() if not only or name in only}
        for kind, policy in (("further", further), ("whole", whole), ("pages", pages)):
            solved, agents = 0, []
            for task in (task for task in tasks if task.kind == kind):
                agent = Asked(client, tools)
                await policy(agent, task)
                solved += agent.solved(task)
                agents.append(agent)
                if not agent.solved(task):
                    print(f"not solved: {task.question}, {agent.calls} calls", file=sys.stderr)
            count = max(1, len(agents))
            calls, size = sum(one.calls for one in agents) / count, sum(one.bytes for one in agents) / count
            cells.append(f"{solved} of {len(agents)} | {calls:.1f} | {size / 1000:.1f}")
    return [", ".join(tools), *cells]


async def largest(command: StdioServerParameters) -> dict[str, tuple[int, bool]]:
    """Return the bytes of the largest answer of each call, and whether it says that fields were left out."""
    sizes = dict[str, tuple[int, bool]]()
    async with Client(command) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        calls: list[tuple[str, dict[str, Any]]] = [
            *(("search", {"query": "record", "k": k}) for k in (1, 5, 20, 50, 100)),
            ("search", {"query": "record", "k": 100, "explain": True}),
            ("read", {"id": "d1"}),
            ("read", {"id": "d1", "characters": 16_000}),
            ("explain", {"query": "record", "id": "d1"}),
            ("list", {"k": 200}),
        ]
        for name, arguments in calls:
            if name in names:
                content: Any = (await client.call_tool(name, arguments)).content[0]
                text = content.text
                sizes[f"{name} {arguments}"] = len(text.encode()), "left_out" in text
    return sizes


def command(source: Path, *words: object) -> StdioServerParameters:
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    return StdioServerParameters(command=sys.executable, args=["-m", "vocable", *map(str, words)], env=environment)


def made(source: Path, model: str, corpus: Path, place: Path) -> Path:
    """Return an index that a source makes, unless it is there."""
    if not place.exists():
        given = command(source, "index", model, corpus, "-o", place)
        subprocess.run([given.command, *given.args], env=given.env, check=True, stdout=subprocess.DEVNULL)
    return place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of Markdown")
    parser.add_argument("--source", action="append", required=True, help="NAME=FOLDER of the code")
    parser.add_argument("--tools", nargs="+", default=[], help="a further row for the last source, with these alone")
    parser.add_argument("--model", default="vocable-mini-doc")
    parser.add_argument("--indexes", type=Path, help="folder for the indexes, to use them again")
    given = parser.parse_args()
    sources = {name: Path(folder).resolve() for name, folder in (one.split("=", 1) for one in given.source)}
    tasks = tasks_of(given.folder)
    with tempfile.TemporaryDirectory() as work:
        kept = given.indexes or Path(work)
        rows = [(name, source, []) for name, source in sources.items()] + [(*list(sources.items())[-1], given.tools)]
        print("| code | tools | further | calls | kB | whole | calls | kB | pages | calls | kB |")
        print("|:--|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
        for name, source, only in rows if given.tools else rows[:-1]:
            place = made(source, given.model, given.folder, kept / name)
            cells = asyncio.run(carried_out(command(source, "serve", place, "--mcp"), tasks, only))
            print(f"| {' | '.join([name, *cells])} |", flush=True)
        records = [
            {"id": f"d{number}", "title": f"Record {number}", "text": "A record of a catalogue. " * 200}
            | {f"field_{one}": FIELD_TEXT * (1 + one % 4) for one in range(FIELDS)}
            for number in range(100)
        ]
        corpus = Path(work, "records.jsonl")
        corpus.write_text("\n".join(map(json.dumps, records)))
        for name, source in sources.items():
            place = made(source, given.model, corpus, Path(work, f"records-{name}"))
            print(f"largest, {name}:", asyncio.run(largest(command(source, "serve", place, "--mcp"))), flush=True)


if __name__ == "__main__":
    main()
