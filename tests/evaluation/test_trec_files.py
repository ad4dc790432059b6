"""Runs, judgments and topics in the layouts that are in use, and figures that trec_eval publishes for its own files.

Where the environment variable VOCABLE_TREC_EVAL names a folder, the files in it and below it are evaluated, too. Three
files belong together by the rest of their names, as in the folder `test` of trec_eval (github.com/usnistgov/trec_eval):

    results.NAME        a run
    qrels.NAME          its judgments
    out.NAME            what `trec_eval qrels.NAME results.NAME` prints; further options in the name, as trec_eval's
    out.NAME.a          test folder has them: -m all_trec (a), and
    out.NAME.aq         each query's values (q)
    out.NAME.aqc        all judged queries (c), in place of those that the run answers

So `results.test`, `qrels.test` and `out.test.aq` are trec_eval's own figures, and a folder of further runs has
`results.bm25.robust04`, `qrels.bm25.robust04` and `out.bm25.robust04` for each. Every figure that ir_measures has is
compared, to the four digits that trec_eval prints.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path

import pytest

import vocable as vo
from vocable.data import Qrel, Query, ScoredDoc, read_judgments, read_queries, read_run
from vocable.errors import ArgumentError, DataError

FOLDER = os.environ.get("VOCABLE_TREC_EVAL")
PUBLISHED = sorted(Path(FOLDER).rglob("results.*")) if FOLDER else []

# trec_eval's names, and those of ir_measures.
NAMES = {
    r"map": "AP",
    r"map_cut_(\d+)": "AP@{}",
    r"Rprec": "Rprec",
    r"bpref": "Bpref",
    r"recip_rank": "RR",
    r"iprec_at_recall_(\d\.\d+)": "IPrec@{}",
    r"P_(\d+)": "P@{}",
    r"recall_(\d+)": "R@{}",
    r"infAP": "infAP",
    r"ndcg": "nDCG",
    r"ndcg_cut_(\d+)": "nDCG@{}",
    r"success_(\d+)": "Success@{}",
    r"set_P": "SetP",
    r"set_recall": "SetR",
    r"num_ret": "NumRet",
    r"num_rel": "NumRel",
    r"num_rel_ret": "NumRelRet",
}


def measure(name: str) -> str | None:
    """The name of trec_eval's measure in ir_measures; None if it is none of those above."""
    for pattern, ours in NAMES.items():
        if found := re.fullmatch(pattern, name):
            return ours.format(*(str(float(group)) if "." in group else group for group in found.groups()))
    return None


