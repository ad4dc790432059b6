"""Seconds of one core for the parts of a run that need no GPU: reading, preparing, sampling, indexing, search, removal.

Each constant is processor time on a core of an AMD EPYC with busy neighbours, measured in November 2026: random vectors
of 250 terms as in benchmarks/search.py, texts of 170 characters, and negatives as on the Hub. The number of terms that
a query shares with a document is assumed, not measured. Cutting texts for pre-training is left out, and so are
downloads by libraries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from studies.cost import TERMS
from vocable.training.recipe import HardNegatives, Recipe
from vocable.wackiness.ablate import RANDOM_DRAWS, THRESHOLDS

READ = 18e-6  # a document of a source
WRITE_VECTOR, READ_VECTOR = 48e-9, 26e-9  # a term of a stored vector
INDEX = 24e-9  # a posting: made, saved and opened
SEARCH = 2.3e-9  # a posting that a query reads, of 5.4 million documents
HIT = 3.8e-6  # a hit that is found, sorted and judged
CUT = 104e-6  # a text whose own terms are told from its expansions
PREPARE, SCORE, SAMPLE = (
    2.8e-3,
    1.4e-6,
    6e-6,
)  # a query's candidates; a pickled score; an example that is sampled and read

SHARED = 3  # terms of a query and a document: assumed, as FLOPS of the papers are 1 to 5
DEPTH = 1000  # hits of a query
QUERIES = 1000  # of a dataset whose number is not known
MINED_QUERIES, MINED_SCORES = 502_939, 160e6  # of msmarco-hard-negatives
SEARCHES = len(THRESHOLDS) * (RANDOM_DRAWS + 1)  # of a removal; all queries are taken to change


def searching(documents: float, queries: float) -> float:
    """Seconds of a search of all queries, with the measures of their hits."""
    return queries * (documents * SHARED * SEARCH + min(DEPTH, documents) * HIT)


def indexing(documents: float) -> float:
    """Seconds to write the vectors of encoded documents, to read them again and to index them."""
    return documents * TERMS * (WRITE_VECTOR + READ_VECTOR + INDEX)


def measuring(measures: Iterable[str], documents: float, queries: float) -> float:
    """Return the seconds of the named measurements on a dataset, without encoding and `indexing` its collection.

    `removal` and `wackiness` each read the dataset, index its vectors again and cut its texts.
    """
    again = documents * (READ + CUT + TERMS * (READ_VECTOR + INDEX))
    seconds = documents * READ
    for measure in measures:
        if measure == "quality":
            seconds += searching(documents, queries)
        elif measure == "wackiness":
            seconds += again + searching(documents, min(queries, 10_000))
        elif measure == "removal":
            seconds += again + SEARCHES * searching(documents, queries)
        elif measure in ("postings", "term_weights", "terms_of_a_text"):
            seconds += documents * TERMS * READ_VECTOR
    return seconds


def preparing(recipe: Recipe, sizes: Mapping[str, int], done: set[str]) -> float:
    """Seconds to prepare the examples of a recipe that samples negatives, but those whose sources are `done`."""
    if recipe.data.sampling != "random":
        return 0.0
    seconds = 0.0
    for source in recipe.data.examples:
        if isinstance(source, HardNegatives) and source.file not in done:
            scores = 0.0 if source.scores is None else MINED_SCORES * SCORE
            seconds += MINED_QUERIES * PREPARE + scores + max(sizes.values(), default=0) * READ
            done.add(source.file)
    return seconds


def sampling(recipe: Recipe) -> float:
    """Seconds to sample and read the examples of a training."""
    settings = recipe.training
    return settings.steps * settings.batch_size * settings.gradient_accumulation * SAMPLE
