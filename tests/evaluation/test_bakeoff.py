"""The verb `bakeoff`: searches of an index, of files and of an HTTP server answer the same queries."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import ir_measures
import pytest
import uvicorn
from scipy.stats import ttest_rel

import vocable as vo
from tests.cli.command_line import done, refused
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.bakeoff_report import BAKEOFF_MEASURES
from vocable.evaluation.dataset import load_dataset
from vocable.options import check
from vocable.service import ServiceOptions
from vocable.service.server import WorkerSettings, application

SITE = "https://example.org"
PARAGRAPHS = {
    "lists": "A list is a sequence of items. It grows at its end, and can be sorted in place.",
    "sets": "A set has no duplicates. It answers quickly whether an item is among its members.",
    "files": "A file is opened by its name, read line by line, and closed when the block ends.",
    "processes": "A process runs another program, and waits until it has ended with a status.",
    "dates": "A date has a year, a month and a day. Two of them have a difference in days.",
}
SEARCHES = {
    "no duplicates": "sets",
    "read line by line": "files",
    "run another program": "processes",
    "sort in place": "lists",
    "difference in days": "dates",
    "membership test": "sets",
}
# Ranked pages of the other search: the first is right, the second, the fourth, none.
THEIRS = {
    "no duplicates": ["/sets/", "/lists/"],
    "read line by line": ["/lists/", "/files.html#lines", "/files/"],
    "run another program": ["/lists/", "/sets/", "/nowhere/", "/processes/index.html"],
    "sort in place": ["/dates/", "/sets/"],
    "difference in days": ["/dates/"],
    "membership test": [],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index of five pages of two sections, and a test set."""
    folder = tmp_path_factory.mktemp("bakeoff")
    (folder / "docs").mkdir()
    for name, text in PARAGRAPHS.items():
        page = f"# About {name}\n\n{f'{text} ' * 20}\n\n## More\n\n{'Nothing else is said here. ' * 60}{name}\n"
        (folder / "docs" / f"{name}.md").write_text(page, encoding="utf-8")
    vo.index("vocable-mini", folder / "docs", folder / "index", base_url=SITE, device="cpu").close()
    rows = "".join(f"{query},{SITE}/{name}/\n" for query, name in SEARCHES.items())
    (folder / "searches.csv").write_text(f"query,page\n{rows}", encoding="utf-8")
    vo.make_testset(str(folder / "searches.csv"), folder / "testset", index=str(folder / "index"))
    (folder / "theirs.json").write_text(json.dumps(THEIRS), encoding="utf-8")
    return folder


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)["q"][0]
        body = json.dumps([{"url": address, "title": "?"} for address in THEIRS[query]]).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/search?q={{query}}"
    server.shutdown()
    server.server_close()


def expected_values(hits: dict[str, list[str]]) -> dict[str, dict[str, float]]:
    """The measures of ranked pages by ir_measures, {measure: {query: value}}."""
    measures = [ir_measures.parse_measure(name) for name in BAKEOFF_MEASURES]
    run = [ir_measures.ScoredDoc(q, name, -rank) for q, names in hits.items() for rank, name in enumerate(names)]
    judged = [ir_measures.Qrel(query, name, 1) for query, name in SEARCHES.items()]
    values: dict[str, dict[str, float]] = {name: {} for name in BAKEOFF_MEASURES}
    for value in ir_measures.iter_calc(measures, judged, run):
        values[str(value.measure)][value.query_id] = value.value
    return values


def test_all_searches_are_measured_by_page_on_the_same_queries(folder: Path, address: str, tmp_path: Path) -> None:
    testset, run = folder / "testset", tmp_path / "run.trec"
    queries = {query.text: query.id for query in load_dataset(f"beir:{testset}", documents=False).queries}
    lines = [f"{queries[q]} Q0 {name} 1 {-rank} t" for q, names in THEIRS.items() for rank, name in enumerate(names)]
    run.write_text("\n".join(lines), encoding="utf-8")
    result = vo.bakeoff(folder / "index", testset, also=[str(folder / "theirs.json"), str(run), address])
    names = [each.name for each in result.answers]
    assert names == ["search", "words (BM25)", "looked up", "theirs", "run", address.split("/")[2]]
    # Their pages, each once, against ir_measures; the test against SciPy.
    pages = {q: list(dict.fromkeys(a.strip("/").split(".")[0].split("/")[0] for a in t)) for q, t in THEIRS.items()}
    values = expected_values(pages)
    first = result.compared[0].per_query
    for number in (3, 4, 5):
        for name in BAKEOFF_MEASURES:
            of_query = {query: result.compared[number].per_query[name][queries[query]] for query in SEARCHES}
            assert of_query == pytest.approx(values[name])
            p = ttest_rel([first[name][queries[q]] for q in SEARCHES], [of_query[q] for q in SEARCHES]).pvalue
            assert result.compared.p_values[number - 1][name] == pytest.approx(p)
        assert result.answers[number].unknown == 1
    # The index's own pages: what a search lists.
    with vo.open_index(folder / "index") as opened:
        for number, weights in enumerate([None, "bm25"]):
            answers = vo.search(opened, list(SEARCHES), 10, plain=True, weights=weights)
            own = {
                q: [hit.document.id.split(".")[0] for hit in a.pages] for q, a in zip(SEARCHES, answers, strict=True)
            }
            assert result.compared[number].values["nDCG@10"] == pytest.approx(
                sum(expected_values(own)["nDCG@10"].values()) / len(SEARCHES)
            )
    sizes = [each.size or (0.0, "") for each in result.answers]
    assert [of for _, of in sizes] == [*["index"] * 3, "file", "file", "answer"]
    assert sizes[3][0] == (folder / "theirs.json").stat().st_size
    assert [each.milliseconds is None for each in result.answers] == [False, False, False, True, True, False]


