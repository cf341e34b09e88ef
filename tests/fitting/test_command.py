"""`cfglint fit` on the command line, and `api.fit`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cfglint_train import api
from cfglint_train.fitting.hardware_needed import HardwareNeed
from cfglint_train.reports import html
from tests.support.command import run_cfglint
from tests.support.corpus import REPOSITORY
from tests.support.linting import isolate_folder

CLUSTER = ("--isolated", "--gpu", "A100-80GB", "--nodes", "1", "--gpus-per-node", "8")
TEXT = """\
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: x.jsonl, type: alpaca}]
output_dir: out
bf16: true
fsdp_version: 2
fsdp_config:
  reshard_after_forward: true
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
sequence_len: 8192
sample_packing: true
pad_to_sequence_len: true
gradient_checkpointing: true
plugins: [axolotl.integrations.liger.LigerPlugin]
liger_fused_linear_cross_entropy: true
micro_batch_size: 16  # sequences
gradient_accumulation_steps: 2
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "run.yaml").write_text(TEXT)
    return tmp_path


def test_the_ladder(here: Path) -> None:
    shown = run_cfglint("fit", *CLUSTER, "--max", "micro_batch", "run.yaml", cwd=here)
    assert shown.code == 1
    assert "micro_batch_size: 16 -> " in shown.out
    assert "largest micro_batch_size that fits" in shown.out
    assert (here / "run.yaml").read_text() == TEXT


def test_json_is_the_api(here: Path) -> None:
    runs = json.loads(run_cfglint("fit", *CLUSTER, "--output-format", "json", "run.yaml", cwd=here).out)["runs"]
    options = api.Options(isolated=True, gpu="A100-80GB", nodes=1, gpus_per_node=8)
    [run] = api.fit("run.yaml", options, {"run.yaml": TEXT}).runs
    assert [run.path, run.expected, len(run.rungs)] == [runs[0]["path"], runs[0]["expected"], len(runs[0]["rungs"])]
    assert run.solution is not None
    assert list(run.solution.settings) == runs[0]["solution"]["settings"]
    assert run.solution.expected <= (run.capacity or 0) < (run.expected or 0)


def test_diff_writes_nothing_and_write_does(here: Path) -> None:
    diff = run_cfglint("fit", *CLUSTER, "--diff", "run.yaml", cwd=here)
    assert diff.code == 0
    assert "-micro_batch_size: 16  # sequences" in diff.out
    assert (here / "run.yaml").read_text() == TEXT
    written = run_cfglint("fit", *CLUSTER, "--write", "run.yaml", cwd=here)
    text = (here / "run.yaml").read_text()
    assert "  # sequences" in text
    after = run_cfglint("fit", *CLUSTER, "--write", "run.yaml", cwd=here)
    assert after.code == 0
    is_tight = "expected to fit as it is, but tight" in after.out
    assert is_tight or "no change needed" in after.out
    assert (written.code == 1) == ("run.yaml: expected to fit, but tight" in written.err) == is_tight
    assert (here / "run.yaml").read_text() == text


def test_a_run_that_is_tight_as_it_is_says_by_how_much(here: Path) -> None:
    text = TEXT.replace("micro_batch_size: 16  # sequences", "micro_batch_size: 1")
    (here / "run.yaml").write_text(text)
    sizes = json.loads(run_cfglint("fit", *CLUSTER, "--format", "json", "run.yaml", cwd=here).out)["runs"][0]
    card = f"{(sizes['expected'] + sizes['high']) // 2**31}GiB"
    shown = run_cfglint("fit", "--nodes", "1", "--gpus-per-node", "8", "--gpu", card, "run.yaml", cwd=here)
    assert ": tight" in shown.out
    assert re.search(
        r"expected to fit as it is, but tight: [\d.]+ GiB to spare in .+, at worst [\d.]+ GiB short", shown.out
    )


@pytest.mark.parametrize("what", ["--diff", "--write"])
def test_a_run_that_nothing_makes_fit_is_not_passed_over(here: Path, what: str) -> None:
    folder = REPOSITORY / "fixtures" / "fit"
    for name in ("axolotl-70b-1x8.yaml", "z3.json"):
        (here / name).write_bytes((folder / name).read_bytes())
    shown = run_cfglint("fit", "--isolated", what, "axolotl-70b-1x8.yaml", cwd=here)
    assert shown.code == 1
    assert "axolotl-70b-1x8.yaml: no change to its files makes it fit" in shown.err
    assert (here / "axolotl-70b-1x8.yaml").read_bytes() == (folder / "axolotl-70b-1x8.yaml").read_bytes()


