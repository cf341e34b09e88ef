"""How a user's own runs move an interval, and that the moved interval is honest on published figures."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.calibration.compare import Comparison
from cfglint_train.calibration.fit import compare_left_out, get_framework, is_booking_evidence
from cfglint_train.calibration.rows import read_rows
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory.budget import STEP_PHASES
from cfglint_train.memory.comparable import MIN_OWN_SETUPS, OwnRuns
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.own_runs import Measurement, apply_own_runs, classify_own, compute_residual, summarise
from cfglint_train.models.lookup import find_entry
from cfglint_train.plan.fields import Plan
from tests.support.corpus import REPOSITORY

FIELDS = {
    "method.tuning": "full",
    "optimizer.name": "adamw",
    "parallel.strategy": "none",
    "precision.compute": "bf16",
    "precision.params": "bf16",
    "sequence.length": 2048,
}
MODEL = find_entry("Qwen/Qwen2.5-0.5B")
GPU = Hardware(gpu="A100-80GB", gpu_bytes=80 * 2**30)
PUBLISHED = estimate(Plan().replace({**FIELDS, "batch.micro": 3}), MODEL, GPU)
KIND = classify_own(PUBLISHED.find_peak("gpu").gpu.setup)


def measure(micro: int, factor: float, is_bound: bool = False, counter: str = "allocated") -> Measurement:
    """Return a measurement of `factor` times the estimate."""
    plan = Plan().replace({**FIELDS, "batch.micro": micro})
    peak = estimate(plan, MODEL, GPU).find_peak("gpu").gpu
    return Measurement(plan, MODEL, GPU, counter, getattr(peak, counter) * factor, is_bound)


def summarise_all(measurements: list[Measurement]) -> dict[str, OwnRuns]:
    return summarise([(item, residual) for item in measurements if (residual := compute_residual(item)) is not None])


runs = st.lists(
    st.builds(measure, st.integers(1, 6), st.floats(0.3, 2), st.booleans(), st.sampled_from(["allocated", "reserved"])),
    max_size=8,
)


@given(runs, st.randoms(use_true_random=False))
def test_bounds_stay_around_the_estimate_in_any_order(measurements, shuffler):
    moved = apply_own_runs(PUBLISHED, summarise_all(measurements))
    for before, after in zip(PUBLISHED.phases, moved.phases):
        assert after.gpu.sizes == before.gpu.sizes
        assert after.gpu.low <= after.gpu.expected <= after.gpu.high
        assert after.gpu.own_runs is None or after.name in STEP_PHASES
    shuffled = measurements[:]
    shuffler.shuffle(shuffled)
    assert apply_own_runs(PUBLISHED, summarise_all(shuffled)) == moved


@given(runs)
def test_runs_inside_of_their_interval_never_widen(measurements):
    inside = [
        item for item in measurements if (residual := compute_residual(item)) and not (residual.below or residual.above)
    ]
    for before, after in zip(PUBLISHED.phases, apply_own_runs(PUBLISHED, summarise_all(inside)).phases):
        assert before.gpu.low <= after.gpu.low
        assert after.gpu.high <= before.gpu.high
        assert after.gpu.own_runs is None or not after.gpu.own_runs.widened


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 50))
def test_more_equal_runs_narrow_more(published, own, setups):
    fewer, more = OwnRuns(-own, own, setups), OwnRuns(-own, own, setups + 1)
    assert more.move_high(published) <= fewer.move_high(published) + 1e-12 <= published + 2e-12
    assert more.move_low(-published) == -more.move_high(published)
    if setups < MIN_OWN_SETUPS:
        assert fewer.move_high(published) == published


def test_reserved_memory_of_a_full_gpu_says_nothing():
    small = GPU._replace(gpu_bytes=int(measure(3, 1.0, counter="reserved").size))
    assert compute_residual(measure(3, 1.0, counter="reserved")._replace(hardware=small)) is None
    assert compute_residual(measure(3, 1.0)._replace(hardware=small)) is not None


def test_what_ran_out_of_memory_inside_of_its_interval_keeps_narrowing():
    """A full GPU caps what a run could reach, but not what it asked for."""
    full = measure(3, 1.02, is_bound=True)
    full = full._replace(hardware=GPU._replace(gpu_bytes=int(measure(3, 1.01).size)))
    residual = compute_residual(full)
    assert residual.error == pytest.approx(0.02)
    assert not residual.above
    assert compute_residual(full._replace(is_bound=False)).above
    assert compute_residual(full._replace(size=1.5 * full.size)).above
    inside = [measure(micro, 1.0) for micro in (1, 2, 3)]
    high = PUBLISHED.find_peak("gpu").gpu.high
    assert apply_own_runs(PUBLISHED, summarise_all([*inside, full])).find_peak("gpu").gpu.high < high


@pytest.fixture(scope="module")
def published() -> list[Comparison]:
    """Return the published figures that margins are fitted to, each with its framework left out."""
    return [row for row in compare_left_out(read_rows()) if not row.skipped and is_booking_evidence(row)]


def leave_setups_out(rows: list[Comparison], count: int) -> Iterator[tuple[str, Comparison, list[Comparison]]]:
    """Yield the framework, a row of a left-out set-up, and rows of `count` other set-ups of its framework and class."""
    groups: dict[tuple[str, str], dict[str, list[Comparison]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        known = [name for name in row.rests_on if name in ("traced", "untraced", "compiled")]
        groups[get_framework(row), f"{row.kind}, {known}"][row.group].append(row)
    chance = random.Random(count)
    for (framework, _), setups in groups.items():
        if len(setups) <= count:
            continue
        for left_out in setups:
            for _ in range(100):
                names = chance.sample([name for name in setups if name != left_out], count)
                yield framework, chance.choice(setups[left_out]), [chance.choice(setups[name]) for name in names]


@pytest.mark.parametrize("count", [3, 4])
def test_the_narrowed_interval_keeps_its_promise_on_left_out_setups(published, count):
    """The share of figures above the interval must stay that of the published one; each framework counts once."""
    shares: dict[str, list[tuple[bool, bool, bool, float, float]]] = defaultdict(list)
    for framework, row, others in leave_setups_out(published, count):
        errors = [1 / (1 + other.error) - 1 for other in others]
        below, above = sum(other.is_below for other in others), sum(other.is_above for other in others)
        own = OwnRuns(min([0, *errors]), max([0, *errors]), count, below, above)
        low, high = row.low / row.predicted - 1, row.high / row.predicted - 1
        moved_low, moved_high = own.move_low(low), own.move_high(high)
        error = row.measured / row.predicted - 1
        alone = max([0, *errors]) * (1 + 1 / count)
        shares[framework].append((error > high, error > moved_high, error > alone, high - low, moved_high - moved_low))
    before, after, alone, width, moved_width = (
        sum(sum(values) / len(values) for values in column) / len(shares)
        for column in zip(*(zip(*members) for members in shares.values()))
    )
    assert after <= before + 0.01
    assert alone > before + 0.05  # why the range of the own runs alone is not used
    narrower = f"{1 - moved_width / width:.0%}".replace("%", " %")
    cells = [str(count), str(len(shares)), *(f"{share * 100:.1f} %" for share in (before, after))]
    page = (REPOSITORY / "docs" / "memory" / "own-runs.md").read_text()
    assert f"| {' | '.join([*cells, f'{narrower} narrower', f'{alone * 100:.1f} %'])} |" in page
