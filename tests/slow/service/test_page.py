"""The page in Chromium: typing, pruning, filters, links, keyboard, small screens, hostile texts, tokens, axe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest

from tests.service.process import serving
from tests.slow.conftest import Open, violations
from vocable.collection.index import index

sync_api = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright, which is not here")

QUERY = "the old fox"
HOSTILE = "fox <script>document.title='run'</script><img src=x onerror=\"document.title='run'\"> night"
MARKDOWN = """# Night watch of the `tall` giraffe

The **tall *giraffe*** sees [the
lazy dog](https://example.org/dog_(animal) "Dogs"), and `reads __init__` in snake_case by 2*3*4. <!-- secret -->

```python
tall = giraffe ** 2  # **kept**
```

| name | what |
|:-----|-----:|
| `giraffe` | ~~small~~ tall |
"""
PLAIN = """Night watch of the tall giraffe

The tall giraffe sees the
lazy dog, and reads __init__ in snake_case by 2*3*4.

tall = giraffe ** 2  # **kept**

name · what

giraffe · small tall"""
URLS = {
    "https://example.org/a?b=c#d": "https://example.org/a?b=c#d",
    "HTTP://Example.org": "http://example.org/",
    "javascript:document.title='run'": None,
    " JavaScript:document.title='run'": None,
    "data:text/html,<script>1</script>": None,
    "//example.org/x": None,
    "vbscript:x": None,
    "ftp://example.org/x": None,
}
TOKEN = {"VOCABLE_TOKEN": "secret"}


@pytest.fixture(scope="module")
def place(backbones: dict[str, Path], documents: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents of the other tests, and one that is not to be trusted."""
    folder = tmp_path_factory.mktemp("page")
    rows = [{"_id": one.id, "title": one.title, "text": one.text, **one.fields} for one in documents]
    rows.append({"_id": "<b>x</b>", "title": HOSTILE, "text": HOSTILE * 20, "lang": '<i>"', "n": 1})
    rows.append({"_id": "markdown", "title": "**Zebra** `crossing`", "text": MARKDOWN, "lang": "md"})
    rows += [{"_id": f"u{i}", "text": f"giraffe {i}", "url": url, "kind": "web"} for i, url in enumerate(URLS)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    index(str(backbones["bert"]), folder / "corpus.jsonl", folder / "index", bm25=True, device="cpu")
    return folder / "index"


@pytest.fixture(scope="module")
def address(place: Path, exact: Path) -> Iterator[str]:
    with serving(place, "--compare-with", exact) as process:
        yield process.url


def view(address: str, **body: Any) -> dict[str, Any]:
    asked = {"query": QUERY, "show": ["hybrid"]} | body
    answer: dict[str, Any] = httpx.post(f"{address}/view", json=asked, timeout=60).json()
    return answer


def ids(page: Any) -> list[str]:
    """The documents of the first column, by the id below their title."""
    found: list[str] = page.locator(".column").first.locator(".hit .id").all_inner_texts()
    return found


def expected(answer: dict[str, Any], by: str = "hybrid") -> list[str]:
    those = [one for one in answer["documents"] if one["ranks"].get(by, 99) <= 10]
    return [one["id"] for one in sorted(those, key=lambda one: one["ranks"][by])]


def wait_for(page: Any, wanted: list[str]) -> None:
    assert wanted
    sync_api.expect(page.locator(".column").first.locator(".hit .id")).to_have_text(wanted)


def test_typing_finds_documents_and_shows_terms(open_page: Open, address: str) -> None:
    page, answer = open_page(), view(address)
    page.locator("#query").press_sequentially(QUERY, delay=20)
    wait_for(page, expected(answer))
    chips = page.locator(".chip")
    assert chips.count() == min(16, answer["active"])
    page.get_by_role("button", name=f"All {answer['active']} terms").click()
    names, numbers = (page.locator(f".chip .{part}").all_text_contents() for part in ("name", "number"))
    shown = dict(zip(names, numbers, strict=True))
    signs = {True: "", False: "+"}
    assert shown == {signs[one["in_text"]] + one["term"]: f"{one['weight']:.2f}" for one in answer["terms"]}
    best = answer["documents"][0]
    hit = page.locator(".hit").first
    shares = [f"{match['share']:.0%}" for match in best["matches"]]
    assert hit.locator(".matches .number").all_text_contents()[: len(shares)] == shares
    marks = [piece["text"] for piece in best["text"] if "term" in piece]
    assert hit.locator(".text mark").all_text_contents() == marks
    assert parse_qs(urlsplit(page.url).query) == {"q": [QUERY]}
    assert page.locator("#status").inner_text().startswith("10 documents. The first: ")


def test_a_hit_leads_to_documents_like_it(open_page: Open, address: str) -> None:
    page, answer = open_page(f"?q={QUERY}"), view(address)
    wait_for(page, expected(answer))
    page.locator(".hit").nth(1).locator(".like").click()
    likened = httpx.post(f"{address}/view", json={"like": expected(answer)[1]}, timeout=60).json()
    wait_for(page, expected(likened, "sparse"))
    assert page.locator("#liked strong").inner_text() == expected(answer)[1]
    assert page.locator("#query").input_value() == ""
    assert violations(page) == []
    page.reload()
    wait_for(page, expected(likened, "sparse"))
    page.locator("#query").press_sequentially(QUERY, delay=20)
    wait_for(page, expected(answer))
    sync_api.expect(page.locator("#liked")).to_be_hidden()
    page.go_back()
    wait_for(page, expected(likened, "sparse"))


def test_a_misspelt_word_gets_a_suggestion(open_page: Open, address: str) -> None:
    page = open_page("?q=the+libarian")
    page.locator("#suggestion button", has_text="the librarian").click()
    wait_for(page, expected(view(address, query="the librarian")))
    assert page.locator("#query").input_value() == "the librarian"
    sync_api.expect(page.locator("#suggestion")).to_be_hidden()


def test_unknown_words_are_named_and_values_of_the_best_hits_are_filters(open_page: Open, address: str) -> None:
    query = "a librarian reads xyzzy"
    page, answer = open_page(f"?q={query}"), view(address, query=query)
    wait_for(page, expected(answer))
    assert page.locator("#note").inner_text() == "No document has the word xyzzy."
    assert page.title() == f"{query} – {page.locator('#title').inner_text()}"
    [facet] = [one for one in answer["facets"] if one["field"] == "lang"]
    buttons = page.get_by_role("group", name="lang of the best").locator("button")
    assert buttons.all_inner_texts() == [f"{one['value']} {one['count']}" for one in facet["counts"][:8]]
    buttons.first.click()
    filter = f"lang={facet['counts'][0]['value']}"
    wait_for(page, expected(view(address, query=query, filter=filter)))
    assert page.locator("#filter").input_value() == filter


def test_hits_of_an_earlier_question_are_dimmed(open_page: Open, address: str) -> None:
    page, held = open_page(f"?q={QUERY}"), []
    wait_for(page, expected(view(address)))
    page.route("**/view", lambda route: held.append(route))
    page.locator("#query").fill("the owl")
    sync_api.expect(page.locator("#view")).to_have_css("opacity", "0.45")
    held[0].continue_()
    wait_for(page, expected(view(address, query="the owl")))
    sync_api.expect(page.locator("#view")).to_have_css("opacity", "1")


def test_an_answer_that_comes_late_is_thrown_away(open_page: Open, address: str) -> None:
    page, held = open_page(), []

    def hold(route: Any) -> None:
        if '"the owl"' in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route("**/view", hold)
    page.locator("#query").fill("the owl")
    page.wait_for_timeout(400)
    page.locator("#query").fill(QUERY)
    wait_for(page, expected(view(address)))
    assert len(held) == 1
    page.wait_for_timeout(200)
    assert ids(page) == expected(view(address))


def test_a_slider_shows_what_pruning_does(open_page: Open, address: str) -> None:
    page, answer = open_page(f"?q={QUERY}&by=sparse"), view(address, max_terms=4, show=["sparse"])
    wait_for(
        page, expected(view(address, show=["sparse"]), "sparse")
    )  # until then it does not know how many terms there are
    page.locator("#top").press("Home")
    for _ in range(3):
        page.locator("#top").press("ArrowRight")
    wait_for(page, expected(answer, "sparse"))
    assert page.locator("#top-value").inner_text() == f"4 of {answer['active']}"
    assert page.locator(".chip[data-kept=true]").count() == 4
    now, before = expected(answer, "sparse"), expected(answer, "unpruned")
    same = sum(one == other for one, other in zip(now, before, strict=True))
    lost = len(set(before) - set(now))
    assert page.locator("#effect").inner_text() == (
        f"Of 10 documents {same} stay where they were, {10 - same - lost} moved, "
        f"{lost} {'is' if lost == 1 else 'are'} lost; {lost} new."
    )
    assert page.locator(".lost li").count() == lost > 0
    costs = answer["costs"]
    assert f"{costs['sparse']['postings']}, was {costs['unpruned']['postings']}" in page.locator("#costs").inner_text()
    page.locator("#least").press("End")
    sync_api.expect(page.locator(".chip[data-kept=true]")).to_have_count(0)
    assert page.locator(".column").first.locator(".none").inner_text() == "No document."


def test_a_filter_limits_and_says_where_it_is_wrong(open_page: Open, address: str) -> None:
    page = open_page(f"?q={QUERY}")
    wait_for(page, expected(view(address)))
    page.locator("#filter").fill("lang=de and n>>3")
    error = page.locator("#filter-error")
    sync_api.expect(error).to_contain_text("Expected a value")
    assert page.locator("#filter").get_attribute("aria-invalid") == "true"
    assert violations(page) == []
    page.locator("#filter").fill("laang='de'")
    sync_api.expect(error).to_have_text(
        "No document has the field 'laang': did you mean lang? The documents are those of before."
    )
    page.locator("#filter").fill("lang=de")
    wait_for(page, expected(view(address, filter="lang=de")))
    assert error.inner_text() == ""
    page.locator("#filter").fill("")
    wait_for(page, expected(view(address)))
    page.locator(".fact", has_text="lang fr").first.click()
    wait_for(page, expected(view(address, filter="lang=fr")))
    assert page.locator("#filter").input_value() == "lang=fr"


def test_a_link_shows_the_same_and_back_goes_back(open_page: Open, address: str) -> None:
    answer = view(address, max_terms=5, filter="n>5")
    there = (httpx.get(f"{address}/postings", params={"term": one["term"]}).json() for one in answer["terms"])
    postings = next(one for one in there if one["documents"])
    page = open_page(f"?q={QUERY}&by=hybrid&beside=bm25&top=5&filter=n>5&term={quote(postings['term'])}")
    wait_for(page, expected(answer, "hybrid"))
    assert page.locator("#by-hybrid").is_checked()
    assert page.locator(".column").count() == 2
    assert page.locator("#top-value").inner_text() == f"5 of {answer['active']}"
    sync_api.expect(page.locator("#term h2")).to_have_text(postings["term"])
    assert page.locator("#term").inner_text().count(f"{postings['documents']} of {postings['of']} documents") == 1
    assert page.locator("#term rect").count() == len(postings["counts"])
    page.get_by_role("button", name="Close").click()
    page.locator("#by label", has_text="sparse").click()
    asked = {"show": ["sparse"], "max_terms": 5, "filter": "n>5"}
    wait_for(page, expected(view(address, **asked), "sparse"))
    page.locator("#query").press("End")
    page.locator("#query").press_sequentially(" owl", delay=20)
    wait_for(page, expected(view(address, query=f"{QUERY} owl", **asked), "sparse"))
    page.go_back()  # all of the typing is one step
    wait_for(page, expected(view(address, **asked), "sparse"))
    assert page.locator("#query").input_value() == QUERY
    page.go_back()
    wait_for(page, expected(answer, "hybrid"))
    page.go_back()
    sync_api.expect(page.locator("#term h2")).to_be_visible()


def test_the_page_works_by_keyboard(open_page: Open, address: str) -> None:
    page = open_page()
    focused = "document.activeElement.id || document.activeElement.className"
    page.locator("#filter").focus()
    page.keyboard.press("Tab")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    page.keyboard.type(f"{QUERY}/")
    assert page.locator("#query").input_value() == f"{QUERY}/"
    page.keyboard.press("Backspace")
    wait_for(page, expected(view(address)))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.ariaLabel").startswith("2: ")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.evaluate(focused) == "query"
    order = []
    for _ in range(3):
        page.keyboard.press("Tab")
        order.append(page.evaluate(focused))
    assert order == ["filter", "chip", "chip"]
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#term")).to_be_visible()
    assert violations(page) == []
    page.keyboard.press("Escape")
    sync_api.expect(page.locator("#term")).not_to_be_visible()
    assert page.evaluate(focused) == "chip"


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_axe_finds_no_fault_in_the_page(open_page: Open, address: str, scheme: str, width: int) -> None:
    page = open_page(f"?q={QUERY}&top=4&beside=second", color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 740})
    wait_for(page, expected(view(address, max_terms=4)))
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 23, 26)"
    assert dark == (scheme == "dark")
    assert page.evaluate("getComputedStyle(document.querySelector('.chip'), '::after').transitionDuration") == "0s"


