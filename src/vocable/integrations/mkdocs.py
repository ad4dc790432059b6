"""A MkDocs plugin that replaces the plugin `search`: it searches the site by meaning and by words.

plugins:
  - vocable

After each build, the plugin indexes the sections of all pages, and publishes the index into the site's folder
`vocable`. It leaves out a page with `search: {exclude: true}` in its front matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vocable.errors import VocableError, require_extra

require_extra("mkdocs", "docs")

from mkdocs.config import base, config_options  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.plugins import BasePlugin, get_plugin_logger  # noqa: E402
from mkdocs.utils.meta import get_data  # noqa: E402

logger = get_plugin_logger("vocable")

# Without these elements of the usual search, the script of the theme `mkdocs` fails at its first line.
STAND_IN = """<div hidden data-vocable-stand-in><div id="mkdocs_search_modal"></div>
<div id="mkdocs-search-results"></div><input id="mkdocs-search-query">
<span class="search shortcut"><kbd></kbd></span></div>
"""


class PluginConfig(base.Config):
    """The plugin's options: a model whose queries are looked up, and the folder of the index between builds."""

    model = config_options.Type(str, default="vocable-mini-doc")
    cache = config_options.Type(str, default=".cache/vocable")


class SearchPlugin(BasePlugin[PluginConfig]):
    """The plugin `vocable`; `files` has the pages, and `front_matter` the fields of the rendered pages by file."""

    def on_config(self, config: Any) -> None:
        """Add the script of the search to all pages."""
        self.front_matter: dict[str, Mapping[str, Any]] = {}
        script = config_options.ExtraScriptValue("vocable/place.js")
        script.type = "module"
        config.extra_javascript.append(script)

    def on_files(self, files: Any, *, config: Any) -> None:
        """Note the pages; `mkdocs build --dirty` renders only the changed ones."""
        self.files = files.documentation_pages()

    def on_post_page(self, output: str, *, page: Any, config: Any) -> str:
        """Note the fields of a page, and add the elements that the script of its theme needs."""
        self.front_matter[page.file.dest_uri] = page.meta
        return output.replace("</body>", f"{STAND_IN}</body>") if config.theme.name == "mkdocs" else output

    def on_post_build(self, *, config: Any) -> None:
        """Publish the search into the site."""
        from vocable.integrations.site_search import publish_pages  # imports the libraries for searching

        site = Path(config.site_dir)
        cache = Path(config.config_file_path or "mkdocs.yml").parent / self.config.cache
        pages = {file.dest_uri: file.page.url for file in self.files if self._is_searchable(file, site)}
        try:
            published = publish_pages(site, pages, cache, title=config.site_name, model=self.config.model)
        except VocableError as error:
            raise PluginError(f"vocable: {error}") from error
        logger.info("search: %s", published)

    def _is_searchable(self, file: Any, site: Path) -> bool:
        """Return whether a page is in the site, and its front matter does not exclude it."""
        if (fields := self.front_matter.get(file.dest_uri)) is None:
            if not (site / file.dest_uri).is_file():
                return False
            fields = get_data(file.content_string)[1]
        search = fields.get("search") or {}
        if not isinstance(search, Mapping):
            logger.warning("%s: `search` is ignored; to leave out the page: search: {exclude: true}", file.src_uri)
            return True
        return not search.get("exclude")
