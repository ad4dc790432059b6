"""The pages: links lead somewhere, commands, recipes and imports exist, the reference of keys is that of the schema."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

import vocable
from vocable.cli import COMMANDS
from vocable.cli.words import options_of
from vocable.engines.protocols import engines

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
RESEARCH = sorted((ROOT / "research").glob("*.md"))
PAGES += [*sorted((ROOT / "docs").rglob("*.md")), *RESEARCH]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HISTORY = {"CHANGELOG.md"}  # tells of names that are gone
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s#]+)[^)\s]*\)")  # not of an image
README_WORDS, README_LINKS = 700, 3
WORDS = 57_500  # of all pages but the research: a new fact takes the place of an old one

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(text: str) -> list[str]:
    """Return the vocable commands of a page's blocks and of its inline code."""
    joined = re.sub(r" *\\\n *", " ", text)
    blocks = re.findall(r"^(?: {4,}|\$ )(vocable .+)$", joined, re.MULTILINE)
    inline = re.findall(r"`(vocable [a-z][^`]*)`", FENCE.sub("", joined))
    verbs = "|".join(sorted(COMMANDS, key=len, reverse=True))
    return blocks + inline + [f"vocable {one}" for one in re.findall(rf"`((?:{verbs}) [^`]*--[^`]*)`", joined)]


def words_of(line: str) -> list[str]:
    """Return the words of a command, up to a pipe or a comment."""
    return shlex.split(re.split(r" [#|>] ", line)[0])


@each_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


@each_page
def test_every_command_and_option_exists(page: Path) -> None:
    if page.name in HISTORY:
        return
    for line in commands(page.read_text()):
        words = words_of(line)
        if words[1].startswith("-") or words[1].isupper():
            continue
        assert words[1] in COMMANDS, line
        options = {name for one in COMMANDS[words[1]].parameters.values() for name in options_of(one)}
        for word in words[2:]:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in options | {"--help"}, line


@each_page
def test_every_block_of_python_compiles_and_imports_what_there_is(page: Path) -> None:
    for kind, body in FENCE.findall(page.read_text()):
        if kind != "python":
            continue
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vocable"):
                module = importlib.import_module(str(node.module))
                assert [one.name for one in node.names if not hasattr(module, one.name)] == [], node.module
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "vo":
                assert hasattr(vocable, node.attr), node.attr


@each_page
def test_every_name_of_ours_in_the_text_exists(page: Path) -> None:
    if page.name in HISTORY:
        return
    text = FENCE.sub("", page.read_text())
    for name in re.findall(r"`vo\.([a-z]\w+)", text):
        assert hasattr(vocable, name), name
    for dotted in re.findall(r"`(vocable(?:\.\w+)+)", text):
        pkgutil.resolve_name(dotted)
    for file in re.findall(r"`((?:src|benchmarks|docs|research|tests)/[\w/]+\.(?:py|md))", text):
        assert (ROOT / file).exists(), file


@each_page
def test_every_recipe_that_is_named_exists(page: Path) -> None:
    known = {path.stem for path in (ROOT / "src/vocable/recipes").glob("*.yaml")}
    if page.name in HISTORY:
        return
    for line in commands(page.read_text()):
        words = words_of(line)
        if words[1] in ("train", "recipes") and len(words) > 2 and re.fullmatch(r"[a-z][a-z-]*", words[2]):
            assert words[2] in known, line
    for name in re.findall(r"\bstudies/[\w/-]+\.yaml", page.read_text()):
        assert (ROOT / name).exists(), name


def test_all_pages_but_the_research_are_short_enough_to_be_read() -> None:
    assert sum(len(page.read_text().split()) for page in PAGES if page not in RESEARCH) <= WORDS


def test_every_command_is_in_the_table_of_verbs() -> None:
    text = (ROOT / "docs" / "which-verb.md").read_text()
    assert [name for name in COMMANDS if not re.search(f"`(vocable )?{name}[` ]", text)] == []


def test_every_option_of_an_engine_is_explained() -> None:
    text = "".join(
        page.read_text() for page in (ROOT / "docs").rglob("*.md") if "engines" in str(page.relative_to(ROOT))
    )
    for engine in engines().values():
        for record in (engine.about.options, engine.about.search_options):
            assert [option.name for option in fields(record) if f"`{option.name}`" not in text] == []


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    start = ROOT / "README.md"
    assert len(start.read_text().split()) <= README_WORDS
    assert len([target for target in LINK.findall(start.read_text()) if target != "LICENSE"]) <= README_LINKS
    reached, ahead = {start}, [start]
    while ahead:
        page = ahead.pop()
        targets = {(page.parent / target).resolve() for target in LINK.findall(FENCE.sub("", page.read_text()))}
        ahead += (targets - reached) & {*PAGES}
        reached |= targets
    assert [str(page) for page in PAGES if page not in reached] == []


def test_no_paper_is_cited_by_number() -> None:
    for page in PAGES:
        assert not re.search(r"paper 00\d", page.read_text()), page


@each_page
def test_a_file_of_the_repository_is_shown_as_it_is(page: Path) -> None:
    shown = re.findall(r"^<!-- file: (\S+) -->\n```\w*\n(.*?)^```\n", page.read_text(), re.DOTALL | re.MULTILINE)
    for name, content in shown:
        if (ROOT / name).is_file():
            assert content == (ROOT / name).read_text(), "python docs/renew.py"
    assert page.name != "serve.md" or {name for name, _ in shown} == {"deploy/vocable.service", "deploy/Dockerfile"}


def test_tables_that_are_generated_are_as_they_would_be_now() -> None:
    spec = importlib.util.spec_from_file_location("renew", ROOT / "docs" / "renew.py")
    assert spec is not None
    assert spec.loader is not None
    renew = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(renew)
    for name, function in renew.FILES.items():
        assert getattr(renew, function)() == (ROOT / name).read_text(), "python docs/renew.py"
    for page in renew.PAGES:
        for name, table in re.findall(
            r"<!-- generated: (\w+) -->\n(.*?)\n<!-- end -->", (ROOT / page).read_text(), re.DOTALL
        ):
            assert getattr(renew, name)() == table, f"python docs/renew.py {page}"


def test_commands_are_found_where_a_page_has_them() -> None:
    text = "    vocable train a.yaml \\\n        -o out\n\n```console\n$ vocable search i q\n```\n\n`prune --wacky`\n"
    assert commands(text) == ["vocable train a.yaml -o out", "vocable search i q", "vocable prune --wacky"]


def test_the_table_of_changes_names_files_and_bounds() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text.partition("## Changes, and what they touch")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| an? .*\| (\d+) \| (\d+) \|$", table, re.MULTILINE)
    assert rows
    assert all(int(tried) <= int(most) for most, tried in rows)
    files = [name for name in re.findall(r"`([\w/]+\.py)`", table) if "NAME" not in name]
    assert [name for name in files if not (ROOT / "src" / "vocable" / name).is_file()] == []


@pytest.mark.parametrize("way", ["search", "train"])
def test_the_drawings_of_the_design_are_made_from_the_code(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    made = getattr(importlib.import_module("design"), f"{way}_drawing")()
    assert made == (ROOT / "docs" / f"design-{way}.svg").read_text(), "python docs/design.py"