def test_texts_are_never_read_as_html(open_page: Open, address: str) -> None:
    page = open_page(f"?q={HOSTILE[:200].replace('#', '')}&beside=bm25")
    hit = page.locator(".hit", has=page.locator(".id", has_text="<b>x</b>")).first
    sync_api.expect(hit.locator("h4")).to_have_text(HOSTILE)
    hit.locator(".whole").click()
    assert hit.locator(".text").inner_text().count("<script>") == 20
    assert page.locator("main script, main img, main b:not(.ranks b), main i").count() == 0
    assert page.title() != "run"
    hit.locator(".fact", has_text="lang").click()
    sync_api.expect(page.locator(".column").first.locator(".hit .id")).to_have_text(["<b>x</b>"])


def test_a_second_index_stands_beside_the_first(open_page: Open, address: str) -> None:
    page = open_page(f"?q={QUERY}&beside=second")
    wait_for(page, expected(view(address)))
    second = httpx.post(f"{address}/compare-with/view", json={"query": QUERY}, timeout=60).json()
    sync_api.expect(page.locator(".column").nth(1).locator(".hit .id")).to_have_text(expected(second, "sparse"))


def test_markdown_is_shown_as_text(open_page: Open) -> None:
    page = open_page("?q=tall+giraffe&filter=lang%3Dmd")
    hit = page.locator(".hit")
    sync_api.expect(hit.locator("h4")).to_have_text("Zebra crossing")
    assert hit.get_attribute("aria-label") == "1: Zebra crossing"
    if hit.locator(".whole").count():
        hit.locator(".whole").click()
    lines = [line.strip() for line in hit.locator(".text").text_content().splitlines()]
    assert "\n".join(lines).strip() == PLAIN
    assert hit.locator("mark").count() > 0


