"""Facts decided by measurements on an H100: attention kernels, in-place sums, QLoRA formats, lengths."""

from __future__ import annotations

import random
import re

import pytest

from cfglint_train.calibration import measurements
from cfglint_train.calibration.compare import compare
from cfglint_train.calibration.measurements import compute_records, convert_to_published
from cfglint_train.calibration.rows import read_evidence, read_measured
from cfglint_train.calibration.subject import build_subject
from cfglint_train.foundation.typed import Any
from cfglint_train.memory.budget import Budget
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.layers.layer import compute_layer_cost
from cfglint_train.memory.layers.matrices import FUSED_PARTS, Mode
from cfglint_train.memory.logits import is_summed_in_place
from cfglint_train.memory.save import estimate_save
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.plan.fields import Plan
from tests.memory.jobs import LLAMA_3B, LLAMA_8B, make_plan

FP32: dict[str, Any] = {
    "precision__params": "fp32",
    "precision__compute": "fp32",
    "precision__grads": "fp32",
    "activations__attention": "sdpa",
}
AMP: dict[str, Any] = {"precision__params": "fp32", "precision__grads": "fp32", "precision__autocast": True}
QLORA: dict[str, Any] = {
    "method__tuning": "lora",
    "method__lora_rank": 16,
    "method__lora_targets": ("all-linear",),
    "method__quantization": "nf4",
    "precision__autocast": True,
    "precision__params": "fp32",
    "precision__frozen": "fp32",
}
IDS = ("precision-1b-fp32-1024x1", "precision-1b-fp32-padded", "precision-1b-fp32-ac", "loss-1b-512x1", "save-1b-amp",
       "sft-1b-amp-ac", "qlora-8b-prepared", "sft-1b-varying-ac", "liger-1b-512x2", "liger-1b", "liger-1b-ac",
       "liger-1b-8192x2-ac", "liger-3b-ac", "hf-1b-liger-ac", "dpo-1b-ac", "dpo-1b-512x2", "sft-1b-amp",
       "sft-1b-accumulating", "compiled-1b", "compiled-1b-ac")  # fmt: skip


def make_setup(shape: Any = LLAMA_8B, **changes: Any) -> Setup:
    setup, reader = read_setup(make_plan(**changes), shape)
    assert setup is not None, reader.missing
    return setup


@pytest.mark.parametrize(
    ("changes", "shape", "kernel"),
    [
        ({}, LLAMA_8B, ("math", 2048)),
        ({}, LLAMA_8B._replace(kv_heads=32), ("efficient", 0)),
        ({}, LLAMA_8B._replace(head_dim=512), ("efficient", 0)),
        ({}, LLAMA_8B._replace(window=1024), ("efficient", 2048)),
        ({}, LLAMA_8B._replace(window=4096), ("math", 2048)),
        ({"batch__micro": 2, "sequence__packing": False}, LLAMA_8B, ("efficient", 2048)),
        ({"precision__compute": "bf16", "precision__autocast": True}, LLAMA_8B, ("flash", 0)),
        ({"activations__attention": "eager"}, LLAMA_8B, ("eager", 2048)),
    ],
)
def test_kernel_of_32_bits(changes: dict[str, Any], shape: Any, kernel: tuple[str, int]) -> None:
    mode = make_setup(shape, **{**FP32, **changes}).mode
    assert (mode.attention, mode.sequence) == kernel


def test_scores_of_32_bits_are_kept() -> None:
    mode = Mode(weight=4, attention="math", sequence=2048)
    cost = compute_layer_cost(LLAMA_8B, mode)
    assert cost is not None
    h, i, a = LLAMA_8B.hidden, LLAMA_8B.intermediate, LLAMA_8B.heads
    assert cost.saved == 24 * h + 16 * h + 16 * i + 4 * a * 2048 + 8


@pytest.mark.parametrize(
    ("changes", "in_place"),
    [
        ({}, False),
        ({"precision__params": "fp32", "precision__compute": "fp32"}, False),
        ({"precision__autocast": True}, False),  # 16-bit weights are not cast
        (AMP, True),
        ({"activations__fused_loss": "liger"}, True),
        ({"activations__fused_loss": "tiles"}, True),
        ({"activations__fused_loss": "row_kernel"}, False),
    ],
)
def test_gradients_of_a_tied_matrix(changes: dict[str, Any], in_place: bool) -> None:
    assert is_summed_in_place(make_setup(LLAMA_3B, **changes)) is in_place


def test_prepared_quantised_matrices() -> None:
    """Follow PEFT's `prepare_model_for_kbit_training`.

    The stream has 32 bits, quantised matrices receive 16 and return 32, and there is no fp32 weight whose copy autocast
    would keep.
    """
    cost = compute_layer_cost(LLAMA_8B, make_setup(**QLORA).mode)
    assert cost is not None
    h, kv, i = LLAMA_8B.hidden, LLAMA_8B.kv_heads * LLAMA_8B.head_dim, LLAMA_8B.intermediate
    adapters = 16 * (2 * 2 * h + 2 * (h + kv) + 3 * (h + i))
    # Both norms keep their input; each adapter of q, k, v, gate and up has its own copy.
    saved = 8 * h + 5 * 2 * h + (2 * h + 2 * h + 4 * kv) + 4 * LLAMA_8B.heads + 14 * i + 7 * 2 * 16 + 8
    assert cost.saved == saved
    assert (cost.fixed_saved, cost.made) == (2 * adapters, 0)


@pytest.mark.parametrize("identity", IDS)
def test_measured(identity: str) -> None:
    """Agree within 0.4 % with the memory that torch allocated."""
    rows = [row for row in read_measured() if row.id == identity]
    errors = [comparison.error for comparison in compare(rows) if comparison.counter == "allocated"]
    assert len(errors) == 1
    assert errors[0] is not None
    assert abs(errors[0]) < 0.004


