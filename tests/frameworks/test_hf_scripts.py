"""Python scripts that call the transformers Trainer directly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.frameworks.hf_scripts.recognise import recognise
from tests.support.linting import lint, list_runs

IMPORTS = """\
import argparse
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM, AutoModelForSequenceClassification, AutoModelForSeq2SeqLM, BitsAndBytesConfig,
    HfArgumentParser, Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments,
    WhisperForConditionalGeneration,
)
"""
SCRIPT = (
    IMPORTS
    + """\
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
quantized = BitsAndBytesConfig(load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", quantization_config=quantized, dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=32, target_modules=["q_proj"]))
training = TrainingArguments("out", per_device_train_batch_size=args.batch_size, bf16=True, save_total_limit=2)
class Own(Trainer):
    pass
Own(model=model, args=training, train_dataset=data).train()
"""
)
CAUSAL = 'AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")'


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("model.id", "Qwen/Qwen2.5-7B"),
        ("method.tuning", "lora"),
        ("method.lora_rank", 32),
        ("method.quantization", "fp4"),
        ("batch.micro", 2),
        ("batch.accumulation", 1),
        ("precision.compute", "bf16"),
        ("optimizer.learning_rate", 5e-5),
        ("logging.interval", 500),
        ("checkpoint.keep", 2),
        ("checkpoint.path", "out"),
        ("launch.gpus_per_node", 4),
        ("sequence.length", None),
        ("method.stage", None),
    ],
)
def test_the_plan_of_a_script_that_is_started(tmp_path: Path, field: str, expected: object) -> None:
    """Read the script, the Trainer's defaults and the options of the launch."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 4 train.py --batch-size 2\n")
    (run,) = list_runs(tmp_path)
    assert (run.main.framework, run.framework.title) == ("hf_scripts", "transformers")
    assert run.resolved_plan.get(field) == expected  # type: ignore[arg-type]


def test_the_release_is_that_of_transformers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "requirements.txt").write_text("transformers==4.57.1\npeft\n")
    (run,) = list_runs(tmp_path)
    assert (run.main.release, "trl" in run.releases.by_package) == ("4.57.1", False)


def test_what_the_trainer_refuses_is_reported(tmp_path: Path) -> None:
    text = f"Trainer({CAUSAL}, TrainingArguments('out', load_best_model_at_end=True, eval_strategy='epoch', foo=1))\n"
    (tmp_path / "train.py").write_text(IMPORTS + text)
    findings = lint(tmp_path).findings
    assert [(finding.code, finding.severity) for finding in findings if finding.severity != "info"] == [
        ("KEY006", "error"), ("KEY006", "warning"), ("KEY001", "error")
    ]  # fmt: skip
    assert {finding.code for finding in findings} >= {"CHK001"}
    assert not [finding for finding in findings if "TRL" in finding.message]


@pytest.mark.parametrize(
    ("text", "release", "codes"),
    [
        ("TrainingArguments('out', evaluation_strategy='steps')", "4.40.0", []),
        ("TrainingArguments('out', evaluation_strategy='steps')", "5.8.0", ["KEY002"]),
        ("TrainingArguments('out', eval_strategy='steps')", "4.38.0", ["KEY002"]),
        ("TrainingArguments('out', loging_steps=5)", "4.40.0", ["KEY001"]),
        ("TrainingArguments('out', predict_with_generate=True)", "4.40.0", ["KEY001"]),
        ("Seq2SeqTrainingArguments('out', predict_with_generate=True)", "4.40.0", []),
        ("TrainingArguments('out', save_strategy='often')", "4.40.0", ["KEY004"]),
    ],
)
def test_names_are_those_of_the_release(tmp_path: Path, text: str, release: str, codes: list[str]) -> None:
    (tmp_path / "train.py").write_text(f"{IMPORTS}Trainer(model={CAUSAL}, args={text})\n")
    (tmp_path / "requirements.txt").write_text(f"transformers=={release}\n")
    findings = lint(tmp_path).findings
    assert [
        finding.code
        for finding in findings
        if finding.severity in ("error", "warning") and finding.code.startswith("KEY")
    ] == codes


