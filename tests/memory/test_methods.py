"""Stages and adapters other than supervised training with LoRA."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.memory.adapters import AdapterSize, find_rank
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.layers.families import FAMILIES
from cfglint_train.memory.layers.layer import compute_layer_cost
from cfglint_train.memory.layers.matrices import FUSED_PARTS, Matrices, Mode
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.memory.tape import Cost
from cfglint_train.memory.trained import OTHER_METHODS
from cfglint_train.memory.unfrozen import count_trained
from cfglint_train.models.architecture import Architecture, Linear
from cfglint_train.models.hf_config import parse_config
from cfglint_train.plan.enumerations import list_choices
from tests.memory.jobs import LLAMA_8B, get_gpu, make_llama, make_plan, sum_parts
from tests.memory.test_engine import PYTHON
from tests.memory.test_optimizers import SMALL

COUNTS = Path(__file__).parents[1] / "oracles" / "adapter_counts.py"
ROWS = [json.loads(line) for line in Path(__file__).with_name("adapters.jsonl").read_text("utf-8").splitlines()]

TOKENS, WORDS = 2 * 2 * 2048, LLAMA_8B.vocab


def test_a_reference_model_makes_logits_beside_those_of_the_policy() -> None:
    """Count the fp32 logits and log-softmax of both models in LLaMA-Factory's DPO: 16 bytes per token and word."""
    job = make_plan(method__stage="dpo", batch__pairs=True, batch__micro=2, activations__passing_logits=16)
    budget = get_gpu(estimate(job, LLAMA_8B), "forward")
    assert sum_parts(budget, "logits and loss") == TOKENS * WORDS * 16
    phase = estimate(job, LLAMA_8B).find_phase("forward")
    assert phase is not None
    assert phase.event == "logits in addition to the loss's"


@pytest.mark.parametrize("made", [0, 6])
def test_a_reward_model_may_make_logits_for_nothing(made: int) -> None:
    job = make_plan(method__stage="rm", batch__pairs=True, batch__micro=2, activations__passing_logits=made or None)
    assert sum_parts(get_gpu(estimate(job, LLAMA_8B), "forward"), "logits and loss") == TOKENS * WORDS * made
    assert sum_parts(get_gpu(estimate(job, LLAMA_8B), "backward"), "logits and loss") == 0


def make_row_plan(row: dict[str, Any]) -> Any:
    """Build the plan of a row."""
    options = row["options"]
    kind = {"dora": "lora"}.get(row["method"], row["method"])
    oft = kind == "oft"
    rank = options.get("r", options.get("init_r", options.get("n_frequency")))
    return make_plan(
        method__tuning=kind, method__lora_rank=None if oft else rank, method__lora_dora=options.get("use_dora"),
        method__lora_targets=tuple(options.get("target_modules", ())), method__block_size=options.get("oft_block_size"),
        method__blocks=rank if oft else None, method__virtual_tokens=options.get("num_virtual_tokens"),
        precision__adapter="fp32", precision__frozen="bf16",
    )  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['method']}-{row['trained']}")
def test_trained_parameters_are_those_of_peft(row: dict[str, Any]) -> None:
    setup, reader = read_setup(make_row_plan(row), SMALL)
    assert setup is not None, reader.missing
    assert setup.weights.trained == row["trained"]
    assert setup.weights.frozen >= SMALL.parameters


def test_every_method_is_held_to_peft() -> None:
    assert {row["method"] for row in ROWS} - {"lora", "dora"} == OTHER_METHODS - {"ln_tuning"}
    assert set(list_choices("method.tuning") or ()) == OTHER_METHODS | {"full", "freeze", "lora"}


def test_a_rotation_keeps_what_a_thin_adapter_keeps() -> None:
    sizes = {}
    for row in ROWS:
        if row["method"] in ("lora", "oft", "prompt_tuning"):
            fields = make_row_plan(row).replace({"activations.checkpointing": "none"})
            sizes[row["method"]] = sum_parts(get_gpu(estimate(fields, LLAMA_8B), "forward"), "activations")
    assert sizes["prompt_tuning"] < sizes["oft"] < sizes["lora"]


def test_a_rotation_without_a_size_is_missing() -> None:
    fields = make_plan(method__tuning="oft", precision__adapter="fp32")
    assert "method.block_size" in estimate(fields, LLAMA_8B).missing


