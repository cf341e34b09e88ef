"""`cfglint preflight`: what it reads from a command and its environment, and how it runs the command."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cfglint_train.front import programs
from tests.front.test_action import run_git
from tests.support.command import run_cfglint

LLAMAFACTORY = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
stage: sft
do_train: true
finetuning_type: lora
dataset: alpaca_en_demo
template: qwen
cutoff_len: 1024
per_device_train_batch_size: 1
output_dir: out
"""
JOB = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
export NPROC_PER_NODE=${GPUS:-4}
srun llamafactory-cli train sft.yaml per_device_train_batch_size=$MICRO
"""
SBATCH = """\
#!/bin/sh
printf '%s\\n' "$@" > submitted
echo "Submitted batch job 42"
exit 3
"""
TOKEN = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3h"


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sft.yaml").write_text(LLAMAFACTORY)
    (tmp_path / "bad.yaml").write_text(LLAMAFACTORY.replace("cutoff_len", "cutof_len"))
    (tmp_path / "job.slurm").write_text(JOB)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sbatch").write_text(SBATCH)
    (tmp_path / "bin/sbatch").chmod(0o755)
    return tmp_path


def build_environment(here: Path, **variables: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{here / 'bin'}{os.pathsep}{os.environ['PATH']}", **variables}


def start(here: Path, *arguments: str | bytes, **options) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cfglint_train", "preflight", *arguments]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, cwd=here, env=build_environment(here), **pipes, **options)


def run(here: Path, *arguments: str | bytes, stdin: bytes = b"") -> tuple[int, bytes, str]:
    with start(here, *arguments) as process:
        out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out, err.decode()


def resolve(here: Path, *command: str, flags: tuple[str, ...] = (), **variables: str) -> dict:
    """Return the plan that a dry run writes, with the values of the fields in place of their origins."""
    outcome = run_cfglint(
        "preflight", "--dry-run", "--plan", "plan.json", *flags, "--", *command, cwd=here, environment=variables
    )
    assert outcome.code in (0, 1), outcome
    assert outcome.out == ""
    return json.loads((here / "plan.json").read_text())


def get_values(plan: dict, *fields: str) -> list:
    (read_run,) = plan["runs"]
    return [None if read_run["fields"][field] is None else read_run["fields"][field]["value"] for field in fields]


# --- what runs -------------------------------------------------------------------------------------------------------


def test_a_job_is_submitted_with_its_own_output_and_exit_code(here):
    code, out, err = run(here, "--", "sbatch", "--nodes=4", "job.slurm")
    assert (code, out) == (3, b"Submitted batch job 42\n")
    assert (here / "submitted").read_text() == "--nodes=4\njob.slurm\n"
    assert "preflight: no certain error; runs: sbatch --nodes=4 job.slurm" in err


def test_a_certain_error_is_refused_unless_forced(here):
    (here / "job.slurm").write_text(JOB.replace("sft.yaml", "bad.yaml"))
    command = ("--", "sbatch", "job.slurm")
    code, out, err = run(here, "--plan", "plan.json", *command)
    assert (code, out) == (1, b"")
    assert "bad.yaml:7:1: error KEY001 " in err
    assert err.endswith("preflight: refused (1 certain error): sbatch job.slurm; --force runs it anyway\n")
    assert not (here / "submitted").exists()
    plan = json.loads((here / "plan.json").read_text())
    assert (plan["verdict"], plan["findings"][0]["code"]) == ("refused", "KEY001")
    code, out, err = run(here, "--force", "--quiet", "--plan", "plan.json", *command)
    assert (code, out) == (3, b"Submitted batch job 42\n")
    assert err.endswith("preflight: runs despite 1 certain error (--force): sbatch job.slurm\n")
    assert json.loads((here / "plan.json").read_text())["verdict"] == "forced"
    assert run(here, "--ignore", "KEY001", *command)[0] == 3


def test_the_report_ends_with_a_command_that_fixes_the_files(here):
    (here / "job.slurm").write_text(JOB.replace("sft.yaml", "bad.yaml"))
    err = run_cfglint("preflight", "--dry-run", "--", "sbatch", "--nodes=4", "job.slurm", cwd=here).err
    (words,) = [line.partition(" fixable with cfglint ")[2] for line in err.splitlines() if "fixable with" in line]
    arguments = words.partition(" (")[0].removesuffix(".").split()
    assert arguments == ["--fix", "--nodes", "4", "--gpus-per-node", "4", "bad.yaml"]
    run_cfglint(*arguments, cwd=here)
    assert "cutoff_len" in (here / "bad.yaml").read_text()


def test_that_command_repeats_the_facts_of_the_command_line(here):
    (here / "job.slurm").write_text(JOB.replace("sft.yaml", "bad.yaml"))
    stated = ["--nodes", "2", "--gpu", "H100", "--release", "torch=2.6", "--set", "run_name=a b", "--select", "KEY001"]
    err = run_cfglint("preflight", "--dry-run", *stated, "--", "sbatch", "job.slurm", cwd=here).err
    (words,) = [line.partition(" fixable with cfglint ")[2] for line in err.splitlines() if "fixable with" in line]
    arguments = shlex.split(words.removesuffix("."))
    assert arguments == ["--fix", *stated[:-2], "--select", "KEY001", "--gpus-per-node", "4", "bad.yaml"]


@pytest.mark.parametrize("code", [0, 7, 255])
def test_the_exit_code_is_that_of_the_command(here, code):
    assert run(here, "--", "sh", "-c", f"exit {code}")[0] == code


def test_a_command_that_a_signal_ends_ends_by_that_signal(here):
    assert run(here, "--", "sh", "-c", "kill -KILL $$")[0] == -signal.SIGKILL


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_signals_reach_the_command(here, name):
    program = (
        f"import signal, sys; signal.signal(signal.{name}, lambda *_: (print('{name}'), sys.exit(9))); "
        "print('ready', flush=True); signal.pause()"
    )
    with start(here, "--", sys.executable, "-c", program) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(getattr(signal, name))
        assert process.stdout.read().strip() == name.encode()
    assert process.returncode == 9


def test_a_process_that_waits_leaves_an_interrupt_to_the_command():
    """Wait as on Windows, where a console sends Ctrl-C to all its programs."""
    child = (
        "import signal, sys, time; signal.signal(signal.SIGINT, lambda *_: (time.sleep(0.5), sys.exit(9))); "
        "print('ready', flush=True); signal.pause()"
    )
    waiting = (
        "import sys; from cfglint_train.front.programs import wait_for_command; "
        f"sys.exit(wait_for_command({[sys.executable, '-c', child]!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", waiting], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout.readline() == b"ready\n"
        os.killpg(process.pid, signal.SIGINT)
    assert process.returncode == 9


def test_exit_codes_of_windows_keep_their_bits(monkeypatch):
    class Ended:
        def __init__(self, command):
            self.code = command[0]

        def wait(self):
            return self.code

    monkeypatch.setattr(programs.subprocess, "Popen", Ended)
    handlers = [signal.getsignal(signal.SIGINT)]
    codes = [programs.wait_for_command([code]) for code in (0, 3, 0xC000013A, 0xFFFFFFFF)]
    signal.signal(signal.SIGINT, handlers[0])
    assert codes == [0, 3, 0xC000013A - 2**32, -1]


@pytest.mark.parametrize(
    ("name", "words", "is_refused"),
    [
        ("a.exe", ["%PATH%"], False),
        ("a.CMD", ["x y", "a=1"], False),
        ("a.cmd", ["%PATH%"], True),
        ("a.bat", ["&b"], True),
    ],
)
def test_a_batch_file_gets_its_arguments_unchanged_or_not_at_all(monkeypatch, name, words, is_refused):
    monkeypatch.setattr(programs.shutil, "which", lambda _: name)
    if is_refused:
        with pytest.raises(OSError, match=r"cmd\.exe would change an argument"):
            programs.find_windows_program(["a", *words])
    else:
        assert programs.find_windows_program(["a", *words]) == name


def test_the_command_ignores_no_other_signals_than_without_cfglint(here):
    command = ("grep", "SigIgn", "/proc/self/status")
    direct = subprocess.run(command, capture_output=True, check=True)
    assert run(here, "--", *command)[1] == direct.stdout


def test_words_and_input_reach_the_command_unchanged(here):
    words = ["a b", "$HOME", "*", "'", '"', "", "two\nlines", "--", "\udcff", "~"]
    program = "import sys; print(ascii(sys.argv[1:]), sys.stdin.read())"
    code, out, _ = run(here, "--", sys.executable, "-c", program, *map(os.fsencode, words), stdin=b"input")
    assert (code, out) == (0, f"{words!a} input\n".encode())


@pytest.mark.parametrize(
    ("command", "code", "problem"),
    [
        ("no-such-program", 127, "no-such-program: no such program"),
        ("NNODES=2", 127, "set variables with env"),
        ("./job.slurm", 126, "./job.slurm: Permission denied"),
        ("./text", 126, "./text: Exec format error; is its first line #!/bin/bash?"),
    ],
)
def test_a_command_that_cannot_run_has_the_exit_code_of_a_shell(here, command, code, problem):
    (here / "text").write_text("echo hi\n")
    (here / "text").chmod(0o755)
    outcome = run(here, "--", command, "x")
    assert (outcome[0], outcome[1]) == (code, b"")
    assert problem in outcome[2]


@pytest.mark.parametrize(
    "arguments", [(), ("--",), ("--bogus", "--", "true"), ("sbatch", "job.slurm"), ("--gpu", "H1OO", "--", "true")]
)
def test_wrong_usage_is_2_and_runs_nothing(here, arguments):
    outcome = run_cfglint("preflight", *arguments, cwd=here)
    assert (outcome.code, outcome.out) == (2, "")


def test_a_plan_that_cannot_be_written_is_2_and_runs_nothing(here):
    code, out, _ = run(here, "--plan", "no/such/plan.json", "--", "sbatch", "job.slurm")
    assert (code, out) == (2, b"")
    assert not (here / "submitted").exists()


def test_what_is_no_launch_runs_unless_strict(here):
    code, out, err = run(here, "--", "echo", "hi")
    assert (code, out) == (0, b"hi\n")
    assert err == "preflight: no training launch recognised, nothing was checked; runs: echo hi\n"
    assert run(here, "--strict", "--", "echo", "hi")[:2] == (1, b"")


# --- what is read ----------------------------------------------------------------------------------------------------

LAUNCHES = [
    (("sbatch", "--nodes=4", "job.slurm"), 4, 4, 1),
    (("sbatch", "-N", "3", "job.slurm"), 3, 4, 1),
    (("sbatch", "--wrap", "llamafactory-cli train sft.yaml"), 1, None, 1),
    (("llamafactory-cli", "train", "sft.yaml"), 1, None, 1),
    (("llamafactory-cli", "train", "sft.yaml", "per_device_train_batch_size=8"), 1, None, 8),
    (("env", "NNODES=2", "NPROC_PER_NODE=8", "MASTER_ADDR=a", "llamafactory-cli", "train", "sft.yaml"), 2, 8, 1),
    (("srun", "-N", "2", "llamafactory-cli", "train", "sft.yaml"), 2, None, 1),
    (("torchrun", "--nnodes", "2", "--nproc_per_node=4", "src/train.py", "sft.yaml"), 2, 4, 1),
    (("ray", "job", "submit", "--", "llamafactory-cli", "train", "sft.yaml"), 1, None, 1),
    (("bash", "-c", "NPROC_PER_NODE=2 llamafactory-cli train sft.yaml"), 1, 2, 1),
]


@pytest.mark.parametrize(("command", "nodes", "gpus", "micro"), LAUNCHES)
def test_the_launch_is_the_command_and_no_other(here, command, nodes, gpus, micro):
    (here / "src").mkdir()
    (here / "src/train.py").write_text("from llamafactory.train.tuner import run_exp\nrun_exp()\n")
    (here / "other.sh").write_text("FORCE_TORCHRUN=1 NNODES=16 NPROC_PER_NODE=16 llamafactory-cli train sft.yaml\n")
    plan = resolve(here, *command, MICRO="1")
    assert get_values(plan, "batch.micro") == [micro]
    fields = plan["runs"][0]["fields"]
    assert fields["launch.nodes"]["value"] == nodes
    if gpus is not None:
        assert fields["launch.gpus_per_node"]["value"] == gpus
    assert 16 not in get_values(plan, "launch.nodes", "launch.gpus_per_node")


def test_a_script_counts_before_git_tracks_it(here):
    """Follow new scripts in other folders, which no listing of git's index has."""
    shutil.rmtree(here / ".git")
    run_git(here, "init", "--quiet")
    run_git(here, "add", "sft.yaml")
    for folder in ("jobs", "steps"):
        (here / folder).mkdir()
    command = "llamafactory-cli train sft.yaml per_device_train_batch_size=8\n"
    (here / "jobs/direct").write_text(f"#!/bin/bash\n#SBATCH --nodes=3\nsrun {command}")
    (here / "jobs/submit").write_text("#!/bin/bash\nbash steps/train.sh\n")
    (here / "steps/train.sh").write_text(command)
    assert get_values(resolve(here, "sbatch", "jobs/direct"), "batch.micro", "launch.nodes") == [8, 3]
    assert get_values(resolve(here, "sbatch", "jobs/submit"), "batch.micro") == [8]


