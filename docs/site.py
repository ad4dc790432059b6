"""Hooks of mkdocs: pages made of the repository's own files, links that leave docs/, and the API reference.

The reference has a section for each public name of `vocable`, on the page of the package that defines it; its text is
the docstring.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

from mkdocs.structure.files import File, Files
from typing_extensions import Doc, is_typeddict

import vocable
from vocable import options, training_options

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
GROUPS = {
    "search": ("collection", "engines", "explanation", "indexes", "evaluation"),
    "encode": ("encoding", "torch_models", "data"),
    "train": ("training", "objectives"),
    "adapt": ("adapt",),
    "analyze": ("analysis", "wackiness"),
    "serve": ("service", "publishing", "cli"),
}
UNSEARCHED = re.compile(r"benchmarks\.md|experiments/.*")  # pages of results, not of use
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)((?:#[^)\s]*)?)(?=\))")
LINKED = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are no files of docs/."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=_from_root((ROOT / name).read_text(encoding="utf-8"))))
    for group, packages in GROUPS.items():
        files.append(File.generated(config, f"reference/{group}.md", content=reference(group, packages)))
    files.append(File.generated(config, "reference/options.md", content=records()))
    return files


def reference(group: str, packages: tuple[str, ...]) -> str:
    """Return the page of the public names that these packages define."""
    sections = []
    for name in sorted(vocable.__all__, key=str.lower):
        one = getattr(vocable, name)
        if one.__module__.removeprefix("vocable.").split(".")[0] in packages:
            sections.append(f"::: {one.__module__}.{one.__name__}\n")
    return "\n".join([f"# Reference: {group}\n", *sections])


def records() -> str:
    """Return the page of the records of options that several verbs take as keywords."""
    lines = ["# Options\n", "Verbs that take `**options: Unpack[Record]` take the keywords of that record.\n"]
    for name, record in {**vars(options), **vars(training_options)}.items():
        if is_typeddict(record):
            lines += [f"## {name}\n", f"{record.__doc__}\n", "| option | type | |", "|:--|:--|:--|"]
            for field, hint in get_type_hints(record, include_extras=True).items():
                kind, *metadata = get_args(hint)
                about = next((one.documentation for one in metadata if isinstance(one, Doc)), "")
                shown = str(kind).replace("typing.", "").replace("<class '", "").replace("'>", "").replace("|", "\\|")
                lines.append(f"| `{field}` | {shown} | {about} |")
            lines.append("")
    return "\n".join(lines)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make links out of docs/ links to the generated pages, or plain text; leave pages of results out of the search."""
    if UNSEARCHED.fullmatch(page.file.src_uri):
        page.meta["search"] = {"exclude": True}
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def replaced(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if re.match(r"\w+:", target):
            return found[0]
        path = (folder / target).resolve()
        if path.is_relative_to(ROOT / "docs"):
            return found[0]
        known = PAGES.get(path.relative_to(ROOT).as_posix()) if path.is_relative_to(ROOT) else None
        if known is None:
            return text
        return f"[{text}]({'../' * page.file.src_uri.count('/')}{known}{anchor})"

    return LINKED.sub(replaced, markdown)


def _from_root(text: str) -> str:
    """Return a page of the repository's root with links as a page of docs/ has them."""

    def moved(found: re.Match[str]) -> str:
        target = found[1]
        if target in PAGES:
            return PAGES[target] + found[2]
        return (target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}") + found[2]

    return LINK.sub(moved, text)