PATTERNS = {
    ("model.layers.1.mlp",): (3 * 256 * 688, 1),
    ("model.layers.[01].self_attn.[qv]_proj", "lm_head.weight"): (2 * (256 * 256 + 256 * 128) + 4000 * 256, 2),
    ("^model.embed_tokens.weight$[:100]", "model.layers.1+.mlp.down_proj"): (4000 * 256 + 688 * 256, 2),
    ("layers.1.mlp",): None,
    ("model.layers.(",): None,
}


@pytest.mark.parametrize(("patterns", "expected"), PATTERNS.items())
def test_patterns_of_names_say_what_is_trained(patterns: tuple[str, ...], expected: tuple[int, int] | None) -> None:
    assert count_trained(SMALL, patterns) == expected
    fields = make_plan(method__tuning="freeze", method__unfrozen=patterns)
    setup, reader = read_setup(fields, SMALL)
    assert ("method.unfrozen" in reader.missing) is (setup is None) is (expected is None)
    if setup is not None:
        assert (setup.weights.trained, setup.weights.layers) == expected
        assert setup.weights.trained + setup.weights.frozen == SMALL.parameters


def test_unknown_names_are_known_where_whole_layers_are_trained() -> None:
    odd = SMALL._replace(linears=(*SMALL.linears, Linear("mixer", 256, 256, 1)))
    assert count_trained(odd, ("model.layers.",)) == (sum(item.elements for item in odd.list_linear_modules()), 2)
    assert count_trained(odd, ("model.layers.1.",)) is None
    assert count_trained(SMALL, ("model.language_model.*",)) is None


def test_a_part_of_the_layers_leaves_a_part_of_the_gradients() -> None:
    backward = []
    for patterns in (("model.layers.",), ("model.layers.[0-9]+.mlp.down_proj",)):
        fields = make_plan(method__tuning="freeze", method__unfrozen=patterns)
        backward.append(sum_parts(get_gpu(estimate(fields, LLAMA_8B), "backward"), "gradients"))
    assert backward[0] == pytest.approx(2 * sum(item.elements for item in LLAMA_8B.list_linear_modules()), rel=0.05)
    assert backward[1] < 0.35 * backward[0]


@pytest.mark.parametrize("frozen", ["bf16", "fp32"])
def test_autocast_keeps_copies_of_trained_weights_alone(frozen: str) -> None:
    """Cache copies only of fp32 leaves that require gradients (torch, autocast_mode.cpp, `cached_cast`).

    A frozen fp32 output matrix is cast when it is read; one in 16 bits is not.
    """
    fields = make_plan(
        method__tuning="freeze", method__trainable_layers=3, precision__params="fp32", precision__frozen=frozen,
        precision__autocast=True, activations__checkpointing="full",
    )  # fmt: skip
    layer = sum(item.elements for item in LLAMA_8B.list_linear_modules()) // LLAMA_8B.layers
    head = LLAMA_8B.vocab * LLAMA_8B.hidden if frozen == "fp32" else 0
    copies = sum_parts(get_gpu(estimate(fields, LLAMA_8B), "forward"), "weight copies")
    assert copies == 2 * (3 * layer + head)


def test_lisa_has_the_states_of_all_layers_and_the_gradients_of_some() -> None:
    whole, partial = (make_plan(method__active_layers=layers, batch__accumulation=4) for layers in (None, 2))
    states = [
        sum_parts(get_gpu(estimate(fields, LLAMA_8B), "optimizer step"), "optimizer state")
        for fields in (whole, partial)
    ]
    assert states[0] == states[1]
    gradients = [
        sum_parts(get_gpu(estimate(fields, LLAMA_8B), "optimizer step"), "gradients") for fields in (whole, partial)
    ]
    assert gradients[0] - gradients[1] == pytest.approx(2 * 30 * LLAMA_8B.layer_parameters)


UNFREEZE = """
import json, sys
from axolotl.utils.freeze import freeze_layers_except
from transformers import LlamaConfig, LlamaForCausalLM
for patterns in json.loads(sys.argv[1]):
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=256, intermediate_size=688, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=4000, tie_word_embeddings=False))
    freeze_layers_except(model, patterns)
    print(json.dumps(sum(p.numel() for p in model.parameters() if p.requires_grad)))
"""


