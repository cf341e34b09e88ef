"""Kinds of facts: for each, a finding that is lowered with the fact's grade, and one that does not rest on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.findings.finding import SEVERITIES, Finding
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.plan.certainty import RELEASE
from cfglint_train.runs.assumptions import COMPANION_PREFIX, FORK, MILDEST_FACTS
from tests.support.linting import lint

SHARDED = """\
fsdp_version: 2
fsdp_config:
  reshard_after_forward: true
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
"""
ADAPTER = "adapter: lora\nlora_r: 16\nlora_target_linear: true\n"
EVALUATED = f"{ADAPTER}val_set_size: 0.05\neval_steps: 100\neval_batch_size: 64\n"
EIGHT = " gpu=H100-80GB nodes=1 gpus-per-node=8"
NODE = " gpu=A100-40GB nodes=1 gpus-per-node=8"
FORKED = "axolotl @ git+https://github.com/acme/axolotl@abc\n"


def write_axolotl(
    facts: str = EIGHT,
    model: str = "meta-llama/Llama-3.1-8B",
    length: int = 8192,
    micro: int = 16,
    packing: str = "true",
    checkpointing: str = "false",
    release: str = "axolotl=0.21.0",
    more: str = SHARDED,
) -> str:
    """Return the config of a full fine-tuning, on FSDP unless `more` says otherwise."""
    return f"""\
