"""The layout of the package: imports, names and sizes."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import vocable
from tests.plain_english import phrases, vague_names

ROOT = Path(vocable.__file__).parent
TREES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
        path.read_text(encoding="utf-8")
    )
    for path in sorted(ROOT.rglob("*.py"))
}
# A room imports from the levels below it and from itself.
SEARCH = [
    {"errors", "options", "training_options", "core"},
    {"data"},
    {"encoding"},
    {"language"},
    {"indexes"},
    {"engines"},
    {"explanation"},
    {"collection"},
    {"evaluation"},
]
TRAINING = [{"torch_models", "objectives"}, {"adapt"}, {"wackiness"}, {"training"}, {"tuning"}, {"analysis"}]
SERVING = [{"service", "publishing", "integrations"}]  # on the search side, too
DOORS = [{"__init__"}, {"cli", "__main__"}]  # open both sides, on demand
LEVELS = [*SEARCH, *TRAINING, *SERVING, *DOORS]
# Test files whose subject is more than one module, or a part of one: the modules that have no test file of their name.
SHARED = {
    "cli/test_program.py": ["cli.inputs"],
    "collection/test_answers.py": ["collection.suggestion"],
    "collection/test_collection.py": ["collection.models", "collection.search", "collection.settings"],
    "collection/test_generations.py": ["engines.aliases"],
    "collection/test_writer.py": ["collection.records"],
    "data/pages/test_reader.py": ["core.processes"],
    "data/pages/test_sections.py": ["data.pages.blocks"],
    "data/pages/test_webpage.py": ["data.pages.tags"],
    "encoding/test_dense_graph.py": ["encoding.dense_models", "encoding.models"],
    "encoding/test_text_encoder.py": ["encoding.encode", "encoding.protocol"],
    "engines/test_lost_shards.py": ["engines.kept_counts", "engines.lucene_answers"],
    "engines/test_segmented.py": ["engines.numbered_words"],
    "engines/test_stores.py": [
        *("engines.base", "engines.elasticsearch", "engines.lucene"),
        *("engines.lucene_filters", "engines.lucene_options", "engines.lucene_searches", "engines.row_store"),
        *("engines.milvus", "engines.protocols", "engines.qdrant"),
    ],
    "evaluation/test_testsets.py": ["evaluation.clusters"],
    "integrations/test_embedder.py": [
        *("integrations.fastembed", "integrations.langchain_milvus", "integrations.langchain_qdrant"),
    ],
    "integrations/test_searcher.py": [
        *("integrations.haystack", "integrations.langchain", "integrations.llama_index", "integrations.pyterrier"),
    ],
    "integrations/test_site_search.py": ["integrations.mkdocs", "integrations.sphinx"],
    "objectives/test_objectives.py": ["objectives.settings"],
    "publishing/test_publication.py": ["publishing.files", "publishing.manifest"],
    "service/test_app.py": ["service.schemas", "service.service"],
    "service/test_view.py": ["service.pages"],
    "slow/service/test_page.py": ["service.pages"],
    "torch_models/test_checkpoints.py": ["torch_models.adapters"],
    "torch_models/test_export.py": ["torch_models.provenance", "torch_models.torch_model"],
    "torch_models/test_sparse_encoder.py": ["encoding.torch_library", "torch_models.library"],
    "torch_models/test_triton.py": ["torch_models.triton_kernels"],
    "training/pretraining/test_teacher_tasks_classes.py": ["training.pretraining.teacher_tasks"],
    "training/pretraining/test_teacher_tasks_sap.py": ["training.pretraining.teacher_tasks"],
    "training/test_stages.py": ["adapt.queries"],
    "training/test_variants.py": ["core.figures"],
    "wackiness/test_measure.py": ["encoding.term_scores"],
}
LEVEL = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}


def imports(module: str, *, for_types: bool = False) -> set[str]:
    """The modules of vocable that a module imports, in its functions too; `for_types` also those for type checkers."""
    tree, found = TREES[module], set()
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    blocks = [] if for_types else blocks
    unread = {id(node) for block in blocks for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in unread:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "vocable":
            names = {alias.name for alias in node.names} - {"__version__"}
            found |= {full if (full := f"{node.module}.{name}") in TREES else str(node.module) for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in TREES}
    return found - {module}


def room(module: str) -> str:
    """The room of the package that a module belongs to."""
    return "__init__" if module == "vocable" else module.split(".")[1]


def test_imports_run_one_way() -> None:
    above = [
        (module, other) for module in TREES for other in imports(module) if LEVEL[room(other)] > LEVEL[room(module)]
    ]
    assert above == []


def test_what_searches_does_not_import_what_trains() -> None:
    """Models in PyTorch are reached by the module that `vocable.encoding.torch_library` names."""
    search, training = ({name for rooms in side for name in rooms} for side in ([*SEARCH, *SERVING], TRAINING))
    modules = [module for module in TREES if room(module) in search]
    across = [
        (module, other) for module in modules for other in imports(module, for_types=True) if room(other) in training
    ]
    assert across == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: imports(module, for_types=True) for module in TREES}
    reached = {module: set(targets) for module, targets in graph.items()}
    for between in TREES:  # Warshall's algorithm
        for module in TREES:
            if between in reached[module]:
                reached[module] |= reached[between]
    circles = {
        " ".join(sorted({one for one in reached[module] if module in reached[one]}))
        for module in TREES
        if module in reached[module]
    }
    assert not circles


def definitions(kind: type[ast.AST]) -> list[tuple[str, Any]]:
    """The nodes of a kind, with their modules."""
    return [(module, node) for module, tree in TREES.items() for node in ast.walk(tree) if isinstance(node, kind)]


def test_docstrings_begin_with_the_thing() -> None:
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    words = "What", "How", "Where", "Which", "Whether"
    texts = {f"{module}: {ast.get_docstring(node) or ''}" for kind in kinds for module, node in definitions(kind)}
    riddles = [line for text in texts if (line := text.splitlines()[0]).partition(": ")[2].startswith(words)]
    assert not riddles


def test_no_two_classes_or_types_have_one_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if re.fullmatch("[A-Z][A-Za-z]*[a-z][A-Za-z]*", name := ast.unparse(target)):
                    places[name].append(module)
    shared = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert not shared


def test_a_constant_has_one_value() -> None:
    """The same name may stand in several modules for the same expression, and for what each engine has of its own."""
    values: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for module, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if re.fullmatch("_?[A-Z][A-Z0-9_]*", name := ast.unparse(target)) and name != "ENGINE":
                    values[name][module] = ast.unparse(node.value)
    several = {name: found for name, found in values.items() if len(set(found.values())) > 1 and len(name) > 1}
    assert not several


def test_each_module_has_a_test_file() -> None:
    """A module has a file of its name in its room below `tests` or `tests/slow`, or stands in `SHARED`."""
    tests = Path(__file__).parent
    files = {path.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")}
    assert SHARED.keys() <= files
    unnamed = set()
    for module in TREES.keys() - {"vocable", "vocable.__main__"}:
        *rooms, name = module.split(".")[1:]
        if not {"/".join([*slow, *rooms, f"test_{name}.py"]) for slow in ([], ["slow"])} & files:
            unnamed.add(module.removeprefix("vocable."))
    packages = {".".join(path.relative_to(ROOT).parts[:-1]) for path in ROOT.rglob("__init__.py")}
    unnamed -= packages
    shared = {module for modules in SHARED.values() for module in modules}
    assert unnamed == shared
    assert len(unnamed) <= 63


def test_docstrings_and_names_are_plain() -> None:
    """`python tests/plain_english.py` lists each phrase and name."""
    files = [*ROOT.rglob("*.py")]
    counted = [phrases(path) for path in files]
    words = sum(count for _, count in counted)
    assert 1e4 * sum(len(listed) for listed, _ in counted) / words <= 2
    assert sum(len(vague_names(path)) for path in files) <= 10


def test_messages_are_matched_by_facts() -> None:
    """A test matches a file, line, key or number of a message; else the class of the exception is enough."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in Path(__file__).parent.rglob("*.py")]
    keywords = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.keyword)]
    written = [
        node for node in keywords if node.arg == "match" and isinstance(node.value, ast.Constant | ast.JoinedStr)
    ]
    assert len(written) <= 300


def test_files_are_short() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in ROOT.rglob("*.py")}
    long = {path: length for path, length in lengths.items() if length > 450}
    assert not long


def test_functions_have_few_parameters() -> None:
    """Compiled kernels, which take arrays and numbers only, are exempt."""
    counts = {}
    for module, node in definitions(ast.FunctionDef):
        arguments = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        if not any(re.match("overload|triton.jit", ast.unparse(one)) for one in node.decorator_list):
            counts[f"{module}.{node.name}"] = len({*arguments} - {"self", "cls"})
    many = {name: count for name, count in counts.items() if count > 10}
    assert len(many) <= 5, many
    assert max(counts.values()) <= 12, many