@pytest.mark.parametrize(("release", "refused"), [("4.57.1", False), ("5.0.0", True)])
def test_a_keyword_that_newer_trainers_refuse(tmp_path: Path, release: str, refused: bool) -> None:
    (tmp_path / "train.py").write_text(f"{IMPORTS}Trainer({CAUSAL}, TrainingArguments('out'), tokenizer=tokenizer)\n")
    (tmp_path / "requirements.txt").write_text(f"transformers=={release}\n")
    findings = [finding for finding in lint(tmp_path).findings if finding.code == "KEY002"]
    assert [finding.severity for finding in findings] == (["error"] if refused else [])
    if refused:
        assert "`processing_class`" in findings[0].message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "def cut(b): return tokenizer(b['t'], truncation=True, max_length=512)\n"
            "data.map(cut)",
            (512, False, "longest"),
        ),
        (
            "def cut(b): return tokenizer(b['t'], truncation=True, max_length=SIZE, padding='max_length')\n"
            "data.map(cut)",
            (256, False, "max_length"),
        ),
        ("data.map(lambda b: tokenizer(b['t'], truncation=True, max_length=64))", (64, False, "longest")),
        (
            "def cut(b, size=32): return tokenizer(b['t'], truncation=True, max_length=size)\n"
            "data.map(cut, fn_kwargs={'size': 128})",
            (128, False, "longest"),
        ),
        ("def cut(b, size=32): return tokenizer(b['t'], truncation=True, max_length=size)\ndata.map(cut)",
         (32, False, "longest")),
        ("def cut(b): return tokenizer(b['t'], truncation=True)\ndata.map(cut)", (1024, False, "longest")),
        (
            "def group(b):\n"
            "    return {k: [v[i : i + SIZE] for i in range(0, len(v), SIZE)] for k, v in b.items()}\n"
            "data.map(lambda b: tokenizer(b['t'])).map(group, batched=True)",
            (256, True, "max_length"),
        ),
        (
            "class Data:\n"
            "    def __init__(self, texts, tokenizer, size=16):\n"
            "        self.tokenizer = tokenizer\n"
            "        self.size = size\n"
            "    def __getitem__(self, index):\n"
            "        return self.tokenizer(self.texts[index], truncation=True, max_length=self.size)\n"
            "Data(texts, tokenizer, size=2048)",
            (2048, False, "longest"),
        ),
        ("data.map(lambda b: tokenizer(b['t'], max_length=64))", (None, None, None)),
        ("data.map(lambda b: tokenizer(b['t'], truncation=False, max_length=64))", (None, None, None)),
        ("data.map(lambda b: tokenizer(b['t'], truncation=True, max_length=unheard()))", (None, None, None)),
        (
            "def cut(b):\n"
            "    left = tokenizer(b['q'], truncation=True, max_length=64)\n"
            "    return join(left, tokenizer(b['a'], truncation=True, max_length=64))\n"
            "data.map(cut)",
            (None, None, None),
        ),
    ],
)  # fmt: skip
def test_the_length_of_samples_is_what_the_script_cuts_them_to(tmp_path: Path, text: str, expected: object) -> None:
    before = "tokenizer = AutoTokenizer.from_pretrained('Qwen/Qwen2.5-7B', model_max_length=1024)\nSIZE = 256\n"
    after = f"Trainer(model={CAUSAL}, args=TrainingArguments('out', bf16=True))\n"
    (tmp_path / "train.py").write_text(f"from transformers import AutoTokenizer\n{IMPORTS}{before}{text}\n{after}")
    (run,) = list_runs(tmp_path)
    sequence = run.plan.sequence
    assert (sequence.length, sequence.packing, sequence.padding) == expected
    assert any(phase.gpu for phase in run.estimate.phases) is (sequence.length is not None)


@pytest.mark.parametrize(
    ("before", "arguments", "loss"),
    [
        ("", "", "none"),
        ("", ", use_liger_kernel=True", "liger"),
        ("", ", label_smoothing_factor=0.1", None),
        ("class Own(Trainer):\n    def compute_loss(self, model, inputs): return 0\n", "", None),
        ("class Own(Trainer):\n    def log(self, logs): pass\n", "", "none"),
    ],
)
def test_the_loss_is_the_models_own_unless_the_script_replaces_it(
    tmp_path: Path, before: str, arguments: str, loss: str | None
) -> None:
    text = f"(model={CAUSAL}, args=TrainingArguments('out'{arguments}))\n"
    (tmp_path / "train.py").write_text(f"{IMPORTS}{before}{'Own' if before else 'Trainer'}{text}")
    (run,) = list_runs(tmp_path)
    assert run.plan.activations.fused_loss == loss


