"""The published page in Chromium over http.server: scores, typing, filters, keyboard, damage, offline, axe."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.publishing.conftest import HOSTILE, URLS, Handler, lookup_model, serving
from tests.publishing.reader import PublishedSite
from tests.slow.conftest import Open, violations
from tests.toys import write_corpus
from vocable.collection.index import index
from vocable.data import Document, pydocs
from vocable.publishing.publication import publish

sync_api = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright, which is not here")

QUERY = "Every librarian indexes posting lists"
SEARCHES = """async ([queries, k, hybrid, passes]) => {
  const { Collection } = await import(new URL("collection.js", location.href).href);
  const collection = await Collection.open(new URL("./", location.href)), found = [];
  for (const query of queries) {
    found.push((await collection.search(query, { k, hybrid, passes })).map(({ id, score }) => [id, score]));
  }
  return found;
}"""
EMBEDDED = """<!doctype html><html lang="en"><title>Mine</title><p>Mine</p>
<script type="module" src="../where/site/vocable-search.js"></script>
<vocable-search src="../where/site" shortcut></vocable-search>"""


@pytest.fixture(scope="module")
def served(site: Path, big: Path, byte_level_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sites below a path (site, big and bytes of any/where/), and a page that embeds the first."""
    root = tmp_path_factory.mktemp("served")
    for name, folder in (("site", site), ("big", big), ("bytes", byte_level_site)):
        shutil.copytree(folder, root / "any" / "where" / name)
    (root / "any" / "other").mkdir()
    (root / "any" / "other" / "index.html").write_text(EMBEDDED)
    return root


@pytest.fixture(scope="module")
def address(served: Path) -> Iterator[str]:
    """The address of the sites."""
    with serving(served) as address:
        yield f"{address}/any"