# cfglint: {release}{facts}
base_model: {model}
sequence_len: {length}
sample_packing: {packing}
micro_batch_size: {micro}
gradient_accumulation_steps: 1
flash_attention: true
optimizer: adamw_torch_fused
bf16: true
gradient_checkpointing: {checkpointing}
learning_rate: 0.00001
num_epochs: 1
datasets:
  - path: train.jsonl
    type: chat_template
{more}"""


def write_launched(command: str) -> dict[str, str]:
    """Return the config without a statement about the cluster, and a script that starts it."""
    return {"train.yaml": write_axolotl(facts=" gpu=H100-80GB", more=ADAPTER, checkpointing="true"), "run.sh": command}


def write_pinned(text: str, pin: str = "axolotl==0.21.0\n") -> dict[str, str]:
    return {"train.yaml": text.replace("# cfglint: axolotl=0.21.0 ", "# cfglint: "), "requirements.txt": pin}


RUN = "torchrun --nnodes 1 --nproc_per_node 8 -m axolotl.cli.train train.yaml"
ZERO3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": "auto"}\n'
LARGE = "meta-llama/Llama-3.1-70B"
UNKNOWN_KEY = write_axolotl(micro=1, length=512, checkpointing="true", more=SHARDED + "bogus: 1\n")
RATELESS = write_axolotl(micro=1, length=512, checkpointing="true").replace("learning_rate: 0.00001\n", "")
TWICE = write_axolotl(micro=1, length=512, checkpointing="true", more=SHARDED + "num_epochs: 2\n")
MIXTURE = write_axolotl(
    model="mistralai/Mixtral-8x7B-v0.1",
    length=2048,
    micro=1,
    checkpointing="true",
    more=ADAPTER.replace("lora\n", "qlora\n", 1) + "load_in_4bit: true\n",
)


def write_mixture(release: str, card: str) -> dict[str, str]:
    facts = f" gpu={card} nodes=1 gpus-per-node=1"
    return {"train.yaml": MIXTURE.replace(f"# cfglint: axolotl=0.21.0{EIGHT}", f"# cfglint: {release}{facts}")}


STREAMED = SHARDED + "pretraining_dataset:\n  - path: d\nmax_steps: 10\nval_set_size: 0.1\n"


class Case(Frozen):
    """A kind of fact in three repositories."""

    fact: str
    code: str
    stated_files: dict[str, str]
    """Files that state the fact."""
    assumed_files: dict[str, str]
    """The same files with an assumption in its place; the finding is lowered."""
    other_code: str
    """Code of a finding that does not rest on the fact."""
    unaffected_files: dict[str, str]
    """Files for which the fact does not matter."""


def write_config(**changes: object) -> dict[str, str]:
    return {"train.yaml": write_axolotl(**changes)}  # type: ignore[arg-type]


CASES = (
    Case(
        "gpu",
        "MEM001",
        write_config(micro=2),
        write_config(micro=2, facts=" nodes=1 gpus-per-node=8"),
        "MEM001",
        write_config(micro=64, facts=" nodes=1 gpus-per-node=8"),
    ),
    Case(
        "launch.nodes",
        "MEM001",
        write_config(model=LARGE, length=512, micro=1, checkpointing="true", facts=NODE),
        write_config(model=LARGE, length=512, micro=1, checkpointing="true", facts=" gpu=A100-40GB gpus-per-node=8"),
        "MEM001",
        write_config(micro=64, facts=" gpu=H100-80GB gpus-per-node=8"),
    ),
    Case(
        "launch.gpus_per_node",
        "MEM001",
        write_config(
            model=LARGE, length=512, micro=1, checkpointing="true", facts=" gpu=A6000 nodes=1 gpus-per-node=8"
        ),
        write_config(model=LARGE, length=512, micro=1, checkpointing="true", facts=" gpu=A6000 nodes=1"),
        "MEM001",
        write_config(micro=64, facts=" gpu=H100-80GB nodes=1"),
    ),
    Case(
        "batch.micro",
        "MEM001",
        write_launched(f"{RUN} --micro-batch-size 64\n"),
        write_launched(RUN + " --micro-batch-size ${B:-64}\n"),
        "MEM001",
        {
            "train.yaml": write_axolotl(facts=" gpu=H100-80GB", model=LARGE, more=""),
            "run.sh": RUN + " --micro-batch-size ${B:-8}\n",
        },
    ),
    Case(
        "sequence.length",
        "MEM001",
        write_config(micro=4),
        write_config(micro=4, packing="false"),
        "MEM001",
        write_config(micro=1, packing="false", facts=" gpu=A100-40GB nodes=1 gpus-per-node=1"),
    ),
    Case(
        "sequence.eval_length",
        "MEM011",
        write_config(length=2048, micro=1, more=EVALUATED, release="axolotl=0.7.1"),
        write_config(length=2048, micro=1, more=f"{EVALUATED}eval_sample_packing: false\n", release="axolotl=0.7.1"),
        "MEM001",
        write_config(micro=64, more=f"{EVALUATED}eval_sample_packing: false\n", release="axolotl=0.7.1"),
    ),
    Case(
        "parallel.strategy",
        "MEM001",
        {
            "train.yaml": write_axolotl(facts=" gpu=A100-40GB", length=512, micro=1, checkpointing="true", more=""),
            "run.sh": f"{RUN}\n",
        },
        write_config(length=512, micro=1, checkpointing="true", more="", facts=NODE),
        "MEM001",
        write_config(micro=64, more=""),
    ),
    Case(
        "method.quantized_experts",
        "MEM001",
        write_mixture("axolotl=0.21.0", "A100-40GB"),
        write_mixture("", "A100-40GB"),
        "MEM001",
        write_mixture("", "RTX4080"),
    ),
    Case(
        f"{RELEASE}axolotl",
        "KEY006",
        write_config(micro=1, more=STREAMED),
        write_config(micro=1, more=STREAMED, release=""),
        "KEY006",
        {"train.yaml": RATELESS.replace("axolotl=0.21.0 ", "")},
    ),
    Case(
        f"{COMPANION_PREFIX}deepspeed",
        "MEM001",
        {"train.yaml": write_axolotl(micro=64, more="deepspeed: ds/z3.json\n"), "ds/z3.json": ZERO3},
        {"train.yaml": write_axolotl(micro=64, more="deepspeed: /workspace/ds/z3.json\n"), "ds/z3.json": ZERO3},
        "KEY006",
        {"train.yaml": RATELESS.replace(SHARDED, "deepspeed: /workspace/ds/z3.json\n"), "ds/z3.json": ZERO3},
    ),
    Case(
        MODEL,
        "MEM001",
        write_config(micro=64),
        write_config(micro=64, model="/data/Llama-3.1-8B"),
        "KEY006",
        {"train.yaml": RATELESS.replace("meta-llama/", "/data/")},
    ),
    Case(
        FORK, "MEM001", write_pinned(write_axolotl(micro=64)), write_pinned(write_axolotl(micro=64), FORKED),
        "SYN003", write_pinned(TWICE, FORKED),
    ),
    Case(
        "vocabulary", "KEY001", write_pinned(UNKNOWN_KEY), write_pinned(UNKNOWN_KEY, FORKED),
        "SYN003", write_pinned(TWICE, FORKED),
    ),
    Case(
        "model.id",
        "MEM001",
        {**write_config(micro=64), "run.sh": "yq -i '.output_dir = \"x\"' train.yaml\naxolotl train train.yaml\n"},
        {**write_config(micro=64), "run.sh": "yq -i '.base_model = \"x/y\"' train.yaml\naxolotl train train.yaml\n"},
        "SYN003",
        {"train.yaml": TWICE, "run.sh": "yq -i '.base_model = \"x/y\"' train.yaml\naxolotl train train.yaml\n"},
    ),
)  # fmt: skip


def find_worst(root: Path, files: dict[str, str], code: str) -> Finding:
    """Return the most severe finding of a rule."""
    (root / ".git").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    findings = [finding for finding in lint(root).findings if finding.code == code]
    return min(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def list_assumed_facts(finding: Finding) -> set[str]:
    return {ground.fact for ground in finding.rests_on if ground.grade in ("assumed", "unknown")}


@pytest.mark.parametrize("case", CASES, ids=[case.fact for case in CASES])
def test_a_fact_with_a_lower_grade_lowers_what_rests_on_it(tmp_path: Path, case: Case) -> None:
    stated = find_worst(tmp_path / "stated", case.stated_files, case.code)
    lowered = find_worst(tmp_path / "assumed", case.assumed_files, case.code)
    assert not list_assumed_facts(stated)
    assert case.fact in list_assumed_facts(lowered)
    assert lowered.certainty == "assumed"
    assert SEVERITIES.index(lowered.severity) > SEVERITIES.index(stated.severity)


@pytest.mark.parametrize("case", CASES, ids=[case.fact for case in CASES])
def test_a_fact_that_turns_nothing_lowers_nothing(tmp_path: Path, case: Case) -> None:
    finding = find_worst(tmp_path, case.unaffected_files, case.other_code)
    assert not list_assumed_facts(finding)
    assert finding.severity == ("warning" if case.other_code == "SYN003" else "error")


def test_every_kind_is_here() -> None:
    """Cover the facts that an estimate varies, and those that have no other value."""
    kinds = {fact for facts in MILDEST_FACTS.values() for fact in facts} | {MODEL, FORK, "vocabulary"}
    kinds -= {"sequence.image_tokens"}  # an image that may be absent: fixtures/acceptance/parsers
    listed = {case.fact for case in CASES}
    assert kinds <= listed
    assert {prefix for prefix in (RELEASE, COMPANION_PREFIX) if any(fact.startswith(prefix) for fact in listed)} == {
        RELEASE,
        COMPANION_PREFIX,
    }
