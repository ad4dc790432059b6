"""Files of source code: the languages of their endings, and folders of other people's code."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

LANGUAGES = {
    "python": ".py .pyi .pyx .pxd",
    "javascript": ".js .mjs .cjs .jsx",
    "typescript": ".ts .mts .cts .tsx",
    "c": ".c .h",
    "c++": ".cc .cpp .cxx .c++ .hh .hpp .hxx .inl .ipp .tcc .cu .cuh",
    "c#": ".cs",
    "java": ".java",
    "go": ".go",
    "rust": ".rs",
    "ruby": ".rb .rake",
    "php": ".php",
    "shell": ".sh .bash .zsh .ksh",
    "sql": ".sql",
    "clojure": ".clj .cljs .cljc",
    "dart": ".dart",
    "elixir": ".ex .exs",
    "erlang": ".erl .hrl",
    "f#": ".fs .fsx",
    "fortran": ".f .f90 .f95 .f03",
    "groovy": ".groovy .gradle",
    "haskell": ".hs",
    "julia": ".jl",
    "kotlin": ".kt .kts",
    "lua": ".lua",
    "objective-c": ".m .mm",
    "ocaml": ".ml .mli",
    "perl": ".pl .pm",
    "powershell": ".ps1 .psm1",
    "protobuf": ".proto",
    "r": ".r",
    "scala": ".scala .sc",
    "solidity": ".sol",
    "svelte": ".svelte",
    "swift": ".swift",
    "terraform": ".tf",
    "vue": ".vue",
    "zig": ".zig",
}
LANGUAGE_OF = {ending: language for language, endings in LANGUAGES.items() for ending in endings.split()}
CPP_HEADER = re.compile(r"(?m)^\s*(?:class|namespace|template)\b")
# Folders of code that others wrote, which a folder of code leaves out.
VENDORED = frozenset(
    [
        "vendor",
        "vendored",
        "_vendor",
        "third_party",
        "third-party",
        "thirdparty",
        "bower_components",
        "jspm_packages",
        "Godeps",
        "Pods",
        "site-packages",
        "__pycache__",
    ]
)


def code_language(file: str) -> str:
    """Return the language of a file of source code by its ending, "" for another file.

    >>> code_language("src/a.py"), code_language("a.HPP"), code_language("a.md")
    ('python', 'c++', '')
    """
    return LANGUAGE_OF.get(PurePosixPath(file).suffix.lower(), "")


def language_of_text(text: str, file: str) -> str:
    """Return the language of the source code in a file: of a header by its text.

    >>> language_of_text("int lamp;", "a.h"), language_of_text("namespace n {", "a.h")
    ('c', 'c++')
    """
    return "c++" if file.lower().endswith(".h") and CPP_HEADER.search(text) else code_language(file)


def module_name(file: str) -> str:
    """Return the name of a file of source code: of Python the dotted module, otherwise the path.

    >>> module_name("pkg/sub/a.py"), module_name("pkg/__init__.py"), module_name("src/a.js")
    ('pkg.sub.a', 'pkg', 'src/a.js')
    """
    if code_language(file) != "python":
        return file
    dotted = file.rpartition(".")[0].replace("/", ".")
    return dotted.removesuffix(".__init__")