def test_the_command_overrides_settings_and_flags_override_the_command(here):
    (here / "cfglint.toml").write_text("[hardware]\nnodes = 1\ngpus-per-node = 8\n")
    fields = ("launch.nodes", "launch.gpus_per_node")
    command = ("torchrun", "--nnodes", "2", "--nproc_per_node=4", "src/train.py", "sft.yaml")
    (here / "src").mkdir()
    (here / "src/train.py").write_text("from llamafactory.train.tuner import run_exp\nrun_exp()\n")
    assert get_values(resolve(here, *command), *fields) == [2, 4]
    assert get_values(resolve(here, *command, flags=("--nodes", "6")), *fields) == [6, 4]
    assert get_values(resolve(here, "llamafactory-cli", "train", "sft.yaml"), *fields) == [1, 8]


def test_values_of_the_plan_have_their_origins(here):
    plan = resolve(here, "sbatch", "--nodes=4", "job.slurm", MICRO="2")
    fields = plan["runs"][0]["fields"]
    places = {name: (fields[name]["path"], fields[name]["line"]) for name in ("launch.nodes", "sequence.length")}
    assert places == {"launch.nodes": ("command.sh", 1), "sequence.length": ("sft.yaml", 7)}
    assert (plan["version"], plan["verdict"], plan["command"]) == (1, "checked", "sbatch --nodes=4 job.slurm")


