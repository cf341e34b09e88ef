"""Memory that TRL's trainers use besides the policy, by release, from recipes and scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train import api
from cfglint_train.foundation.typed import Any
from cfglint_train.runs.not_estimated import explain_not_estimated
from cfglint_train.runs.run import Run
from tests.support import laws
from tests.support.linting import change_directory, list_runs

RECIPE = """\
model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: x/y
per_device_train_batch_size: 2
output_dir: out
bf16: true
"""


def build_run(folder: Path, text: str, release: str, name: str = "recipe.yaml") -> Run:
    (folder / name).write_text(text)
    (run,) = list_runs(folder, trl=release)
    return run


def get_reason(run: Run) -> str:
    not_estimated = explain_not_estimated(run)
    return "" if not_estimated is None else not_estimated.reason


@pytest.mark.parametrize(
    ("keys", "release", "loss"),
    [
        ("max_length: 2048\npacking: true", "1.16.0", "tiles"),
        ("max_seq_length: 2048\npacking: true", "0.16.1", "none"),
        ("max_length: 2048\npacking: true\nuse_liger_kernel: true", "0.24.0", "liger"),
        ("max_length: 2048\npacking: true\nuse_liger_kernel: true", "1.16.0", "tiles"),
        ("max_length: 2048\npacking: true", "1.6.0", "none"),
        ("max_length: 2048\npacking: true", "1.12.0", "checkpointed"),
        ("max_length: 2048\npacking: true", "1.14.0", "checkpointed_half"),
        ("max_length: 2048\npacking: true\nloss_type: chunked_nll", "1.4.0", "checkpointed"),
        ("max_length: 2048\npacking: true\nloss_type: nll", "1.12.0", "none"),
        ("max_length: 2048\nprecompute_ref_log_probs: false", "0.24.0", "rows"),
        ("max_length: 2048\nprecompute_ref_log_probs: false", "1.16.0", "tiles"),
        ("max_length: 2048\nprecompute_ref_log_probs: false", "0.14.0", "log_softmax"),
        ("max_length: 2048\nprecompute_ref_log_probs: false", "1.13.0", "rows"),
        ("max_length: 2048\nprecompute_ref_log_probs: false", "1.14.0", "row_kernel"),
        ("max_length: 2048\nprecompute_ref_log_probs: false\nuse_liger_kernel: true", "1.13.0", "liger_pairs"),
        ("max_length: 2048\nprecompute_ref_log_probs: false\nuse_liger_kernel: true", "1.14.0", "tiles"),
        ("max_length: 2048\ndesirable_weight: 1.0", "0.24.0", "rows"),
        ("max_length: 2048\ndesirable_weight: 1.0", "1.15.0", "tiles"),
        ("scale_rewards: false\nmax_prompt_length: 512", "1.9.0", "rows_in_place"),
        ("scale_rewards: false\nmax_prompt_length: 512", "0.24.0", "rows"),
        ("center_rewards_coefficient: 0.01\nmax_length: 512", "1.16.0", "none"),
    ],
)
def test_the_loss_by_trainer_and_release(tmp_path: Path, keys: str, release: str, loss: str) -> None:
    assert build_run(tmp_path, f"{RECIPE}{keys}\n", release).plan.activations.fused_loss == loss


@pytest.mark.parametrize(
    ("keys", "release", "held"),
    [
        ("precompute_ref_log_probs: false", "0.14.0", 12),
        ("precompute_ref_log_probs: false", "0.24.0", 10),
        ("precompute_ref_log_probs: true", "0.24.0", 6),
        ("precompute_ref_log_probs: false", "1.0.0", 18),
        ("desirable_weight: 1.0", "0.24.0", 16),
        ("precompute_ref_log_probs: false", "1.16.0", None),
    ],
)
def test_logits_of_the_policy_and_its_reference(tmp_path: Path, keys: str, release: str, held: int | None) -> None:
    run = build_run(tmp_path, f"{RECIPE}max_length: 2048\n{keys}\n", release)
    assert run.plan.activations.passing_logits == held


def test_only_completions_are_scored(tmp_path: Path) -> None:
    keys = "scale_rewards: false\nmax_prompt_length: 512\nmax_completion_length: 1536\n"
    plan = build_run(tmp_path, RECIPE + keys, "0.24.0").plan
    assert (plan.sequence.length, plan.activations.scored_tokens) == (2048, 1536)


@pytest.mark.parametrize(
    ("keys", "release", "told"),
    [
        ("packing: true\nmax_length: 512\nloss_type: dft", "0.24.0", "loss_type: dft"),
        ("scale_rewards: false\nmax_prompt_length: 512", "0.14.0", "groups per prompt"),
        ("rpo_alpha: 1.0\nmax_length: 512", "0.24.0", "`rpo_alpha`"),
    ],
)
def test_what_is_not_derived_is_named(tmp_path: Path, keys: str, release: str, told: str) -> None:
    assert told in get_reason(build_run(tmp_path, f"{RECIPE}{keys}\n", release))


RLOO = """\
from transformers import AutoModelForCausalLM
from trl import RLOOConfig, RLOOTrainer
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
RLOOTrainer(config=RLOOConfig("out", rloo_k=2), policy=model, ref_policy=model, reward_model=model)
"""


def test_the_older_loop_of_rloo_is_named(tmp_path: Path) -> None:
    run = build_run(tmp_path, RLOO, "0.19.1", "train.py")
    assert "RLOO loop" in run.get_origin("activations.fused_loss").note  # type: ignore[union-attr]


def test_a_prompt_without_a_limit_is_counted(tmp_path: Path) -> None:
    run = build_run(tmp_path, f"{RECIPE}scale_rewards: false\nmax_completion_length: 1024\n", "1.16.0")
    origin = run.get_origin("sequence.length")
    assert run.plan.sequence.length == 1536
    assert origin is not None
    assert "nothing limits them" in origin.note


def test_the_window_of_the_engine_limits_prompts(tmp_path: Path) -> None:
    keys = "scale_rewards: false\nuse_vllm: true\nvllm_max_model_length: 4096\n"
    assert build_run(tmp_path, RECIPE + keys, "1.16.0").plan.sequence.length == 4096


SCRIPT = """\
import torch
from peft import LoraConfig, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", quantization_config=quantized, dtype=torch.bfloat16)
model = prepare_model_for_kbit_training(model)
trainer = SFTTrainer(model, SFTConfig("out", max_length=1024, bf16=True), peft_config=LoraConfig(r=8))
"""


def test_what_a_script_does_with_its_model(tmp_path: Path) -> None:
    plan = build_run(tmp_path, SCRIPT, "1.16.0", "train.py").plan
    assert (plan.method.quantization, plan.method.lora_alpha, plan.method.lora_dropout) == ("nf4", 8, 0.0)
    assert plan.model.embeddings_fp32 is True
    assert plan.activations.checkpointing == "full"


@pytest.mark.parametrize(
    ("before", "after", "field", "value"),
    [
        (', bnb_4bit_quant_type="nf4"', "", "method.quantization", "fp4"),
        ("model = prepare_model_for_kbit_training(model)\n", "", "model.embeddings_fp32", None),
        ("dtype=torch.bfloat16", 'device_map="auto"', "parallel.strategy", None),
        ("dtype=torch.bfloat16", 'device_map={"": 0}', "parallel.strategy", "ddp"),
        ("SFTTrainer(model, SFTConfig", "DPOTrainer(model, other, DPOConfig", "method.reference_model", None),
        ("SFTTrainer(model, SFTConfig", "DPOTrainer(model, model, DPOConfig", "method.reference_model", "full"),
        ("SFTTrainer(model, SFTConfig", "DPOTrainer(model, None, DPOConfig", "method.reference_model", "adapter-off"),
    ],
)
def test_a_script_by_its_calls(tmp_path: Path, before: str, after: str, field: Any, value: Any) -> None:
    assert before in SCRIPT
    plan = build_run(tmp_path, SCRIPT.replace(before, after), "1.16.0", "train.py").plan
    assert plan.get(field) == value


def test_a_quantised_model_is_whole_before_zero_3_shards_it(tmp_path: Path) -> None:
    (tmp_path / "z3.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    keys = "packing: true\nmax_length: 512\nuse_peft: true\ndeepspeed: z3.json\n"
    assert build_run(tmp_path, RECIPE + keys, "1.16.0").plan.precision.loaded == "none"
    assert build_run(tmp_path, f"{RECIPE}{keys}load_in_4bit: true\n", "1.16.0").plan.precision.loaded == "nf4"


@pytest.mark.parametrize(
    ("accelerate", "version", "params"),
    [("1.12.0", 2, "fp32"), ("1.13.0", 2, "bf16"), ("1.14.0", 2, "fp32"), ("1.13.0", 1, "fp32")],
)
def test_accelerate_1_13_drops_the_cast_of_trained_weights_under_fsdp2(
    tmp_path: Path, accelerate: str, version: int, params: str
) -> None:
    keys = f"packing: true\ndtype: bfloat16\nfsdp: full_shard auto_wrap\nfsdp_config: {{version: {version}}}\n"
    (tmp_path / "recipe.yaml").write_text(RECIPE + keys)
    (run,) = list_runs(tmp_path, trl="1.9.0", accelerate=accelerate)
    assert (run.plan.parallel.strategy, run.plan.precision.params) == (f"fsdp{version}", params)


LAUNCHED = """\
import argparse
from trl import SFTConfig, SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--packing", action="store_true")
args = parser.parse_args()
SFTTrainer("Qwen/Qwen2.5-0.5B", SFTConfig("out", per_device_train_batch_size=args.batch_size, packing=args.packing))
"""


def test_a_launch_gives_the_options_of_a_script(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 4 train.py --batch-size 2 --packing\n")
    run = build_run(tmp_path, LAUNCHED, "1.16.0", "train.py")
    assert (run.plan.batch.micro, run.plan.sequence.packing) == (2, True)
    assert run.plan.launch.gpus_per_node == 4


@pytest.mark.parametrize("written", ["--batch-size", "--batch_size"])
def test_the_default_of_an_option_is_assumed(tmp_path: Path, written: str) -> None:
    run = build_run(tmp_path, LAUNCHED.replace("--batch-size", written), "1.16.0", "train.py")
    origin = run.get_origin("batch.micro")
    assert run.plan.batch.micro == 8
    assert origin is not None
    assert written in origin.assumption


LAWS = SCRIPT.replace("max_length=1024", "max_length=1024, per_device_train_batch_size=8")


def test_writing_what_is_read_changes_nothing(tmp_path: Path) -> None:
    run = build_run(tmp_path, LAWS, "1.16.0", "train.py")
    with change_directory(tmp_path):
        assert laws.check_get_put(run.main) > 10


@pytest.mark.parametrize(
    "changes",
    [
        {"batch.micro": 1},
        {"batch.accumulation": 8},
        {"sequence.length": 512},
        {"sequence.packing": True},
        {"activations.attention": "flash"},
        {"method.lora_rank": 64},
        {"method.lora_dropout": 0.5},
        {"checkpoint.model_only": True},
        {"optimizer.clipping": 0.5},
    ],
)
def test_what_is_written_into_a_script_is_read(tmp_path: Path, changes: Any) -> None:
    run = build_run(tmp_path, LAWS, "1.16.0", "train.py")
    with change_directory(tmp_path):
        assert laws.check_put_get(run.main, changes) is not None


@pytest.mark.parametrize(("option", "held"), [("--load_in_4bit", "bf16"), ("", "fp32")])
def test_gradients_of_adapters_have_their_format(tmp_path: Path, option: str, held: str) -> None:
    line = (
        f"trl sft --model_name_or_path Qwen/Qwen2.5-7B --dataset_name x/y --use_peft --bf16 {option} --output_dir out\n"
    )
    precision = build_run(tmp_path, line, "1.14.1", "run.sh").plan.precision
    assert (precision.adapter, precision.grads) == (held, held)


@pytest.mark.parametrize("release", ["0.24.0", "1.16.0"])
def test_a_note_gives_each_length_its_own_number(release: str) -> None:
    text = (
        f"# cfglint: trl={release} nodes=1 gpus-per-node=1 gpu=24GB\n"
        "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: x\nscale_rewards: false\nmax_completion_length: 512\n"
        "per_device_train_batch_size: 8\nnum_generations: 8\noutput_dir: out\n"
    )
    [run] = api.estimate("run.yaml", api.Options(isolated=True), {"run.yaml": text}).runs
    advice = "a prompt of 512 tokens and the full `max_completion_length` of 512; set `max_completion_length`"
    assert any(advice in note for note in run.assumptions)
