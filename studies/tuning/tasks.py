"""Collections whose queries are tasks that people wrote for examples, and whose documents are the manuals."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from studies.tuning.gathered import Gathered
from studies.tuning.packages import html_text, members, one_line, sections

# Collections of modules that people document one by one; those of large vendors are generated.
COMMUNITY = re.compile(
    r"ansible_collections/(community\.?\w*|amazon|ansible|kubernetes|netbox|openstack|ovirt|grafana|containers|awx"
    r"|theforeman|cloudscale_ch|hetzner|infinidat|vultr|lowlydba|ngine_io|t_systems_mms|telekom_mms|wti|sensu)/"
)
EXAMPLE = re.compile(r"^\*\*(?:Example \d+:?\s*)?(.+?)\*\*\s*$", re.MULTILINE | re.IGNORECASE)
AWS_NAMES = {"s3api": "s3", "deploy": "codedeploy", "configservice": "config"}  # of a command -> of its definitions


def ansible(packages: Mapping[str, Path]) -> Gathered:
    """Tasks of playbook examples, "Add the user 'johnd' with a specific uid", and the modules that carry them out."""
    collection = Gathered()
    for package, kept in (("ansible-core", re.compile("")), ("ansible", COMMUNITY)):
        for path, source in members(packages[package], "*/modules/*.py"):
            if kept.match(path) is None or path.endswith("/__init__.py") or "DOCUMENTATION" not in source:
                continue
            texts = _strings(source, {"DOCUMENTATION", "EXAMPLES"})
            manual = _yaml(texts.get("DOCUMENTATION", ""))
            if not isinstance(manual, dict) or "module" not in manual:
                continue
            collection.add(path, " ".join(_module_text(manual)), str(manual.get("short_description", "")))
            for task in _tasks(_yaml(texts.get("EXAMPLES", ""))):
                if any(str(key).rpartition(".")[2] == manual["module"] for key in task):
                    collection.ask(str(task["name"]), [path])
    return collection


def _strings(source: str, names: set[str]) -> dict[str, str]:
    """The strings that a module's source assigns to these names at its top level."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # templates
        return {}
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in names
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def _yaml(text: str) -> Any:
    try:
        return yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError):
        return None


def _module_text(manual: Mapping[str, Any]) -> Iterator[str]:
    """The description of a module and of its options, without markup: V(value), M(module)."""
    yield from _plain(manual.get("description"))
    options = manual.get("options")
    for name, option in options.items() if isinstance(options, dict) else ():
        yield f"{name}:"
        yield from _plain(option.get("description") if isinstance(option, dict) else None)


def _plain(text: Any) -> Iterator[str]:
    for line in text if isinstance(text, list) else [text] * (text is not None):
        yield one_line(re.sub(r"\b[A-Z]+\(([^()]*)\)", lambda markup: markup[1].split(",")[0], str(line)))


def _tasks(examples: Any) -> Iterator[dict[str, Any]]:
    """The tasks with a name in a list of plays or tasks."""
    for entry in examples if isinstance(examples, list) else ():
        if isinstance(entry, dict):
            yield from [entry] * ("name" in entry)
            yield from (task for key in ("tasks", "block") for task in _tasks(entry.get(key)))


def aws(packages: Mapping[str, Path]) -> Gathered:
    """Titles of command examples, "To attach an internet gateway to your VPC", and the operations' descriptions."""
    collection = Gathered()
    asked = [
        (service, command, title)
        for path, text in members(packages["awscli"], "awscli/examples/*/*.rst")
        for service, command in [path.removesuffix(".rst").split("/")[-2:]]
        for title in EXAMPLE.findall(text)
    ]
    services = {service for service, _, _ in asked}
    operations = _operations(packages["botocore"], {AWS_NAMES.get(service, service) for service in services})
    for service, command in operations:
        collection.add(f"{service}/{command}", operations[service, command], f"{service} {command}")
    for service, command, title in asked:
        number = f"{AWS_NAMES.get(service, service)}/{command}"
        if number in collection.documents:
            collection.ask(title.strip(), [number])
    return collection


def _operations(package: Path, services: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return the descriptions of the operations of services, by the newest definitions of each."""
    descriptions = {}
    for path, text in members(package, "botocore/data/*/service-2.json*"):
        service = path.split("/")[2]
        if service in services:
            for name, operation in json.loads(text)["operations"].items():
                command = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()
                descriptions[service, command] = html_text(operation.get("documentation", ""))
    return descriptions


def gallery(packages: Mapping[str, Path]) -> Gathered:
    """Titles of programs in a gallery, "Lasso path using LARS", the programs, and pages of the libraries' reference."""
    collection = Gathered()
    for package in sorted(packages):
        for path, source in members(packages[package], "*/_downloads/*.py"):
            title, code = _program(source)
            if title:
                collection.add(path, code)
                collection.ask(title, [path])
        for pages in ("*/html/modules/generated/*.html", "*/html/api/*.html"):
            for path, page in members(packages[package], pages):
                for position, part in enumerate(sections(page)):
                    if part.level and not part.heading.startswith("Examples using"):  # lists of titles
                        collection.add(f"{path}#{position}", part.text, part.heading.strip("¶ "))
    return collection


def _program(source: str) -> tuple[str, str]:
    """The title in the docstring of a program, and the program without it."""
    match = re.match(r'\s*r?("""|\'\'\')(.*?)\1', source, re.DOTALL)
    lines = [line.strip() for line in match[2].split("\n") if re.search(r"\w", line)] if match else []
    return (lines[0], source[match.end() :]) if match and lines else ("", source)
