"""Build the source archive, and the wheel from it, in dist/; install the wheel alone, and use it on real text.

Run by `make wheel` and in CI: what the tests cannot see, since they run on an editable install with all extras. Prints
the sizes of the wheel and of the environment, and the seconds of each verb of the base installation. Then the extra
`parquet` is installed, and the verbs that need it are used; at last the source archive, where there is no C compiler.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from time import perf_counter
from urllib.request import Request, urlopen
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
MAX_WHEEL = 95  # MB
# Runs a command, and refuses packages of the extra `train`.
COMMAND = """
import sys
from vocable.cli import main
from vocable.errors import TRAIN
status = main(sys.argv[1:])
sys.stdout.flush()
assert not TRAIN & {*sys.modules}, TRAIN & {*sys.modules}
sys.exit(status)
"""
# Writes a collection in the format of BEIR: known items of `pydocs:`, 200 documents and 40 queries.
COLLECTION = """
import gzip, json
from pathlib import Path
from vocable.data import pydocs
items = [one for one in pydocs.known_items() if one.split == "test"][:200]
documents = [{"_id": one.id, "text": one.rest, "module": one.id.partition(".")[0]} for one in items]
Path("beir/qrels").mkdir(parents=True)
def write(name, rows):
    Path(name).write_text("".join(json.dumps(row) + "\\n" for row in rows), encoding="utf-8")
write("beir/corpus.jsonl", documents)
Path("packed.jsonl.gz").write_bytes(gzip.compress(Path("beir/corpus.jsonl").read_bytes()))
Path("corpus.parquet").touch()
write("beir/queries.jsonl", [{"_id": f"q-{one.id}", "text": one.sentence} for one in items[::5]])
lines = ["query-id\\tcorpus-id\\tscore", *(f"q-{one.id}\\t{one.id}\\t1" for one in items[::5])]
Path("beir/qrels/test.tsv").write_text("\\n".join(lines) + "\\n", encoding="utf-8")
write("more.jsonl", [{"id": "new", "text": "A marmalade cat sleeps on the keyboard.", "module": "cat"}])
write("pairs.jsonl", [{"query": one.sentence, "positive": one.rest} for one in items[:20]])
"""
CORPUS = "beir/corpus.jsonl"
VERBS = [
    f"index vocable-mini {CORPUS} -o index --bm25",
    "index vocable-mini packed.jsonl.gz -o packed",
    f"index vocable-mini-doc {CORPUS} -o lookup",
    "add index more.jsonl",
    "search index 'sleepy feline' -k 1",
    "search index 'sleepy feline' --weights sparse --explain -k 1",
    "search index 'sleepy feline' --filter module=cat",
    "search lookup 'sort a list' -k 2",
    "delete index new",
    "publish index -o site",
    "explain vocable-mini 'fast car' 'A quick automobile'",
    "evaluate vocable-mini --dataset beir:beir --bm25 -m nDCG@10 -o model.json --time-queries 5",
    "evaluate index --dataset beir:beir -m nDCG@10 --hybrid -o index.json --time-queries 5",
    "compare model.json index.json",
    "check index",
    "analyze-postings index",
    "analyze-weights index",
    "recipes my-pairs",
]
# Each needs the extra `parquet`.
PARQUET = [
    f"encode vocable-mini {CORPUS} -o vectors",
    "encode vocable-mini-doc beir/queries.jsonl -o query-vectors --role query",
    "prune vectors -o pruned --max-terms 20",
    "export vectors -o impact --format ciff",
    "analyze-postings vectors",
    "analyze-weights vectors",
    f"index vectors {CORPUS} -o stored",
]
# Each needs the extra, and ends without it in the line that names it.
REFUSED = {
    "parquet": [PARQUET[0], "index vocable-mini corpus.parquet -o refused", "search index --queries corpus.parquet"],
    "train": [
        "train my-pairs -o trained",
        "inspect vocable-mini",
        "export-model vocable-mini -o exported",
        "mine vocable-mini pairs.jsonl -o mined.jsonl",
        "make-testset pairs.jsonl -o test-set",
        f"index vocable-mini {CORPUS} -o dense --dense some-model",
        "evaluate query2doc:some-model --dataset beir:beir",
        "search index --queries hf:some-data",
    ],
}


def run(*command: str | Path, cwd: Path, status: int = 0, **changed: str) -> str:
    """Run a command outside the checkout and return its output; end with its output if its exit status is another."""
    done = subprocess.run(command, cwd=cwd, env=environment() | changed, capture_output=True, text=True)
    if done.returncode != status:
        sys.exit(f"{' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def environment() -> dict[str, str]:
    """Return the variables of this process, without the ones that lead to the checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def megabytes(place: Path) -> float:
    """Return the size of a file, or of the files of a folder."""
    return sum(path.lstat().st_size for path in (place, *place.rglob("*")) if path.is_file()) / 1e6


