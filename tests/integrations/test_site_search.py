"""The search of sites that MkDocs and Sphinx have built: its pages, its links, its renewal, and the browser's view."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest

from tests.publishing.reader import PublishedSite
from vocable.errors import DataError, VectorsError
from vocable.integrations.site_search import IN_PAGES, publish_pages

ROOT = Path(__file__).parents[2]
GROUP = "mkdocs.plugins"
MKDOCS = """site_name: Lamps
site_url: https://example.org/lamps/
theme: {theme}
plugins:
  - vocable: {options}
"""
MARKDOWN = {
    "index.md": "# Lamps\n\nAll about lamps, and the light that they give to rooms at night.\n",
    "guide/on board.md": "# Install\n\nTurn the bulb clockwise until it is tight.\n\n"
    + "A bulb needs a socket. " * 30
    + "\n\n## On a boat\n\nOn a ship the voltage is twelve volts; salt water corrodes the contacts.\n",
    "secret.md": "---\nsearch: {exclude: true}\n---\n\n# Secret\n\nNobody finds the hidden treasure chest.\n",
}
REST = {
    "index.rst": "Lamps\n=====\n\nAll about lamps, and the light that they give to rooms at night.\n\n"
    ".. toctree::\n\n   guide/install\n   secret\n",
    "guide/install.rst": "Install\n=======\n\nTurn the bulb clockwise until it is tight.\n\n"
    + "A bulb needs a socket. " * 30
    + "\n\nOn a boat\n---------\n\nOn a ship the voltage is twelve volts; salt water corrodes the contacts.\n",
    "secret.rst": ":nosearch:\n\nSecret\n======\n\nNobody finds the hidden treasure chest.\n",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def best(site: Path, query: str) -> str:
    """The document that a query finds first."""
    return PublishedSite(site / "vocable").search([query], 1).hits(0)[0][0]


def addresses(site: Path) -> dict[str, str]:
    """The address of each document, by its id."""
    return {one.id: one.url for one in PublishedSite(site / "vocable").documents}


def entry() -> EntryPoint:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][GROUP]
    [(name, value)] = declared.items()
    return EntryPoint(name, value, GROUP)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin as MkDocs finds it, also where vocable was installed before it had one."""
    if entry().name not in entry_points(group=GROUP).names:
        about = tmp_path / "path" / "door-0.dist-info"
        write(
            about,
            {
                "METADATA": "Name: door\nVersion: 0\n",
                "entry_points.txt": f"[{GROUP}]\n{entry().name} = {entry().value}\n",
            },
        )
        monkeypatch.syspath_prepend(str(about.parent))


def mkdocs(
    folder: Path,
    files: dict[str, str] = MARKDOWN,
    theme: str = "material",
    options: str = "{}",
    *,
    dirty: bool = False,
    strict: bool = True,
) -> Path:
    """Build a site with MkDocs; warnings are errors if it is `strict`."""
    pytest.importorskip("mkdocs")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    write(folder, {"mkdocs.yml": MKDOCS.format(theme=theme, options=options)})
    write(folder / "docs", files)
    build(load_config(str(folder / "mkdocs.yml"), strict=strict), dirty=dirty)
    return folder / "site"


def sphinx(folder: Path, builder: str = "html") -> Path:
    """Build a site with Sphinx; warnings are errors."""
    pytest.importorskip("sphinx")
    write(folder / "src", {"conf.py": "project = 'Lamps'\nextensions = ['vocable.integrations.sphinx']\n", **REST})
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", builder, str(folder / "src"), str(folder / builder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / builder


def test_the_entry_point_is_the_plugin() -> None:
    pytest.importorskip("mkdocs")
    from vocable.integrations.mkdocs import SearchPlugin

    assert entry().load() is SearchPlugin