def test_what_is_kept_stays(here: Path) -> None:
    for keep in ("micro_batch_size", "batch.micro"):
        shown = run_cfglint("fit", *CLUSTER, "--keep", keep, "run.yaml", cwd=here).out
        assert "micro_batch_size: 16 ->" not in shown
        assert "sequence_len: 8192 ->" in shown


@pytest.mark.parametrize(
    ("right", "misspelt"),
    [
        ("gradient_accumulation_steps", "gradient_accumulation_step"),
        ("micro_batch_size", "micro_batchsize"),
        ("sequence_len", "sequence_length"),
    ],
)
def test_a_misspelt_key_counts_and_is_renamed(here: Path, right: str, misspelt: str) -> None:
    (here / "run.yaml").write_text(TEXT.replace(f"\n{right}:", f"\n{misspelt}:"))
    shown = run_cfglint("fit", *CLUSTER, "run.yaml", cwd=here).out
    assert f"counts `{misspelt}` as `{right}`" in shown
    assert run_cfglint("fit", *CLUSTER, "--write", "run.yaml", cwd=here).code == 1
    written = (here / "run.yaml").read_text()
    (here / "run.yaml").write_text(TEXT)
    assert run_cfglint("fit", *CLUSTER, "--write", "run.yaml", cwd=here).code == 1
    assert (here / "run.yaml").read_text() == written != TEXT


def test_no_key_is_written_beside_one_that_may_be_meant(here: Path) -> None:
    text = TEXT.replace("gradient_accumulation_steps", "gradient_acc_steps")
    (here / "run.yaml").write_text(text)
    shown = run_cfglint("fit", *CLUSTER, "--write", "run.yaml", cwd=here)
    assert shown.code == 2
    assert (
        "gradient_acc_steps may be a misspelling of gradient_accumulation_steps; rename or remove it first" in shown.err
    )
    assert (here / "run.yaml").read_text() == text
    (here / "run.yaml").write_text(f"{text}gradient_accumulation_steps: 2\n")
    assert run_cfglint("fit", *CLUSTER, "--write", "run.yaml", cwd=here).code == 1


LONG = """\
# cfglint: nodes=1 gpus-per-node=8 gpu=A100-40GB host-memory=1TB
model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
dataset: alpaca_en
template: llama3
cutoff_len: 32768
packing: true
output_dir: saves
per_device_train_batch_size: 1
bf16: true
"""


@pytest.mark.parametrize(
    ("text", "release", "offered"),
    [
        (LONG, "0.9.5", True),
        (LONG, "0.8.3", False),  # the key exists since 0.9.0
        (LONG.replace(" host-memory=1TB", ""), "0.9.5", False),
        (LONG + "disable_gradient_checkpointing: true\n", "0.9.5", False),
        (LONG + "gradient_checkpointing: true\n", "0.9.5", False),
    ],
)
def test_activations_leave_the_gpu_where_the_host_is_known(text: str, release: str, offered: bool) -> None:
    options = api.Options(isolated=True, releases={"llamafactory": release})
    [run] = api.fit("run.yaml", options, {"run.yaml": text}).runs
    alternatives = [alternative for alternative in run.rungs if alternative.settings == ("use_unsloth_gc: true",)]
    assert bool(alternatives) == offered
    for alternative in alternatives:
        # 32 layers keep their input of 32,768 tokens x 4,096 x 2 B: 8 GiB, except for two in transfer.
        assert 7.5 * 2**30 < alternative.saved < 8.5 * 2**30


HIDDEN = """\
# cfglint: nodes=1 gpus-per-node=8 gpu=A100-40GB host-memory=1TB
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: x.jsonl, type: alpaca}]
output_dir: out
adapter: lora
lora_r: 8
lora_alpha: 16
lora_target_linear: true
sequence_len: 32768
sample_packing: true
pad_to_sequence_len: true
micro_batch_size: 1
gradient_accumulation_steps: 1
gradient_checkpointing: true
bf16: true
"""