@pytest.mark.parametrize(
    ("release", "arguments", "fused"),
    [
        ("5.15.0", ", use_liger_kernel=True", True),
        ("5.14.0", ", use_liger_kernel=True", None),
        ("5.15.0", "", None),
    ],
)
def test_ligers_loss_skips_the_logits_of_an_evaluation(
    tmp_path: Path, release: str, arguments: str, fused: bool | None
) -> None:
    text = f"{IMPORTS}Trainer(model={CAUSAL}, args=TrainingArguments('out'{arguments}))\n"
    (tmp_path / "train.py").write_text(text)
    (run,) = list_runs(tmp_path, transformers=release)
    assert run.plan.activations.fused_evaluation is fused


@pytest.mark.parametrize(("release", "attention"), [("4.31.0", "eager"), ("4.40.0", "sdpa")])
def test_what_models_attended_with(tmp_path: Path, release: str, attention: str) -> None:
    (tmp_path / "train.py").write_text(f"{IMPORTS}Trainer(model={CAUSAL}, args=TrainingArguments('out'))\n")
    (run,) = list_runs(tmp_path, transformers=release)
    assert run.plan.activations.attention == attention


@pytest.mark.parametrize(
    ("text", "reason", "role"),
    [
        (f"Trainer({CAUSAL}, TrainingArguments('out'))", None, None),
        (f"Seq2SeqTrainer(model={CAUSAL}, args=Seq2SeqTrainingArguments('out'))", None, None),
        (
            "a, = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
            f"Trainer(model={CAUSAL}, args=a)",
            None,
            None,
        ),
        (
            "Trainer(AutoModelForSequenceClassification.from_pretrained('m'), TrainingArguments('out'))",
            "causal",
            "other",
        ),
        ("Trainer(AutoModelForSeq2SeqLM.from_pretrained('m'), TrainingArguments('out'))", "causal", "other"),
        ("Trainer(WhisperForConditionalGeneration.from_pretrained('m'), TrainingArguments('out'))", "causal", "other"),
        ("Trainer(make(), TrainingArguments('out'))", None, None),
        (
            "from transformers import Qwen2VLForConditionalGeneration as A\n"
            "Trainer(A.from_pretrained('m'), TrainingArguments('o'))",
            None,
            None,
        ),
        (
            "from transformers import AutoModelForImageTextToText as A\n"
            "Trainer(A.from_pretrained('m'), TrainingArguments('o'))",
            None,
            None,
        ),
        (f"Trainer({CAUSAL}, TrainingArguments(**load()))", "without running it", "unread"),
        (f"Trainer({CAUSAL}, make())", "without running it", "unread"),
    ],
)
def test_a_run_is_read_or_named_with_the_reason(text: str, reason: str | None, role: str | None) -> None:
    (config,) = recognise(PythonDocument("train.py", (IMPORTS + text).encode()))
    assert config.role == role
    assert (reason or "transformers Trainer") in config.reason


CAUSAL_MODULE = (
    "from transformers import AutoModelForCausalLM\ndef load(n): return AutoModelForCausalLM.from_pretrained(n)\n"
)
OTHER_MODULE = (
    "from transformers import AutoModelForImageClassification as A\n"
    "def build(n): return A.from_pretrained(n)\nclass Llama: pass\n"
)
ARGUMENTS = "from transformers import Trainer, TrainingArguments\na = TrainingArguments('out')\n"