@pytest.fixture(scope="module")
def big(backbones: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of the built-in corpus without their first sentences, published."""
    folder = tmp_path_factory.mktemp("big")
    items = pydocs.known_items()[::4][:600]
    corpus = write_corpus([Document(one.id, one.rest) for one in items], folder / "corpus.jsonl")
    model = lookup_model(backbones["bert"], [one.rest for one in items], folder / "model")
    index(model, corpus, folder / "index", dtype="float32", device="cpu").close()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("vocable.publishing.postings.FIRST_BLOCK", 64)  # lists in several blocks
        publish(folder / "index", folder / "site")
    return folder / "site"


def names_of(page: Any) -> list[str]:
    found: list[str] = page.locator("h2").all_inner_texts()
    return found


def expected(site: Path, query: str = QUERY, k: int = 10, **options: Any) -> list[str]:
    """The titles of the hits, or ids of those without one."""
    published = PublishedSite(site)
    shown = {one.id: one.title or one.id for one in published.documents}
    return [shown[name] for name, _ in published.search([query], k, **options).hits(0)]


def wait_for(page: Any, wanted: list[str]) -> None:
    assert wanted
    sync_api.expect(page.locator("h2")).to_have_text(wanted)


@pytest.mark.parametrize("hybrid", [True, False])
def test_hits_and_scores_of_500_queries_are_those_of_python(open_page: Open, big: Path, hybrid: bool) -> None:
    queries = [one.sentence for one in pydocs.known_items()[::4][:500]]
    published = PublishedSite(big)
    assert any(postings.later for postings, _ in published.terms(queries[0]) + published.words(queries[0]))
    ranking = published.search(queries, 20, hybrid=hybrid)
    found = open_page("where/big/").evaluate(SEARCHES, [queries, 20, hybrid, {}])
    for row, hits in enumerate(found):
        assert [tuple(hit) for hit in hits] == ranking.hits(row)
    assert sum(map(len, found)) > 3000


def test_typing_finds_documents_and_shows_why(open_page: Open, site: Path) -> None:
    page = open_page()
    assert page.evaluate("document.querySelector('vocable-search').shadowRoot.activeElement.id") == "query"
    page.locator("#query").press_sequentially(QUERY, delay=20)
    wait_for(page, expected(site))
    assert page.url.endswith(f"?q={QUERY.replace(' ', '+')}")
    assert page.locator("[role=status].unseen").inner_text().startswith("10 documents. The first: ")
    hit = page.locator("article").first
    assert {text.lower() for text in hit.locator("mark").all_inner_texts()} & {
        "librarian",
        "indexes",
        "posting",
        "lists",
    }
    hit.locator("summary").click()
    for group in ("By meaning", "By its words"):
        shares = hit.get_by_label(group, exact=True).locator(".share").all_inner_texts()
        assert sum(int(one.removesuffix("%")) for one in shares) == pytest.approx(100, abs=len(shares))
    page.get_by_role("button", name="More documents").click()
    wait_for(page, expected(site, k=20))
    page.locator("#query").fill("☃☃")
    sync_api.expect(page.locator(".none")).to_have_text("No document.")
    page.locator("#query").fill("")
    sync_api.expect(page.locator(".none")).to_have_text("")


def test_an_answer_that_comes_late_is_thrown_away(open_page: Open, site: Path) -> None:
    page, held = open_page(), []
    page.locator("#query").fill("librarian")
    sync_api.expect(page.locator("h2").first).to_be_visible()
    holding = [True]
    page.route("**/data/*", lambda route: held.append(route) if holding else route.continue_())
    page.locator("#query").fill("neighbour measures")
    page.wait_for_timeout(500)
    assert held
    page.locator("#query").fill(QUERY)
    page.wait_for_timeout(300)
    holding.clear()
    for route in held:
        route.continue_()
    wait_for(page, expected(site))
    page.wait_for_timeout(300)
    assert names_of(page) == expected(site)


def test_filters_limit_hits(open_page: Open, site: Path) -> None:
    page = open_page(f"where/site/?q={quote(QUERY)}", bypass_csp=True)  # for axe
    wait_for(page, expected(site))
    page.locator(".filters summary").click()
    page.get_by_label("de (14)").check()
    wait_for(page, expected(site, filter={"lang": ["de"]}))
    page.get_by_label("fr (13)").check()
    page.get_by_label("a (20)").check()
    wait_for(page, expected(site, filter={"lang": ["de", "fr"], "tags": ["a"]}))
    assert page.locator(".filters summary").inner_text() == "Filter: de, fr, a"
    assert violations(page) == []
    for label in ("de (14)", "fr (13)", "a (20)"):
        page.get_by_label(label).uncheck()
    wait_for(page, expected(site))


def test_unknown_words_are_named_and_values_of_the_best_hits_counted(open_page: Open, site: Path) -> None:
    page = open_page(f"where/site/?q={quote('a librarian xyzzy')}")
    sync_api.expect(page.locator(".note")).to_have_text("No document has the word xyzzy.")
    page.locator(".filters summary").click()
    sync_api.expect(page.locator(".of")).to_have_text(re.compile(r"^Numbers of the best \d+ documents$"))
    published = PublishedSite(site)
    best = {name for name, _ in published.search(["a librarian xyzzy"], 100).hits(0)[:100]}
    expected_counts = []
    for field in published.manifest.fields:
        for value in field.values:
            passing = published.passing({field.name: [value]})
            expected_counts.append(
                sum(one in best for one, passes in zip(published.ids, passing, strict=True) if passes)
            )
    assert page.locator(".count").all_inner_texts() == [str(one) for one in expected_counts]


def test_the_published_page_works_by_keyboard(open_page: Open, site: Path) -> None:
    page = open_page()
    focused = (
        "(() => { let a = document.activeElement; while (a.shadowRoot) a = a.shadowRoot.activeElement; return a; })()"
    )
    page.evaluate(f"{focused}.blur()")
    page.keyboard.press("/")
    page.keyboard.type(f"{QUERY}/")
    assert page.locator("#query").input_value() == f"{QUERY}/"
    page.keyboard.press("Backspace")
    sync_api.expect(page).to_have_url(re.compile(r"lists$"))  # asked without the slash, and then answered
    sync_api.expect(page.locator("vocable-search")).not_to_have_attribute("aria-busy", "true")
    names = names_of(page)
    assert names == expected(site)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(f"{focused}.textContent") == names[1]
    page.evaluate("document.querySelector('vocable-search').ask()")
    assert page.evaluate(f"{focused}.textContent") == names[0]  # focus is not lost when hits are drawn anew
    page.keyboard.press("ArrowDown")
    assert page.evaluate(f"getComputedStyle({focused}).outlineStyle") == "solid"
    page.keyboard.press("Escape")
    assert page.evaluate(f"{focused}.id") == "query"
    page.keyboard.press("Enter")
    assert page.evaluate(f"{focused}.textContent") == names[0]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Control+K")
    page.keyboard.type("giraffe 0")
    names = expected(site, "giraffe 0")
    wait_for(page, names)
    for _ in range(1 + names.index("u0")):
        page.keyboard.press("ArrowDown")
    page.route("https://example.org/**", lambda route: route.fulfill(body="there"))
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url == "https://example.org/a?b=c#d")


def test_tokens_of_byte_level_bpe_are_shown_as_words(open_page: Open, byte_level_site: Path) -> None:
    published = PublishedSite(byte_level_site)
    begin_words = [one[1:] for one in published.tokenizer.get_vocab() if one.startswith("Ġ") and one[1:].isalpha()]
    query = " ".join(["a", *(one for one in sorted(begin_words) if published.terms(f" {one}"))][:20])
    page = open_page(f"where/bytes/?q={quote(query)}")
    wait_for(page, expected(byte_level_site, query))
    terms = page.get_by_label("By meaning", exact=True).locator(".term").all_text_contents()
    assert any(f"Ġ{one}" in published.tokens(query) for one in terms), (query, terms)
    assert all(one in query for one in terms), terms


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1000)])
def test_axe_finds_no_fault_in_the_published_page(open_page: Open, site: Path, scheme: str, width: int) -> None:
    shown = {"color_scheme": scheme, "viewport": {"width": width, "height": 740}}
    page = open_page(f"where/site/?q={quote(QUERY)}", bypass_csp=True, **shown)
    wait_for(page, expected(site))
    page.locator(".filters summary").click()
    page.locator(".why summary").first.click()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 23, 26)"
    assert dark == (scheme == "dark")


def test_texts_are_never_read_as_html(open_page: Open, site: Path) -> None:
    page = open_page(f"where/site/?q={quote(HOSTILE[:100])}")
    hit = page.locator("article", has=page.locator("h2", has_text="<script>")).first
    assert hit.locator("h2").inner_text() == HOSTILE
    page.locator(".filters summary").click()
    hit.locator(".why summary").click()
    assert page.locator("article script, article img, .filters i, .filters script, h1 b").count() == 0
    assert HOSTILE[:30] in hit.locator(".facts").inner_text()
    assert page.title() == "Toys <b>& more</b>"


def test_addresses_of_hits_are_links_of_the_web_or_below_the_site(open_page: Open, site: Path, address: str) -> None:
    page = open_page("where/site/?q=giraffe")
    wait_for(page, expected(site, "giraffe"))
    found = {
        one.inner_text(): one.locator("a").get_attribute("href")
        for one in page.locator("h2").all()
        if one.locator("a").count()
    }
    shown = {f"u{i}": url for i, url in enumerate(URLS.values())}
    for name, url in shown.items():
        assert found.get(name) == (f"{address}/where{url}" if url and url.startswith("/") else url)


def damaging(change: Callable[[bytes], bytes], place: int) -> Callable[[Any], None]:
    """A route that changes the file that is asked for at a place, whenever it is asked for."""
    seen: list[str] = []

    def answer(route: Any) -> None:
        if route.request.url not in seen:
            seen.append(route.request.url)
        response = route.fetch()
        content = response.body()
        route.fulfill(response=response, body=change(content) if seen.index(route.request.url) == place else content)

    return answer


def test_a_damaged_file_is_an_error_and_never_a_hit(open_page: Open, site: Path, address: str) -> None:
    wanted = expected(site)
    others = [path.read_bytes() for path in sorted((site / "data").iterdir())]
    changes: dict[str, Callable[[bytes], bytes]] = {
        "cut": lambda content: content[:-1],
        "flipped": lambda content: bytes([content[0] ^ 4, *content[1:]]),
        "swapped": lambda content: next(other for other in others if other != content),
    }
    page = open_page("where/site/")
    for kind, change in changes.items():
        for which in range(6):
            page.route(re.compile(r"/data/|/manifest\.json"), damaging(change, 2 * which))
            page.goto(f"{address}/where/site/")  # read anew: while there is a route, nothing is cached
            page.locator("#query").fill(QUERY)
            sync_api.expect(page.locator(".error, h2").filter(has_text=re.compile(".")).first).to_be_visible()
            if page.locator(".error").inner_text():
                assert page.locator("h2").count() == 0, kind
                assert re.search("damaged|search", page.locator(".error").inner_text())
            else:
                assert names_of(page) == wanted, kind
            page.unroute_all(behavior="ignoreErrors")  # files that are still on their way


def test_an_open_page_goes_on_with_what_is_published_anew(
    open_page: Open, address: str, served: Path, big: Path, site: Path
) -> None:
    shutil.copytree(big, served / "any" / "where" / "renewed")
    page = open_page("where/renewed/")
    query = "Return a new list of the names"
    page.locator("#query").fill(query)
    wait_for(page, expected(big, query))
    shutil.rmtree(served / "any" / "where" / "renewed")
    shutil.copytree(site, served / "any" / "where" / "renewed", copy_function=shutil.copy)  # of a later time
    page.locator("#query").fill(QUERY)
    wait_for(page, expected(site))
    assert page.locator(".error").inner_text() == ""


@pytest.mark.parametrize(("name", "query"), [("site", QUERY), ("big", "Return a new list of the names")])
def test_the_published_page_works_offline_after_a_visit(
    open_page: Open, site: Path, big: Path, name: str, query: str
) -> None:
    page = open_page(f"where/{name}/", service_workers="allow")
    sync_api.expect(page.locator("#saved")).to_have_text("Works without a network.")
    page.context.set_offline(True)
    page.reload()
    page.locator("#query").fill(query)
    wait_for(page, expected({"site": site, "big": big}[name], query))
    page.context.set_offline(False)


def test_an_element_in_another_page_reads_nothing_before_it_is_used(open_page: Open, site: Path, address: str) -> None:
    page = open_page("other/")
    sync_api.expect(page.locator("#query")).to_be_visible()
    Handler.asked.clear()
    page.wait_for_timeout(200)
    assert not [path for path in Handler.asked if "/data/" in path or "manifest" in path]
    page.keyboard.press("/")
    page.keyboard.type("giraffe")
    wait_for(page, expected(site, "giraffe"))
    assert page.locator("h2 a", has_text="u1").get_attribute("href") == f"{address}/where/guide/owl/#at-night"
    assert page.url == f"{address}/other/"