@pytest.mark.parametrize(
    ("text", "release", "offered"),
    [
        (HIDDEN, "0.18.0", True),
        (HIDDEN, "0.17.0", False),  # the value exists since 0.18.0
        (HIDDEN.replace(" host-memory=1TB", ""), "0.18.0", False),
        (HIDDEN + "gradient_checkpointing_kwargs: {use_reentrant: true}\n", "0.18.0", False),
        (HIDDEN + "activation_offloading: legacy\n", "0.18.0", False),
        (HIDDEN + "rl: dpo\n", "0.18.0", False),  # only AxolotlTrainer has the mixin
    ],
)
def test_axolotl_keeps_inputs_of_layers_on_the_host(text: str, release: str, offered: bool) -> None:
    options = api.Options(isolated=True, releases={"axolotl": release})
    [run] = api.fit("run.yaml", options, {"run.yaml": text}).runs
    alternatives = [
        alternative for alternative in run.rungs if alternative.settings == ("activation_offloading: hidden_states",)
    ]
    assert bool(alternatives) == offered
    for alternative in alternatives:
        assert 7.5 * 2**30 < alternative.saved < 8.5 * 2**30


PPO = """\
#!/bin/bash
# cfglint: nodes=1 gpus-per-node=8 gpu=A100-80GB host-memory=2TB
python3 -m openrlhf.cli.train_ppo_ray --train.colocate_all --vllm.num_engines 8 --vllm.enable_sleep \\
   --ref.num_gpus_per_node 8 --actor.num_gpus_per_node 8 --vllm.gpu_memory_utilization 0.8 --ds.zero_stage 3 \\
   --algo.advantage.estimator reinforce --reward.remote_url http://localhost:5000 --data.prompt_dataset x \\
   --actor.model_name_or_path Qwen/Qwen2.5-14B --actor.gradient_checkpointing_enable --data.max_len 2048
"""


@pytest.mark.parametrize(
    ("old", "new", "offered"),
    [
        ("", "", {"--ds.enable_sleep", "--ref.offload"}),
        (" host-memory=2TB", "", set()),
        ("zero_stage 3", "zero_stage 2", set()),  # DeepSpeed 0.17.5 rejects it, and offloads no whole model
        ("--ds.zero", "--ds.adam_offload --ds.zero", {"--ref.offload"}),
        ("--data.max_len", "--algo.kl.init_coef 0 --data.max_len", {"--ds.enable_sleep"}),  # no reference
    ],
)
def test_models_and_states_leave_the_gpu_while_others_run(old: str, new: str, offered: set[str]) -> None:
    """Free 14.8 B elements x (12 + 2) B of states and gradients, and x 2 B of a reference, during generation."""
    options = api.Options(isolated=True, releases={"openrlhf": "0.11.2"})
    [run] = api.fit("ppo.sh", options, {"ppo.sh": PPO.replace(old, new, 1) if old else PPO}).runs
    alternatives = {alternative.settings[0].partition(":")[0]: alternative for alternative in run.rungs}
    assert alternatives.keys() & {"--ds.enable_sleep", "--ref.offload"} == offered
    bytes_per_element = {"--ds.enable_sleep": 12 + 2, "--ref.offload": 2}
    for flag in offered if not old else ():
        # The bucket of 500,000,000 elements is freed, too.
        bucket = 10**9 if flag == "--ds.enable_sleep" else 0
        assert alternatives[flag].saved == pytest.approx(14.77e9 * bytes_per_element[flag] / 8 + bucket, rel=0.05)


def test_a_host_that_is_not_stated_is_asked_for(tmp_path: Path) -> None:
    """Prefer the optimizer's offload to LoRA, and call nothing safe without a note if both are uncertain."""
    folder = REPOSITORY / "fixtures" / "fit"
    source = (folder / "llamafactory-70b-1x8.yaml").read_text()
    files = {"run.yaml": source, "z3.json": (folder / "z3.json").read_text()}
    [run] = api.fit("run.yaml", api.Options(isolated=True), files).runs
    assert run.offload is not None
    assert run.offload.startswith("set `zero_optimization.offload_optimizer`: ")
    [stated] = api.fit(
        "run.yaml", api.Options(isolated=True), {**files, "run.yaml": source.replace("80GB", "80GB host-memory=4TB", 1)}
    ).runs
    assert stated.offload is None
    assert stated.solution is not None
    assert stated.solution.settings == ("zero_optimization.offload_optimizer.device: cpu",)