UNLISTED_MODEL = "memory not checked: `m` is not in the catalogue of models"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        # By a function that calls another function, which a package re-exports.
        (f"{ARGUMENTS}from lib import build\nTrainer(build('m'), a)", UNLISTED_MODEL),
        (
            f"{ARGUMENTS}import lib.models as zoo\ndef run():\n    m, t = zoo.build('m'), 1\n    Trainer(m, a)\nrun()",
            UNLISTED_MODEL,
        ),
        (
            f"{ARGUMENTS}from lib import Wrapped\nTrainer(model=Wrapped.from_pretrained('m'), args=a)",
            "memory not checked: no formula covers the loss of `Wrapped`",
        ),
        # Passed to a function, and to a method that is never called.
        (
            f"{ARGUMENTS}from lib import build\ndef fit(network): Trainer(network, a)\nfit(build('m'))",
            UNLISTED_MODEL,
        ),
        (
            f"{ARGUMENTS}from lib import build\nclass Job:\n    def __init__(self):\n        self.net = build('m')\n"
            "    def fit(self): Trainer(model=self.net, args=a)",
            "run checked only in part: no call that can be followed makes its `Trainer`",
        ),
        (
            f"{ARGUMENTS}from lib import build\nfrom mine import MyTrainer\nMyTrainer(model=build('m'), args=a)",
            "run not checked: its trainer (`MyTrainer`) comes from another module",
        ),
        (
            "import deepspeed\nfrom lib import build\nengine, *_ = deepspeed.initialize(model=build('m'))\n"
            "engine.backward(engine(1))\nengine.step()",
            "run not checked: its training loop is its own (`engine.backward`)",
        ),
        (
            "import deepspeed\nfrom vision import Llama\nengine, *_ = deepspeed.initialize(model=Llama())\n"
            "engine.backward(engine(1))\nengine.step()",
            "run not checked: its training loop is its own (`engine.backward`)",
        ),
        (
            "import deepspeed\nfrom vision import build\nengine, *_ = deepspeed.initialize(model=build('m'))\n"
            "engine.backward(engine(1))\nengine.step()",
            None,
        ),
        # The module builds a model of another kind, or a model that is not trained.
        (f"{ARGUMENTS}from vision import build\nTrainer(build('m'), a)", None),
        (
            f"{ARGUMENTS}from vision import build\nfrom lib import build as judge\nTrainer(build(1), a)\njudge('m')",
            None,
        ),
        (f"{ARGUMENTS}from elsewhere import build\nTrainer(build('m'), a)", None),
    ],
)
def test_a_model_of_another_module_is_looked_up_there(tmp_path: Path, text: str, why: str | None) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/__init__.py").write_text("from .models import build\nfrom .models import Wrapped\n")
    again = "from .loading import load\nclass Wrapped(LlamaForCausalLM): pass\ndef build(n): return load(n)\n"
    (tmp_path / "lib/models.py").write_text(again)
    (tmp_path / "lib/loading.py").write_text(CAUSAL_MODULE)
    (tmp_path / "vision.py").write_text(OTHER_MODULE)
    (tmp_path / "train.py").write_text(text)
    messages = [finding.message for finding in lint(tmp_path).findings if finding.code in ("CHK001", "CHK005")]
    assert messages == ([] if why is None else [why])


LOADED = (
    "from transformers import AutoModelForCausalLM\nm = AutoModelForCausalLM.from_pretrained('m')\n"
    "o = torch.optim.AdamW(m.parameters())\nif __name__ == '__main__':\n    "
)
ENGINE = (
    "import deepspeed\nfrom net import Net\nnet = Net({size}=9)\nengine, *_ = deepspeed.initialize(model=net)\n"
    "engine.backward(engine(1))\nengine.step()\n"
)
SCORER = (
    "from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments\n"
    "class {name}(Trainer):\n    pass\n"
    "{name}(AutoModelForSequenceClassification.from_pretrained('m'), TrainingArguments('out'))\n"
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        # A step in another module gets the optimizer.
        (
            f"from rl import step\n{LOADED}step(m, optimizer=o)",
            "what steps its optimizer (`step`) comes from another module",
        ),
        (
            f"from rl import Agent\n{LOADED}Agent(m, optim=o).go()",
            "what steps its optimizer (`Agent`) comes from another module",
        ),
        (f"from torch.optim.lr_scheduler import LinearLR\n{LOADED}LinearLR(optimizer=o)", None),
        (f"from rl import step\n{LOADED}step(m)", None),
        # DeepSpeed gets a model that the script defines, which reads text or not.
        (ENGINE.format(size="vocab_size"), "its training loop is its own (`engine.backward`)"),
        (ENGINE.format(size="channels"), None),
        # A classifier that scores texts, and a classifier that does not.
        (
            SCORER.format(name="RewardTrainer"),
            "it cannot be determined whether its Trainer trains a causal language model",
        ),
        (SCORER.format(name="TopicTrainer"), None),
    ],
)
def test_what_trains_a_language_model_in_its_own_way_is_named(tmp_path: Path, text: str, why: str | None) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "rl.py").write_text("def step(m, optimizer=None): pass\nclass Agent: pass\n")
    (tmp_path / "train.py").write_text(text)
    messages = [finding.message for finding in lint(tmp_path).findings if finding.code == "CHK005"]
    assert messages == ([] if why is None else [f"run not checked: {why}"])


