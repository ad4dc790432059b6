"""The encoder of queries in Chromium: scores, the box that loads it, errors, offline; with ONNX Runtime Web, weights.

The tests of the runtime itself need the npm package onnxruntime-web, a folder or a .tgz that the environment variable
ONNXRUNTIME_WEB names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.publishing.conftest import Fake, Handler, serving
from tests.publishing.reader import PublishedSite
from tests.slow.conftest import Open, violations
from vocable.encoding.load import load_encoder
from vocable.encoding.text_encoder import TextEncoder
from vocable.publishing.publication import publish

sync_api = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright, which is not here")

QUERIES = ["the old fox", "Every compiler rewrites posting lists", "", "owl in Ålesund, giraffe 3", "fox engine " * 100]
QUERY = QUERIES[1]
SEARCHES = """async ([queries, hybrid]) => {
  const { Collection } = await import(new URL("collection.js", location.href).href);
  const collection = await Collection.open(new URL("./", location.href)), found = [], shares = [];
  await collection.loadEncoder({ told: (share) => shares.push(share) });
  for (const query of queries) {
    found.push((await collection.search(query, { k: 20, hybrid })).map(({ id, score }) => [id, score]));
  }
  return [found, shares];
}"""
WEIGHTS = """async (queries) => {
  const { Collection } = await import(new URL("collection.js", location.href).href);
  const { Encoder } = await import(new URL("encoder/encoder.js", location.href).href);
  const base = new URL("./", location.href), collection = await Collection.open(base);
  const settings = collection.encoder, encoder = await Encoder.load(base, settings, {});
  return Promise.all(queries.map(async (one) => encoder.weights(await collection.tokens(one, null, settings))));
}"""
TOLERANCE = 0.1  # of a weight up to 3: 8-bit inputs that are rounded to the next level


@pytest.fixture(scope="module")
def served(encoding_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    shutil.copytree(encoding_site, root / "any" / "where" / "site")
    return root


@pytest.fixture(scope="module")
def address(served: Path) -> Iterator[str]:
    """The address of the site."""
    with serving(served) as address:
        yield f"{address}/any"


def vectors_of(queries: list[str]) -> csr_array:
    """The vectors that the stand-in gives to queries."""
    tokenization = load_encoder("vocable-mini", runtime="onnx").encoder("query").tokenization
    found = [Fake.weights(ids) for ids in tokenization.truncated(queries, 128, "right")]  # type: ignore[union-attr]
    rows = np.repeat(np.arange(len(found)), [len(one) for one in found])
    columns, weights = ([one for some in kind for one in some] for kind in (found, [one.values() for one in found]))
    return csr_array((np.array(weights, dtype=np.float32), (rows, columns)), shape=(len(found), 30522))


@cache
def titles(site: Path, query: str, encoded: bool) -> list[str]:
    """The titles of the hits, or ids of those without one."""
    published = PublishedSite(site)
    shown = {one.id: one.title or one.id for one in published.documents}
    found = published.search([query], 10, vectors=vectors_of([query]) if encoded else None)
    return [shown[name] for name, _ in found.hits(0)]


@pytest.mark.parametrize("hybrid", [True, False])
def test_encoded_queries_have_the_hits_and_scores_of_python(
    open_page: Open, encoding_site: Path, toy_texts: list[str], hybrid: bool
) -> None:
    queries = [*QUERIES, *toy_texts[:20]]
    found, shares = open_page().evaluate(SEARCHES, [queries, hybrid])
    ranking = PublishedSite(encoding_site).search(queries, 20, hybrid=hybrid, vectors=vectors_of(queries))
    for row, hits in enumerate(found):
        assert [tuple(hit) for hit in hits] == ranking.hits(row)
    assert sum(map(len, found)) > 60
    assert shares == sorted(shares)
    assert 0.99 < shares[-1] <= 1


def test_the_encoder_is_loaded_when_its_box_is_ticked_and_at_later_visits(open_page: Open, encoding_site: Path) -> None:
    looked_up, encoded = (titles(encoding_site, QUERY, encoded) for encoded in (False, True))
    assert looked_up != encoded
    Handler.asked.clear()
    page = open_page(f"where/site/?q={quote(QUERY)}", bypass_csp=True)  # for axe
    headings, box = page.locator("h2"), page.get_by_label(re.compile(r"Understand the question \(\d+ MB once\)"))
    sync_api.expect(headings).to_have_text(looked_up)
    encoder = PublishedSite(encoding_site).manifest.encoder
    assert encoder is not None
    files = re.compile("|".join([*encoder.files, "/encoder/"]))
    assert not [path for path in Handler.asked if files.search(path)]
    box.check()
    sync_api.expect(headings).to_have_text(encoded)
    sync_api.expect(page.locator("progress")).to_be_hidden()
    assert violations(page) == []
    page.reload()
    sync_api.expect(headings).to_have_text(encoded)
    assert box.is_checked()
    box.uncheck()
    sync_api.expect(headings).to_have_text(looked_up)
    page.reload()
    sync_api.expect(headings).to_have_text(looked_up)
    assert not box.is_checked()


@pytest.mark.parametrize(
    ("pattern", "answer", "reason"),
    [
        ("**/data/GRAPH.bin", {"status": 404}, "missing"),
        ("**/data/GRAPH.bin", {"body": b"another"}, "damaged"),
        ("**/data/TERMS.bin", None, "no network"),
        ("**/encoder/onnxruntime.js", {"status": 404}, "a script is missing"),
        ("**/encoder/encoder.js", {"status": 404}, "encoder.js"),
        ("**/encoder/onnxruntime.js", {"body": Fake.MODULE.replace("GRAPH", "1")}, "no graph"),
    ],
)
def test_an_encoder_that_cannot_be_loaded_leaves_a_line_and_the_search(
    open_page: Open, encoding_site: Path, pattern: str, answer: dict[str, Any] | None, reason: str
) -> None:
    encoder = PublishedSite(encoding_site).manifest.encoder
    assert encoder is not None
    page, (_, graph, terms) = open_page(), encoder.files
    if "body" in (answer or {}) and pattern.endswith(".js"):
        answer = {**(answer or {}), "content_type": "text/javascript"}
    address = pattern.replace("GRAPH", graph).replace("TERMS", terms)
    page.context.route(address, lambda route: route.abort() if answer is None else route.fulfill(**answer))
    page.locator("#query").fill(QUERY)
    page.get_by_label("Understand the question").click()
    line = page.locator(".unread")
    sync_api.expect(line).to_have_text(re.compile(f"looked up: .*{reason}"))
    assert "\n" not in line.inner_text()
    sync_api.expect(page.get_by_label("Understand the question")).not_to_be_checked()
    sync_api.expect(page.locator("progress")).to_be_hidden()
    sync_api.expect(page.locator("h2")).to_have_text(titles(encoding_site, QUERY, False))
    page.context.unroute(address)
    page.get_by_label("Understand the question").check()
    sync_api.expect(page.locator("h2")).to_have_text(titles(encoding_site, QUERY, True))
    sync_api.expect(line).to_be_empty()


def test_a_query_that_cannot_be_encoded_is_looked_up(open_page: Open, encoding_site: Path) -> None:
    page, query = open_page(), f"{QUERY} {Fake.FAILING}"
    page.get_by_label("Understand the question").check()
    page.locator("#query").fill(QUERY)
    sync_api.expect(page.locator("h2")).to_have_text(titles(encoding_site, QUERY, True))
    page.locator("#query").fill(query)
    sync_api.expect(page.locator(".unread")).to_have_text(re.compile("looked up: out of memory"))
    sync_api.expect(page.locator("h2")).to_have_text(titles(encoding_site, query, False))
    assert not page.get_by_label("Understand the question").is_checked()


def test_loading_may_be_stopped(open_page: Open, encoding_site: Path) -> None:
    page, held = open_page(), []
    page.context.route("**/encoder/worker.js", lambda route: held.append(route))
    box = page.get_by_label("Understand the question")
    box.check()
    sync_api.expect(page.locator("progress")).to_be_visible()
    page.locator("#query").fill(QUERY)
    sync_api.expect(page.locator("h2")).to_have_text(titles(encoding_site, QUERY, False))
    box.uncheck()
    sync_api.expect(page.locator("progress")).to_be_hidden()
    page.context.unroute("**/encoder/worker.js")
    box.check()
    sync_api.expect(page.locator("h2")).to_have_text(titles(encoding_site, QUERY, True))
    sync_api.expect(page.locator(".unread")).to_be_empty()


def test_the_encoder_works_offline_after_a_visit(open_page: Open, encoding_site: Path) -> None:
    page = open_page(service_workers="allow")
    sync_api.expect(page.locator("#saved")).to_have_text("Works without a network.")
    page.locator("#query").fill(QUERY)
    page.get_by_label("Understand the question").check()
    encoded = titles(encoding_site, QUERY, True)
    sync_api.expect(page.locator("h2")).to_have_text(encoded)
    page.reload()  # the files of the encoder stay
    sync_api.expect(page.locator("#saved")).to_have_text("Works without a network.")
    page.context.set_offline(True)
    page.reload()
    sync_api.expect(page.locator("h2")).to_have_text(encoded)
    page.context.set_offline(False)


def test_weights_are_those_of_onnx_runtime(browser: Any, encodable: Path, tmp_path: Path) -> None:
    place = os.environ.get("ONNXRUNTIME_WEB")
    if place is None:
        pytest.skip("ONNXRUNTIME_WEB does not name the npm package onnxruntime-web")
    publish(encodable, tmp_path / "site", encoder=place)
    model = load_encoder("vocable-mini", runtime="onnx")
    expected = TextEncoder(model, "query").encode(QUERIES).toarray()
    with serving(tmp_path / "site") as address:
        page = browser.new_page()
        page.goto(address)
        found, columns = page.evaluate(WEIGHTS, QUERIES), {term: i for i, term in enumerate(model.terms)}
        page.close()
    for row, pairs in enumerate(found):
        weights = np.zeros(len(columns))
        weights[[columns[term] for term, _ in pairs]] = [weight for _, weight in pairs]
        both = (weights > 0) & (expected[row] > 0)
        assert both.sum() >= 0.9 * len(pairs)
        np.testing.assert_allclose(weights[both], expected[row][both], atol=TOLERANCE)
    assert json.dumps(found[2]) == "[]"