def test_the_page_shows_the_queries_that_differ_and_marks_expected_pages(
    folder: Path, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "bakeoff.html"
    command = ["bakeoff", folder / "index", "--testset", folder / "testset", "--also", address, "-o", output]
    values = json.loads(done(capsys, *command, "--json"))
    assert values["baseline"] == "search"
    assert [system["p"] is None for system in values["systems"]] == [True, False, False, False]
    assert values["systems"][3]["bytes"]["of"] == "answer"
    assert "sort in place" in [row["query"] for row in values["differing"]]
    [row] = [row for row in values["differing"] if row["query"] == "sort in place"]
    assert row["expected"] == [f"{SITE}/lists/"]
    assert row["hits"][values["systems"][3]["name"]] == [f"{SITE}/dates/", f"{SITE}/sets/"]
    text = output.read_text(encoding="utf-8")
    shown = text.partition(". sort in place</h3>")[2].partition("<h3>")[0]
    assert f'<mark><a href="{SITE}/lists/">About lists</a> ✓</mark>' in shown
    assert f'<li><a href="{SITE}/dates/">About dates</a><small>{SITE}/dates/</small></li>' in shown
    assert "not among 2 hits" in shown
    for part in ("nDCG@10", "paired t-test", "1 hit that", "<caption>"):
        assert part in text
    assert not any(part in text for part in ("<script", "src=", "<link"))
    assert "1 judged query without a hit" in done(capsys, *command[:-2])


def test_a_running_service_is_asked_by_its_address(folder: Path) -> None:
    settings = WorkerSettings(str(folder / "index"), None, "127.0.0.1", None, check(ServiceOptions, {"device": "cpu"}))
    server = uvicorn.Server(uvicorn.Config(application(settings), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while thread.is_alive() and not server.started:
        thread.join(0.05)
    [port] = {socket.getsockname()[1] for of in server.servers for socket in of.sockets}
    result = vo.bakeoff(folder / "index", folder / "testset", also=[f"http://127.0.0.1:{port}"])
    server.should_exit = True
    thread.join()
    assert result.answers[3].name == f"127.0.0.1:{port}"
    assert result.compared[3].per_query == result.compared[0].per_query


@pytest.mark.parametrize(
    ("also", "reason"),
    [
        ("missing.run", "missing.run: no such file"),
        ("ftp://example.org/{query}", "ftp://example.org/"),
        ("elsewhere.json", "elsewhere: no hit is a page"),
        ("http://127.0.0.1:9/{query}", "http://127.0.0.1:9/"),
    ],
)
def test_another_search_that_fails_leaves_no_page(
    also: str, reason: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    results = {query: ["/nowhere/"] for query in SEARCHES}
    Path("elsewhere.json").write_text(json.dumps(results), encoding="utf-8")
    command = ["bakeoff", folder / "index", "--testset", folder / "testset", "--also", also, "-o", "bakeoff.html"]
    assert reason in refused(capsys, *command)
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere.json"]


def test_a_test_set_of_another_index_is_refused(folder: Path, tmp_path: Path) -> None:
    index = vo.index("vocable-mini", ["A fox."], device="cpu")
    with pytest.raises(DataError) as error:
        vo.bakeoff(index, folder / "testset")
    assert "relevant documents" in str(error.value)


def test_other_searches_are_a_list(folder: Path) -> None:
    with pytest.raises(ArgumentError) as error:
        vo.bakeoff(folder / "index", folder / "testset", also="theirs.json")
    assert str(error.value).startswith("also must be")
