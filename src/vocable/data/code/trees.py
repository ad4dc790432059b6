"""The outline of a file by the grammar of its language, with tree-sitter: `pip install 'vocable[code]'`."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from vocable.core.code_files import code_language, language_of_text
from vocable.data.code.indentation import NOT_NAMES
from vocable.data.code.outline import Definition, Outline, nested

GRAMMARS = {  # packages and their functions, by language
    "c": ("tree_sitter_c", "language"),
    "c++": ("tree_sitter_cpp", "language"),
    "c#": ("tree_sitter_c_sharp", "language"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "ruby": ("tree_sitter_ruby", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "shell": ("tree_sitter_bash", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
}
FUNCTIONS = (
    "function_definition function_declaration function_item function_signature_item generator_function_declaration "
    "method_definition method_declaration method singleton_method constructor_declaration destructor_declaration "
    "operator_declaration property_declaration macro_definition preproc_function_def"
)
HOLDERS = (
    "class_declaration class_definition class_specifier class module struct_specifier struct_item struct_declaration "
    "interface_declaration enum_declaration enum_specifier enum_item impl_item trait_item trait_declaration mod_item "
    "namespace_definition namespace_declaration record_declaration internal_module abstract_class_declaration "
    "type_spec type_alias_declaration union_specifier"
)
VALUES = "arrow_function function_expression generator_function"  # of JavaScript; the place where they go names them
NAMING = {"variable_declarator": "name", "assignment_expression": "left", "pair": "key"} | {
    "field_definition": "property",
    "public_field_definition": "name",
}
STANDING = ("variable_declarator", "assignment_expression")  # a function of one line there is a document
WRAPPERS = "export_statement template_declaration lexical_declaration variable_declaration expression_statement"
STATEMENT = re.compile(
    r".*(statement|declaration)|declaration|call|assignment|command|let_declaration|macro_invocation"
)
MOST_NAME = 200  # bytes


def has_grammar(file: str) -> bool:
    """Return whether the grammar of a file's language is installed."""
    package, _ = GRAMMARS.get(code_language(file), ("", ""))
    return bool(package) and find_spec("tree_sitter") is not None and find_spec(package) is not None


def tree_outline(text: str, file: str) -> Outline:
    """Return the outline of a text in the language of a file, whose grammar is installed."""
    language = language_of_text(text, file) if has_grammar("a.cpp") else code_language(file)
    is_tsx = file.lower().endswith(".tsx")
    parser, query, cursor = _parser(language, is_tsx)
    captures = cursor(query).captures(parser.parse(text.encode()).root_node)
    definitions = [
        _definition(node, holds) for kind, holds in (("f", False), ("h", True)) for node in captures.get(kind, ())
    ]
    definitions += [_assigned(node) for node in captures.get("v", ())]
    starts = frozenset(node.start_point[0] + 1 for node in captures.get("s", ()))
    return Outline(nested(filter(None, definitions)), starts)


@lru_cache(maxsize=len(GRAMMARS) + 1)
def _parser(language: str, is_tsx: bool) -> tuple[Any, Any, Any]:
    """Return the parser of a language, the query for its definitions and statements, and the class of cursors."""
    tree_sitter = import_module("tree_sitter")
    package, function = GRAMMARS[language]
    grammar = tree_sitter.Language(getattr(import_module(package), "language_tsx" if is_tsx else function)())
    kinds = {
        grammar.node_kind_for_id(number)
        for number in range(grammar.node_kind_count)
        if grammar.node_kind_is_named(number)
    }
    kinds = {kind for kind in kinds if kind and grammar.node_kind_is_visible(grammar.id_for_node_kind(kind, True))}
    parts = [
        f"({kind}) @{name}"
        for names, name in ((FUNCTIONS, "f"), (HOLDERS, "h"), (VALUES, "v"))
        for kind in names.split()
        if kind in kinds
    ]
    parts += [f"({kind}) @s" for kind in sorted(kinds) if STATEMENT.fullmatch(kind)]
    return tree_sitter.Parser(grammar), tree_sitter.Query(grammar, "\n".join(parts)), tree_sitter.QueryCursor


def _definition(node: Any, holds: bool) -> Definition | None:
    """Return a node as a definition; None for a node without a body or a name, such as a mere use of a struct."""
    if holds and node.type.endswith("_specifier") and node.child_by_field_name("body") is None:
        return None
    if node.type == "type_spec" and node.end_point[0] == node.start_point[0]:
        return None
    if name := _name(node):
        return _lines(name, node, holds)
    return None


def _assigned(node: Any) -> Definition | None:
    """Return a function that a variable, a field or a property gets, under that name; None for another function."""
    parent = node.parent
    if parent is None or parent.type not in NAMING:
        return None
    if parent.type not in STANDING and node.end_point[0] == node.start_point[0]:
        return None
    target = parent.child_by_field_name(NAMING[parent.type])
    if target is None or target.end_byte - target.start_byte > MOST_NAME:
        return None
    return _lines(_text(target).removeprefix("module.").removeprefix("exports."), parent, False)


def _lines(name: str, node: Any, holds: bool) -> Definition:
    """Return a definition of the lines of a node, with what wraps it, such as `export` or `template`."""
    outer = node
    while (
        outer.parent is not None
        and outer.parent.type in WRAPPERS.split()
        and outer.parent.end_byte - outer.end_byte < 3
    ):
        outer = outer.parent
    # A node that ends at the beginning of a line does not have that line.
    row, column = outer.end_point
    return Definition(name, outer.start_point[0] + 1, row + (column > 0 or row == outer.start_point[0]), holds=holds)


def _name(node: Any) -> str:
    """Return the name of a node: of a method in Go after its type, and of an implementation in Rust its type."""
    if node.type == "impl_item":
        named = [node.child_by_field_name(field) for field in ("trait", "type")]
        return " for ".join(_text(one) for one in named if one is not None)
    if receiver := node.child_by_field_name("receiver"):
        kind = re.search(r"(\w+)(?:\[[^\]]*\])?\s*\)$", _text(receiver))
        return f"{kind[1]}.{_text(node.child_by_field_name('name'))}" if kind else ""
    name = node.child_by_field_name("name")
    return _declared(node) if name is None else _text(name)


def _declared(node: Any) -> str:
    """Return the name in C, which declarators of pointers, functions and references enclose; "" without a name.

    The grammar takes an unknown macro before a name for the type or for the name.
    """
    outer, name, kind = node, node.child_by_field_name("declarator"), node.child_by_field_name("type")
    if name is not None and name.type == "parenthesized_declarator" and kind is not None:
        return _text(kind)  # API type name(void)
    while name is not None and name.type != "operator_cast":
        if (inner := name.child_by_field_name("declarator") or _only_child(name)) is None:
            break
        outer, name = name, inner
    if name is None or NOT_NAMES.fullmatch(_text(name)):
        return ""
    if kind is None and _text(name).isupper():
        return _text(outer)  # TEST(name), which a macro defines
    words = [one.named_children[-1] for one in outer.children if one.type == "ERROR" and one.named_children]
    return _text(words[0] if words and outer.type == "function_declarator" else name)  # API type name(int a)


def _only_child(node: Any) -> Any:
    """Return the declarator inside a reference, which has no field for it."""
    return (
        node.named_children[0]
        if node.type in ("reference_declarator", "parenthesized_declarator") and node.named_children
        else None
    )


def _text(node: Any) -> str:
    return " ".join(node.text[:MOST_NAME].decode(errors="replace").split())