def test_a_url_is_a_link_only_if_its_scheme_is_http(open_page: Open) -> None:
    page = open_page("?q=giraffe&filter=kind%3Dweb")
    sync_api.expect(page.locator(".hit")).to_have_count(len(URLS))
    for i, (url, link) in enumerate(URLS.items()):
        hit = page.locator(".hit", has_text=f"giraffe {i}")
        assert [one.get_attribute("href") for one in hit.locator("a").all()] == ([] if link is None else [link])
        facts = hit.locator(".fact").all_text_contents()
        assert [" ".join(one.split()) for one in facts if one.startswith("url")] == (
            [] if link is not None else [f"url {url}".replace("  ", " ")]
        )
    page.locator(".hit", has_text="giraffe 3").locator(".fact", has_text="url").click()
    sync_api.expect(page.locator(".hit")).to_have_count(1)
    assert page.title() != "run"


def test_wrong_parameters_of_a_link_are_ignored(open_page: Open, address: str) -> None:
    page, both = open_page(), expected(view(address))
    for name in ("constructor", "toString", "__proto__", "dense", "nonsense"):
        page.goto(f"{address}/?q={QUERY}&beside={name}")
        wait_for(page, both)
        assert page.locator(".column").count() == 1
        assert page.locator("#by-hybrid").is_checked()
        assert page.locator("#beside").input_value() == ""
        page.goto(f"{address}/?q={QUERY}&by={name}&beside=bm25")
        wait_for(page, both)
        assert page.locator("#error").inner_text() == ""