@pytest.mark.parametrize("cluster", [(), CLUSTER])
def test_a_safe_change_says_what_it_assumes(here: Path, cluster: tuple[str, ...]) -> None:
    shown = run_cfglint("fit", "--isolated", *cluster, "run.yaml", cwd=here).out
    assert ("(unsafe until the assumptions are confirmed):" in shown) is (not cluster)
    assert ("(safe):" in shown) is bool(cluster)


@pytest.mark.parametrize(
    ("name", "applicability", "reason"),
    [
        ("llamafactory-0.5b-1x1.yaml", "safe", ""),
        ("llamafactory-70b-4x8-off.yaml", "safe", ""),
        ("openrlhf-8b-1x8-scoring.sh", "safe", ""),
        ("openrlhf-8b-1x8.sh", "unsafe", " until the assumptions are confirmed"),
        ("llamafactory-8b-1x8-dpo.yaml", "unsafe", " until the assumptions are confirmed"),
        ("axolotl-70b-1x8-host.yaml", "unsafe", ": each step waits for the host, and DeepSpeed compiles its CPU Adam"),
    ],
)
def test_lint_fit_and_page_agree_on_the_safety_of_a_change(name: str, applicability: str, reason: str) -> None:
    path = isolate_folder(REPOSITORY / "fixtures" / "fit") / name
    options = api.Options(isolated=True)
    result = api.lint(path, options)
    [run] = api.fit(path, options).runs
    assert run.solution is not None
    fixes = [item.fix for item in result.findings if item.fix and item.fix.message.startswith(run.solution.settings)]
    assert {fix.applicability for fix in fixes} == {run.solution.applicability} == {applicability}
    assert f" · {applicability}{reason}</p>" in "\n".join(html.report(result.raw))


@pytest.mark.parametrize("prefix", ["", "fsdp_"])
def test_axolotl_gives_whole_weights_up_after_the_forward_pass(prefix: str) -> None:
    """Release 8.03 B elements x 2 B of gathered weights on each GPU, except for the root and two layers (FSDP2).

    Allocations have up to a tenth of reserve.
    """
    key = f"{prefix}reshard_after_forward"
    text = TEXT.replace("fsdp_version: 2", "fsdp_version: 2\nadapter: lora\nlora_r: 8\nlora_target_linear: true")
    text = text.replace("  reshard_after_forward: true", f"  {key}: false")
    options = api.Options(isolated=True, gpu="A100-80GB", nodes=1, gpus_per_node=8, releases={"axolotl": "0.18.0"})
    [run] = api.fit("run.yaml", options, {"run.yaml": text}).runs
    [alternative] = [
        alternative for alternative in run.rungs if alternative.settings == (f"fsdp_config.{key}: false -> true",)
    ]
    assert 10 * 2**30 < alternative.saved < 8.03e9 * 2 * 1.1
    assert not alternative.safe
    [stated] = api.fit("run.yaml", options, {"run.yaml": text.replace(": false", ": true")}).runs
    assert not [alternative for alternative in stated.rungs if key in alternative.settings[0]]


def test_what_holds_a_run_holds_each_of_its_phases() -> None:
    """Count the passes that score a rollout, which need more than the step; advice respects kept keys, too."""
    options = api.Options(isolated=True)
    text = (REPOSITORY / "fixtures" / "fit" / "openrlhf-8b-1x8-scoring.sh").read_text()
    keep = ("--rollout.micro_batch_size", "--data.max_len")
    [run] = api.fit("run.sh", options, {"run.sh": text}, keep=keep).runs
    assert run.solution is None
    assert run.holding is not None
    assert run.holding.need > run.expected > 200 * 2**30  # the engine takes its share of a larger GPU, too
    assert run.holding.settings == ()


def test_a_fix_of_the_step_leaves_no_rollout_above_capacity(tmp_path: Path) -> None:
    text = (REPOSITORY / "fixtures" / "fit" / "openrlhf-8b-1x8-scoring.sh").read_text()
    (tmp_path / "run.sh").write_text(text.replace("--train.micro_batch_size 1", "--train.micro_batch_size 16"))
    assert run_cfglint("fit", "--isolated", "run.sh", cwd=tmp_path).code == 1
    run_cfglint("check", "--isolated", "--select", "MEM001", "--fix", "--unsafe-fixes", "run.sh", cwd=tmp_path)
    assert "--rollout.micro_batch_size 2 " in (tmp_path / "run.sh").read_text()
    assert run_cfglint("fit", "--isolated", "run.sh", cwd=tmp_path).code == 0