@pytest.mark.parametrize(
    ("main", "named"),
    [
        ("from lib.engine import run\nfrom lib.models import load\nrun(load('m'))", True),
        ("import lib.engine as e\nfrom transformers import GPT2LMHeadModel\ne.run(GPT2LMHeadModel())", True),
        ("from lib.engine import run\nfrom vision import build\nrun(build('m'))", False),
        ("from engine import run\nfrom lib.models import load\nrun(load('m'))", False),
    ],
)
def test_a_model_may_be_handed_to_the_module_of_the_trainer(tmp_path: Path, main: str, named: bool) -> None:
    """Report the run in the module, because the main program shows no sign of the framework."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "lib").mkdir()
    engine = f"{ARGUMENTS}def run(model):\n    Trainer(model=model, args=a).train()\n"
    (tmp_path / "lib/engine.py").write_text(engine)
    (tmp_path / "lib/models.py").write_text(CAUSAL_MODULE)
    (tmp_path / "vision.py").write_text(OTHER_MODULE)
    (tmp_path / "main.py").write_text(main)
    findings = [(finding.message, finding.path) for finding in lint(tmp_path).findings if finding.code == "CHK005"]
    assert findings == ([("run not checked: its model comes from another module", "lib/engine.py")] if named else [])


@pytest.mark.parametrize(
    "text",
    [
        "from transformers import TrainingArguments\nTrainingArguments('out')\n",
        "from lightning import Trainer\nfrom transformers import AutoModel\nTrainer(max_epochs=1)\n",
        "from trl import SFTTrainer\nfrom transformers import TrainingArguments\nSFTTrainer('m', TrainingArguments())",
        "from trl import SFTTrainer\nfrom transformers import Trainer\nSFTTrainer('m')\nTrainer(make(), None)\n",
    ],
)
def test_other_scripts_are_left_alone(text: str) -> None:
    assert recognise(PythonDocument("train.py", text.encode())) == []


PARSING = """\
import os
import sys
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class ModelArguments:
    model_name_or_path: str = "Qwen/Qwen2.5-1.5B"

parser = HfArgumentParser((ModelArguments, TrainingArguments))
model_args, args = parser.parse_{kind}_file(os.path.abspath(sys.argv[1]){more})
model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)
Trainer(model=model, args=args, train_dataset=data).train()
"""
SETTINGS = {"model_name_or_path": "Qwen/Qwen2.5-1.5B", "per_device_train_batch_size": 2, "output_dir": "out"}


def list_file_findings(folder: Path, kind: str, more: str = "", **settings: object) -> list[str]:
    (folder / ".git").mkdir()
    (folder / "requirements.txt").write_text("transformers==4.57.3\n", encoding="utf-8")
    (folder / "train.py").write_text(PARSING.format(kind=kind, more=more), encoding="utf-8")
    (folder / f"args.{kind}").write_text(json.dumps(SETTINGS | settings), encoding="utf-8")  # JSON is YAML
    (folder / "run.sh").write_text(f"torchrun --nproc_per_node 4 train.py args.{kind}\n", encoding="utf-8")
    return [
        f"{finding.path} {finding.severity} {finding.code}"
        for finding in lint(folder).findings
        if finding.code.startswith("KEY")
    ]


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_the_settings_file_of_a_parser_is_checked_against_its_dataclasses(tmp_path: Path, kind: str) -> None:
    findings = list_file_findings(tmp_path, kind, evaluation_strategy="no", ours=1)
    assert sorted(findings) == [f"args.{kind} error KEY001", f"args.{kind} error KEY002"]
    (run,) = list_runs(tmp_path)
    assert run.plan.batch.micro == 2


def test_a_settings_file_with_known_keys_is_silent(tmp_path: Path) -> None:
    assert list_file_findings(tmp_path, "json") == []


def test_a_parser_that_allows_other_keys_ignores_them(tmp_path: Path) -> None:
    findings = list_file_findings(tmp_path, "yaml", ", allow_extra_keys=True", ours=1)
    assert findings == ["args.yaml warning KEY001"]


PATCHED = """\
from transformers import Trainer, TrainingArguments
from unsloth import FastLanguageModel

model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen2.5-7B")
training = TrainingArguments("out", warmup_ratio=0.03, max_seq_length=2048)
Trainer(model=model, args=training, train_dataset=data, tokenizer=tokenizer).train()
"""


def test_the_keys_of_a_trainer_that_unsloth_patches_are_checked(tmp_path: Path) -> None:
    """Bound transformers by unsloth's own requirement, and leave the run itself unchecked."""
    (tmp_path / "train.py").write_text(PATCHED)
    result = lint(tmp_path)
    assert [item.code for item in result.findings] == ["CHK005", "KEY001", "REL002"]
    assert result.findings[2].message.startswith("transformers 5.17.0 refuses this file (`tokenizer`")
    assert (result.skipped, result.runs) == ((), ())