def test_on_a_small_screen_documents_come_first(open_page: Open, address: str) -> None:
    page = open_page(f"?q={QUERY}")
    wait_for(page, expected(view(address)))
    orders = {1280: ["terms", "documents"], 390: ["documents", "terms"]}
    for width in (1280, 390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        sync_api.expect(page.locator("#view > :first-child")).to_have_attribute("id", orders[width][0])
        assert page.evaluate("[...document.querySelectorAll('#view > section')].map((one) => one.id)") == orders[width]
        tops = [page.locator(f"#{one}").bounding_box() for one in orders[width]]
        place = "x" if width == 1280 else "y"
        assert tops[0][place] < tops[1][place]
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_token_is_asked_for_and_kept_out_of_links(open_page: Open, place: Path) -> None:
    with serving(place, environment=TOKEN) as process:
        page = open_page(f"?q={QUERY}", at=process.url)
        page.locator("#token-value").fill("wrong")
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("#token-error")).to_have_text("The service does not take this token.")
        assert violations(page) == []
        page.locator("#token-value").fill("secret")
        page.keyboard.press("Enter")
        sync_api.expect(page.locator(".hit").first).to_be_visible()
        assert "secret" not in page.url
        page.reload()
        sync_api.expect(page.locator(".hit").first).to_be_visible()
        assert page.evaluate("localStorage.length") == 0
        assert "secret" not in "".join(process.log)


