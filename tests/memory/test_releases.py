"""Facts that a framework's release decides if a published row's source is silent (`calibration/data/README.md`)."""

from __future__ import annotations

from typing import Any

import pytest

from cfglint_train.calibration import peers, report
from cfglint_train.calibration.compare import PEAK, Comparison, compare
from cfglint_train.calibration.rows import Row, read_rows
from cfglint_train.calibration.subject import Subject, build_subject, change_setup
from cfglint_train.calibration.traced import build_plan
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.setup_builder import read_setup as read_setup
from cfglint_train.models.architecture import Architecture
from cfglint_train.models.lookup import find_entry

ROWS = {row.id: row for row in read_rows() if isinstance(row, Row)}


def compare_row(row: Row) -> Comparison:
    return next(iter(compare([row])))


def get_fields(name: str) -> dict[str, Any]:
    return build_subject(ROWS[name]).fields


def build_setup(row: Row) -> Setup:
    row_subject = build_subject(row)
    row_setup, _ = read_setup(build_plan(row_subject.fields), row_subject.architecture)
    assert row_setup is not None
    return change_setup(row_setup, row_subject.setup)


def find_shape(name: str) -> Architecture:
    shape = find_entry(name)
    assert shape is not None
    return shape


def test_galore_beside_its_readme() -> None:
    """Predict 22.8 GB for a 7B with 8-bit states, layer by layer, although nothing was fitted to it."""
    plan = get_fields("galore-llama7b-4090")
    assert (plan["optimizer.name"], plan["optimizer.rank"]) == ("galore_adamw_layerwise", 1024)
    assert plan["optimizer.state_bits"] == 8
    assert abs(compare_row(ROWS["galore-llama7b-4090"]).error or 1) < 0.05


def test_lisa_has_states_of_what_is_trained_first() -> None:
    row = ROWS["swift-tuner-lisa4"]
    row_setup = build_setup(row)
    shape = row_setup.architecture
    trained = shape.parameters - (shape.layers - 4) * shape.layer_parameters
    assert (row_setup.optimizer.state or 0) * row_setup.weights.trained == pytest.approx(4 * trained)
    assert row_setup.weights.active * row_setup.weights.trained == pytest.approx(trained)
    assert compare_row(row).is_inside


def test_experts_as_transformers_4_has_them() -> None:
    """Place the same weights in modules that adapters of all linear layers reach."""
    row = ROWS["swift-bench-30b-z2-oom"]
    modules, shape = build_subject(row).architecture, find_shape(row.get_text("model"))
    assert sum(item.elements for item in modules.linears) == sum(item.elements for item in shape.linears)
    assert any(item.experts for item in shape.linears)
    assert not any(item.experts for item in modules.linears)
    gemma = ROWS["axo-gemma4-26b-moe-bnb"]
    assert build_subject(gemma).architecture == find_shape(gemma.get_text("model"))


def test_axolotl_quantises_experts() -> None:
    """Quantise experts with quantize_moe_experts: otherwise those of gemma-4-26B alone exceed the published figure."""
    row = compare_row(ROWS["axo-gemma4-26b-moe-bnb"])
    assert row.measured == 21.0
    assert row.error == pytest.approx(0.0, abs=0.12)


def test_axolotls_experts_are_unpacked_layer_by_layer() -> None:
    """Hold gate, up and down of one layer's experts in 16 bits, unless a kernel unpacks only what it needs."""
    row = ROWS["axo-glm4.5-air"]
    plan = {name: value for name, value in row.content["plan"].items() if name != "method.unpacks_experts"}
    kernels = compare_row(Row("kernels", {**row.content, "plan": plan}))
    unpacked = compare_row(row)
    weights = 128 * 3 * 4096 * 1408 * 2 / 2**30
    assert unpacked.predicted is not None
    assert kernels.predicted is not None
    assert weights < unpacked.predicted - kernels.predicted < 1.3 * weights
    assert abs(unpacked.error or 1) < 0.03
    assert "method.unpacks_experts" not in get_fields("axo-gemma4-26b-moe-bnb")  # ScatterMoE


def test_scattermoe_makes_no_whole_weights_for_adapters() -> None:
    """Fit 21 GiB as published for axolotl 0.21.0's example; PEFT's W + BA of a layer's experts is 1.6 GiB."""
    row = ROWS["axo-gemma4-26b-moe-bnb"]
    plan = {name: value for name, value in row.content["plan"].items() if name != "method.fuses_experts"}
    unfused, fused = compare_row(Row("made", {**row.content, "plan": plan})), compare_row(row)
    assert abs(fused.error or 1) < 0.02
    assert (unfused.error or 0) > 0.08


