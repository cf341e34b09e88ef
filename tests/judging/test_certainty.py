"""Certainty by scenarios: facts that a finding rests on, for each kind of fact, and laws that hold for all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from cfglint_rules import registry
from cfglint_train.findings.finding import SEVERITIES, Finding
from cfglint_train.fitting import smallest
from cfglint_train.judging.checking import check
from cfglint_train.judging.result import Result
from cfglint_train.judging.selection import Selection
from cfglint_train.plan.certainty import CERTAINTIES
from cfglint_train.runs.assumptions import find_mildest_facts, list_assumptions
from cfglint_train.runs.run import Run
from cfglint_train.settings.settings import Settings
from tests.support.corpus import CORPUS, REPOSITORY, needs_corpus
from tests.support.linting import build_options, lint, list_parts, list_runs

# A full fine-tuning of 8B at 4 x 8192 tokens on FSDP, which does not fit on 8 GPUs of 80 GB.
AXOLOTL = """\
# cfglint: axolotl=0.21.0{facts}
base_model: meta-llama/Llama-3.1-8B
sequence_len: {length}
sample_packing: {packing}
micro_batch_size: {micro}
gradient_accumulation_steps: 2
optimizer: adamw_torch_fused
bf16: true
gradient_checkpointing: {checkpointing}
learning_rate: 0.00001
num_epochs: 1
datasets:
  - path: train.jsonl
    type: chat_template
