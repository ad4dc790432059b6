"""The documentation as a site: its search, as it is published, answers the questions of newcomers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.publishing.reader import PublishedSite

ROOT = Path(__file__).parents[2]
QUESTIONS = {
    "how do I install it": "install/",
    "do I need a GPU": "install/",
    "how do I search my own documents": "guides/search-my-documents/",
    "search a folder of Markdown files": "data/#folders-of-pages",
    "what file formats can I index": "data/#formats-of-files",
    "remove documents from the index": "search/#add-delete",
    "delete": "search/#add-delete",
    "can it search German documents": "guides/other-languages/",
    "are long documents truncated": "search/#long-documents",
    "filter results by a field": "search/#filters",
    "sort hits by date": "search/#search",
    "combine keyword and semantic search": "hybrid/",
    "why was this document found": "guides/search-my-documents/#3-search",
    "how good is the search on my queries": "guides/search-my-documents/#8-how-good-is-it",
    "compare two models": "evaluate/#compare",
    "how do I fine-tune the model on my data": "guides/train-a-retriever/",
    "train without labelled data": "guides/tune-on-my-documents/",
    "run it as a web service": "serve/",
    "protect the service with a password": "serve/#security",
    "add a search box to a static website": "publish/",
    "use it from an AI agent with MCP": "serve/#agents",
    "use it with LangChain": "integrations/#langchain",
    "which models from Hugging Face can I use": "models/",
    "run the model without PyTorch": "encode/#runtimes",
    "use Elasticsearch or OpenSearch": "engines/elasticsearch/",
    "how much memory and disk does an index need": "scale/#how-much-time-memory-and-disk",
    "index millions of documents on several machines": "scale/",
    "is it safe against a crash or power failure": "reliability/#guarantees",
    "out of memory": "troubleshooting/#memory",
    "misspelled words": "search/#unknown-and-misspelled-words",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> PublishedSite:
    build = pytest.importorskip("mkdocs.commands.build")
    config = pytest.importorskip("mkdocs.config")
    folder = tmp_path_factory.mktemp("documentation")  # `make docs` has encoded the texts, or this does for it
    loaded = config.load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder / "site"), strict=True)
    build.build(loaded)
    return PublishedSite(folder / "site" / "vocable")


def test_the_site_search_answers_the_questions_of_newcomers(site: PublishedSite) -> None:
    ranking, shown = site.search(list(QUESTIONS), k=10), site.documents
    missed = {}
    for (question, page), rows in zip(QUESTIONS.items(), ranking.rows, strict=True):
        addresses = [*dict.fromkeys(str(shown[row].url).removeprefix("../") for row in rows if row >= 0)][:5]
        if not any(address.startswith(page) for address in addresses):
            missed[question] = addresses
    assert missed == {}


def test_the_site_search_leaves_out_pages_of_results(site: PublishedSite) -> None:
    pages = {str(document.url).removeprefix("../").partition("/")[0] for document in site.documents}
    assert pages & {"log", "benchmarks", "experiments"} == set()
    assert {"search", "evaluate", "guides"} <= pages
