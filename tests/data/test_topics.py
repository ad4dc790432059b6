"""TREC topics, in SGML and in XML."""

from __future__ import annotations

from pathlib import Path

import pytest

import vocable as vo
from vocable.data import Query, read_queries
from vocable.errors import DataError

SGML = """<top>

<num> Number: 301 
<title> Lighthouse Keepers Abroad

<desc> Description: 
Find reports of people who keep lighthouses outside their own
country.

<narr> Narrative: 
A relevant document must name it.

</top>

<top>
<head> Tipster Topic Description
<num> Number:  051
<dom> Domain:  Trade in Lamps
<title> Topic:  Lantern Makers &amp; Tariffs
<desc> Description:
Document will discuss duties on lanterns.
</top>
<top>
<num> Number: MB001 </num>
<title> Night ferry timetable </title>
</top>
<top>
<num> Number: 201
<desc> Description:
What happened
then?
</top>
"""
TOPICS = {
    "topics.301-450.txt": SGML,
    "topics.robust04": SGML,
    "topics.trec": SGML.replace("\n", "\r\n"),
    "04.testset": "\ufeff" + SGML,
}


@pytest.mark.parametrize("name", TOPICS)
def test_topics_in_sgml(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TOPICS[name], encoding="utf-8", newline="")
    assert list(read_queries(path)) == [
        Query("301", "Lighthouse Keepers Abroad"),
        Query("51", "Lantern Makers & Tariffs"),
        Query("MB001", "Night ferry timetable"),
        Query("201", "What happened then?"),
    ]


XML = """<?xml version="1.0" encoding="UTF-8"?>
<topics task="LampSearch 2020" batch="1">
  <topic number="1">
    <query>lantern origin</query>
    <question>where do lanterns come from</question>
  </topic>
  <topic id='2' type="faceted">
    <title>lantern
    and weather</title>
  </topic>
  <topic number="3">A lamp of 58 parts &lt;with oil&gt;.</topic>
</topics>
"""


@pytest.mark.parametrize("name", ["topics.xml", "topics.txt"])
def test_topics_in_xml(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(XML, encoding="utf-8")
    assert list(read_queries(tmp_path / name)) == [
        Query("1", "lantern origin"),
        Query("2", "lantern and weather"),
        Query("3", "A lamp of 58 parts <with oil>."),
    ]


def test_a_topic_without_a_number_or_words_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "topics.txt"
    path.write_text(SGML.replace("<num> Number:  051", ""), encoding="utf-8")
    with pytest.raises(
        DataError, match=rf"topics\.txt:{SGML.splitlines().index('<head> Tipster Topic Description')}: "
    ):
        list(read_queries(path))
    path.write_text("<top>\n<num> 7\n<title>\n</top>\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"topics\.txt:1: .*\"text\""):
        list(read_queries(path))


def test_topics_and_documents_of_trec_are_no_texts(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    for content, message in ((SGML, "TREC topics are queries"), ("<DOC>\n<DOCNO> 1 </DOCNO>\n</DOC>\n", "<DOC>")):
        path.write_text(content, encoding="utf-8")
        for read in (vo.read_corpus, vo.read_texts):
            with pytest.raises(DataError, match=message):
                read(path)
