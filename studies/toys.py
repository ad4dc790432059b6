"""Toy recipes: every model and every source of a recipe is replaced by a small one that is made here.

The texts are Python's documentation, the models random (`toy_models`): the results show that each stage of each row can
be carried out, and nothing about the paper.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from studies.given import rename_models
from studies.toy_models import make_backbone, make_tokenizer
from vocable.core.storage import replacing, replacing_folder
from vocable.data import Document, pydocs
from vocable.training.recipe import HardNegatives, Recipe, Source

TEXTS = 240
DOCUMENTS, QUERIES = 24, 6  # of a collection
PART = 512  # texts in a part of vectors
LARGE = 1300  # documents of a study's first collection: three parts, the last one short, and more than any search finds
PAIRS = 40
SHIFT = 0.01  # of the bias of a random model, which the shift of a real one would leave without terms
KINDS = (  # part of a model's name, architecture, family of the tokenizer; the first that fits
    ("modernbert", "modernbert", "byte-level"),
    ("ettin", "modernbert", "byte-level"),
    ("roberta", "roberta", "byte-level"),
    ("albert", "albert", "unigram"),
    ("distilbert", "distilbert", "wordpiece"),
    ("", "bert", "wordpiece"),
)
LEARNING = {
    "steps": 2,
    "batch_size": 4,
    "gradient_accumulation": 1,
    "log_every": 1,
    "save_every": 2,
    "warmup_share": 0,
    "dropout": 0.0,  # whose draws would be others in two processes
    # Adam divides a gradient by its size: where that is rounding alone, two processes part, by as much as the rate.
    "learning_rate": 1e-5,
    "dtype": "float32",  # so that a difference between one process and two is not one of rounding
}


class Toys:
    """Toy models and sources below a folder, each made at its first use."""

    postings = 10_000  # of a shard of an index: the first collection of a study has several

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        entries = (entry for entry in pydocs.documents() if len(entry.text.split()) > 8)
        self._documents = [
            Document(f"d{i}", " ".join(entry.text.split()[:24]), entry.id)
            for i, entry in enumerate(islice(entries, TEXTS))
        ]
        self._texts = [document.full for document in self._documents]

    def model(self, name: str) -> str:
        """The folder of a random model of the architecture that the name suggests."""
        folder = self.folder / "models" / re.sub(r"[^\w.-]+", "-", name)
        if not folder.exists():
            kind, family = next((kind, family) for part, kind, family in KINDS if part in name.lower())
            with replacing_folder(folder) as work:
                tokenizer = make_tokenizer(family, self._texts)
                if "chem-" in name:  # a vocabulary without a model
                    tokenizer.save_pretrained(work)
                else:
                    make_backbone(kind, tokenizer, [text[:60] for text in self._texts[:16]], work)
        return str(folder)

    def texts(self, name: str) -> str:
        """A file of texts."""
        return self._file(f"{_slug(name)}.texts.jsonl", ({"text": text} for text in self._texts))

    def examples(self, name: str) -> str:
        """Write a file of queries, positives and two negatives, all with scores; return its place."""
        rows = []
        for i, document in enumerate(self._documents[:PAIRS]):
            others = [self._documents[(i + step) % PAIRS].full for step in (7, 19)]
            rows.append(
                {"query": document.title, "positive": document.full, "negatives": others, "scores": [9.0, 4.0, 2.0]}
            )
        return self._file(f"{_slug(name)}.examples.jsonl", rows)

    def collection(self, name: str) -> str:
        """A BEIR folder, with documents that depend on the name."""
        start = sum(name.encode()) % (TEXTS - DOCUMENTS)
        return self._beir_folder(name, self._documents[start : start + DOCUMENTS])

    def large_collection(self, name: str) -> str:
        """Write a BEIR folder with documents in several parts and shards; the first are the documents of small ones.

        The queries ask for documents from its beginning, its middle and its end.
        """
        entries = [entry for entry in pydocs.documents() if entry.text]
        documents = list(self._documents)
        for number in range(LARGE - len(documents)):
            entry, turn = entries[number % len(entries)], number // len(entries)
            words = entry.text.split()
            documents.append(Document(f"e{number}", " ".join(words[turn : turn + 12]), f"{entry.id} {number}"))
        return self._beir_folder(name, documents, [*range(0, LARGE, LARGE // (QUERIES - 1)), LARGE - 1])

    def _beir_folder(self, name: str, documents: list[Document], asked: Sequence[int] = range(QUERIES)) -> str:
        """Write documents, and a query for each row that is `asked` for, unless the folder exists."""
        folder = self.folder / "data" / _slug(name)
        if not folder.exists():
            targets = [documents[row] for row in asked]
            with replacing_folder(folder) as work:
                corpus = ({"_id": each.id, "title": each.title, "text": each.text} for each in documents)
                queries = ({"_id": f"q{i}", "text": f"{each.title} {each.text[:20]}"} for i, each in enumerate(targets))
                (work / "corpus.jsonl").write_text(_lines(corpus), encoding="utf-8")
                (work / "queries.jsonl").write_text(_lines(queries), encoding="utf-8")
                judged = [f"q{i}\t{target.id}\t2" for i, target in enumerate(targets)]
                header = "query-id\tcorpus-id\tscore"
                (work / "qrels.tsv").write_text("\n".join([header, *judged]) + "\n", encoding="utf-8")
        return f"beir:{folder}"

    def recipe(self, recipe: Recipe) -> Recipe:
        """The same recipe on toys: the same stages, losses and penalties, fewer and shorter steps."""
        values = recipe.model_dump(mode="json", by_alias=False)
        rename_models(values, recipe, self.model)
        values |= {"data_folder": "", "needs": []}
        if recipe.evaluation is not None:
            values["evaluation"] |= {"datasets": [*map(self.collection, recipe.evaluation.datasets)], "every": 1}
        for stage, settings in recipe.planned():
            if isinstance(settings, bool):
                continue
            part = values[stage.name]
            for key in stage.sources:
                if isinstance(part[key], list):
                    part[key] = [self.texts(source) for source in part[key]]
                elif part[key]:
                    part[key] = self.texts(part[key])
        if recipe.calibrate is not None and recipe.calibrate.shift is not None:
            values["calibrate"]["shift"] = SHIFT
        if recipe.expand is not None:
            values["expand"]["size"] = min(recipe.expand.size, 200)
        self._shorten(values, recipe)
        return Recipe.model_validate(values)

    def _shorten(self, values: dict[str, Any], recipe: Recipe) -> None:
        training, learning = values["training"], values["pretrain"]
        training |= LEARNING | {"query_length": 16, "document_length": 24, "guard": "off"}
        if training["micro_batch"]:
            training["micro_batch"] = 2
        if training["max_terms"]:
            training["max_terms"] |= {role: 20 for role in ("query", "document") if training["max_terms"][role]}
        if learning:
            whole, steps = learning["schedule_steps"], learning["steps"]
            learning |= LEARNING | {"max_length": 24, "held_out": 8, "passes": None}
            if whole is not None:  # checkpoints of one pre-training stay apart
                learning |= {"schedule_steps": 8, "steps": 2 * max(1, round(4 * steps / whole))}
        values["data"]["examples"] = [self.examples(_named(source)) for source in recipe.data.examples]
        values["data"]["negatives"] = min(2, recipe.data.negatives)
        values["saved"] |= {"query_length": 16, "document_length": 24}

    def _file(self, name: str, rows: Iterable[Mapping[str, Any]]) -> str:
        path = self.folder / "data" / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(_lines(rows).encode())
        return str(path)


def _named(source: Source) -> str:
    return source.file if isinstance(source, HardNegatives) else source


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-")


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