def printed(path: Path) -> dict[str, dict[str, float]]:
    """{measure: {query, or "all": value}} of what trec_eval prints, as far as we have the measure."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for line in path.read_text(encoding="utf-8").splitlines():
        name, query, value = line.split()
        if (ours := measure(name)) is not None:
            values[ours][query] = float(value)
    return dict(values)


def check(run: Path) -> int:
    """Compare all figures printed of a run with ours, and return their number."""
    name, compared = run.name.removeprefix("results."), 0
    asked = {hit.query_id for hit in read_run(run)}
    for out in run.parent.glob(f"out.{name}*"):
        options = out.name.removeprefix(f"out.{name}").removeprefix(".")
        if not set(options) <= set("aqc"):
            continue
        expected = printed(out)
        judgments = run.with_name(f"qrels.{name}")
        [found] = vo.evaluate(run, judgments=judgments, measures=list(expected), ties="trec_eval")
        for ours, values in expected.items():
            per_query = found.per_query[ours]
            # By default trec_eval looks at the queries that the run answers alone.
            counted = [value for query, value in per_query.items() if "c" in options or query in asked]
            mean = sum(counted) / (1 if ours.startswith("Num") else len(counted))
            for query, value in values.items():
                ours_is = mean if query == "all" else per_query[query]
                assert ours_is == pytest.approx(value, abs=6e-5), (out.name, ours, query)
                compared += 1
    return compared


@pytest.mark.skipif(not PUBLISHED, reason="VOCABLE_TREC_EVAL names no folder with results.* in it")
@pytest.mark.parametrize("run", PUBLISHED, ids=lambda path: path.name)
def test_published_figures(run: Path) -> None:
    assert check(run)


QRELS = "301 0 a 1\n301 0 b 0\n301 0 c 2\n302 0 d 1\n303 0 e 1\n"
RUN = "301 Q0 b 1 3.0 tag\n301 Q0 a 2 2.0 tag\n301 Q0 x 3 1.0 tag\n302 Q0 d 1 1.5 tag\n"
TIED = RUN.replace("301 Q0 a 2 2.0", "301 Q0 a 2 3.0")  # which trec_eval orders by descending id
# By hand. 301: the one relevant document of two that is found comes second, after the one that was judged and is not.
# nDCG@5 of 301 is (1 / log2 3) / (2 + 1 / log2 3). 302 is right; 303 has no answer.
OUT = """runid all tag
num_ret all 4
num_rel all 3
num_rel_ret all 2
map all 0.6250
Rprec all 0.7500
bpref all 0.5000
recip_rank all 0.7500
iprec_at_recall_0.00 all 0.7500
iprec_at_recall_1.00 all 0.5000
P_5 all 0.2000
recall_5 all 0.7500
ndcg_cut_5 all 0.6199
success_1 all 0.5000
"""
ALL_JUDGED = """map 301 0.2500
map 302 1.0000
map all 0.4167
num_rel all 4
recip_rank all 0.5000
"""


def test_figures_by_hand_in_the_layout_of_trec_eval(tmp_path: Path) -> None:
    for name, content in {"qrels": QRELS, "results": TIED, "out": OUT}.items():
        (tmp_path / f"{name}.made").write_text(content, encoding="utf-8")
    (tmp_path / "out.made.aqc").write_text(ALL_JUDGED, encoding="utf-8")
    (tmp_path / "out.made.aqcM").write_text("map all 0.1\n", encoding="utf-8")  # of fewer hits, which is not compared
    assert check(tmp_path / "results.made") == 13 + 5


JUDGED = [Qrel("301", "a", 1), Qrel("301", "b", 0), Qrel("301", "c", 2), Qrel("302", "d", 1), Qrel("303", "e", 1)]
JUDGMENTS = {
    "qrels.txt": QRELS,
    "qrels.test": QRELS,
    "qrels": QRELS,
    "2019qrels-pass.adhoc": QRELS.replace(" ", "\t"),
    "qrels.trec": QRELS.replace(" 0 ", " Q0 "),
    "windows.txt": "\ufeff" + QRELS.replace("\n", "\r\n"),
    "comments.txt": f"# made by hand\n#query iteration document grade\n{QRELS}\n# the end\n#\n",
    "header.tsv": "query-id\tcorpus-id\tscore\n" + QRELS.replace(" 0 ", " ", 5).replace(" ", "\t"),
    "comment-and-header.tsv": "# BEIR\nquery-id\tcorpus-id\tscore\n" + QRELS.replace(" 0 ", " ", 5).replace(" ", "\t"),
    "beir.tsv": QRELS.replace(" 0 ", " ", 5),
    "repeated.txt": QRELS + QRELS,
    "floats.txt": re.sub(r"(\d)$", r"\1.0", QRELS, flags=re.MULTILINE),
}


@pytest.mark.parametrize("name", JUDGMENTS)
def test_layouts_of_judgments(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(JUDGMENTS[name], encoding="utf-8")
    assert list(read_judgments(path)) == JUDGED
    (tmp_path / "run").write_text(RUN, encoding="utf-8")
    [found] = vo.evaluate(tmp_path / "run", judgments=path, measures=["AP", "RR"])
    assert found.values == pytest.approx({"AP": 1.25 / 3, "RR": 0.5})
    assert (found.dataset, found.queries, found.unjudged) == (str(path), 3, 0)


FOUND = [ScoredDoc("301", "b", 3.0), ScoredDoc("301", "a", 2.0), ScoredDoc("301", "x", 1.0), ScoredDoc("302", "d", 1.5)]
RUNS = {
    "plain": RUN,
    "tabs": RUN.replace(" ", "\t"),
    "aligned": RUN.replace(" ", "\t  "),
    "words after the tag": RUN.replace("tag", "my first run"),
    "a number after the tag": RUN.replace("tag", "tag 17"),
    "comments": f"# my favourite run\n#vocable search of 3 May 2024, 4 hits\n{RUN}# the end\n",
    "any order": "".join(reversed(RUN.splitlines(keepends=True))),
    "windows": "\ufeff" + RUN.replace("\n", "\r\n\r\n"),
    "scientific": RUN.replace("3.0", "3e0").replace("1.0", "+1"),
    "repeated": RUN + RUN,
}


@pytest.mark.parametrize("name", RUNS)
def test_layouts_of_runs(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.txt"
    path.write_text(RUNS[name], encoding="utf-8")
    assert sorted(read_run(path)) == sorted(FOUND)
    (tmp_path / "qrels.txt").write_text(QRELS, encoding="utf-8")
    [found] = vo.evaluate(path, judgments=tmp_path / "qrels.txt", measures=["AP"])
    assert found.per_query["AP"] == pytest.approx({"301": 0.25, "302": 1.0, "303": 0.0})


@pytest.mark.parametrize("line", ["#1 0 d 1", "#1 0 #d 0"])
def test_ids_that_begin_with_a_number_sign_are_no_comments(tmp_path: Path, line: str) -> None:
    (tmp_path / "qrels.txt").write_text(line, encoding="utf-8")
    query, _, document, grade = line.split()
    assert list(read_judgments(tmp_path / "qrels.txt")) == [Qrel(query, document, int(grade))]
    (tmp_path / "run").write_text(f"{query} Q0 {document} 1 2.5 tag", encoding="utf-8")
    assert list(read_run(tmp_path / "run")) == [ScoredDoc(query, document, 2.5)]


SGML = """<top>

<num> Number: 301 
<title> International Organized Crime

