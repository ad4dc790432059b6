"""Publish a search into a site of HTML pages, for the plugins of documentation generators."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vocable.collection.collection import Collection, open_index
from vocable.collection.index import index as make_index
from vocable.core.links import refuse_link
from vocable.data import Document
from vocable.data.folder import folder_items, fragment
from vocable.data.kinds import DOCUMENT
from vocable.encoding.hub import BY_LOOKUP
from vocable.encoding.models import model_name
from vocable.errors import DataError, VectorsError
from vocable.publishing.publication import Published, publish

SITE_FOLDER = "vocable"  # folder of the search in the site
IN_PAGES = ("place.js", "place.css")  # files that put the search into the pages


def publish_pages(
    site: Path, pages: Mapping[str, str], cache: Path, *, title: str = "Search", model: str = BY_LOOKUP
) -> Published:
    """Index the sections of a site's pages, and publish their search into the site's folder `vocable`.

    Args:
        site: folder of the built site.
        pages: the searchable pages: their addresses as links from the top of the site by file, such as
            {"on board/index.html": "on%20board/"}.
        cache: folder of the index; it is kept between builds, so that only changed sections are encoded.
        title: heading of the search page.
        model: a model that looks up queries: vocable-mini-doc, or a model from `vocable.make_inference_free`.

    Raises:
        DataError: a page cannot be read, or no page has text.
        InUseError: another build uses the cache.
        ModelError: the model does not exist, or its queries need an encoder.
        VectorsError: a file of the search in the site is a link.
    """
    for name in IN_PAGES:  # check before anything is written
        refuse_link(site / SITE_FOLDER / name)
    with _indexed(list(_documents(site, pages)), cache, model) as index:
        published = publish(index, site / SITE_FOLDER, title=title)
    for name in IN_PAGES:
        shutil.copyfile(Path(__file__).parent / name, site / SITE_FOLDER / name)
    return published


def _documents(site: Path, pages: Mapping[str, str]) -> Iterator[Document]:
    """Yield the sections of pages; their addresses are links from the folder of the search."""
    for item in folder_items(site, sorted(pages)):
        if item.row is None:
            raise DataError(item.fault, source=item.file, line=item.line)
        document = DOCUMENT.record(item.row)
        url = f"../{pages[document.fields['file']]}{fragment(document)}"
        yield document._replace(fields={"path": document.fields["path"], "url": url})


def _indexed(documents: Sequence[Document], cache: Path, model: str) -> Collection:
    """Return the index in the cache with exactly these documents; build it if it is missing or cannot be used."""
    try:
        index = open_index(cache)
        if index.models.name != model_name(model):
            index.close()
            raise VectorsError(f"{cache}: made with {index.models.name}")
        index.models.loaded  # noqa: B018  # raises if the model has changed
    except VectorsError:
        shutil.rmtree(cache, ignore_errors=True)
        cache.parent.mkdir(parents=True, exist_ok=True)
        return make_index(model, documents, cache, no_dense=True)  # a site has no dense vectors
    index.add(documents)
    index.delete(sorted(set(index.store.ids()) - {document.id for document in documents}))
    return index