@pytest.mark.usefixtures("plugin")
def test_mkdocs_publishes_the_sections_of_its_pages(tmp_path: Path) -> None:
    site = mkdocs(tmp_path)
    assert addresses(site) == {
        "index.html#lamps": "../#lamps",
        "guide/on board/index.html#install": "../guide/on%20board/#install",
        "guide/on board/index.html#on-a-boat": "../guide/on%20board/#on-a-boat",
    }
    assert best(site, "electricity of ships").endswith("#on-a-boat")
    scripts = [f'src="{above}vocable/place.js"' for above in ("", "../../", "/lamps/")]
    pages = [site / "index.html", site / "guide/on board/index.html", site / "404.html"]
    assert all(script in page.read_text(encoding="utf-8") for script, page in zip(scripts, pages, strict=True))


@pytest.mark.slow
@pytest.mark.usefixtures("plugin")
def test_a_later_build_follows_the_pages(tmp_path: Path) -> None:
    mkdocs(tmp_path)
    index = tmp_path / ".cache" / "vocable" / "commit.json"
    before = index.parent.stat().st_ino
    (tmp_path / "docs/guide/on board.md").unlink()
    site = mkdocs(tmp_path, {"index.md": "# Lanterns\n\nThey burn oil.\n", "new.md": "# Candles\n\nWax and a wick.\n"})
    assert addresses(site) == {"index.html#lanterns": "../#lanterns", "new/index.html#candles": "../new/#candles"}
    assert best(site, "wax") == "new/index.html#candles"
    assert index.parent.stat().st_ino == before
    index.write_text("{")
    assert addresses(mkdocs(tmp_path, {})).keys() == addresses(site).keys()


@pytest.mark.usefixtures("plugin")
def test_a_dirty_build_keeps_the_pages_that_it_does_not_render(tmp_path: Path) -> None:
    hidden = "---\nsearch: {exclude: true}\n---\n# Secrets\n\nNobody finds them.\n"
    pages = {"a.md": "# Lamps\n\nThey burn oil.\n", "b.md": "# Candles\n\nWax and a wick.\n", "c.md": hidden}
    site = mkdocs(tmp_path, pages)
    later = time.time() + 10
    (tmp_path / "docs/b.md").write_text("# Torches\n\nPitch and a stick.\n", encoding="utf-8")
    os.utime(tmp_path / "docs/b.md", (later, later))
    for name in ("a", "c"):
        os.utime(site / name / "index.html", (later, later))
    site = mkdocs(tmp_path, {}, dirty=True, strict=False)
    assert {*addresses(site)} == {
        "a/index.html#lamps",
        "b/index.html#torches",
    }


@pytest.mark.usefixtures("plugin")
def test_a_search_field_that_is_no_mapping_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pages = {"a.md": "---\nsearch: exclude\n---\n# Lamps\n\nThey burn oil.\n", "b.md": "# Candles\n\nWax.\n"}
    assert {*addresses(mkdocs(tmp_path, pages, strict=False))} == {"a/index.html#lamps", "b/index.html#candles"}
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "a.md: " in line


