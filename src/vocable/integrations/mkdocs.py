"""A MkDocs plugin that replaces the plugin `search`: it searches the site by meaning and by words.

plugins:
  - vocable

After each build, the plugin indexes the sections of all pages, and publishes the index into the site's folder
`vocable`. It leaves out a page with `search: {exclude: true}` in its front matter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vocable.errors import VocableError, require_extra

require_extra("mkdocs", "docs")

from mkdocs.config import base, config_options  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.plugins import BasePlugin, get_plugin_logger  # noqa: E402

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
    """The plugin `vocable`; `pages` has the addresses of the searchable pages by file."""

    def on_config(self, config: Any) -> None:
        """Add the script of the search to all pages."""
        self.pages: dict[str, str] = {}
        script = config_options.ExtraScriptValue("vocable/place.js")
        script.type = "module"
        config.extra_javascript.append(script)

    def on_post_page(self, output: str, *, page: Any, config: Any) -> str:
        """Note a page for the search, and add the elements that the script of its theme needs."""
        if not (page.meta.get("search") or {}).get("exclude"):
            self.pages[page.file.dest_uri] = page.url
        return output.replace("</body>", f"{STAND_IN}</body>") if config.theme.name == "mkdocs" else output

    def on_post_build(self, *, config: Any) -> None:
        """Publish the search into the site."""
        from vocable.integrations.site_search import publish_pages  # imports the libraries for searching

        site, cache = Path(config.site_dir), Path(config.config_file_path or "mkdocs.yml").parent / self.config.cache
        try:
            published = publish_pages(site, self.pages, cache, title=config.site_name, model=self.config.model)
        except VocableError as error:
            raise PluginError(f"vocable: {error}") from error
        logger.info("search: %s", published)