def test_an_engine_keeps_a_share_in_which_it_starts() -> None:
    """Offer no share below the weights of an engine: 32.9 GiB per GPU for 70B on four GPUs."""
    text = (
        "# cfglint: gpu={gpu} openrlhf=0.9.1.post1\npython3 -m openrlhf.cli.train_ppo_ray --colocate_all_models "
        "--actor_num_nodes 1 --actor_num_gpus_per_node 8 --ref_num_nodes 1 --ref_num_gpus_per_node 8 "
        "--vllm_num_engines 2 --vllm_tensor_parallel_size 4 --vllm_gpu_memory_utilization 0.5 --zero_stage 3 --bf16 "
        "--pretrain meta-llama/Meta-Llama-3-70B-Instruct --micro_train_batch_size 8 --train_batch_size 128 "
        "--micro_rollout_batch_size 16 --rollout_batch_size 1024 --prompt_max_len 1024 --generate_max_len 1024 "
        "--gradient_checkpointing --adam_offload\n"
    )
    shares = {}
    for gpu in ("A100-80GB", "H200"):
        [run] = api.fit("run.sh", api.Options(isolated=True), {"run.sh": text.format(gpu=gpu)}, goal="memory").runs
        settings = [setting for rung in run.rungs for setting in rung.settings]
        shares[gpu] = [word for setting in settings for word in re.findall(r"utilization: 0.5 -> ([0-9.]+)", setting)]
    assert shares == {"A100-80GB": [], "H200": ["0.3"]}


def test_what_would_hold_the_step_holds_the_rollout() -> None:
    """Advise no GPU for the step alone: the step needs 54.6 GiB, scoring 32 sequences at a time 190."""
    text = (REPOSITORY / "fixtures" / "fit" / "openrlhf-8b-1x8-scoring.sh").read_text()
    [finding] = api.lint(
        options=api.Options(isolated=True, select=("MEM001",)), sources={"run.sh": text.replace("A100-80GB", "24GB")}
    ).findings
    assert finding.help is not None
    assert finding.help.endswith(", and set --rollout.micro_batch_size: 1; more GPUs do not help")


ENGINE = (
    "# cfglint: trl=1.16.0 nodes=1 gpus-per-node=4 gpu=H100 disk={disk}\n"
    "accelerate launch --num_processes 4 trl/scripts/grpo.py --model_name_or_path Qwen/Qwen2.5-3B-Instruct "
    "--dataset_name trl-lib/tldr --per_device_train_batch_size 4 --max_completion_length 2048 --beta 0.04 "
    "--use_vllm --vllm_mode colocate --vllm_gpu_memory_utilization {share} --output_dir out\n"
)
SHARE = "vllm_gpu_memory_utilization"
BLAME = f"neither more nor larger GPUs help, because the engine takes a share of each (`{SHARE}`)"