def test_requirements_of_several_environments_are_no_fresh_installation(tmp_path: Path) -> None:
    """Report a removed argument only if no other requirement file contradicts the newest release."""
    (tmp_path / "sft.py").write_text(
        'from trl import SFTConfig, SFTTrainer\n\nconfig = SFTConfig("out", warmup_ratio=0.1)\n'
        'SFTTrainer("Qwen/Qwen3-8B", args=config, train_dataset=data).train()\n'
    )
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("trl\ntransformers\n")
    assert "REL002" in [item.code for item in lint(tmp_path).findings]
    (tmp_path / "requirements-trl.txt").write_text("transformers==5.5.4\n")
    (tmp_path / "requirements-eval.txt").write_text("transformers>=4.55.2,<5\n")
    assert "REL002" not in [item.code for item in lint(tmp_path).findings]


@pytest.mark.parametrize(
    ("old", "new", "requirements"),
    [
        ("from transformers import Trainer", "from trl import SFTTrainer as Trainer", ""),
        ("import Trainer, TrainingArguments", "import Trainer\nfrom unsloth import UnslothTrainingArguments as T", ""),
        ("", "", "unsloth==2025.1.5\n"),
        (", max_seq_length=2048", "", "unsloth\ntransformers==4.46.3\n"),
    ],
)
def test_what_unsloth_replaces_or_another_release_accepts_is_not_reported(
    tmp_path: Path, old: str, new: str, requirements: str
) -> None:
    text = PATCHED.replace(old, new).replace(
        " = TrainingArguments(", " = T(" if " as T" in new else " = TrainingArguments("
    )
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "requirements.txt").write_text(requirements)
    assert [item for item in lint(tmp_path).findings if item.code != "CHK005"] == []


LAUNCHED = PARSING.replace(
    "parse_{kind}_file(os.path.abspath(sys.argv[1]){more})", "parse_args_into_dataclasses({more})"
)
REMOVED = ("--evaluation_strategy", "--warmup_ratio", "--logging_dir", "--no_cuda", "--overwrite-output-dir")
OPTIONS = (*REMOVED, "--eval_steps", "--warmup_step", "--model_name_or_path", "--report_to")
"""Options that newer releases removed and options that they accept, one of them abbreviated."""


def list_refused_options(folder: Path, release: str, more: str = "") -> dict[str, str]:
    (folder / ".git").mkdir()
    (folder / "requirements.txt").write_text(f"transformers{release}\n", encoding="utf-8")
    (folder / "train.py").write_text(LAUNCHED.format(more=more), encoding="utf-8")
    words = " ".join(f"{option} 1" for option in OPTIONS)
    (folder / "run.sh").write_text(f"torchrun --nproc_per_node 4 train.py --output_dir out {words}\n", encoding="utf-8")
    findings = [finding for finding in lint(folder).findings if finding.code in ("KEY001", "KEY002")]
    return {finding.place.document.get_text(finding.place.span): finding.severity for finding in findings}


@pytest.mark.oracle
def test_options_that_the_release_removed_are_refused_as_by_its_parser(tmp_path: Path) -> None:
    import transformers

    parser = transformers.HfArgumentParser((transformers.TrainingArguments,))
    words = [word for option in OPTIONS for word in (option, "1") if option != "--model_name_or_path"]
    leftovers = set(parser.parse_known_args(words)[1]) - {"1"}
    found = list_refused_options(tmp_path, f"=={transformers.__version__}")
    assert found == dict.fromkeys(leftovers, "error") == dict.fromkeys(REMOVED, "error")


@pytest.mark.parametrize(
    ("release", "more", "refused"),
    [
        ("==4.57.1", "", ["--evaluation_strategy"]),
        ("==4.50.0", "", []),
        (">=5.16", "", [*REMOVED]),
        ("==5.20.0", "return_remaining_strings=True", []),
    ],
)
def test_a_removed_option_is_refused_only_if_every_candidate_release_lacks_it(
    tmp_path: Path, release: str, more: str, refused: list[str]
) -> None:
    assert list_refused_options(tmp_path, release, more) == dict.fromkeys(refused, "error")
