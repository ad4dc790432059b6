from __future__ import annotations

import re
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from vocable.data.pages.blocks import Anchors, Block, Page
from vocable.data.pages.sections import FEW_WORDS, MOST_WORDS, Part, count_words, parts
from vocable.encoding.hub import locate

HEADINGS = st.builds(lambda level, text: Block(text, 1, level), st.integers(1, 4), st.sampled_from(["A", "B b", "C?"]))
TEXTS = st.integers(1, 700).map(lambda count: Block(" ".join(f"w{n}" for n in range(count)), 1))
PAGES = st.lists(st.one_of(HEADINGS, TEXTS), max_size=12).map(Page)


def page(*blocks: tuple[int, str]) -> Page:
    return Page([Block(text, number, level) for number, (level, text) in enumerate(blocks, start=1)])


def words(count: int) -> tuple[int, str]:
    return 0, "word " * count


def short(part: Part) -> tuple[str | None, int, str, int]:
    return part.anchor, part.number, part.path, count_words(part.text)


@given(PAGES)
def test_every_word_is_in_one_document(page: Page) -> None:
    found = list(parts(page, "name"))
    texts = [f"{part.title} {part.text}" if part.number == 1 else part.text for part in found]
    if page.blocks and not page.blocks[0].level:
        texts[0] = texts[0].removeprefix("name ")
    words, wanted = " ".join(texts).split(), " ".join(block.text for block in page.blocks).split()
    assert sorted(words) == sorted(wanted)
    assert [one for one in words if one[0] == "w"] == [one for one in wanted if one[0] == "w"]
    assert len({(part.anchor, part.number) for part in found}) == len(found)
    assert all(count_words(part.text) <= MOST_WORDS + 10 for part in found)  # headings of empty sections come on top


