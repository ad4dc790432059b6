"""Read the signature and the docstring of a verb from its source.

Importing a verb may import PyTorch, which takes seconds and which the base installation lacks. A name in a type hint or
a default is looked up among the imports and assignments of the verb's module. Classes are `Any`, except in modules that
are quick to import.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from typing_extensions import Doc

import vocable
from vocable.options import defaults, record_of

# Modules that are imported, since they have the records and words of options.
IMPORTED = {"vocable.options", "vocable.training_options", "vocable.service", "vocable.engines.protocols"}
IMPORTED |= {"vocable.encoding.pooling", "typing_extensions", "annotated_types", *sys.stdlib_module_names}
SEQUENCES = {Iterable, Sequence, list}
REQUIRED = inspect.Parameter.empty
ENTRY = re.compile(r"^ {4}(\w+): (.*\n(?: {5,}.*\n|\n)*)", re.MULTILINE)
# What a terminal cannot give, and the words that say so of a program.
NOT_HERE = re.compile(r"; in Python (?:`[^`]*`|[^`.;])*|(?<=[;,] )on the command line,? ")


class Parameter(NamedTuple):
    """An argument of a verb: its type hint, its default, its help text, and the record that has it as a field."""

    name: str
    hint: Any
    default: Any = None
    help: str = ""
    record: str = ""

    @property
    def kinds(self) -> set[Any]:
        """The alternatives of the hint, without parameters."""
        return {get_origin(kind) or kind for kind in alternatives(self.hint)}

    @property
    def items(self) -> set[Any]:
        """The alternatives of the items of a sequence; empty if the argument is a single value, such as a file."""
        is_file = Path in self.kinds and str not in self.kinds
        sequences = [kind for kind in alternatives(self.hint) if get_origin(kind) in SEQUENCES and not is_file]
        return {get_origin(kind) or kind for hint in sequences for kind in alternatives(get_args(hint)[0])}


def alternatives(hint: Any) -> list[Any]:
    """Return the plain types of a type hint."""
    if get_origin(hint) is Annotated:
        return alternatives(get_args(hint)[0])
    if get_origin(hint) in (UnionType, Union):
        return [kind for part in get_args(hint) for kind in alternatives(part)]
    return [hint]


class Verb(NamedTuple):
    """A verb: the first line of its docstring, the paragraphs below, its arguments, and the record of its options.

    `signature` is a function with the verb's arguments, for `vocable.core.fingerprint.settings_of`.
    """

    summary: str
    details: str
    parameters: dict[str, Parameter]
    record: Any
    signature: Any


def first_line(name: str) -> str:
    """Return the first line of a verb's docstring without reading more, for a list of all verbs."""
    found = re.search(rf'^def {name}\(.*?^    r?"""(.*?)(?:"""|\n)', _source(vocable._MODULES[name]), re.M | re.S)
    return found[1] if found else ""


@cache
def read_verb(name: str) -> Verb:
    """Return the verb of a public name of vocable."""
    names = _names(vocable._MODULES[name])
    node = names.nodes[name]
    summary, details, helps = _parts(ast.get_docstring(node) or "")
    node.decorator_list, node.body, node.returns = [], node.body[:1], None  # without what only the function needs
    exec(compile(ast.Module([node], []), "<signature>", "exec", dont_inherit=True), {}, names)
    listed = inspect.signature(names[name]).parameters.values()
    parameters = {
        given.name: Parameter(given.name, given.annotation, given.default, _sentence(helps.get(given.name, ""), given))
        for given in listed
        if given.kind is not given.VAR_KEYWORD
    }
    record = next((record_of(given.annotation) for given in listed if given.kind is given.VAR_KEYWORD), None)
    return Verb(summary, details, parameters | fields(record), record, names[name])


def fields(record: Any) -> dict[str, Parameter]:
    """Return the options of a record; without a record, none."""
    hints = get_type_hints(record, include_extras=True) if record else {}
    usual = defaults(record) if record else {}
    return {
        name: Parameter(name, hint, usual.get(name), doc(hint), _owner(record, name)) for name, hint in hints.items()
    }


def doc(hint: Any) -> str:
    """Return the text of `Doc` in a type hint."""
    if found := next((part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Doc)), None):
        return found.documentation
    return next(filter(None, map(doc, get_args(hint))), "")


def _owner(record: Any, field: str) -> str:
    bases = [base for base in getattr(record, "__orig_bases__", ()) if field in getattr(base, "__annotations__", {})]
    return _owner(bases[0], field) if bases else str(record.__name__)


def _parts(docstring: str) -> tuple[str, str, dict[str, str]]:
    """Return the first line, the paragraphs before the sections, and the text of each argument."""
    summary, _, rest = docstring.partition("\n")
    details, *_ = re.split(r"^(?:Args|Returns|Raises):$|^>>>", rest, maxsplit=1, flags=re.MULTILINE)
    _, _, entries = rest.partition("Args:\n")
    entries, *_ = re.split(r"^\w", entries + "\n", maxsplit=1, flags=re.MULTILINE)
    texts = {name: NOT_HERE.sub("", " ".join(text.split())) for name, text in ENTRY.findall(entries)}
    return summary, NOT_HERE.sub("", details).strip(), texts


def _sentence(text: str, argument: inspect.Parameter) -> str:
    """Begin the text of an argument with a capital, unless its first word is a name."""
    first = re.split(r"[ :,]", text)[0]
    is_name = re.search("[-_]", first) or any(first in get_args(kind) for kind in alternatives(argument.annotation))
    return text if is_name else text[:1].upper() + text[1:]


@cache
def _source(module: str) -> str:
    path = module.removeprefix("vocable.").replace(".", "/")
    files = (f"{path}/__init__.py", f"{path}.py")
    [name] = [name for name in files if resources.files(vocable).joinpath(name).is_file()]
    return resources.files(vocable).joinpath(name).read_text(encoding="utf-8")


class _Names(dict[str, Any]):
    """The names of a module, evaluated when they are used."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self.nodes: dict[str, Any] = {}
        statements = ast.parse(_source(module)).body
        for statement in statements:
            if isinstance(statement, ast.If):
                statements += statement.body
            elif isinstance(statement, ast.ImportFrom):
                self.nodes |= {alias.asname or alias.name: (statement.module, alias.name) for alias in statement.names}
            elif isinstance(statement, ast.Import):
                self.nodes |= {alias.asname or alias.name: (alias.name, "") for alias in statement.names}
            elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
                target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
                self.nodes[ast.unparse(target)] = statement.value
            elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
                self.nodes[statement.name] = statement

    def __missing__(self, name: str) -> Any:
        node = self.nodes[name]  # a KeyError for a builtin, which Python then looks up
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            return Any
        if not isinstance(node, tuple):
            return self.value(node)
        module, attribute = node
        if module in IMPORTED or module.partition(".")[0] in IMPORTED:
            return getattr(import_module(module), attribute) if attribute else import_module(module)
        return _names(module)[attribute] if module.startswith("vocable.") else Any

    def value(self, node: Any) -> Any:
        """Return the value of an expression."""
        return eval(compile(ast.Expression(node), "<signature>", "eval"), {}, self)


@cache
def _names(module: str) -> _Names:
    return _Names(module)
