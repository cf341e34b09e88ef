"""Values that are derived once for a job: the same for every batch that needs them."""

from __future__ import annotations

import random

from cfglint_train.memory import setup_builder
from cfglint_train.memory.estimate import estimate
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
            assert reader.plan == setup_builder.drop_output(reader.plan)
            assert not {"model.overrides", "model.architecture"}.intersection(reader.fields)


def test_other_batches_do_not_change_an_estimate() -> None:
    """Return the same estimate after estimates of other batches as the first time."""
    draw = random.Random(22)
    for plan, architecture, hardware in make_cases(100, seed=23):
        setup_builder.build_job.cache_clear()
        first = estimate(plan, architecture, hardware)
        setup_builder.build_job.cache_clear()
        for _ in range(2):
            other = {"batch.micro": draw.randint(1, 9), "sequence.length": draw.choice((512, 640, 4096))}
            estimate(plan.replace(other), architecture, hardware)
        assert estimate(plan, architecture, hardware) == first
