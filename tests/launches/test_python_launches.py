"""Commands started by Python programs."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

from cfglint_train.launches.python_launches import extract_commands
from tests.support.configs import AXOLOTL
from tests.support.linting import lint, list_runs

PROGRAMS = {
    "a list": ('subprocess.run(["torchrun", "train.py", "--lr", "1e-5"])', "torchrun train.py --lr 1e-5"),
    "a text": ('subprocess.run("torchrun train.py --lr 1e-5", shell=True)', "torchrun train.py --lr 1e-5"),
    "other functions": ('os.system("a 1"); sp.Popen(["b", "2"]); check_call("c 3".split())', "a 1; b 2; c 3"),
    "in place of the program": ('os.execvp("a", ["a", "b"]); os.execlp("c", "c", "d")', "a b; c d"),
    "its own interpreter": ('subprocess.run([sys.executable, "-m", "a.b"])', "python -m a.b"),
    "what is not constant": (
        'subprocess.run(["a", f"{folder}/b.py", str(args.count), *more])',
        'a "${folder}/b.py" "${args_count}" ${more}',
    ),
    "in a text": ('os.system(f"a {x} " + "b {} c".format(y) + " --d %s" % z)', "a ${x} b ${y} c --d ${z}"),
    "names": ('N = 4\nCMD = ["a", f"--n={N}"]\nsubprocess.run(CMD + ["b"])', "a --n=4 b"),
    "added words": ('c = ["a"]\nc.append("b")\nc += ["c", "d"]\nc.extend(["e"])\nsubprocess.run(c)', "a b c d e"),
    "under a condition": ('c = ["a"]\nif fast:\n    c.append("b")\nsubprocess.run(c)', "a ${b}"),
    "of one branch": ('if x:\n    c = ["a"]\n    os.system(" ".join(c))\nelse:\n    c = ["b"]', "a"),
    "of either branch": ('if x:\n    c = "a"\nelse:\n    c = "b"\nos.system(c)', "${c}"),
    "a loop": ('for f in ["a", "b"]:\n    subprocess.run(["x", f])', 'x "${f}"'),
    "handed on": ("def run(c):\n    sp.check_call(c, shell=True)\nrun('a b')\nrun(c='d')", "a b d"),
    "quotes": ('subprocess.run(["a", "b c", "$d"])', "a 'b c' '$d'"),
    "other calls": ('print("torchrun a.py"); runner.run(["b"]); os.path.join("c")', ""),
    "no Python": ("subprocess.run([", ""),
}
IMPORTS = "import os, subprocess, sys; import subprocess as sp; from subprocess import check_call\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_words_of_a_command(name: str) -> None:
    program, expected = PROGRAMS[name]
    assert extract_commands(IMPORTS + program).replace("\\\n", " ").split() == expected.split()


def test_a_program_may_start_itself() -> None:
    program = 'subprocess.run(["torchrun", "--nproc_per_node", "8", os.path.abspath(__file__)])'
    assert extract_commands(IMPORTS + program, "train.py").replace("\\\n", " ").split()[-1] == "train.py"


def test_words_are_in_their_lines() -> None:
    program = 'run([\n    "a",\n    # a note\n    "--b", "c",\n])\nrun("""d \\\\\n  e""")\n'
    text = extract_commands("from subprocess import run\n" + program)
    assert text.split("\n") == ["", "", "    a \\", "\\", "    --b    c", "", "    d \\", "  e", ""]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            'subprocess.run(["axolotl", "train", sys.argv[1]])',
            "the file that axolotl is started with (`${sys_argv_1}`) cannot",
        ),
        ('os.system("axolotl train cfg/a.yaml")', "axolotl is started with `cfg/a.yaml`, which was not found"),
        (
            'sp.run(f"deepspeed --module openrlhf.cli.train_sft --pretrain {m} --zero_stage 3", shell=True)',
            "the options of `openrlhf.cli.train_sft` are read in shell scripts only",
        ),
        (
            'sp.run(["torchrun", "own.py", "--model_name_or_path", m, "--learning_rate", "1e-5"])',
            "nothing that cfglint reads is in `own.py`",
        ),
        ('sp.run(["torchrun", "own.py", "--output", "o", "--learning_rate", "0.1"])', None),
        ('sp.run(["python", "eval.py", "--model_name_or_path", m])', None),
        ('print("axolotl train cfg/a.yaml", subprocess)', None),
    ],
)
def test_a_run_that_a_program_starts_is_named(tmp_path: Path, program: str, expected: str | None) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "own.py").write_text("import mine\nmine.train()\n")
    (tmp_path / "start.py").write_text(f"{IMPORTS}{program}\n")
    findings = [(finding.message, finding.path, finding.start.line) for finding in lint(tmp_path).findings]
    assert [(path, line) for _, path, line in findings] == ([] if expected is None else [("start.py", 2)])
    assert expected is None or findings[0][0].startswith(f"run not checked: {expected}")


def test_programs_of_tests_are_left_out(tmp_path: Path) -> None:
    for name in ("tests/start.py", "test_start.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f'{IMPORTS}os.system("axolotl train cfg/a.yaml")\n')
    assert not lint(tmp_path).findings


def test_what_a_launch_in_a_program_says_is_assumed(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.yaml").write_text(AXOLOTL)
    words = '"axolotl", "train", "a.yaml", "--launcher", "torchrun", "--", "--nproc_per_node", "2"'
    (tmp_path / "start.py").write_text(f"import subprocess\nsubprocess.run([{words}])\n")
    (run,) = list_runs(tmp_path)
    assert run.plan.launch.gpus_per_node == 2
    origin = run.get_origin("launch.gpus_per_node")
    assert origin is not None
    assert "start.py:2 states" in origin.assumption


@pytest.mark.parametrize(
    "program",
    [
        "c = ['a', 'b']\n" + "c = c + c\n" * 40 + "subprocess.run(c)",
        "\n".join(f"c{n + 1} = [*c{n}, *c{n}]" for n in range(40)) + "\nsubprocess.run(c40)",
        "\n".join(f"c{n + 1} = c{n} + c{n}" for n in range(40)) + "\nos.system(c40)",
        "os.system(" + "+".join(["x"] * 3000) + ")",
        "def run(c):\n    os.system(c)\n" + "run(c)\nos.system(c)\n" * 3000,
        "c = 'a'\n" + "c += 'b'\nos.system(c)\n" * 3000,
    ],
)
def test_a_program_that_grows_without_end_is_left(program: str) -> None:
    begun = process_time()
    assert len(extract_commands(IMPORTS + program)) < 2_000_000
    assert process_time() - begun < 5