<desc> Description: 
Identify organizations that participate in international criminal
activity.

<narr> Narrative: 
A relevant document must name it.

</top>

<top>
<head> Tipster Topic Description
<num> Number:  051
<dom> Domain:  International Economics
<title> Topic:  Airbus &amp; Subsidies
<desc> Description:
Document will discuss government assistance.
</top>
<top>
<num> Number: MB001 </num>
<title> BBC World Service staff cuts </title>
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
        Query("301", "International Organized Crime"),
        Query("51", "Airbus & Subsidies"),
        Query("MB001", "BBC World Service staff cuts"),
        Query("201", "What happened then?"),
    ]


XML = """<?xml version="1.0" encoding="UTF-8"?>
<topics task="COVIDSearch 2020" batch="1">
  <topic number="1">
    <query>coronavirus origin</query>
    <question>what is the origin of COVID-19</question>
  </topic>
  <topic id='2' type="faceted">
    <title>coronavirus
    and weather</title>
  </topic>
  <topic number="3">A 58-year-old woman &lt;with pain&gt;.</topic>
</topics>
"""


@pytest.mark.parametrize("name", ["topics.xml", "topics.txt"])
def test_topics_in_xml(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(XML, encoding="utf-8")
    assert list(read_queries(tmp_path / name)) == [
        Query("1", "coronavirus origin"),
        Query("2", "coronavirus and weather"),
        Query("3", "A 58-year-old woman <with pain>."),
    ]


def test_a_topic_without_a_number_or_words_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "topics.txt"
    path.write_text(SGML.replace("<num> Number:  051", ""), encoding="utf-8")
    with pytest.raises(
        DataError, match=rf"topics\.txt:{SGML.splitlines().index('<head> Tipster Topic Description')}: "
    ):
        list(read_queries(path))
    path.write_text("<top>\n<num> 7\n<title>\n</top>\n", encoding="utf-8")
    with pytest.raises(DataError, match=r'topics\.txt:1: an empty "text"; expected <top>'):
        list(read_queries(path))


def test_topics_and_documents_of_trec_are_no_texts(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    for content, message in ((SGML, "TREC topics are queries"), ("<DOC>\n<DOCNO> 1 </DOCNO>\n</DOC>\n", "<DOC>")):
        path.write_text(content, encoding="utf-8")
        for read in (vo.read_corpus, vo.read_texts):
            with pytest.raises(DataError, match=message):
                read(path)


def test_a_text_file_of_ids_and_texts_is_a_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "topics.dev.txt"
    path.write_text("156493\tdo goldfish grow\n1124210\ttracheids are part of\n", encoding="utf-8")
    expected = [Query("156493", "do goldfish grow"), Query("1124210", "tracheids are part of")]
    assert list(read_queries(path)) == list(read_queries(path)) == expected
    [said] = caplog.messages
    assert said.startswith(f"{path}: read as id TAB text")
    for content in ("156493\tdo goldfish\nno id\n", "a text\twith a tab\n", "7\tone\n7\ttwo\n", "7\tone\n8\ta\tb\n"):
        path.write_text(content, encoding="utf-8")
        assert [query.text for query in read_queries(path)] == content.splitlines()


def test_files_in_place_of_a_dataset(tmp_path: Path) -> None:
    """What a run, BM25 and an index need of a collection, and that all of it together is the collection."""
    (tmp_path / "qrels.txt").write_text("51 0 d1 1\n", encoding="utf-8")
    (tmp_path / "topics.txt").write_text(SGML, encoding="utf-8")
    lines = '{"_id": "d1", "text": "Airbus subsidies"}\n{"_id": "d2", "text": ""}\n{"_id": "d3", "text": "crime"}\n'
    (tmp_path / "corpus.jsonl").write_text(lines, encoding="utf-8")
    files = {name: tmp_path / file for name, file in (("judgments", "qrels.txt"), ("queries", "topics.txt"))}
    (tmp_path / "run").write_text("51 Q0 d1 1 1.0 tag\n", encoding="utf-8")
    [run, lexical] = vo.evaluate(
        tmp_path / "run", measures=["RR", "P@1"], **files, corpus=tmp_path / "corpus.jsonl", bm25=True
    )
    assert run.values == lexical.values == {"RR": 1.0, "P@1": 1.0}
    with pytest.raises(ArgumentError, match="give `corpus`"):
        vo.evaluate(tmp_path / "run", **files, bm25=True)
    with pytest.raises(ArgumentError, match="give `queries`"):
        vo.evaluate("vocable-mini", judgments=files["judgments"])
    with pytest.raises(ArgumentError, match="give `dataset`, or `judgments`"):
        vo.evaluate(tmp_path / "run")
    with pytest.raises(ArgumentError, match="give `dataset`, or `judgments`"):
        vo.evaluate(tmp_path / "run", "pydocs:#test", judgments=files["judgments"])
    with pytest.raises(ArgumentError, match="go with `judgments`"):
        vo.evaluate(tmp_path / "run", "pydocs:#test", queries=files["queries"])