@pytest.mark.parametrize(("share", "words"), [
    ("0.3", "use a GPU with at least 126 GiB (H200); more GPUs do not help"),
    ("0.9", BLAME),
])  # fmt: skip
def test_an_engine_takes_its_share_of_a_larger_gpu_too(
    share: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # this repository has fixtures with copies of TRL
    source = ENGINE.format(share=share, disk="900TB")
    [finding] = api.lint(options=api.Options(isolated=True, select=("MEM001",)), sources={"run.sh": source}).findings
    assert finding.help is not None
    assert finding.help.endswith(words)


@pytest.mark.parametrize(("keep", "words"), [
    ((), "use 17.2 GiB of disk, and set vllm_gpu_memory_utilization: 0.4, dtype: bfloat16; more GPUs do not help"),
    ((SHARE,), f"{BLAME}; the run also needs 34.5 GiB of disk"),
])  # fmt: skip
def test_a_disk_that_prevents_a_fit_is_named(
    keep: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blame the engine's share only if no smaller share may be set, for then a larger disk is not enough."""
    monkeypatch.chdir(tmp_path)
    small, large = (
        api.fit("run.sh", api.Options(isolated=True), {"run.sh": ENGINE.format(share="0.9", disk=disk)}, keep=keep)
        for disk in ("1GiB", "17.3GiB")
    )
    assert small.ladders[0].hardware_need is not None
    assert small.ladders[0].hardware_need.description == words
    assert bool(large.hopeless) is bool(keep)


SCRIPT = """\
from olmo_core.internal.experiment import CommonComponents, main
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.optim import AdamWConfig
from olmo_core.train import TrainerConfig
from olmo_core.train.train_module import TransformerDataParallelConfig, TransformerTrainModuleConfig

LENGTH = 8192


def model(common: CommonComponents) -> TransformerConfig:
    return TransformerConfig.olmo2_7B(vocab_size=common.tokenizer.padded_vocab_size())


def train_module(common: CommonComponents) -> TransformerTrainModuleConfig:
    return TransformerTrainModuleConfig(
        rank_microbatch_size=8 * LENGTH,  # tokens
        max_sequence_length=LENGTH,
        optim=AdamWConfig(lr=3e-4),
        dp_config=TransformerDataParallelConfig(name="fsdp", param_dtype="bfloat16"),
    )


def trainer(common: CommonComponents) -> TrainerConfig:
    return TrainerConfig(save_folder=common.save_folder)


main(
    global_batch_size=1024 * LENGTH,
    sequence_length=LENGTH,
    model_config_builder=model,
    train_module_config_builder=train_module,
    trainer_config_builder=trainer,
)
"""


@pytest.mark.parametrize(
    ("written", "comment", "kept"),
    [
        ("8 * LENGTH", "tokens", False),
        ("8 * LENGTH", "8 sequences", True),
        ("8 * LENGTH", "80 percent", False),
        ("8 * 8192", "8 sequences", True),
        ("65536", "65536 tokens", True),
    ],
)
def test_a_comment_on_a_factor_of_a_script_is_not_made_false(written: str, comment: str, kept: bool) -> None:
    text = SCRIPT.replace("8 * LENGTH,  # tokens", f"{written},  # {comment}")
    options = api.Options(isolated=True, gpu="A100-80GB", nodes=8, gpus_per_node=8)
    result = api.fit("run.py", options, {"run.py": text}, change=True)
    assert (not result.sources) is kept
    assert any("would become wrong" in refusal.reason for refusal in result.refused) is kept


V1 = """\
# cfglint: nodes=1 gpus-per-node=8 gpu=A100-40GB
model: Qwen/Qwen3-4B
train_dataset: data/v1_sft_demo.yaml
output_dir: out
micro_batch_size: 16
cutoff_len: 4096
batching_strategy: padding_free
bf16: true
dist_config: {name: fsdp2}
"""


def test_a_batch_that_follows_from_the_micro_batch_is_stated(here: Path) -> None:
    """Write `global_batch_size` for LLaMA-Factory v1, which otherwise never accumulates."""
    [run] = api.fit(str(here / "run.yaml"), api.Options(isolated=True), {str(here / "run.yaml"): V1}, change=True).runs
    [micro] = [
        alternative.settings for alternative in run.rungs if alternative.settings[0].startswith("micro_batch_size")
    ]
    assert micro[1:] == ("global_batch_size: 128",)


def test_less_memory_than_the_least_slowdown(here: Path) -> None:
    def find_expected(goal: str) -> int:
        output = run_cfglint("fit", *CLUSTER, "--goal", goal, "--output-format", "json", "run.yaml", cwd=here).out
        size: int = json.loads(output)["runs"][0]["solution"]["expected"]
        return size

    assert find_expected("memory") < find_expected("throughput")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "fit needs a configuration"),
        (("--keep", "micro_batch", "run.yaml"), "did you mean"),
        (("--max", "gpus", "run.yaml"), "invalid choice"),
        (("--gpu", "H1000", "run.yaml"), "H1000"),
        (("missing.yaml",), "missing.yaml"),
    ],
)
def test_wrong_usage_is_2(here: Path, arguments: tuple[str, ...], said: str) -> None:
    shown = run_cfglint("fit", "--isolated", *arguments, cwd=here)
    assert shown.code == 2
    assert said in shown.err


@pytest.mark.parametrize(("card", "said"), [("H200", "(H200)"), (None, "(no known GPU is that large)")])
def test_a_size_that_no_card_has_is_called_that(card, said):
    held = HardwareNeed(200 * 2**30, nodes=None, gpus=None, gpu=card, settings=())
    assert held.description == f"use a GPU with at least 200 GiB {said}; more GPUs do not help"