@pytest.mark.parametrize("identity", ["save-1b-bf16", "save-1b-amp", "save-3b-bf16", "zero1-1b", "zero2-1b"])
def test_measured_host_of_saving(identity: str) -> None:
    """Agree within 2 % with the growth of resident memory: a file's weights, or one flat fp32 partition."""
    row = next(row for row in read_measured() if row.id == identity)
    row_subject = build_subject(convert_to_published(row)[0])
    fields = Plan().replace(row_subject.fields)
    setup, reader = read_setup(fields, row_subject.architecture)
    assert setup is not None, reader.missing
    written = estimate_save(setup, fields)
    assert written is not None
    host = row.get_table("host")
    assert sum(written.host.values()) == pytest.approx(host["peak"] - host["before"], rel=0.02)


def test_kernels_of_liger_write_over_what_they_are_given() -> None:
    """Reach the highest point of the backward pass when the gradient of the product is made.

    Kept tensors and that gradient exist then.
    """
    h, kv, i = LLAMA_8B.hidden, LLAMA_8B.kv_heads * LLAMA_8B.head_dim, LLAMA_8B.intermediate
    cost = compute_layer_cost(LLAMA_8B, Mode(liger=FUSED_PARTS, overwrites=True))
    assert cost is not None
    assert cost.saved == 8 * h + 4 * h + 4 * kv + 6 * i + 4 * LLAMA_8B.heads + 8
    highest = max(bytes_ for bytes_, _ in cost.backward)
    assert highest == cost.saved - cost.saved_input + 2 * h + 2 * i


def test_single_kernels_of_liger_save_what_they_replace() -> None:
    """Save 8 bytes per element of the norms, 2 per element of the gated unit, and nothing with the rotary embedding."""
    h, i = LLAMA_8B.hidden, LLAMA_8B.intermediate
    saved = {}
    for parts in ((), ("norm",), ("mlp",), ("rotary",), tuple(FUSED_PARTS)):
        cost = compute_layer_cost(LLAMA_8B, Mode(liger=frozenset(parts), overwrites=True))
        assert cost is not None
        saved[parts] = cost.saved
    plain = saved.pop(())
    assert [plain - size for size in saved.values()] == [8 * h, 2 * i, 0, 8 * h + 2 * i]


def test_measured_out_of_memory() -> None:
    rows = [row for row in read_measured() if row.id == "precision-1b-fp32"]
    comparison = next(iter(compare(rows)))
    assert comparison.outcome == "oom"
    assert comparison.verdict == "does not fit"


@pytest.mark.parametrize(
    ("lengths", "told"),
    [
        ([2048], 0),
        ([2048, 2048, 1024], 0),  # the longest is first
        ([512, 2048, 900], 0.25),
        ([500, 1000, 2000], 0.75),
    ],
)
def test_batches_that_were_the_longest_so_far(lengths: list[int], told: float) -> None:
    assert compute_records(lengths) == told


@pytest.mark.oracle
def test_a_trainer_shuffles_rows_as_the_harness_says() -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator()
    generator.manual_seed(42)
    assert tuple(torch.randperm(40, generator=generator).tolist()) == measurements._SHUFFLED_ORDER


VARYING = [row for row in read_measured() if row.get_table("config").get("lengths")]


@pytest.mark.parametrize("row", VARYING, ids=lambda row: row.id)
def test_lengths_of_a_known_order(row: Any) -> None:
    """Agree within 8 % with the memory that torch reserved.

    The loss is kept for each batch that was the longest so far.
    """
    comparison = next(item for item in compare([row]) if item.counter == "reserved")
    assert comparison.error is not None
    assert comparison.is_inside
    assert abs(comparison.error) < 0.08


def test_there_are_rows_of_varying_lengths() -> None:
    assert len(VARYING) == 9


REPLAYS = [row for row in read_evidence("derived") if "lengths-" in row["id"]]


@pytest.mark.parametrize("row", REPLAYS, ids=lambda row: row["id"])
def test_lengths_of_a_replay(row: dict[str, Any]) -> None:
    """Draw 120 lengths as `tests/oracles/reserve_rows.py` does.

    The result is the peak plus a loss of 12 bytes per token and word for each length that was the longest so far.
    """
    reserved, allocated = (int(re.search(rf"{name} (\d+)", row["what"])[1]) for name in ("reserved", "allocated"))
    draw = random.Random(int(row["id"].rsplit("-", 1)[1]))
    lengths = [draw.randint(128, 2048) for _ in range(120)]
    vocab = next(size for name, size in VOCABULARIES.items() if name in row["id"])
    assert allocated + compute_records(lengths) * 12 * max(lengths) * vocab == pytest.approx(reserved, rel=0.18)


VOCABULARIES = {"qwen-1.8b": 151_936, "llama2-7b": 32_000, "llama3.2-1b": 128_256}


def test_lengths_of_an_unknown_order_change_no_verdict() -> None:
    """Count remains of earlier lengths as reserved: torch gives them back before an allocation fails."""

    def find_budget(**changes: Any) -> Budget:
        phase = estimate(make_plan(batch__micro=8, activations__attention="flash", **changes), LLAMA_8B).find_phase(
            "forward"
        )
        assert phase is not None
        assert phase.gpu is not None
        return phase.gpu

    packed, unpacked = find_budget(sequence__packing=True), find_budget(sequence__packing=False)
    assert packed.cached == 0 < unpacked.cached
    assert (packed.low, packed.high, packed.expected) == (unpacked.low, unpacked.high, unpacked.expected)
