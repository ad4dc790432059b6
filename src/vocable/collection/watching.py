"""Follow a folder: pages that change are added again, pages that are gone are deleted."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event

from vocable.collection.collection import Collection
from vocable.collection.records import Changed
from vocable.collection.verbs import FolderPart, add, inside_part, part_of
from vocable.core.code_files import code_language
from vocable.core.folders import ENDINGS, files_of
from vocable.errors import ArgumentError, DataError, require_extra

QUIET_MS, STORM_MS = 100, 1_000  # without a further change, before changes are taken together; the most that they wait
MOST_ALONE = 16  # changed files that are read alone; of more, the whole folder is read, in one pass

logger = logging.getLogger(__name__)


def follow(opened: Collection, folder: str, stop: Event | None = None) -> Iterator[Changed]:
    """Bring an index up to date with its folder or a part of it, then with each change until `stop` is set.

    Yields the counts of each change. Changes that come together, as by `git checkout`, are one. A page that cannot be
    read is a warning, and stays as it was.

    Raises:
        ArgumentError: the folder is not the folder of the index, or a part of it.
        DataError: a file cannot be read at the start.
        InUseError: another process keeps on writing to the index.
        MissingExtraError: watchfiles is missing.
    """
    watch = require_extra("watchfiles", "watch").watch
    part = part_of(opened, folder) if Path(folder).is_dir() else None
    if part is None or not part.indexed:
        raise ArgumentError(f"watch: {folder} must be the folder that {opened.place} was made of, or a part of it")
    # The watch begins before the first comparison, so that no change between the two is missed.
    events = watch(
        folder, step=QUIET_MS, debounce=STORM_MS, rust_timeout=QUIET_MS, yield_on_timeout=True, stop_event=stop
    )
    next(events, None)
    links = _links(opened, part)
    yield add(opened, folder, replace=True)
    for changes in events:
        if not changes:
            continue
        # A note that changes is a change of the notes that it leads to.
        earlier, links = links, _links(opened, part) if _may_link(part, links, changes) else links
        linked = {file for file in earlier | links if earlier.get(file) != links.get(file)}
        paths = {Path(path) for _, path in changes} | {Path(part.folder, file).resolve() for file in linked}
        if changed := _update(opened, folder, part, sorted(paths)):
            yield changed


def _may_link(part: FolderPart, links: dict[str, dict[str, object]], changes: set[tuple[int, str]]) -> bool:
    """Return whether links may differ after changes: files come or go, or have or had links."""
    from vocable.data.pages.wiki_links import text_with_links

    top, modified = Path(part.folder).resolve(), require_extra("watchfiles", "watch").Change.modified
    return any(
        change != modified or "links" in links.get(os.path.relpath(path, top), {}) or bool(text_with_links(Path(path)))
        for change, path in changes
    )


def _links(opened: Collection, part: FolderPart) -> dict[str, dict[str, object]]:
    """Return the fields of the notes in the folder of an index that link to each other."""
    from vocable.data.pages.wiki_links import links_between  # a service without a folder to follow needs no pages

    kept, folder = opened.settings, Path(part.folder)
    return links_between(folder, files_of(folder, all_pages=kept.all_pages, code=kept.code).files)


def _update(opened: Collection, folder: str, part: FolderPart, paths: list[Path]) -> Changed | None:
    """Add pages of files and folders that are there, and delete pages of the others; None if no page differs."""
    existing, reads_code = [path for path in paths if path.exists()], opened.settings.code
    files = [path for path in existing if path.is_file() and _is_read(path, reads_code)]
    alone = len(paths) <= MOST_ALONE and not any(path.is_dir() for path in existing)
    counts = Counter[str]()
    # Delete what is gone.
    if len(existing) < len(paths):
        names = [os.path.relpath(path, Path(part.folder).resolve()) for path in paths if path not in existing]
        counts["deleted"] += opened.delete(_sections(opened, names)).deleted
    # Add what is there: many files in one pass, unless one of them cannot be read.
    if alone or not _added(opened, Path(folder), counts):
        for path in files:
            _added(opened, path, counts)
    changed = {name: counts[name] for name in ("added", "replaced", "unchanged", "deleted")}
    differs = changed["added"] or changed["replaced"] or changed["deleted"]
    return Changed(**changed, documents=len(opened)) if differs else None


def _is_read(path: Path, reads_code: bool) -> bool:
    return path.suffix.lower() in ENDINGS or (reads_code and bool(code_language(path.name)))


def _added(opened: Collection, path: Path, counts: Counter[str]) -> bool:
    """Add a file or folder, and its counts; return False, after a warning, if it cannot be read."""
    try:
        counts.update(add(opened, path, replace=True).to_json())
    except (DataError, OSError) as error:
        logger.warning("%s", error)
        return False
    return True


def _sections(opened: Collection, names: Iterable[str]) -> list[str]:
    """Return the ids of the pages of files, or in folders, with these names."""
    parts = [part for name in names for part in (name, f"{name}/")]
    ids = [one for one in opened.store.ids() if any(one.startswith(part) for part in parts)]
    return sorted({one for part in parts for one in inside_part(opened, ids, part)})