@given(TEXTS, TEXTS)
def test_parts_are_of_about_equal_size(one: Block, other: Block) -> None:
    sizes = [count_words(part.text) for part in parts(Page([one, other]), "name")]
    assert max(sizes) <= MOST_WORDS
    assert len(sizes) <= -(-sum(sizes) // MOST_WORDS) + 2


def test_small_neighbours_are_merged_below_one_heading() -> None:
    blocks = (1, "T"), words(100), (2, "A"), words(20), (2, "B"), words(30), (3, "C"), words(40), (2, "D"), words(20)
    found = list(parts(page(*blocks, (1, "U"), words(5)), "name"))
    assert [short(part) for part in found] == [
        ("t", 1, "T", 100),
        ("a", 1, "T > A", 20 + 1 + 30 + 1 + 40),  # enough
        ("d", 1, "T > D", 20),  # U is not below T
        ("u", 1, "U", 5),
    ]
    assert found[1].text.split("\n\n")[1] == "B"


def test_a_small_section_stays_apart_from_a_large_one() -> None:
    found = list(parts(page((1, "T"), words(5), (2, "A"), words(FEW_WORDS)), "name"))
    assert [short(part) for part in found] == [("t", 1, "T", 5), ("a", 1, "T > A", FEW_WORDS)]


def test_a_heading_without_text_leads_to_what_follows_it() -> None:
    found = list(parts(page((1, "T"), (2, "A"), words(200), (2, "B"), (2, "C"), words(200)), "name"))
    assert [short(part) for part in found] == [("a", 1, "T > A", 202), ("c", 1, "T > C", 200)]
    assert found[0].text.endswith("\n\nB")
    assert found[0].text.startswith("T\n\nword ")
    [found] = parts(page((1, "T"), (2, "A"), (3, "B"), words(1)), "name")
    assert (found.title, found.path, found.text) == ("B", "T > A > B", "T\n\nA\n\nword ")


def test_a_last_section_of_one_line_belongs_to_the_section_before_it() -> None:
    line = 0, "Part of the git(1) suite"
    found = list(parts(page((1, "T"), words(70), (2, "A"), words(200), (2, "GIT"), line), "name"))
    assert [short(part) for part in found] == [("t", 1, "T", 70), ("a", 1, "T > A", 206)]
    assert found[-1].text.endswith(f"GIT\n\n{line[1]}")
    [_, above, _] = parts(page((1, "T"), words(70), (2, "A"), words(200), (1, "GIT"), line), "name")
    assert short(above) == ("a", 1, "T > A", 200)  # GIT is not below T
    [last] = parts(page((1, "T"), (2, "A")), "name")
    assert (last.title, last.text) == ("A", "T")


def test_headings_of_a_web_page_without_anchors_are_found_by_their_text() -> None:
    blocks = [Block("T", 1, 1), Block("word " * 70, 2), Block("A - b", 3, 2), Block("word " * 70, 4)]
    blocks += [Block("A - b", 5, 2), Block("word " * 70, 6), Block("C", 7, 2, "a b"), Block("word " * 70, 8)]
    blocks += [Block(name, 9, 2, "x") if name == "D" else Block("word " * 70, 10) for name in ("D", "", "D", "")]
    found = [part.anchor for part in parts(Page(blocks, makes_anchors=False), "name")]
    texts = [":~:text=A%20%2D%20b", ":~:text=A%20%2D%20b-1", ":~:text=C"]
    assert found == [None, *texts, "x", ":~:text=D"]


def test_the_title_of_a_page_stands_above_sections() -> None:
    with_title = Page([Block("text " * 70, 1), Block("A", 2, 2), Block("text " * 70, 3)], "Title")
    assert [(part.anchor, part.path) for part in parts(with_title, "name")] == [(None, "Title"), ("a", "Title > A")]
    without = with_title._replace(title="")
    assert [part.path for part in parts(without, "name")] == ["name", "name > A"]
    for level in (1, 2):
        one = Page([Block("A", 1, level), Block("text", 2)], "Title")
        assert [part.path for part in parts(one, "name")] == ["A"]
    two = Page([Block("A", 1, 2), Block("text " * 70, 2), Block("B", 3, 2), Block("text " * 70, 4)], "Title")
    assert [part.path for part in parts(two, "name")] == ["Title > A", "Title > B"]
    assert not list(parts(Page([], "Title"), "name"))


GENERAL = """Method Detail, Method Details, Constructor Summary, Member Function Documentation, Detailed Description,
Constructor & Destructor Documentation, Trait Implementations, Auto Trait Implementations, Implementations, Methods"""


@pytest.mark.parametrize("general", re.split(r",\s", GENERAL))
def test_a_path_lacks_general_headings_above_its_section(general: str) -> None:
    _, found = parts(page((1, "Class List"), words(70), (2, general), (3, "add"), words(70)), "name")
    assert (found.title, found.path, found.text.split()[0]) == ("add", "Class List > add", general.split()[0])
    own, _ = parts(page((1, general), words(70), (2, "add"), words(70)), "name")
    assert own.path == general


def test_a_path_has_its_own_heading_once() -> None:
    same = Page([Block("grep", 1, 2), Block("text " * 70, 2), Block("Notes", 3, 2), Block("text " * 70, 4)], "grep")
    assert [part.path for part in parts(same, "name")] == ["grep", "grep > Notes"]


def test_text_before_the_main_heading_belongs_to_it() -> None:
    [found] = parts(Page([Block("logo", 1), Block("Name", 2, 1), Block("text", 3)]), "README")
    assert (found.anchor, found.title, found.text, found.line) == ("name", "Name", "logo\n\ntext", 2)
    found, *_ = parts(page(words(70), (2, "A"), words(70), (1, "B"), words(70)), "README")
    assert (found.anchor, found.title) == (None, "README")


def test_code_is_cut_between_lines_and_keeps_its_numbers() -> None:
    code = "\n".join(f"line {number}" for number in range(1, 401))
    found = list(parts(Page([Block("T", 1, 1), Block(code, 3)]), "name"))
    assert "\n".join(part.text for part in found) == code
    assert all(part.text.startswith(f"line {part.line - 2}\n") for part in found[1:])


def test_small_code_is_not_cut() -> None:
    blocks = [Block("T", 1, 1), Block("word " * 200, 2), Block("code " * 200, 3), Block("word " * 200, 4)]
    assert [part.text.split()[0] for part in parts(Page(blocks), "name")] == ["word", "code", "word"]


def test_long_lines_are_cut_between_sentences_then_words() -> None:
    sentences = "One two three four five. " * 100
    assert all(part.text.endswith(".") for part in map(stripped, parts(Page([Block(sentences, 1)]), "name")))
    assert [count_words(part.text) for part in parts(Page([Block("x" * 30 * 1000, 1)]), "n")] == [100] * 10


@pytest.mark.parametrize(
    "line",
    [
        "if (x[i] != y[j]) { a->b(c, &d); }  // {}()[]\n",
        "| 0x1f | a.b.c | 12,345.67 | -1.5e-3 | ✓ |\n",
        "https://example.org/a/b/c.html?q=1&r=%20#part-2 ",
        "getElementsByTagName(documentFragment, XMLHttpRequest) ",
        "internationalization_of_configuration_parameters ",
        "The quick brown fox jumps over the lazy dog. ",
        "--verbose=1 -I/usr/include -L/usr/lib64 -Wl,-rpath ",
    ],
)
def test_a_model_of_512_tokens_reads_almost_all_of_a_section(line: str) -> None:
    """Tokens by a real tokenizer, with the title; 250 words of most of these lines have 1,000 tokens and more."""
    tokenizer = Tokenizer.from_file(str(Path(locate("vocable-mini"), "tokenizer.json")))
    tokenizer.no_truncation()
    sections = [*parts(page((1, "Functions of the library"), (0, line * 400)), "name")]
    lengths = [len(tokenizer.encode(f"{part.path}. {part.text}").ids) for part in sections]
    assert max(lengths) <= 1.1 * 512
    assert median(lengths) >= 270  # and not much smaller
    assert "".join("".join(part.text for part in sections).split()) == "".join(line.split()) * 400


@pytest.mark.parametrize(
    ("letters", "most"), [("ภาษาไทย", 1200), ("语言模型", 250), ("ພາສາລາວ", 1200), ("ភាសាខ្មែរ", 1200)]
)
def test_scripts_without_spaces_are_cut(letters: str, most: int) -> None:
    sections = [*parts(Page([Block(letters * 1000, 1)]), "name")]
    assert 0.7 * most < max(len(part.text) for part in sections) <= most
    assert "".join(part.text for part in sections) == letters * 1000


def stripped(part: Part) -> Part:
    return part._replace(text=part.text.strip())


class TestAnchors:
    @pytest.mark.parametrize(
        ("heading", "anchor"),
        [  # seen on GitHub
            ("Привет non-latin 你好", "привет-non-latin-你好"),
            ("I ♥ unicode", "i--unicode"),
            ("Dash-dash - dash", "dash-dash---dash"),
            ("en – en–en", "en--enen"),
            ("😄 emoji", "-emoji"),
            ("`vo.index` & snake_case", "voindex--snake_case"),
            ("haz2  two  spaces", "haz2--two--spaces"),
            ("", ""),
        ],
    )
    def test_anchors_of_github(self, heading: str, anchor: str) -> None:
        assert Anchors().of(heading) == anchor

    def test_repeated_headings(self) -> None:
        anchors = Anchors()
        assert [anchors.of(one) for one in ("a", "a", "a-1", "a", "", "")] == ["a", "a-1", "a-1-1", "a-2", "", "-1"]

    @given(st.lists(st.text("aB -1_.é", max_size=4), max_size=20))
    def test_no_anchor_twice(self, headings: list[str]) -> None:
        anchors = Anchors()
        found = [anchors.of(heading) for heading in headings]
        assert len({*found}) == len(found)
        for heading, anchor in zip(headings, found, strict=True):
            assert re.fullmatch(
                re.escape(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")) + r"(-\d+)*", anchor
            )


def test_a_heading_of_any_length_is_cut_in_titles_and_paths_and_stays_in_the_text() -> None:
    heading = "x" * 1000 + "y" * 5000
    found = list(parts(page((1, "z" * 1000), (2, heading), (0, "river mountain " * 500)), "name"))
    assert len(found) > 4
    assert {part.title for part in found} == {"x" * 1000}
    assert {part.path for part in found} == {"z" * 200 + " > " + "x" * 1000}
    assert sum(part.text.count("y") for part in found) == 5000
    assert max(len(part.anchor or "") for part in found) <= 1010
    assert [part.title for part in parts(Page([Block("text", 1)], heading), "name")] == ["x" * 1000]