def test_a_reranking_is_a_ranking_to_choose(open_page: Open, place: Path, cross: str) -> None:
    with serving(place, "--rerank", cross, "--rerank-depth", "20", "--device", "cpu") as process:
        page = open_page(f"?q={QUERY}", at=process.url)
        wait_for(page, expected(view(process.url)))
        page.locator("label", has_text="reranked").click()
        again = expected(view(process.url, show=["reranked"]), "reranked")
        wait_for(page, again)
        assert again != expected(view(process.url))


def test_three_parts_stand_beside_their_fusion(open_page: Open, m3: str, corpus: Path, tmp_path: Path) -> None:
    index(m3, corpus, tmp_path / "index", bm25=True, device="cpu")
    with serving(tmp_path / "index") as process:
        page = open_page(f"?q={QUERY}&beside=parts", at=process.url)
        sync_api.expect(page.locator(".column")).to_have_count(4)
        wait_for(page, expected(view(process.url)))
        assert page.locator(".column > h3").all_text_contents() == ["hybrid", "sparse", "BM25", "dense"]
        assert page.locator("#beside").input_value() == "parts"
        page.locator("label[for=by-dense]").click()
        sync_api.expect(page.locator(".column > h3").first).to_have_text("dense")
        assert page.locator(".column").count() == 3
        body = {"like": "d7", "show": ["hybrid"]}
        likened = httpx.post(f"{process.url}/view", json=body, timeout=60).json()
        page = open_page("?like=d7&by=bm25", at=process.url)
        wait_for(page, expected(likened))
        assert page.locator("#by-hybrid").is_checked()
        assert page.locator("#by input:disabled").evaluate_all("all => all.map((one) => one.value)") == ["bm25"]
