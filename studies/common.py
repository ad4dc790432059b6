"""Reproduce the tables and figures of a paper: carry out each run of the plan once, and print our figures and the
published figures side by side.

A study is a script that describes its experiments as a `Study` and calls `main`.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, get_args

import torch
from datasets import disable_progress_bars
from transformers.utils import logging as hf_logging

from studies.cost import TFLOPS
from studies.plan import Plan, Selection, Study, make_plan
from studies.results import Reproduction, reproduction
from studies.runs import RunError
from studies.toys import PART, Toys
from vocable.cli import silence
from vocable.core.progress import progress
from vocable.core.storage import locked
from vocable.data import tolerating
from vocable.encoding import stream
from vocable.errors import ArgumentError, DataError, LostProcessError, VocableError, require_extra
from vocable.options import DType
from vocable.training import distributed

logger = logging.getLogger("vocable.studies")


def reproduce(
    study: Study,
    output: Path,
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    toy: bool = False,
    overrides: Sequence[str] = (),
    models: Sequence[str] = (),
    added: Sequence[str] = (),
    dtype: DType = "float32",
) -> Reproduction:
    """Carry out the runs of the selected rows; an interrupted call resumes when repeated.

    A run that fails leaves its cells empty and the others go on; a repeated call tries it again.

    Args:
        study: the paper's experiments.
        output: folder of models, measurements and the page index.html.
        only: names or patterns of exhibits and rows, as "table-2" and "bert-*"; by default all.
        skip: exhibits and rows to leave out.
        toy: use small random models and few texts, to show that every stage of every row can be carried out.
        overrides: `KEY=VALUE` texts that change keys of all recipes, as "data_folder=DATA".
        models: `NAME=MODEL` texts that replace the models of rows, or checkpoints, teachers too, wherever they are
            read, as "naver/splade-v3=converted".
        added: `ROW=MODEL` texts of further rows, models that are measured in every exhibit as they are.
        dtype: number type in which texts are encoded to be measured. In bfloat16 the values depend a little on how
            texts are divided into batches.

    Raises:
        ArgumentError: an unknown exhibit, row or checkpoint.
        InUseError: another process writes into the output.
        DataError: a missing source, with instructions to get it.
        RecipeError: an override that is not valid, or an output of other recipes.
    """
    require_extra("matplotlib", "figures")
    distributed.join()
    with ExitStack() as stack:
        with distributed.first_alone():  # the others find the toys
            if distributed.is_first():
                stack.enter_context(locked(output))
            toys = Toys(output / "toys") if toy else None
            named: dict[str, Any] = {"models": models, "added": added, "dtype": dtype}
            plan = make_plan(study, output, Selection(only, skip), overrides, toys, **named)
        if plan.missing:
            place, instructions = next(iter(plan.missing.items()))
            others = f", nor are {more} others (--dry-run lists them)" if (more := len(plan.missing) - 1) else ""
            raise DataError(f"not there{others}: {instructions}", source=place)
        if toy:
            stack.enter_context(_small())
        return _carry_out(plan, output, toy=toy)


def _carry_out(plan: Plan, output: Path, *, toy: bool) -> Reproduction:
    """Carry out the runs of a plan one after the other, and write the results after each."""
    values, failed = {name: run.measured(plan.places) for name, run in plan.runs.items()}, dict[str, str]()
    not_adapted: dict[str, str] = {}  # runs that share an adapted model which could not be made, and why
    with progress("runs", total=len(plan.runs)) as advance:
        for name, run in plan.runs.items():
            try:
                if run.shares_with in not_adapted:
                    raise RunError(not_adapted[run.shares_with])
                run.carry_out(plan.places)
            except LostProcessError:
                raise
            except (VocableError, OSError) as error:
                failed[name] = str(error)
                if not run.is_adapted:
                    not_adapted[run.shares_with] = failed[name]
                logger.warning("%s: %s", name, error)
                gc.collect()  # a trainer and its model refer to each other
            values[name] = run.measured(plan.places)
            result = reproduction(plan, values, failed, output, toy=toy)
            if distributed.is_first():
                result.write()
            advance(1)
    if distributed.is_first():
        result.write_page()
    distributed.wait()
    return result


@contextmanager
def _small() -> Iterator[None]:
    """Settings for toys: one thread, small parts, no warnings of models that have learned nothing, little garbage."""
    threads, part = torch.get_num_threads(), stream.PART_SIZE
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    stream.PART_SIZE = PART
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        stream.PART_SIZE = part
        torch.set_num_threads(threads)
        logging.disable(logging.NOTSET)


def silence_libraries() -> None:
    """Turn off the progress bars and warnings of libraries in a study, also of those that were imported before."""
    silence()
    hf_logging.disable_progress_bar()
    hf_logging.set_verbosity_error()
    disable_progress_bars()


def main(study: Study, arguments: Sequence[str] | None = None) -> int:
    """Run the command line of a study, and return its exit status.

    It is 2 for a user error, which is printed as one line, and 1 if a row is not complete.
    """
    name = study.folder.name
    parser = argparse.ArgumentParser(prog=f"python -m studies.{name}", description=study.about)
    parser.add_argument("-o", "--output", type=Path, help="folder of models, measurements and the page")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="an exhibit, as table-2, or a row; may be repeated"
    )
    parser.add_argument("--skip", action="append", default=[], metavar="NAME", help="an exhibit or a row to leave out")
    parser.add_argument("--dry-run", action="store_true", help="print the plan: the runs, their cost, missing data")
    parser.add_argument("--toy", action="store_true", help="run on small random models and few texts")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="change a key of all recipes"
    )
    named = "read the model of a row, or a checkpoint, from here"
    parser.add_argument("--model", action="append", default=[], metavar="NAME=FOLDER", help=named)
    row = "a further row of every exhibit: a model of your own"
    parser.add_argument("--add", action="append", default=[], metavar="ROW=FOLDER", help=row)
    types = get_args(DType)
    parser.add_argument("--dtype", choices=types, default="float32", help="number type in which texts are encoded")
    parser.add_argument(
        "--tflops", type=float, default=TFLOPS, help="10^12 operations per second of a GPU, of the plan"
    )
    parser.add_argument("--skip-bad", type=int, default=0, metavar="N", help="bad lines in the data to leave out")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    silence_libraries()
    try:
        if not options.tflops > 0:
            raise ArgumentError(f"--tflops must be above 0, not {options.tflops:g}")
        if options.dry_run and options.toy:
            raise ArgumentError("--toy needs no plan: leave out --dry-run")
        if options.output is None and not options.dry_run:
            raise ArgumentError("--output: name a folder, or only plan with --dry-run")
        result: Plan | Reproduction
        if options.dry_run:
            chosen = Selection(options.only, options.skip)
            folder = options.output or Path(name)
            models: dict[str, Any] = {"models": options.model, "added": options.add}
            result = make_plan(study, folder, chosen, options.override, tflops=options.tflops, **models)
        else:
            with tolerating(options.skip_bad):
                result = reproduce(
                    study,
                    options.output,
                    only=options.only,
                    skip=options.skip,
                    toy=options.toy,
                    overrides=options.override,
                    models=options.model,
                    added=options.add,
                    dtype=options.dtype,
                )
    except (VocableError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    if distributed.is_first():
        print(json.dumps(result.to_json(), indent=2) if options.json else result)
    return 1 if isinstance(result, Reproduction) and result.failed else 0
