from __future__ import annotations

from pathlib import Path

import pytest

from vocable.core.code_files import LANGUAGES, code_language
from vocable.core.folders import ENDINGS, files_of


def make(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name, encoding="utf-8")
    return root


def test_an_ending_has_one_language_and_is_no_page() -> None:
    endings = [ending for endings in LANGUAGES.values() for ending in endings.split()]
    assert len(endings) == len({*endings})
    assert not {*endings} & {*ENDINGS}
    assert {code_language(f"a{ending.upper()}") for ending in endings} == LANGUAGES.keys()


@pytest.mark.parametrize(
    ("names", "has_code"),
    [
        (["a.py", "b.md"], True),
        (["a.py", "b.md", "c.md"], False),
        (["a.js", "index.html"], False),  # a site
        (["a.js", "index.html", "package.json"], True),
        (["vendor/a.go", "b.md"], False),  # has no code of its own
        (["docs/index.html", "a.py", "b.py"], True),
    ],
)
def test_code_is_read_where_there_is_as_much_of_it_as_pages(tmp_path: Path, names: list[str], has_code: bool) -> None:
    make(tmp_path, *names)
    assert files_of(tmp_path).has_code == has_code
    every = files_of(tmp_path, code=True)
    assert every.has_code == any(code_language(name) and "vendor" not in name for name in names)
    none = files_of(tmp_path, code=False)
    assert not none.has_code
    assert not any(map(code_language, none.files))


def test_files_of_other_people_are_counted_beside_code(tmp_path: Path) -> None:
    names = ["src/a.py", "vendor/b.go", "x/third_party/README.md", "x/third_party/c.c", "node_modules/d.js", "e.md"]
    found = files_of(make(tmp_path, *names))
    assert found.files == ["e.md", "src/a.py"]
    assert found.vendored == {"vendor/": 1, "third_party/": 2}
    assert found.parts == {"node_modules": 1}
    pages = files_of(tmp_path, code=False)
    assert pages.files == ["e.md", "x/third_party/README.md"]
    assert not pages.vendored


def test_unread_code_is_counted_by_its_endings(tmp_path: Path) -> None:
    found = files_of(make(tmp_path, "a.md", "b.md", "conf.py", "c.png"))
    assert (found.code, found.others) == ({".py": 1}, {".png": 1})
