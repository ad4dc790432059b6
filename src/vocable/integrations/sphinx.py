"""A Sphinx extension that replaces the theme's search box: it searches the site by meaning and by words.

extensions = ["vocable.integrations.sphinx"]

After each HTML build, the extension indexes the sections of all documents, and publishes the index into the site's
folder `vocable`. It leaves out a document with the field `:nosearch:` at its top.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any

from vocable.errors import VocableError

BUILDERS = ("html", "dirhtml")


def setup(app: Any) -> dict[str, Any]:
    """Register the extension and its option `vocable_model`."""
    app.add_config_value("vocable_model", "vocable-mini-doc", "html", types=str)
    app.connect("html-page-context", _add_script)
    app.connect("build-finished", _publish)
    return {"version": version("vocable"), "parallel_read_safe": True, "parallel_write_safe": True}


def _add_script(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Add the script of the search to a page."""
    if app.builder.name in BUILDERS:
        address = context["pathto"]("vocable/place.js", 1)
        context["metatags"] = f'{context.get("metatags", "")}\n<script type="module" src="{address}"></script>'


def _publish(app: Any, exception: Exception | None) -> None:
    """Publish the search into the site, unless the build failed."""
    if exception is not None or app.builder.name not in BUILDERS:
        return
    from sphinx.errors import ExtensionError
    from sphinx.util.logging import getLogger

    from vocable.integrations.site_search import publish_pages  # imports the libraries for searching

    site, pages = Path(app.outdir), dict[str, str]()
    for name in app.env.all_docs:
        if "nosearch" not in app.env.metadata[name]:
            file = PurePath(app.builder.get_outfilename(name)).relative_to(site).as_posix()
            pages[file] = app.builder.get_target_uri(name)
    title, cache = app.config.html_title or app.config.project, Path(app.doctreedir) / "vocable"
    try:
        published = publish_pages(site, pages, cache, title=title, model=app.config.vocable_model)
    except VocableError as error:
        raise ExtensionError(f"vocable: {error}") from error
    getLogger(__name__).info("vocable: search: %s", published)