@pytest.mark.parametrize(
    ("command", "micro"),
    [
        (("sbatch", "job.slurm"), 8),
        (("sbatch", "--export=ALL,MICRO=4", "job.slurm"), 4),
        (("sbatch", "--export", "MICRO", "job.slurm"), 8),
        (("sbatch", "--export=NONE", "job.slurm"), None),
        (("sbatch", "none.slurm"), None),
        (("bash", "job.slurm"), 8),
        (("env", "MICRO=4", "bash", "job.slurm"), 4),
        (("env", "-u", "MICRO", "bash", "job.slurm"), None),
        (("env", "-i", "sbatch", "--export=ALL,MICRO=2", "job.slurm"), 2),
        (("ssh", "host", "bash job.slurm"), None),
    ],
)
def test_a_script_reads_the_environment_that_it_will_have(here, command, micro):
    (here / "none.slurm").write_text(JOB.replace("#SBATCH --nodes", "#SBATCH --export=NONE\n#SBATCH --nodes"))
    assert get_values(resolve(here, *command, MICRO="8"), "batch.micro") == [micro]


def test_a_default_gives_way_to_the_environment(here):
    assert get_values(resolve(here, "sbatch", "job.slurm", GPUS="2"), "launch.gpus_per_node") == [2]


def test_a_variable_of_the_process_is_checked_like_one_of_a_script(here):
    command = ("llamafactory-cli", "train", "sft.yaml")
    plan = resolve(here, *command, PYTORCH_CUDA_ALLOC_CONF="expandable_segments=True", UNRELATED="1")
    assert [finding["code"] for finding in plan["findings"]] == ["KEY007"]
    (environment,) = get_values(plan, "launch.environment")
    assert "expandable_segments" in environment
    assert "UNRELATED" not in environment


def test_credentials_are_never_shown(here):
    (here / "job.slurm").write_text(JOB + "export A=$HF_TOKEN B=$HARMLESS\nllamafactory-cli train bad.yaml\n")
    secrets = {"HF_TOKEN": TOKEN, "HARMLESS": TOKEN, "NCCL_API_KEY": "plain-word", "CUDA_PASSWORD": "hunter2"}
    arguments = ("--dry-run", "--plan", "plan.json", "--", "sbatch", f"--comment={TOKEN}", "job.slurm")
    outcome = run_cfglint("preflight", *arguments, cwd=here, environment=secrets)
    shown = outcome.err + (here / "plan.json").read_text()
    assert "KEY001" in shown
    assert not [secret for secret in secrets.values() if secret in shown]


def test_a_script_of_the_folder_keeps_its_name(here):
    (here / "command.sh").write_text("llamafactory-cli train bad.yaml\n")
    plan = resolve(here, "llamafactory-cli", "train", "sft.yaml", flags=("--gpu", "H100", "--select", "KEY"))
    assert plan["findings"] == []
