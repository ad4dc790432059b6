"""What pytest leaves out where it is not installed."""

from importlib.util import find_spec

# Modules that import Triton, which exists for Linux alone; `vocable` imports them for CUDA tensors only.
collect_ignore = [] if find_spec("triton") else [f"src/vocable/encoder/triton{end}.py" for end in ("", "_kernels")]

# Modules whose classes are those of a framework.
FRAMEWORKS = {
    "haystack": "haystack",
    "langchain": "langchain_core",
    "llama_index": "llama_index",
    "pyterrier": "pyterrier",
}
collect_ignore += [
    f"src/vocable/integrations/{ours}.py" for ours, theirs in FRAMEWORKS.items() if not find_spec(theirs)
]

# Scripts: their tests run them as processes; imports for processes of their own.
collect_ignore_glob = ["tests/torture/[!t]*.py", "tests/preload.py"]
