"""What a verb takes, read from its source: nothing is imported, so that `vocable VERB --help` need not wait for torch.

Types, choices and defaults are those of the signature, whose names are followed to where they are defined; the help is
the first sentence about the argument in the docstring.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import chain
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from typing_extensions import Doc

import vocable
from vocable import options
from vocable.options import Values

REQUIRED: Any = inspect.Parameter.empty  # the default of what has none
LIGHT = {*sys.stdlib_module_names, "annotated_types", "pydantic"}  # what may be imported to follow a name


class Argument(NamedTuple):
    """An argument of a verb; its `type` is what typer takes, None where the command line has no form for it."""

    type: Any
    default: Any
    help: str
    values: Values | None


def arguments(home: str, settings: str = "") -> dict[str, Argument]:
    """The arguments of the verb at `home` ("module:name"), its **settings being the fields of the class at `settings`.

    >>> list(arguments("vocable.adapt.rescale:rescale"))
    ['model', 'factor', 'texts']
    """
    module, _, name = home.partition(":")
    names = _names(module)
    verb = names.nodes[name]
    about = _about(ast.get_docstring(verb) or "")
    first = [None] * (len(verb.args.args) - len(verb.args.defaults)) + verb.args.defaults
    found: dict[str, Argument] = {}
    for some, defaults in ((verb.args.args, first), (verb.args.kwonlyargs, verb.args.kw_defaults)):
        for one, default in zip(some, defaults, strict=True):
            value = REQUIRED if default is None else names.value(default)
            hint = names.value(one.annotation)
            found[one.arg] = Argument(_option_type(hint), value, about.get(one.arg, ""), Values.of(hint))
        if (
            some is verb.args.kwonlyargs
            and verb.args.kwarg is not None
            and isinstance(verb.args.kwarg.annotation, ast.Subscript)
        ):
            found |= shared_options(ast.unparse(verb.args.kwarg.annotation.slice))
        if settings and some is verb.args.args:
            found = found | {key: field for key, field in _fields(*settings.split(":")).items() if key not in found}
    return found


def _fields(module: str, name: str) -> dict[str, Argument]:
    """The fields of a pydantic class, after those of its bases in the module."""
    from pydantic.fields import FieldInfo  # takes a tenth of a second, and few verbs have settings

    names, found = _names(module), dict[str, Argument]()
    node: Any = names.nodes[name]
    for base in node.bases:
        if isinstance(names.nodes[base.id], ast.ClassDef):
            found |= _fields(module, base.id)
    for line in node.body:
        if isinstance(line, ast.AnnAssign):
            value = ... if line.value is None else names.value(line.value)
            field = FieldInfo.from_annotated_attribute(names.value(line.annotation), value)
            default = REQUIRED if field.is_required() else None if field.default_factory else field.default
            kind = _option_type(field.annotation)
            about = _sentence(field.description or "")
            values = Values.of(Annotated[field.annotation, None, *field.metadata])
            kind = kind | None if default is None else kind
            found[ast.unparse(line.target)] = Argument(kind, default, about, values)
    return found


def shared_options(record: str) -> dict[str, Argument]:
    """Return the arguments that stand in a record of `vocable.options`; one that is not given is None."""
    found = {}
    for name, hint in get_type_hints(getattr(options, record), include_extras=True).items():
        kind, *metadata = get_args(hint)
        about = next(one.documentation for one in metadata if isinstance(one, Doc))
        found[name] = Argument(_option_type(kind | None), None, about, Values.of(hint | None))
    return found


def _about(docstring: str) -> dict[str, str]:
    """The first sentence about each argument.

    >>> _about("Do it.\\n\\nArgs:\\n    a, b: two numbers. Both\\n        count.\\n    c: a\\n        third.")
    {'a': 'Two numbers.', 'b': 'Two numbers.', 'c': 'A third.'}
    """
    section = docstring.partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: _sentence(text) for names, text in entries for name in names.split(", ")}


def _sentence(text: str) -> str:
    first = re.split(r"(?<=\.) (?=[A-Z\"`])", " ".join(text.split()))[0]
    return f"{first[:1].upper()}{first[1:].removesuffix('.')}." if first else ""


def _option_type(annotation: Any) -> Any:
    """What typer takes for a type: of several, the one that a text of the command line can be."""
    members = get_args(annotation) if get_origin(annotation) in (UnionType, Union) else (annotation,)
    plain = [get_args(one)[0] if get_origin(one) is Annotated else one for one in members]
    kinds = {get_origin(one) or one: one for one in plain}
    if Literal in kinds:
        chosen = kinds[Literal]
    elif Sequence in kinds:
        chosen = list[str]
    elif kinds.keys() <= {str, Path, PathLike, NoneType} and kinds.keys() & {Path, PathLike}:
        chosen = Path
    else:
        chosen = next((kind for kind in (bool, int, float, str) if kind in kinds), None)
    return chosen | None if chosen and NoneType in kinds else chosen


class _Names(dict[str, Any]):
    """The names of a module of vocable, each followed to its value when it is looked up.

    What vocable or a heavy package would have to be imported for is a class without content.
    """

    def __init__(self, module: str) -> None:
        place = Path(vocable.__file__).parent.joinpath(*module.split(".")[1:])
        source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        body = ast.parse(source.read_text(encoding="utf-8")).body
        self.nodes: dict[str, Any] = {}
        for node in chain(body, *(one.body for one in body if isinstance(one, ast.If))):
            match node:
                case ast.Import(names=names):
                    self.nodes |= {one.asname or one.name: (one.name, "") for one in names}
                case ast.ImportFrom(module=str(origin), names=names):
                    self.nodes |= {one.asname or one.name: (origin, one.name) for one in names}
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    self.nodes[name] = node
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    self.nodes[name] = node

    def __missing__(self, name: str) -> Any:
        match self.nodes[name]:  # a KeyError where it is built in
            case str(module), original if module.startswith("vocable."):
                return _names(module)[original]
            case str(module), original if module.partition(".")[0] in LIGHT:
                return getattr(import_module(module), original) if original else import_module(module)
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                return self.value(value)
        return type(name, (), {})

    def value(self, node: ast.expr) -> Any:
        """What an expression of the module stands for."""
        return eval(compile(ast.Expression(node), "", "eval"), {}, self)


_names = cache(_Names)
