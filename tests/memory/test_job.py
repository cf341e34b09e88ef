"""Values that are derived once for a job, or without the rest of the estimate: the same as in a whole estimate."""

from __future__ import annotations

import random
from typing import Any

from cfglint_train.memory import estimate as estimates
from cfglint_train.memory import setup_builder
from cfglint_train.memory.estimate import estimate, estimate_checkpoint
from cfglint_train.plan.names import Field
from tests.memory.generated import make_cases

FLOWS = ("batch.", "sequence.", "checkpoint.", "eval.", "logging.", "data.")


def test_a_job_is_read_without_its_batch_and_files() -> None:
    """Read none of the fields that are removed from the plan."""
    setup_builder.build_job.cache_clear()
    for plan, architecture, _ in make_cases(200, seed=21):
        job = setup_builder.drop_batch(plan)
        if plan.parallel.strategy is None or plan.method.tuning is None:
            continue
        for ends in (True, False):
            _, _, reader = setup_builder.build_job(job, architecture, ends, 2)
            assert not [field for field in reader.fields if field.startswith(FLOWS)]
            assert not {"model.overrides", "model.architecture"}.intersection(reader.fields)


def test_a_setup_depends_on_no_field_that_is_removed() -> None:
    """Read the same setup from the whole plan, also where the plan is read directly."""
    read_setup = setup_builder._build_job_setup.__wrapped__
    for plan, architecture, _ in make_cases(200, seed=24):
        if plan.parallel.strategy is None or plan.method.tuning is None:
            continue
        others: dict[Field, Any] = {"batch.steps": 100, "eval.enabled": True, "logging.interval": 1, "data.prefetch": 4}
        whole = plan.replace(others)
        for ends in (True, False):
            setup, ranks, _ = read_setup(whole, architecture, ends, 2)
            assert read_setup(setup_builder.drop_output(whole), architecture, ends, 2)[:2] == (setup, ranks)


def test_a_checkpoint_is_estimated_as_with_all_phases() -> None:
    number = 0
    for plan, architecture, hardware in make_cases(200, seed=25):
        whole = estimate(plan, architecture, hardware).find_phase("save")
        alone = estimate_checkpoint(plan, architecture, hardware, frozenset())
        assert (whole is None) == (alone is None)
        if whole is not None and alone is not None:
            assert (alone.host, alone.disk) == (whole.host, whole.disk)
            number += 1
    assert number > 50


def test_other_batches_do_not_change_an_estimate() -> None:
    """Return the same estimate after estimates of other batches as the first time."""
    draw = random.Random(22)
    for plan, architecture, hardware in make_cases(100, seed=23):
        setup_builder.build_job.cache_clear()
        first = estimate(plan, architecture, hardware)
        setup_builder.build_job.cache_clear()
        for _ in range(2):
            other: dict[Field, Any] = {
                "batch.micro": draw.randint(1, 9),
                "sequence.length": draw.choice((512, 640, 4096)),
            }
            estimate(plan.replace(other), architecture, hardware)
        estimates._estimate_once.cache_clear()
        estimates._estimate_group_once.cache_clear()
        assert estimate(plan, architecture, hardware) == first
        overrides: dict[Field, Any] = {"model.overrides": (("rope_scaling", {"type": "linear"}),)}
        assert estimate(plan.replace(overrides), architecture, hardware).fields == first.fields