@pytest.mark.oracle
def test_axolotl_unfreezes_so() -> None:
    cases = [list(patterns) for patterns, expected in PATTERNS.items() if expected or patterns == ("layers.1.mlp",)]
    out = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", UNFREEZE, json.dumps(cases)], capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    if out.returncode and "ModuleNotFoundError" in out.stderr:
        pytest.skip("needs axolotl")
    counts = [int(line) for line in out.stdout.splitlines() if line.isdecimal()]
    assert counts == [(count_trained(SMALL, tuple(patterns)) or (0, 0))[0] for patterns in cases], out.stderr[-500:]


QUANTIZED = [json.loads(line) for line in Path(__file__).with_name("quantized.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("row", QUANTIZED, ids=lambda row: f"{row['kind']}-{row['double']}")
def test_quantised_weights_are_those_of_bitsandbytes(row: dict[str, Any]) -> None:
    """Leave out the tables of code words and the numbers per row of int8: 0.15 % of this small model."""
    vectors = (2 * 2 + 1) * 1024
    parameters = 2 * (2 * 1024 * 1024 + 2 * 1024 * 512 + 3 * 1024 * 2816) + 2 * 8000 * 1024 + vectors
    shape = make_llama(parameters, 2, 1024, 16, 8, 2816, 8000)
    fields = make_plan(
        method__tuning="lora", method__lora_rank=8, method__lora_targets=("q_proj",), method__quantization=row["kind"],
        method__double_quantization=row["double"], precision__adapter="fp32", precision__frozen="bf16",
    )  # fmt: skip
    setup, reader = read_setup(fields, shape)
    assert setup is not None, reader.missing
    assert setup.frozen_bytes == pytest.approx(row["bytes"], rel=0.0015)


@pytest.mark.oracle
def _measure_adapter(**changes: Any) -> Cost:
    mode = Mode(trained=False, rank=8, targets=frozenset(("q_proj",)), dropout=True, quantized=True)._replace(**changes)
    layer = Matrices(LLAMA_8B, FAMILIES["llama"], mode)
    source = layer.tape.add_tensor(256, 2)
    return layer.tape.compute_cost(source, layer.apply_linear(source, 384, "q_proj"), False)


def test_adapters_of_quantised_matrices_have_their_input_as_it_is() -> None:
    """Pass the input unchanged to adapters of quantised matrices.

    Under autocast PEFT's 4-bit layer passes x in 16 bits for adapters of any format: its code on the CPU has the same
    peaks with fp32 and with bf16 adapters (3,860, 2,324 and 3,876 bytes per token of a 256 x 384 matrix), and 1,545
    bytes less in the forward pass than the layer of a plain matrix.
    """
    options = {"autocast": True, "as_given": True, "clones": True}
    wide, narrow = _measure_adapter(adapter=4, **options), _measure_adapter(adapter=2, **options)
    assert [size for size, _ in wide.forward] == [size for size, _ in narrow.forward]
    assert wide.saved == narrow.saved
    plain = _measure_adapter(adapter=4, autocast=True)
    assert max(size for size, _ in plain.forward) - max(size for size, _ in wide.forward) == 4 * 256


SAVES = [json.loads(line) for line in Path(__file__).with_name("adapter_saves.jsonl").read_text("utf-8").splitlines()]


def _keep_adapter(row: dict[str, Any]) -> Cost:
    method, _, dropout = row["method"].partition(", ")
    kind, _, inputs = method.partition(" of ")
    leaf = "down_proj" if inputs else "q_proj"
    mode = Mode(
        trained=False, rank=find_rank(kind, AdapterSize(8)), targets=frozenset((leaf,)), dropout=bool(dropout),
        method="lora" if kind == "dora" else kind, dora=kind == "dora", adapter=row["adapter"],
        autocast=row["autocast"],
    )  # fmt: skip
    layer = Matrices(LLAMA_8B, FAMILIES["llama"], mode)
    source = layer.tape.add_tensor(256, 2)
    return layer.tape.compute_cost(source, layer.apply_linear(source, 384, leaf), False)


@pytest.mark.parametrize("row", SAVES, ids=lambda row: f"{row['method']}, {row['adapter']}, {row['autocast']}")
def test_an_adapter_keeps_what_peft_keeps(row: dict[str, Any]) -> None:
    """Keep as many bytes per token more than LoRA as PEFT's own layer on the CPU, and as many bytes of weights.

    The CPU's dropout keeps a larger mask. Vectors, the blocks of a rotation and AdaLoRA's scaled factor are not
    counted: at most 10 % of the matrix.
    """
    method = "lora, dropout" if row["method"].endswith("dropout") else "lora"
    plain = next(other for other in SAVES if other == {**row, "method": method, **{
        name: other[name] for name in ("saved", "fixed")}})  # fmt: skip
    cost, lora = _keep_adapter(row), _keep_adapter(plain)
    saved, saved_by_lora = (item.saved - item.saved_input for item in (cost, lora))
    assert saved - saved_by_lora == row["saved"] - plain["saved"]
    assert saved == row["saved"] or method != "lora"
    assert 0 <= row["fixed"] - cost.copies <= 0.1 * 2 * 256 * 384


@pytest.mark.slow
def test_peft_keeps_as_much_as_it_did() -> None:
    oracle = Path(__file__).parent.parent / "oracles" / "adapter_saves.py"
    out = subprocess.run(
        [PYTHON, "-W", "ignore", str(oracle)], capture_output=True, text=True, timeout=300, check=False
    )
    if out.returncode and "ModuleNotFoundError" in out.stderr:
        pytest.skip("needs torch, transformers and peft")
    assert [json.loads(line) for line in out.stdout.splitlines()] == SAVES, out.stderr[-500:]


@pytest.mark.parametrize(
    ("quantization", "as_given", "clones"),
    [("none", False, False), ("nf4", True, True), ("int8", True, False), ("awq", True, False), ("gptq", False, False)],
)
def test_which_layers_of_peft_cast(quantization: str, as_given: bool, clones: bool) -> None:
    job = make_plan(
        method__tuning="lora", method__lora_rank=8, method__lora_targets=("all-linear",),
        method__quantization=quantization, precision__frozen="bf16", precision__adapter="fp32",
    )  # fmt: skip
    setup, _ = read_setup(job, LLAMA_8B)
    assert setup is not None
    assert (setup.mode.as_given, setup.mode.clones) == (as_given, clones)


@pytest.mark.slow
def test_peft_counts_as_it_did() -> None:
    out = subprocess.run(
        [PYTHON, "-W", "ignore", str(COUNTS)], capture_output=True, text=True, timeout=300, check=False
    )
    if out.returncode and "ModuleNotFoundError" in out.stderr:
        pytest.skip("needs torch, transformers and peft")
    assert [json.loads(line) for line in out.stdout.splitlines()] == ROWS


COMPILED = [json.loads(line) for line in Path(__file__).with_name("compiled.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("row", COMPILED, ids=lambda row: row["family"])
def test_compiled_layers_keep_what_torchs_partitioner_keeps(row: dict[str, Any]) -> None:
    """Compare bytes per token of one layer on a CPU, compiled and eager (`tests/oracles/compiled_saves.py`).

    The partitioner keeps one more tensor of Phi-3's joined queries and keys.
    """
    shape = Architecture("", row["family"], 2, 512, 64, 8, 8, 64, 1376, False, 10**7, 20, 10**6, 10**6)
    for liger, expected in ((frozenset[str](), row["eager"]), (FUSED_PARTS, row["compiled"])):
        cost = compute_layer_cost(shape, Mode(liger=liger))
        assert cost is not None
        assert cost.saved == pytest.approx(expected, rel=0.06 if liger and row["family"] == "phi3" else 0.001)


MIXTURE = {
    "model_type": "qwen3_moe", "hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1000,
    "num_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("modules", "parameters", "told"),
    [
        ((), ("mlp.experts.gate_up_proj", "mlp.experts.down_proj"), 57_344),
        (("q_proj",), ("mlp.experts.down_proj",), 28_672),
        (("q_proj", "gate_proj", "up_proj", "down_proj"), None, 94_208),
    ],
)
def test_adapters_of_experts_are_those_of_peft(modules: Any, parameters: Any, told: int) -> None:
    """Match the elements that peft 0.21.2 trains in this mixture on the meta device, with rank 8."""
    shape = parse_config(MIXTURE)
    assert shape is not None
    job = make_plan(
        method__tuning="lora", method__lora_rank=8, method__lora_targets=modules,
        method__lora_target_parameters=parameters, precision__adapter="fp32", precision__frozen="bf16",
    )  # fmt: skip
    setup, reader = read_setup(job, shape)
    assert setup is not None, reader.missing
    assert setup.weights.trained == told