@pytest.mark.usefixtures("plugin")
def test_mkdocs_ends_with_a_line_for_a_mistake(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    exceptions = pytest.importorskip("mkdocs.exceptions")
    with pytest.raises(exceptions.Abort):
        mkdocs(tmp_path, MARKDOWN, options="{model: no-such-model}")
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith("vocable: no-such-model: ")
    assert not (tmp_path / "site" / "vocable").exists()


ADDRESSES = {
    "html": {
        "index.html#lamps": "../index.html#lamps",
        "guide/install.html#install": "../guide/install.html#install",
        "guide/install.html#on-a-boat": "../guide/install.html#on-a-boat",
    },
    "dirhtml": {
        "index.html#lamps": "../#lamps",
        "guide/install/index.html#install": "../guide/install/#install",
        "guide/install/index.html#on-a-boat": "../guide/install/#on-a-boat",
    },
}
GENERATED = {"html": ("genindex.html", ""), "dirhtml": ("genindex/index.html", "../")}


@pytest.mark.parametrize("builder", ["html", pytest.param("dirhtml", marks=pytest.mark.slow)])
def test_sphinx_publishes_the_sections_of_its_documents(tmp_path: Path, builder: str) -> None:
    site = sphinx(tmp_path, builder)
    assert addresses(site) == ADDRESSES[builder]
    assert best(site, "electricity of ships").endswith("#on-a-boat")
    page, above = GENERATED[builder]
    assert f'src="{above}vocable/place.js"' in (site / page).read_text(encoding="utf-8")


def test_pages_without_text_are_an_error(tmp_path: Path) -> None:
    write(
        tmp_path, {"site/a.html": "<html><body></body></html>", "site/b.html": "<main><h1>Seen</h1><p>Text</p></main>"}
    )
    with pytest.raises(DataError):
        publish_pages(tmp_path / "site", {"a.html": "a.html"}, tmp_path / "cache")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.html", "b.html", "site"]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of the test's folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def use(browser: Any, address: str, width: int = 1280) -> str:
    """Search from a page with the keyboard alone, and return the address that the first hit leads to."""
    complaints: list[str] = []
    page = browser.new_context(viewport={"width": width, "height": 800}).new_page()
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda error: complaints.append(f"{error.stack}"))
    asked: list[str] = []
    page.goto(address, wait_until="networkidle")
    page.on("request", lambda request: asked.append(request.url))
    button = page.get_by_role("button", name="Search")
    assert button.count() == 1
    assert button.is_visible()
    assert asked == []  # nothing is read before the search is used
    page.keyboard.press("/")
    page.get_by_role("searchbox").wait_for()
    page.keyboard.press("Escape")
    button.click()
    page.keyboard.type("npn electricity of ships")  # some themes turn pages with n and p
    page.locator("vocable-search .target").first.wait_for()
    assert page.url == address
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("address => location.href !== address", arg=address)
    page.wait_for_load_state()
    assert not page.locator("dialog[open]").count()
    ours = ("vocable", "backdrop")  # the latter of MkDocs' own theme, where it misses its search
    assert [one for one in complaints if any(part in one for part in ours)] == []  # themes miss what they cannot load
    found: str = page.url
    page.context.close()
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("theme", ["material", "mkdocs", "readthedocs"])
def test_a_reader_finds_a_section_of_mkdocs(browser: Any, served: str, tmp_path: Path, theme: str) -> None:
    mkdocs(tmp_path, MARKDOWN, theme)
    found = f"{served}/site/guide/on%20board/#on-a-boat"
    assert use(browser, f"{served}/site/guide/on%20board/") == found


@pytest.mark.slow
def test_a_reader_finds_a_section_of_sphinx(browser: Any, served: str, tmp_path: Path) -> None:
    sphinx(tmp_path)
    found = f"{served}/html/guide/install.html#on-a-boat"
    assert use(browser, f"{served}/html/guide/install.html", width=360) == found


@pytest.mark.slow
def test_keys_typed_while_the_search_is_read_are_kept(browser: Any, served: str, tmp_path: Path) -> None:
    sphinx(tmp_path)
    page = browser.new_context().new_page()
    held: list[Any] = []
    page.route("**/vocable-search.js", lambda route: held.append(route))
    page.goto(f"{served}/html/index.html", wait_until="networkidle")
    page.keyboard.press("/")
    page.keyboard.type("electricity of shops")
    for _ in "ops":
        page.keyboard.press("Backspace")
    while not held:
        page.wait_for_timeout(10)
    held.pop().continue_()
    page.locator("vocable-search .target").first.wait_for()
    page.keyboard.type("ips")
    assert page.get_by_role("searchbox").input_value() == "electricity of ships"
    page.context.close()


@pytest.mark.parametrize("name", IN_PAGES)
def test_a_link_under_the_name_of_a_script_in_the_site_is_refused_and_its_target_stays(
    tmp_path: Path, name: str
) -> None:
    site, target = tmp_path / "site", tmp_path / "notes.txt"
    write(site, {"index.html": "<html><body><main><h1>Lamps</h1><p>All about lamps.</p></main></body></html>"})
    publish_pages(site, {"index.html": ""}, tmp_path / "cache")
    target.write_text("precious")
    (site / "vocable" / name).unlink()
    (site / "vocable" / name).symlink_to(target)
    with pytest.raises(VectorsError, match=name):
        publish_pages(site, {"index.html": ""}, tmp_path / "cache")
    assert target.read_text() == "precious"
