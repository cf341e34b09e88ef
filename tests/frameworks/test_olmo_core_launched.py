"""Overrides that a job script passes to an OLMo-core script: applied, and checked against the vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.documents.document import apply_edits
from cfglint_train.findings.finding import Finding
from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, lint, list_runs

FOLDER = REPOSITORY / "fixtures" / "olmo_core"
INTERNAL = (FOLDER / "internal_style.py").read_text()
OFFICIAL = (FOLDER / "official_style.py").read_text()
RULES = ("KEY001", "KEY002", "KEY006")


def write_job(folder: Path, *words: str, text: str = INTERNAL, name: str = "job.sh") -> Path:
    (folder / "train.py").write_text(text)
    start = "torchrun --nproc-per-node=8 train.py train run01 ai2/jupiter"
    (folder / name).write_text(f"#!/bin/bash\n{start} {' '.join(words)}\n")
    return folder


def list_findings(folder: Path, **facts: str) -> list[tuple[str, str, str, str]]:
    """Return the findings in the scripts that start the program, not those about its calls."""
    findings = lint(folder, build_options(RULES, **facts)).findings
    assert {finding.path for finding in findings} <= {"job.sh", "other.sh", "train.py"}
    reported = [finding for finding in findings if finding.path != "train.py"]
    return [(finding.code, finding.severity, get_marked_text(folder, finding), finding.message) for finding in reported]


def get_marked_text(folder: Path, finding: Finding) -> str:
    """Return the text that a finding marks."""
    assert finding.place is not None
    return finding.place.document.get_text(finding.place.span)


@pytest.mark.parametrize(
    ("word", "named", "near"),
    [
        ("--trainer.xyz=1", "trainer.xyz", ""),
        ("--trainer.save-overwrit=true", "trainer.save_overwrit", "trainer.save_overwrite"),
        ("--trainer.callbacks.comet.nam=x", "trainer.callbacks.comet.nam", "trainer.callbacks.comet.name"),
        ("--train_module.dp_config.shards=8", "train_module.dp_config.shards", ""),
        ("--train_module.optim.learning_rate=1", "train_module.optim.learning_rate", ""),
        ("--train_module.nothing.of.it=1", "train_module.nothing", ""),
    ],
)
def test_a_name_that_no_class_has_is_refused(tmp_path, word, named, near):
    [(code, severity, text, message)] = list_findings(write_job(tmp_path, word))
    assert (code, severity, text) == ("KEY001", "error", word)
    assert message == f"OLMo-core has no `{named}`: it is refused" + (f"; did you mean `{near}`?" if near else "")


@pytest.mark.parametrize(
    ("name", "typo", "applicability"),
    [
        ("rank_microbatch_size=", "rank_microbatch_siz=", "safe"),
        ("ephemeral_save_interval=", "ephemeral_save_interva=", "safe"),
        ("metrics_collect_interval=", "metric_collect_interval=", "safe"),
        (
            "cancel_check_interval=cancel_check_interval,\n            max",
            "cancel_check_intervals='x',\n            max",
            "",
        ),
        ("lr=3e-4", "lr=3e-4, wait_decay=0.2", ""),
    ],
)
def test_a_misspelled_argument_is_renamed(tmp_path, name, typo, applicability):
    """The fix restores the script; there is none for a value that the argument refuses, or if the name is taken."""
    assert name in INTERNAL
    (tmp_path / "train.py").write_text(INTERNAL.replace(name, typo, 1))
    findings = [finding for finding in lint(tmp_path, build_options(("KEY001",))).findings if finding.code == "KEY001"]
    [finding] = findings
    assert (finding.fix.applicability if finding.fix else "") == applicability
    if finding.fix:
        source = (tmp_path / "train.py").read_bytes()
        edits = [edit.edit for edit in finding.fix.edits]
        assert apply_edits(source, edits).decode() == INTERNAL


COPY = {
    "version.py": '_MAJOR = "2"\n_MINOR = "1"\n_PATCH = "0"\n',
    "config.py": "from dataclasses import dataclass\n@dataclass\nclass Config: pass\n",
    "train/config.py": (
        "from dataclasses import dataclass\nfrom ..config import Config\n"
        "@dataclass\nclass TrainerConfig(Config):\n    save_folder: str\n    xyz: int = 0\n"
    ),
    "internal/experiment.py": (
        "from dataclasses import dataclass\nfrom ..config import Config\nfrom ..train.config import TrainerConfig\n"
        "@dataclass\nclass ExperimentConfig(Config):\n    trainer: TrainerConfig\n"
    ),
}


def test_a_copy_of_the_library_is_read(tmp_path):
    """Accept what the copy declares, report what it lacks, and take its version as the release."""
    folder = write_job(tmp_path, "--trainer.xyz=1", "--trainer.save_overwrite=true")
    for name, text in COPY.items():
        (folder / "src" / "olmo_core" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "src" / "olmo_core" / name).write_text(text)
    [(code, severity, text, message)] = list_findings(folder)
    assert (code, severity, text) == ("KEY001", "error", "--trainer.save_overwrite=true")
    assert message == "OLMo-core in src/olmo_core/ has no `trainer.save_overwrite`: it is refused"
    [run] = list_runs(folder)
    release = run.main.releases.by_package["olmo_core"]
    assert (release.version, release.origin.note) == ("2.1.0", "src/olmo_core/version.py:1")


def test_a_copy_of_a_part_of_the_library_is_a_doubt(tmp_path):
    folder = write_job(tmp_path, "--trainer.xyz=1", "--train_module.ac_config.mode=full")
    assert [severity for _, severity, _, _ in list_findings(folder, olmo_core="3.0.0")] == ["error", "error"]
    (folder / "olmo_core" / "train").mkdir(parents=True)
    (folder / "olmo_core" / "train" / "trainer.py").write_text("class Trainer: pass\n")
    assert list_findings(folder, olmo_core="3.0.0") == []


@pytest.mark.parametrize(
    "word",
    [
        "--trainer.save_overwrite=true",
        "--trainer.callbacks.checkpointer.save-interval=50",
        "--train_module.optim.lr=1e-4",
        "--train_module.dp_config=null",
        "--train_module.ac_config='{mode: full}'",
        "--launch.beaker_image=x",  # the code that builds the launch section is not available
        "--model.block.anything=1",  # the text does not show the factory's own blocks
        "--trainer.callbacks.mine.some=1",  # the library adds its own callbacks
        "$EXTRA",
    ],
)
def test_what_is_taken_or_out_of_sight_is_left_alone(tmp_path, word):
    assert list_findings(write_job(tmp_path, word), olmo_core="3.0.0") == []


def test_a_section_that_the_script_leaves_unset(tmp_path):
    folder = write_job(tmp_path, "--train_module.ac_config.mode=full")
    [(code, severity, text, message)] = list_findings(folder, olmo_core="3.0.0")
    assert (code, severity, text) == ("KEY006", "error", "--train_module.ac_config.mode=full")
    assert "but train.py leaves `train_module.ac_config` unset: it is refused" in message
    assert list_findings(folder, olmo_core="2.4.0") == []
    [(_, severity, _, message)] = list_findings(folder)
    assert severity == "warning"
    assert message.endswith("it is refused since 2.5.0, accepted before")


def test_a_section_that_the_launch_gives_as_well_is_set(tmp_path):
    words = ("--train_module.ac_config='{mode: full}'", "--train_module.ac_config.mode=budget")
    assert list_findings(write_job(tmp_path, *words), olmo_core="3.0.0") == []


@pytest.mark.parametrize("set_", ["", "ac_config=None,"])
def test_what_stands_below_an_unset_section_is_applied(tmp_path, set_):
    text = INTERNAL.replace("        max_grad_norm=1.0,", f"        max_grad_norm=1.0, {set_}")
    folder = write_job(tmp_path, "--train_module.ac_config.mode=full", text=text)
    [run] = list_runs(folder, olmo_core="2.4.0")
    assert run.plan.activations.checkpointing == "full"
    assert run.get_origin("activations.checkpointing").note == "job.sh"
    (folder / "job.sh").unlink()
    [run] = list_runs(folder, olmo_core="2.4.0")
    assert run.plan.activations.checkpointing == "none"


def test_a_setting_of_another_release(tmp_path):
    folder = write_job(tmp_path, "--trainer.autocast_precision=bfloat16")
    [(code, severity, _, message)] = list_findings(folder, olmo_core="3.0.0")
    assert (code, severity) == ("KEY002", "error")
    assert message == "`trainer.autocast_precision` was removed in OLMo-core 2.0.0: it is refused"
    assert list_findings(folder, olmo_core="1.9.0") == []


def test_one_launch_of_two_is_enough(tmp_path):
    write_job(tmp_path, "--trainer.xyz=1")
    folder = write_job(tmp_path, "--trainer.save_overwrite=true", name="other.sh")
    [(code, _, text, _)] = list_findings(folder)
    assert (code, text) == ("KEY001", "--trainer.xyz=1")


def test_a_script_that_merges_nothing_may_read_its_words_itself(tmp_path):
    assert list_findings(write_job(tmp_path, "--trainer.xyz=1", text=OFFICIAL)) != []
    for other in ("", '.merge(overrides, prefix="run")'):
        assert (
            list_findings(write_job(tmp_path, "--trainer.xyz=1", text=OFFICIAL.replace(".merge(overrides)", other)))
            == []
        )


# --- builders that return a tuple ------------------------------------------------------------------------------------

SECTIONS = OFFICIAL[: OFFICIAL.index("    return ExperimentConfig(")]
TUPLE = "    return model_config, dataset_config, data_loader_config, train_module_config, trainer_config\n"


@pytest.mark.parametrize(
    "text",
    [
        OFFICIAL.replace("    ).merge(overrides)\n", "    ).merge(overrides), None\n"),
        SECTIONS + TUPLE,
        SECTIONS + TUPLE + "\nconfig = ExperimentConfig(*build_config(opts, overrides))\n",
        SECTIONS + TUPLE + "\nmodel, _, _, train_module, trainer = build_config(opts, overrides)\ntrainer.build()\n",
        SECTIONS + TUPLE + "\ndef start():\n    return build_config(None, []), 1\n\nparts = start()\n",
    ],
    ids=["pair", "uncalled", "spread", "unpacked", "nested"],
)
def test_the_configuration_in_a_tuple_is_read(tmp_path, text):
    assert text != OFFICIAL
    (tmp_path / "train.py").write_text(text)
    [run] = list_runs(tmp_path)
    plan = run.plan
    assert (plan.model.id, plan.activations.checkpointing) == ("olmo_core:olmo3_32B", "budget")
    assert (plan.batch.micro, plan.sequence.length) == (1, 65_536)


def test_a_module_that_holds_builders_for_others_is_no_run(tmp_path):
    """Report no run for a module whose builders of train module and trainer may be combined elsewhere."""
    apart = SECTIONS.replace("    trainer_config = (", "\ndef build_trainer(opts):\n    trainer_config = (")
    assert apart != SECTIONS
    (tmp_path / "common.py").write_text(apart)
    assert list_runs(tmp_path) == []


@pytest.mark.parametrize(
    ("tokens", "said"), [("3000", "3,000 tokens, which is not a whole number"), ("$TOKENS", "cannot be")]
)
def test_a_micro_batch_that_is_no_whole_number_of_sequences_is_known(tmp_path, tokens, said):
    write_job(tmp_path, f"--train_module.rank_microbatch_size={tokens}")
    [finding] = lint(tmp_path, build_options(("CHK001",))).findings
    assert said in finding.message


CALLS = """
from olmo_core.data import NumpyDatasetConfig, NumpyDataLoaderConfig as Loader
from olmo_core.nn.transformer import TransformerBlockConfig, TransformerConfig
from olmo_core.train import TrainerConfig
from olmo_core.train.train_module import TransformerTrainModuleConfig


def build(**more):
    data = NumpyDatasetConfig(sequence_length=8, paths=[], name="fsl")
    block = TransformerBlockConfig(attention=None)
    return dict(
        model=TransformerConfig.olmo2_190M(vocab_size=8, of_the_function=1),
        train_module=TransformerTrainModuleConfig(rank_microbatch_size=8, max_sequence_length=8, **more),
        trainer=TrainerConfig(save_folder="x"),
        loader=Loader(global_batch_size=8, seed=0, workers=4),
        mine=MyConfig(anything=1),
    )
"""


def test_arguments_that_a_class_of_the_library_lacks(tmp_path):
    (tmp_path / "train.py").write_text(CALLS, encoding="utf-8")
    findings = lint(tmp_path, build_options(select=["KEY001", "KEY002"], olmo_core="3.0.0")).findings
    assert [(finding.code, finding.severity, finding.message.split("`")[1]) for finding in findings] == [
        ("KEY002", "error", "NumpyDatasetConfig.sequence_length"),
        ("KEY001", "error", "NumpyDataLoaderConfig.workers"),
    ]
    assert "`name`" in findings[0].notes[0]