def test_a_kernel_that_is_said_to_be_off() -> None:
    """Keep whole logits for Trinity, whose row says "w/o CCE"."""
    assert get_fields("axo-trinity-nano")["activations.fused_loss"] == "none"
    assert get_fields("axo-olmo3-7b")["activations.fused_loss"] == "cce"


def test_evaluation_makes_logits_that_training_does_not() -> None:
    """Evaluate during training with ms-swift, where Liger's fused loss applies only to training."""
    for name in ("swiftx-full-3b-8k-liger", "swiftx-full-7b-z3-8k-liger"):
        row = compare_row(ROWS[name])
        assert row.phase.startswith("eval")
        assert row.is_inside
    content = ROWS["swiftx-full-3b-8k-liger"].content
    plan = {name: value for name, value in content["plan"].items() if name not in ("eval.enabled", "batch.eval_micro")}
    assert not compare_row(Row("without", {**content, "plan": plan})).phase.startswith("eval")
    # with loss_scale Liger's loss has no effect
    assert get_fields("swiftx-lora-3b-emb")["activations.fused_loss"] == "none"


def test_the_trainers_default_optimizer() -> None:
    """Iterate over lists of tensors with adamw_torch; the row's column has the name of a later default."""
    assert get_fields("swiftx-full-7b")["optimizer.implementation"] == "foreach"
    assert abs(compare_row(ROWS["swiftx-full-7b"]).error or 1) < 0.1


def test_dropout_by_framework() -> None:
    """Use dropout for files of axolotl, except for mixtures, and none for PEFT's comparison."""
    names = ("axo-olmo3-7b", "axo-gemma4-26b-moe-bnb", "peft-mm-lora-rank32")
    assert [get_fields(name)["method.lora_dropout"] for name in names] == [0.05, 0.0, 0.0]


def test_torchtitans_own_configuration() -> None:
    plan = get_fields("titan-nvfp4-qwen3-8b-bf16")
    assert plan["activations.checkpointing"] == "selective_ops"
    assert plan["activations.fused_loss"] == "chunked_logits"
    for name in ("titan-3429-dsv3-full", "titan-822-reshard-never"):
        assert get_fields(name)["activations.fused_loss"] != "chunked_logits"
    # NVFP4's products are separate operations, which its list of kept ones does not name.
    assert get_fields("titan-nvfp4-qwen3-8b-nvfp4-tail")["activations.checkpointing"] == "selective"
    assert get_fields("titan-3429-dsv3-default")["activations.checkpointing"] == "selective_ops"
    assert get_fields("titan-3659-dsv3-hybridep")["activations.checkpointing"] == "full"  # its commit's command line


def test_adapters_beside_fused_experts() -> None:
    """Name experts as parameters with the rank itself, or leave them alone: no file of axolotl adapts all."""
    row = ROWS["axo-qwen3next-nvfp4"]
    plan = get_fields(row.id)
    assert "gate_proj" not in plan["method.lora_targets"]
    assert plan["method.lora_target_parameters"]
    experts = 512 * 48 * 16 * ((2048 + 1024) + (512 + 2048))
    assert 0 < build_setup(row).weights.trained - experts < 0.02 * experts
    assert compare_row(row).is_inside
    assert "method.lora_target_parameters" not in get_fields("axo-olmo3-7b")
    assert get_fields("axo-jamba-1gpu")["method.lora_targets"] == ("all-linear",)


def test_scales_are_quantised_again() -> None:
    assert get_fields("axo-olmo3-7b")["method.double_quantization"]


def test_pefts_comparison_sorts_its_batches() -> None:
    """Sort batches from long to short, without autocast, and empty the cache now and then: no other lengths pile up.

    Their length is a limit: the reserved memory may be a little less than the estimate allows.
    """
    rows = [compare_row(row) for name, row in ROWS.items() if name.startswith("peft-mm-")]
    errors = [abs(row.error) for row in rows if row.error is not None]
    assert len(errors) >= 13
    assert max(errors) < 0.2
    assert report.compute_median(errors) < 0.07
    assert all((row.measured or 0.0) <= (row.high or 0.0) for row in rows if row.error is not None)
    assert sum(row.is_inside is True for row in rows) >= 13
    assert not get_fields("peft-mm-lora-rank32")["precision.autocast"]
    assert get_fields("peft-mm-prefixtuning-lr_0.001")["method.virtual_tokens"] == 200