fsdp_version: 2
fsdp_config:
  reshard_after_forward: true
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
"""
NODE = " gpu=H100-80GB nodes=1 gpus-per-node=8"


def lint_axolotl(folder: Path, text: str) -> Result:
    (folder / "train.yaml").write_text(text)
    return lint(folder)


def find_by_code(folder: Path, **changes: object) -> dict[str, Finding]:
    values = {"facts": NODE, "length": 8192, "packing": "true", "micro": 16, "checkpointing": "false", **changes}
    return {finding.code: finding for finding in list_parts(lint_axolotl(folder, AXOLOTL.format(**values)))}


def lint_on_slurm(folder: Path, request: str) -> tuple[Finding, Run]:
    """Return MEM001 of 70B on the four GPUs that a job script requests.

    The run exceeds 80 GB per GPU and fits on the largest GPU.
    """
    text = AXOLOTL.format(facts="", length=2048, packing="true", micro=1, checkpointing="true")
    (folder / "train.yaml").write_text(text.replace("Llama-3.1-8B", "Llama-3.1-70B"))
    (folder / "job.sh").write_text(f"#SBATCH --nodes=1\n#SBATCH {request}\nsrun axolotl train train.yaml\n")
    (finding,) = [candidate for candidate in lint(folder).findings if candidate.code == "MEM001"]
    (run,) = list_runs(folder)
    return finding, run


@pytest.mark.parametrize("directive", ["--gres=gpu:a100:4", "--gpus-per-node=A100:4", "--gpus=a100:4"])
def test_a_name_of_two_cards_is_one_of_them(tmp_path: Path, directive: str) -> None:
    finding, run = lint_on_slurm(tmp_path, directive)
    (card,) = [assumption for assumption in list_assumptions(run) if assumption.fact == "gpu"]
    assert (card.value, card.others) == ("A100-80GB", ("A100-40GB",))
    assert card.note.endswith("00` means A100-80GB, not A100-40GB; set `gpu` to be sure")
    assert find_mildest_facts((card,), ("gpu",)) == {}
    assert (finding.severity, finding.certainty) == ("error", "stated")
    assert not [note for note in finding.notes if "80 GB GPU" in note]


@pytest.mark.parametrize(
    ("directive", "name"), [("--gpus-per-node=h100:4", "H100-80GB"), ("--gres=gpu:a100_80gb:4", "A100-80GB")]
)
def test_a_name_of_one_card_is_followed(tmp_path: Path, directive: str, name: str) -> None:
    finding, run = lint_on_slurm(tmp_path, directive)
    assert (run.hardware.gpu, run.hardware.gpu_origin.kind) == (name, "user")
    assert (finding.severity, finding.certainty) == ("error", "stated")


def test_without_a_name_any_card_may_be_in_use(tmp_path: Path) -> None:
    finding, run = lint_on_slurm(tmp_path, "--gres=gpu:4")
    assert run.hardware.gpu_others == ()
    assert (finding.severity, finding.certainty) == ("warning", "assumed")
    assert "assumes an 80 GB GPU; set `gpu` to be sure" in finding.notes


@pytest.mark.parametrize(
    "script",
    [
        "yq -i '.base_model = \"Qwen/Qwen2.5-0.5B\"' train.yaml\naxolotl train train.yaml\n",
        "sed -i 's#meta-llama/Llama-3.1-8B#Qwen/Qwen2.5-0.5B#' train.yaml\naxolotl train train.yaml\n",
    ],
)
def test_what_a_script_rewrites_is_assumed(tmp_path: Path, script: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.sh").write_text(script)
    finding = find_by_code(tmp_path, facts=NODE)["MEM001"]
    assert (finding.severity, finding.certainty) == ("warning", "assumed")
    assert "model.id" in {ground.fact for ground in finding.rests_on}
    assert any("which a script of the repository changes" in note for note in finding.notes)
    (tmp_path / "run.sh").write_text(script.replace("base_model", "output_dir").replace("meta-llama/Llama-3.1-8B", "x"))
    assert find_by_code(tmp_path, facts=NODE)["MEM001"].severity == "error"


def test_a_model_behind_a_variable_is_assumed(tmp_path: Path) -> None:
    text = AXOLOTL.format(facts=NODE, length=8192, packing="true", micro=16, checkpointing="false")
    (finding,) = (
        finding
        for finding in lint_axolotl(tmp_path, text.replace("meta-llama/", "${MODELS}/")).findings
        if finding.code == "MEM001"
    )
    assert (finding.severity, finding.certainty) == ("warning", "assumed")


@pytest.mark.parametrize(
    ("stated", "nodes", "ends"),
    [
        ("", 1, {"launch.nodes": (64,), "launch.gpus_per_node": (1, 16)}),
        ("dp_shard_size: 16\n", 2, {"launch.nodes": (64,), "launch.gpus_per_node": (16,)}),
        ("dp_shard_size: 4\ntensor_parallel_size: 2\n", 1, {"launch.nodes": (64,), "launch.gpus_per_node": (16,)}),
    ],
)
def test_an_assumed_cluster_holds_the_stated_degrees(
    tmp_path: Path, stated: str, nodes: int, ends: dict[str, tuple[int, ...]]
) -> None:
    values = {"facts": "", "length": 8192, "packing": "true", "micro": 1, "checkpointing": "true"}
    (tmp_path / "train.yaml").write_text(AXOLOTL.format(**values) + stated)
    (run,) = list_runs(tmp_path)
    assert (run.plan.launch.nodes, run.plan.launch.gpus_per_node) == (nodes, 8)
    assert {
        assumption.fact: assumption.others for assumption in list_assumptions(run) if assumption.fact in ends
    } == ends


def test_what_is_stated_is_certain(tmp_path: Path) -> None:
    finding = find_by_code(tmp_path)["MEM002"]
    assert (finding.severity, finding.certainty) == ("error", "stated")
    assert {ground.grade for ground in finding.rests_on} <= {"stated", "followed"}
    assert not any(note.startswith("assumes") for note in finding.notes)


def test_an_assumed_card_lowers_what_a_larger_one_would_hold(tmp_path: Path) -> None:
    facts = " nodes=1 gpus-per-node=8"
    finding = find_by_code(tmp_path, facts=facts, length=16384, micro=1, checkpointing="false")["MEM002"]
    assert (finding.severity, finding.certainty) == ("warning", "assumed")
    assert [ground.fact for ground in finding.rests_on if ground.grade == "assumed"] == ["gpu"]
    assert "assumes an 80 GB GPU; set `gpu` to be sure" in finding.notes
    assert finding.fix is not None or finding.intent is not None
    assert finding.intent is not None
    assert finding.intent.applicability == "unsafe"


def test_a_change_that_fits_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search for a fitting change only once, because fixes found at other values are never used."""
    scenario_flags: list[bool] = []
    original = smallest.find_smallest_for

    def record_scenario(run: Run, *more: object) -> object:
        scenario_flags.append(run.is_scenario)
        return original(run, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(smallest, "find_smallest_for", record_scenario)
    finding = find_by_code(tmp_path, facts=" nodes=1 gpus-per-node=8", micro=2, checkpointing="false")["MEM002"]
    assert finding.scenarios
    assert scenario_flags
    assert not any(scenario_flags)


def test_no_change_is_looked_for_where_nothing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Report a tight run for a stated card, not for an assumed one."""
    searched: list[Run] = []
    monkeypatch.setattr(smallest, "find_smallest_for", lambda run, *_: searched.append(run))
    tight = {"micro": 4, "checkpointing": "true"}
    assert "MEM001" not in find_by_code(tmp_path, facts=" nodes=1 gpus-per-node=8", **tight)
    assert not searched
    assert "MEM001" in find_by_code(tmp_path, **tight)
    assert searched


ZERO3 = """\
#!/bin/bash
# cfglint: openrlhf=0.6.1{facts}
deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-32B --dataset data --max_len {length} \\
   --micro_train_batch_size 1 --train_batch_size 64 --zero_stage 3 --bf16 --flash_attn --gradient_checkpointing
"""


def lint_zero3(folder: Path, facts: str, length: int = 8192) -> tuple[str, set[str]]:
    """Return the severity of MEM001 for 32B with ZeRO-3 and the facts that it assumes."""
    (folder / "train.sh").write_text(ZERO3.format(facts=facts, length=length))
    (finding,) = [candidate for candidate in lint(folder).findings if candidate.code == "MEM001"]
    return finding.severity, {ground.fact for ground in finding.rests_on if ground.grade == "assumed"}


def test_two_guesses_each_of_which_turns_the_verdict_make_it_advice(tmp_path: Path) -> None:
    """Report info if several guesses could each change the verdict: a larger card, more nodes, short samples.

    With one guess alone it is a warning.
    """
    severity, facts = lint_zero3(tmp_path, "")
    assert severity == "info"
    assert {"gpu", "launch.nodes"} <= facts
    assert lint_zero3(tmp_path, " gpu=H100-80GB gpus-per-node=8") == ("info", {"launch.nodes", "sequence.length"})
    assert lint_zero3(tmp_path, " nodes=1 gpus-per-node=8") == ("info", {"gpu", "sequence.length"})
    assert lint_zero3(tmp_path, " gpu=H100-80GB nodes=1 gpus-per-node=8") == ("warning", {"sequence.length"})


def test_an_assumed_card_does_not_matter_where_no_card_is_large_enough(tmp_path: Path) -> None:
    finding = find_by_code(tmp_path, facts=" nodes=1 gpus-per-node=8", micro=64)["MEM002"]
    assert (finding.severity, finding.certainty) == ("error", "stated")


def test_a_length_that_is_only_the_most_lowers_what_rests_on_it(tmp_path: Path) -> None:
    finding = find_by_code(tmp_path, packing="false", length=16384, micro=1)["MEM002"]
    assert (finding.severity, finding.certainty) == ("warning", "assumed")
    assert [ground.fact for ground in finding.rests_on if ground.grade == "assumed"] == ["sequence.length"]
    assert any("`sequence_len` of 16,384 tokens" in note for note in finding.notes)
    # With short samples, checkpointing only costs time.
    assert finding.intent is not None
    assert finding.intent.applicability == "safe"


# OpenRLHF concatenates the samples of a micro batch; axolotl and LLaMA-Factory fill packed sequences up.
PACKED = """\
# cfglint: openrlhf=0.6.1 gpu=A100-80GB nodes=1 gpus-per-node=8
deepspeed --module openrlhf.cli.train_sft --pretrain meta-llama/Llama-3.1-8B --dataset d --input_key q \\
  --max_len 8192 --micro_train_batch_size 32 --train_batch_size 256 --zero_stage 3 --bf16 --flash_attn \\
  --gradient_checkpointing --packing_samples
"""


def test_packing_that_fills_nothing_up_leaves_the_length_the_most(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(PACKED)
    finding = {candidate.code: candidate for candidate in lint(tmp_path).findings}["MEM001"]
    assert (finding.severity, finding.certainty) == ("info", "assumed")
    assert [ground.fact for ground in finding.rests_on if ground.grade == "assumed"] == ["sequence.length"]


def test_one_packed_sample_of_the_full_length_may_be_assumed(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(PACKED.replace("--max_len 8192", "--max_len 131072"))
    finding = {candidate.code: candidate for candidate in lint(tmp_path).findings}["MEM001"]
    assert (finding.severity, finding.certainty) == ("warning", "assumed")


def test_a_length_does_not_matter_where_the_states_alone_are_too_large(tmp_path: Path) -> None:
    findings = find_by_code(tmp_path, packing="false", facts=" gpu=A100-40GB nodes=1 gpus-per-node=1", micro=1)
    finding = findings["MEM001"]
    assert (finding.severity, finding.certainty) == ("error", "stated")


# A mixture in 4 bits: transformers 5 stores its experts as two 3-D parameters, which bitsandbytes keeps in 16 bits.
MIXTURE = """\
# cfglint: {facts}gpu=A100-40GB nodes=1 gpus-per-node=1
base_model: mistralai/Mixtral-8x7B-v0.1
load_in_4bit: true
adapter: qlora
lora_r: 16
lora_target_linear: true
sequence_len: 2048
sample_packing: true
micro_batch_size: 1
optimizer: adamw_bnb_8bit
bf16: true
gradient_checkpointing: true
flash_attention: true
datasets:
  - path: train.jsonl
    type: alpaca
"""


@pytest.mark.parametrize(
    ("facts", "severity", "rests_on"),
    [
        ("", "warning", ["method.quantized_experts"]),
        ("axolotl=0.21.0 ", "error", []),
        ("axolotl=0.7.0 ", None, []),
        ("transformers=4.57.1 ", None, []),
        ("transformers=5.20.1 ", "error", []),
    ],
)
def test_a_release_that_would_quantise_the_experts_lowers_what_rests_on_them(
    tmp_path: Path, facts: str, severity: str | None, rests_on: list[str]
) -> None:
    findings = {candidate.code: candidate for candidate in lint_axolotl(tmp_path, MIXTURE.format(facts=facts)).findings}
    finding = findings.get("MEM001")
    assert (None if finding is None else finding.severity) == severity
    if finding is not None:
        assert [ground.fact for ground in finding.rests_on if ground.grade == "assumed"] == rests_on


def test_an_assumed_number_of_gpus_lowers_what_more_of_them_would_hold(tmp_path: Path) -> None:
    findings = find_by_code(tmp_path, facts=" gpu=A100-40GB", micro=1, length=512, checkpointing="true")
    assert all(finding.severity != "error" for code, finding in findings.items() if code.startswith("MEM"))


def test_an_assumed_number_of_gpus_does_not_matter_for_what_none_of_them_shards(tmp_path: Path) -> None:
    finding = find_by_code(tmp_path, facts=" gpu=H100-80GB", micro=64)["MEM002"]
    assert (finding.severity, finding.certainty) == ("error", "stated")


DEEPSPEED = """\
{{
  "train_batch_size": {whole},
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 4
}}
"""


@pytest.mark.parametrize(("whole", "is_reported"), [(33, True), (32, False)])
def test_a_product_of_ranks_is_not_judged_where_they_are_assumed(tmp_path: Path, whole: int, is_reported: bool) -> None:
    (tmp_path / "ds.json").write_text(DEEPSPEED.format(whole=whole))
    findings = [finding for finding in lint(tmp_path).findings if finding.code == "BAT001"]
    assert bool(findings) is is_reported
    assert all(finding.severity == "error" for finding in findings)


def check_certainty(findings: Iterable[Finding]) -> None:
    for finding in findings:
        assumed = [ground for ground in finding.rests_on if ground.grade in ("assumed", "unknown")]
        assert bool(assumed) == (finding.certainty in ("assumed", "unknown")), finding
        if assumed:
            assert SEVERITIES.index(finding.severity) >= SEVERITIES.index("warning"), finding
        if finding.code.startswith("PRF"):
            assert finding.severity != "error"
        worst = max((CERTAINTIES.index(ground.grade) for ground in finding.rests_on), default=0)
        assert CERTAINTIES[worst] == finding.certainty


@pytest.mark.parametrize("facts", ["", NODE, " gpu=A100-40GB"])
def test_no_error_rests_on_an_assumption(tmp_path: Path, facts: str) -> None:
    for packing in ("true", "false"):
        for micro in (1, 4, 64):
            values = {"facts": facts, "length": 4096, "packing": packing, "micro": micro, "checkpointing": "false"}
            check_certainty(lint_axolotl(tmp_path, AXOLOTL.format(**values)).findings)


@needs_corpus
@pytest.mark.slow
def test_certain_findings_stand_at_every_other_value() -> None:
    """Keep every certain finding when an assumed fact takes its other value, alone or with others."""
    selection = Selection(lambda _: Settings(str(CORPUS)), build_options())
    compared = 0
    for run in list_runs(CORPUS, gpu="A100-40GB"):
        findings = check(run, selection).findings
        check_certainty(findings)
        for finding in findings:
            if not finding.code.startswith(("MEM", "HST")) or finding.certainty == "assumed":
                continue
            for assumption in list_assumptions(run):
                for other_value in assumption.others:
                    if assumption.fact not in find_mildest_facts((assumption,), registry.RULES[finding.code].estimates):
                        continue
                    findings_there = check(run.build_scenario({assumption.fact: other_value}), selection).findings
                    compared += 1
                    severities = [
                        SEVERITIES.index(atom.severity)
                        for other_finding in findings_there
                        for atom in other_finding.atoms
                        if atom.code == finding.code
                    ]
                    context = (run.main.document.path, finding.code, assumption.fact, other_value)
                    assert min(severities, default=9) <= SEVERITIES.index(finding.severity), context
    assert compared > 50


PPO = """\
#!/bin/bash
python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path meta-llama/Llama-3.1-8B --reward.remote_url http://x \\
  --actor.num_nodes 1 --actor.num_gpus_per_node 8 --ref.num_nodes 1 --ref.num_gpus_per_node 8 \\
  --vllm.num_engines 4 --vllm.tensor_parallel_size 2 --data.prompt_dataset d \\
  --data.max_len 132096 --rollout.max_new_tokens 131072 --train.batch_size {batch} --rollout.batch_size 1024 \\
  --ds.packing_samples --train.dynamic_batch_enable --train.max_tokens_per_gpu {tokens} \\
  --ds.zero_stage 3 --ds.param_dtype bf16 --ds.attn_implementation flash_attention_2{more}
"""


def lint_ppo(folder: Path, batch: int = 128, tokens: int = 16384, more: str = "") -> dict[str, Finding]:
    (folder / "ppo.sh").write_text(PPO.format(batch=batch, tokens=tokens, more=more))
    return {finding.code: finding for finding in list_parts(lint(folder)) if finding.code.startswith("MEM")}


def test_a_generation_limit_beyond_the_token_budget_is_assumed(tmp_path: Path) -> None:
    findings = lint_ppo(tmp_path)
    assert {"MEM001", "MEM002"} <= set(findings)
    for finding in findings.values():
        assert (finding.severity, finding.certainty) == ("warning", "assumed")
        assert "sequence.length" in {ground.fact for ground in finding.rests_on}
    # A token budget that short samples fill as well is a limit of its own.
    assert lint_ppo(tmp_path, batch=65536, tokens=131072)["MEM001"].severity == "error"


def test_checkpointing_is_no_error_where_something_else_does_not_fit_at_any_length(tmp_path: Path) -> None:
    """Keep the error for engines that reserve 95 % of the card: the states do not fit at any length."""
    findings = lint_ppo(tmp_path, more=" --train.colocate_all")
    assert (findings["MEM001"].severity, findings["MEM002"].severity) == ("error", "warning")
    assert "sequence.length" in {ground.fact for ground in findings["MEM002"].rests_on}


@pytest.mark.parametrize("length", [64, 128, 16384])
def test_no_error_rests_on_a_length_that_is_only_the_most(tmp_path: Path, length: int) -> None:
    """Report no error, however short the limit is: single tokens fit at any micro batch."""
    micro = 65536 // length
    (tmp_path / "sft.sh").write_text(
        "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain meta-llama/Llama-3.1-8B --dataset d --bf16 "
        f"--max_len {length} --train_batch_size {8 * micro} --micro_train_batch_size {micro} --zero_stage 3 "
        "--flash_attn --gradient_checkpointing\n"
    )
    findings = {
        finding.code: finding for finding in lint(tmp_path, build_options(("MEM",), gpu="H100", nodes="1")).findings
    }
    assert (findings["MEM001"].severity, findings["MEM001"].certainty) == ("warning", "assumed")
    assert [ground.fact for ground in findings["MEM001"].rests_on] == ["sequence.length"]


def test_every_rule_that_judges_an_estimate_gives_what_the_verdict_takes_for_granted():
    """Require `Judgement.grounds` beside `Judgement.severity`, because the notes are made from the grounds."""
    judging = [path for path in (REPOSITORY / "rules").rglob("*.py") if "judgement.severity" in path.read_text("utf-8")]
    assert len(judging) > 5
    for path in judging:
        text = path.read_text("utf-8")
        assert text.count("grounds=judgement.grounds") >= text.count("yield Report("), path.name
