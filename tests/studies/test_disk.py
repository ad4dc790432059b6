"""Disk, memory and operations of a plan, by hand."""

from __future__ import annotations

import pytest

from studies import disk
from studies.cost import Cost, Resources
from studies.plan import Selection, make_plan
from studies.vocabulary_transfer.__main__ import STUDY as TRANSFER
from tests.studies.test_plan import NOWHERE

MODERNBERT = 110e6 + 768 * 50.4e3  # weights
SAP = Selection(["table-6"], ["head-only-direct", "head-only-emlm", "vt-*"])


@pytest.mark.slow
def test_a_teacher_and_the_head_over_all_tokens_are_counted() -> None:
    [run] = make_plan(TRANSFER, NOWHERE, SAP).runs.values()
    assert run.recipe is not None
    tokens, layers, teacher, head = 40_000 * 2048 * 128, 2 * 110e6, 2 * 85.1e6, 2 * 768 * 30.5e3
    cost = Cost.of(run.start, run.recipe, 0, adapts=True, trains=False)
    assert cost.operations == pytest.approx(tokens * (3 * (layers + head) + teacher + head))
    masked = 3 * tokens * (layers + 0.3 * 2 * 768 * 50.4e3)  # without both
    assert 1 - masked / cost.operations == pytest.approx(0.28, abs=0.01)


@pytest.mark.slow
def test_models_examples_and_work_on_disk() -> None:
    plan = make_plan(TRANSFER, NOWHERE, SAP)
    runs = list(plan.runs.values())
    assert disk.of_models(runs) == pytest.approx(2 * 4 * MODERNBERT)  # before and after the training
    assert disk.of_examples(runs, plan.study.sizes) == pytest.approx(160e6 * 8 + 8_841_823 * 350)
    assert disk.at_work(runs) == pytest.approx(12 * MODERNBERT + 40_000 * 2048 * 128 * 4)
    assert "On disk stay 1.2 GB of models, 4.4 GB of prepared examples; a run that is trained takes up to 43.7" in str(
        plan
    )
    assert disk.of_models(make_plan(TRANSFER, NOWHERE, Selection(["table-1"], ["bert", "vt"])).runs.values()) == 0


def test_bm25_takes_more_for_the_first_documents() -> None:
    sizes = (20_000, 60_000, 100_000, 600_000)
    assert [Resources.lexical(size).memory for size in sizes] == [48e6, 144e6, 144e6, 720e6]