def build(pip: list[str | Path], work: Path) -> tuple[Path, Path]:
    """Build the source archive and the wheel; the wheel has the files of the package, and the compiled loops."""
    for old in DIST.glob("vocable-*"):
        old.unlink()
    run(*pip, "install", "-qq", "build", cwd=work)
    run(pip[0], "-m", "build", "--outdir", DIST, ROOT, cwd=work)
    [source], [wheel] = DIST.glob("vocable-*.tar.gz"), DIST.glob("vocable-*.whl")
    listed = subprocess.check_output(["git", "ls-files", "src/vocable"], cwd=ROOT, text=True).splitlines()
    expected = {name.removeprefix("src/") for name in listed if not name.endswith((".c", ".h"))}
    packed = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    compiled = [name for name in packed if name.startswith("vocable/indexes/_kernels.")]
    assert (len(compiled), packed - {*compiled}) == (1, expected), packed ^ expected
    assert megabytes(wheel) < MAX_WHEEL, f"{wheel.name}: {megabytes(wheel):.0f} MB, at most {MAX_WHEEL}"
    return source, wheel


def without_compiler(pip: list[str | Path], source: Path, work: Path) -> None:
    """Install the source archive without a C compiler; the README's example gives the same, after a line about it."""
    compiled = run(pip[0], "example.py", cwd=work)
    nothing = {"CC": "false", "PATH": ""}
    run(*pip, "install", "-qq", "--no-deps", "--force-reinstall", source, cwd=work, **nothing)
    *lines, slower = run(pip[0], "example.py", cwd=work, **nothing).splitlines()
    assert lines == compiled.splitlines(), lines
    assert "searches of large indexes take longer" in slower, slower
    print(f"{compiled}without a C compiler the same, and: {slower}")


def use(python: Path, verbs: list[str], work: Path) -> None:
    """Run verbs, and print the seconds and the first line of each."""
    for verb in verbs:
        start = perf_counter()
        shown = run(python, "-c", COMMAND, *shlex.split(verb), cwd=work).splitlines()
        print(f"{perf_counter() - start:5.1f} s  {verb}\n         {(shown or [''])[0][:100]}", flush=True)


def serve(python: Path, work: Path) -> str:
    """Serve the index, search it over HTTP, and stop the service; return its answer."""
    command = [python, "-c", COMMAND, "serve", "index", "--port", "0"]
    with subprocess.Popen(command, cwd=work, env=environment(), stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        try:
            lines = []
            for line in service.stderr:
                lines.append(line)
                if found := re.search(r" at (http://\S+)", line):
                    break
            else:
                sys.exit("".join(lines))
            body = json.dumps({"query": "open a file", "k": 3}).encode()
            request = Request(f"{found[1]}/search", body, {"Content-Type": "application/json"})
            with urlopen(request, timeout=30) as answer:
                hits = json.load(answer)["hits"]
            client = run(python, "-c", COMMAND, "search", found[1], "open a file", "-k", "3", "--json", cwd=work)
        finally:
            service.send_signal(signal.SIGTERM)
        _, rest = service.communicate(timeout=30)
    if service.returncode:
        sys.exit("".join(lines) + rest)
    assert [hit["id"] for hit in json.loads(client)["hits"]] == [hit["id"] for hit in hits], (client, hits)
    return f"{len(hits)} hits over HTTP"


def main() -> None:
    """Print the size of the installation, the seconds of each step, and the output of the README's first example."""
    [example] = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[:1]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        venv.create(work / "venv", with_pip=True)
        python = work / "venv" / "bin" / "python"
        pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check"]
        source, wheel = build(pip, work)
        start = perf_counter()
        run(*pip, "install", "-qq", "-c", ROOT / "constraints.txt", wheel, cwd=work)
        installed = f"{megabytes(work / 'venv'):,.0f} MB in {perf_counter() - start:.0f} s"
        print(f"{wheel.name}: {megabytes(wheel):.0f} MB; with its dependencies and pip {installed}", flush=True)
        place = run(python, "-c", "import vocable; print(vocable.__file__)", cwd=work)
        assert "site-packages" in place, place
        run(python, "-c", COLLECTION, cwd=work)
        use(python, VERBS, work)
        [quality, *_] = json.loads((work / "model.json").read_text())
        assert quality["values"]["nDCG@10"] > 0.5, quality["values"]
        print(f"         serve: {serve(python, work)}", flush=True)
        for extra, verbs in REFUSED.items():
            for verb in verbs:
                [line] = run(python, "-c", COMMAND, *shlex.split(verb), cwd=work, status=2).splitlines()
                assert f"pip install 'vocable[{extra}]'" in line, line
            print(f"{len(verbs)} verbs of the extra `{extra}` refused, as: {line}")
        (work / "example.py").write_text(example)
        run(*pip, "install", "-qq", "-c", ROOT / "constraints.txt", f"{wheel}[parquet]", cwd=work)
        use(python, PARQUET, work)
        without_compiler(pip, source, work)


if __name__ == "__main__":
    main()