def test_peers_are_asked_about_what_they_say() -> None:
    """Ask each peer only about runs that its rule covers.

    Accelerate's rule is Adam's, over all weights in fp32, as its command computes it: not GaLore's, LISA's few layers,
    or 8-bit states. The rule of 16 bytes divides as ZeRO does.
    """

    class Accelerate:
        @staticmethod
        def estimate_training_usage(size: int, dtype: str) -> dict[str, int]:
            assert dtype == "float16"
            return {"step": 2 * size}

    def get_subject(name: str) -> Subject:
        return build_subject(ROWS[name])

    assert peers._ask_accelerate(Accelerate, get_subject("swiftx-full-7b")) == pytest.approx(2 * 4 * 7.616e9, rel=0.01)
    for name in ("galore-llama7b-4090", "swift-tuner-lisa4", "tune-l31-8b-full-a6000", "qwen1-qwen-7b-full2gpu-256"):
        assert peers._ask_accelerate(Accelerate, get_subject(name)) is None
    whole = get_subject("swiftx-full-7b")
    parameters = whole.architecture.parameters
    assert peers._apply_rule_of_thumb(whole) == 16 * parameters
    ranks = {"parallel.strategy": "zero", "launch.gpus_per_node": 8, "launch.nodes": 1}
    for stage, bytes_ in ((0, 16), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)):
        spread = whole._replace(fields={**whole.fields, **ranks, "parallel.zero_stage": stage})
        assert peers._apply_rule_of_thumb(spread) == pytest.approx(bytes_ * parameters)
    assert peers._apply_rule_of_thumb(get_subject("swift-tuner-lisa4")) is None


def test_the_cookbook_is_asked_as_its_command_is() -> None:
    """Pass the dimensions through its own parser, and read the answer from its own output."""
    parsed_words: list[list[str]] = []

    class Cookbook:
        @staticmethod
        def config_parser() -> Any:
            class Parser:
                @staticmethod
                def parse_args(arguments: list[str]) -> None:
                    parsed_words.append(arguments)

            return Parser

        @staticmethod
        def calc_mem(_: object) -> None:
            print("Per-GPU Memory Required for Training: 12.50 GiB")

    assert peers._ask_cookbook(Cookbook, build_subject(ROWS["swiftx-full-7b"])) == 12.5 * 2**30
    assert {"--num-layers=28", "--kv-size-ratio=0.14285714285714285", "--num-mlp-linears=3"} <= set(parsed_words[0])
    assert "--checkpoint-activations" in parsed_words[0]
    assert peers._ask_cookbook(Cookbook, build_subject(ROWS["titan-822-reshard-never"])) is None


def test_estimators_for_one_gpu_are_asked_about_runs_that_they_can_be_told() -> None:
    """Read adapters, targets and bits; leave out several GPUs, losses in chunks and methods besides LoRA."""
    names = [row.id for row in report.compare_published() if row.error is not None and row.scope == PEAK]
    runs = {name: peers._read_plain_run(build_subject(ROWS[name])) for name in names}
    told = {name: run for name, run in runs.items() if run is not None}
    assert {run.quantization for run in told.values()} == {"none", "nf4", "int8"}
    assert {run.targets for run in told.values()} == {"minimal", "attention", "all"}
    for name in ("qwen1-qwen-7b-full2gpu-256", "litgpt-hub-llama3-8b-lora", "swift-tuner-lisa4", "galore-llama7b-4090"):
        assert runs[name] is None


@pytest.mark.oracle
@pytest.mark.slow
def test_newer_estimators_answer_about_a_7b_on_one_gpu() -> None:
    """Ask their own code: 7.6 B weights trained as a whole need at least 8 bytes each, with states of 16 bits."""
    asked = peers.load_peers()
    for name in ("fitcheck-llm", "canifinetune", "fitscout"):
        answer = asked[name](build_subject(ROWS["swiftx-full-7b"]))
        assert (answer or 0) > 7.6e9 * 8, name


def test_peers_are_held_against_peaks_only() -> None:
    comparisons = peers.compare_peers(ROWS.values(), report.compare_published())
    assert comparisons["16 bytes"]["installed"]
    assert len(comparisons["16 bytes"]["rows"]) >= 90
    ids = {entry["id"] for peer in comparisons.values() for entry in peer["rows"]}
    flags = {flag for name in ids for flag in ROWS[name].get_words("flags")}
    assert not flags & {"near_capacity", "seq_upper_bound_only", "mbs_unknown"}
    assert all(ROWS[name].get_text("peak_scope") == "train_peak" for name in ids)
    lines = list(peers.render_peers_markdown(comparisons))
    assert lines[0].count("|") == 5
    assert any(line.startswith("| 16 bytes |") for line in lines)
    assert any("not installed" in line or "median error" in line for line in peers.render_peers(comparisons))
