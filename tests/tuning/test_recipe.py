"""The scale of a model's scores and vectors, and the recipe that follows from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from vocable.errors import ModelError
from vocable.training.recipe_files import make_recipe
from vocable.tuning.recipe import EXAMPLES_FILE, Scale, measure_scale, recipe
from vocable.tuning.settings import DOCUMENT_COST, QUERY_COST, QUESTIONS_PER_STEP, TEMPERATURE

WEIGHTS = st.floats(0, 4, width=32)


@given(arrays(np.float32, (3, 5), elements=WEIGHTS), arrays(np.float32, (6, 5), elements=WEIGHTS))
def test_the_scale_is_numpys(queries: np.ndarray, documents: np.ndarray) -> None:
    spreads = [np.std([float(query @ document) for document in documents]) for query in queries.astype(np.float64)]
    flops = [sum(float(column.astype(np.float64).mean()) ** 2 for column in one.T) for one in (queries, documents)]
    found = measure_scale(csr_array(queries), csr_array(documents))
    assert (found.score_spread, found.query_flops, found.document_flops) == pytest.approx(
        (float(np.mean(spreads)), *flops), rel=1e-4, abs=1e-4
    )


def test_a_scaled_model_gets_the_same_training() -> None:
    """Scores ten times as large, of queries twice and documents five times as heavy, change nothing but the units."""
    rng = np.random.default_rng(0)
    queries, documents = csr_array(rng.random((8, 9))), csr_array(rng.random((20, 9)))
    one, other = measure_scale(queries, documents), measure_scale(2 * queries, 5 * documents)
    first, second = (recipe("m", scale, 5, 0, "float32")["training"] for scale in (one, other))
    assert second["losses"][0]["temperature"] == pytest.approx(10 * first["losses"][0]["temperature"], rel=0.01)
    for role, factor in (("query", 4), ("document", 25)):
        assert second["regularizers"][role] == pytest.approx(first["regularizers"][role] / factor, rel=0.01)


def test_the_recipe_is_valid_and_says_all() -> None:
    values = recipe("m", Scale(2.0, 0.5, 10.0), 40, 3, "bfloat16")
    made = make_recipe({**values, "data_folder": "/x"})
    assert (made.model, made.seed, made.training.steps, made.training.batch_size) == ("m", 3, 40, QUESTIONS_PER_STEP)
    assert [loss.name for loss in made.training.losses] == ["info_nce"]
    assert values["training"]["losses"][0]["temperature"] == TEMPERATURE * 2.0
    assert values["training"]["regularizers"] == {
        "query": pytest.approx(QUERY_COST / 0.5),
        "document": pytest.approx(DOCUMENT_COST / 10.0),
    }
    assert (made.data.examples, made.data.held_out, made.saved.dtype) == ([EXAMPLES_FILE], 0, "bfloat16")


@pytest.mark.parametrize("scale", [Scale(0.0, 1.0, 1.0), Scale(1.0, 0.0, 1.0), Scale(1.0, 1.0, 0.0)])
def test_a_model_that_scores_nothing_is_refused(scale: Scale) -> None:
    with pytest.raises(ModelError):
        recipe("dead", scale, 5, 0, "float32")
