"""Shell scripts. Bash is the judge of what a command gets, before and after an edit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfglint_train.documents.document import (
    Append,
    CannotEdit,
    Delete,
    DocumentError,
    Edit,
    Rename,
    Set,
    Unknown,
    apply,
)
from cfglint_train.documents.limits import BeyondLimits
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Setting
from tests.support import bash
from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY

FIXTURES = REPOSITORY / "fixtures" / "openrlhf"
# How often each script starts a launcher.
RUNS = {
    "arrays": 1, "blanks": 2, "broken_continuation": 2, "control": 4, "dangling": 2, "direct": 1, "heredoc": 1,
    "hybrid_flat": 1, "launchers": 11, "not_a_run": 5, "quoted_heredoc": 3, "quotes": 3, "ray_submit": 2,
    "redirects": 3, "shared_heredoc": 2, "slurm": 3, "strings": 3, "uv": 1,
}  # fmt: skip


def shell(source: str | bytes) -> ShellDocument:
    return ShellDocument("x.sh", source.encode() if isinstance(source, str) else source)


def program(document: ShellDocument, name: str) -> Invocation:
    return next(one for one in document.invocations if one.program == name)


def options(document: ShellDocument, name: str) -> dict[str, Any]:
    value: dict[str, Any] = document.plain(program(document, name))
    return {key: repr(one) if isinstance(one, Unknown) else one for key, one in value.items()}


def attempted(document: ShellDocument, change: Any) -> tuple[list[Edit], str]:
    """The edits of a change, or why there are none."""
    try:
        return document.edits([change]), ""
    except CannotEdit as refused:
        return [], str(refused)


def edited(source: str, *changes: Any) -> str:
    document = shell(source)
    return apply(document.source, document.edits(changes)).decode()


# --- bash as the judge -----------------------------------------------------------------------------------------------


@bash.needs_bash
@pytest.mark.parametrize("name", RUNS)
def test_reads_what_bash_hands_over(name, tmp_path):
    source = (FIXTURES / f"{name}.sh").read_bytes()
    calls = bash.run(source, tmp_path)
    read = bash.commands(shell(source))
    assert len(calls) == RUNS[name]
    for call in calls:
        assert any(bash.agrees(words, call) for words in read), call


def test_every_fixture_is_judged():
    # crlf cannot run, placeholder is no valid bash.
    assert {path.stem for path in FIXTURES.glob("*.sh")} == {*RUNS, "crlf", "placeholder"}


def test_the_judge_can_say_no():
    words = bash.commands(shell("torchrun --a 1 $X --b"))[0]
    assert bash.agrees(words, ["torchrun", "--a", "1", "any", "thing", "--b"])
    assert not bash.agrees(words, ["torchrun", "--a", "2", "--b"])
    assert not bash.agrees(words, ["torchrun", "--a", "1", "--b", "more"])
    assert not bash.agrees(words, ["python", "--a", "1", "--b"])


WORD = st.from_regex(r"[A-Za-z0-9_./:,@%+][A-Za-z0-9_./:=,@%+-]{0,6}", fullmatch=True)
NAME = st.from_regex(r"--[a-z]{2,4}(?:[._][a-z]{1,3})?", fullmatch=True)
FLAGS = st.dictionaries(NAME, st.lists(WORD, max_size=2), min_size=1, max_size=6)
TARGET = "openrlhf.cli.train_sft"


def _lines(flags: dict[str, list[str]], end: str) -> str:
    rows = [" ".join((name, *values)) for name, values in flags.items()]
    return end.join(f"   {row}" for row in rows)


CONTINUED = " \\\n"
CONTAINERS = {
    "direct": lambda flags: f"set -e\npython3 -m {TARGET}{CONTINUED}{_lines(flags, CONTINUED)}\n# --x 1\n",
    "one line": lambda flags: f"python3 -m {TARGET} {_lines(flags, ' ')} | cat",
    "tabs": lambda flags: f"\tpython3 -m {TARGET}\t\\\n{_lines(flags, CONTINUED).replace('   ', chr(9))} &> log",
    "heredoc": lambda flags: (
        f"read -r -d '' args <<EOF\n{TARGET}{CONTINUED}{_lines(flags, CONTINUED)}\nEOF\npython3 -m $args\n"
    ),
    "quoted heredoc": lambda flags: (
        f"read -r -d '' args <<'EOF'\n{TARGET}\n{_lines(flags, chr(10))}\nEOF\npython3 -m $args\n"
    ),
    "captured heredoc": lambda flags: (
        f"args=$(cat <<EOF\n{TARGET}{CONTINUED}{_lines(flags, CONTINUED)}\nEOF\n)\npython3 -m ${{args}}\n"
    ),
    "string": lambda flags: f'srun bash -c "cd . && python3 -m {TARGET}{CONTINUED}{_lines(flags, CONTINUED)}" &> log\n',
    "single quotes": lambda flags: f"bash -c 'python3 -m {TARGET}{CONTINUED}{_lines(flags, CONTINUED)}'\n",
    "fed": lambda flags: f"bash <<'EOF'\npython3 -m {TARGET}{CONTINUED}{_lines(flags, CONTINUED)}\nEOF\n",
    "array": lambda flags: f'ARGS=(\n{_lines(flags, chr(10))}\n)\npython3 -m {TARGET} "${{ARGS[@]}}"\n',
    "inline array": lambda flags: f"ARGS=({_lines(flags, ' ')})\npython3 -m {TARGET} ${{ARGS[@]}}\n",
    "variable": lambda flags: f'ARGS="{_lines(flags, CONTINUED)}"\npython3 -m {TARGET} $ARGS\n',
    "variable in a string": lambda flags: f"ARGS='{_lines(flags, ' ')}'\nbash -c \"python3 -m {TARGET} $ARGS\"\n",
}


def _argv(source: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        calls = bash.run(source.encode(), Path(folder))
    last = next(call for call in reversed(calls) if TARGET in call)
    return last[last.index(TARGET) + 1 :]


def _flat(flags: dict[str, list[str]]) -> list[str]:
    return [word for name, values in flags.items() for word in (name, *values)]


@bash.needs_bash
@pytest.mark.parametrize("container", CONTAINERS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flags=FLAGS, data=st.data())
def test_what_is_written_is_what_bash_reads(container, flags, data):
    source = CONTAINERS[container](flags)
    document = shell(source)
    invocation = program(document, TARGET)
    assert [entry.name for entry in invocation.entries] == list(flags)
    for name, values in flags.items():
        plain = document.plain(invocation.get(name).value)
        assert plain == (True if not values else values[0] if len(values) == 1 else values)
    where = invocation.number
    name = data.draw(st.sampled_from(list(flags)))
    kind = data.draw(
        st.sampled_from(["set", "bare", "insert", "insert beside", "delete", "delete two", "rename", "append"])
    )
    meant = {key: list(values) for key, values in flags.items()}
    value = data.draw(WORD)
    if kind == "set":
        changes = [Set((where, name), value)]
        meant[name] = [value]
    elif kind == "bare":
        changes = [Set((where, name), True)]
        meant[name] = []
    elif kind == "insert":
        changes = [Set((where, "--new.flag"), value)]
        meant["--new.flag"] = [value]
    elif kind == "insert beside":
        changes = [Set((where, "--new.flag"), True, ("--absent", name))]
        at = list(flags).index(name) + 1
        meant = dict([*list(meant.items())[:at], ("--new.flag", []), *list(meant.items())[at:]])
    elif kind == "delete":
        changes = [Delete((where, name))]
        del meant[name]
    elif kind == "delete two":
        other = data.draw(st.sampled_from(list(flags)))
        changes = [Delete((where, one)) for one in dict.fromkeys((name, other))]
        for one in {name, other}:
            del meant[one]
    elif kind == "rename":
        changes = [Rename((where, name), "--re.named")]
        meant = {("--re.named" if key == name else key): values for key, values in meant.items()}
    else:
        changes = [Append((where, name), value)]
        meant[name].append(value)
    after = apply(document.source, document.edits(changes)).decode()
    assert _argv(after) == _flat(meant), after
    again = shell(after)
    assert [word.text for word in program(again, TARGET).words] == _flat(meant)
    assert [comment.text for comment in again.comments()] == [comment.text for comment in document.comments()]
    assert after.endswith("\n") == source.endswith("\n")


# --- reading ---------------------------------------------------------------------------------------------------------


@for_each(
    ("source", "expected"),
    [
        ("X=8\nrun --a $X", "8"),
        ('X="8"\nrun --a "${X}"', "8"),
        ("readonly X=8\nrun --a $X", "8"),
        ("export X=8\nrun --a ${X:-3}", "8"),
        ("X=1\nX=2\nrun --a $X", "2"),
        ("X=a\nX+=b\nrun --a $X", "ab"),
        ("X=2; Y=$X/z\nrun --a $Y", "2/z"),
        ("X=4\nrun --a $((X * 2 + (6 - 1) / 2 % 4))", "10"),
        ("X=4\nrun --a ${X:+yes}", "yes"),
        ("X=\nrun --a x${X}y", "xy"),
        ("if a; then X=1; run --a $X; fi", "1"),
        ("cd x && X=3 && run --a $X", "3"),
        ("f() { local X=7; run --a $X; }", "7"),
        ("X=5\nbash -c \"run --a $X\"", "5"),
        ("export X=5\nbash -c 'run --a $X'", "5"),
        ("X=5\neval \"run --a $X\"", "5"),
        ("run --a=1,2", "1,2"),
        ("run --a 'b c'", "b c"),
        ("run --a \\$X", "$X"),
        ("run --a $'x\\ty'", "x\ty"),
        ("run --a {tok}", "{tok}"),
        ("run --a -1.5", "-1.5"),
        ("run --a $1", None),
        ("run --a ${1:-$2}", None),
        ("run --a ${UNSET:-$(nproc)}", None),
        ("run --a ${SLURM_NNODES:-1}", None),
        ("f() { run --a ${1:-8}; }\nf 4", None),
        ("set -- 4\nrun --a ${1:-8}", None),
        ("X=$(date)\nrun --a ${X:-8}", None),
        ("while a; do run --a ${X:-8}; X=2; done", None),
        ("run --a $(date)", None),
        ("run --a `date`", None),
        ("run --a ${#X}", None),
        ("run --a {a,b}", None),
        ("run --a $X\nX=1", None),
        ("if a; then X=1; fi\nrun --a $X", None),
        ("if a; then X=1; else run --a $X; fi", None),
        ("X=1\nif a; then X=2; fi\nrun --a $X", None),
        ("[ -n \"$X\" ] || X=4\nrun --a $X", None),
        ("[ -z \"$X\" ] && X=4\nrun --a $X", None),
        ("X=1\nwhile a; do run --a $X; X=2; done", None),
        ("for X in 1 2; do run --a $X; done", None),
        ("for ((X=0; X<3; X++)); do run --a $X; done", None),
        ("X=1\nf() { X=2; }\nf\nrun --a $X", None),
        ("X=1\nf() { run --a $X; }\nX=2\nf", None),
        ("X=1\nread X\nrun --a $X", None),
        ("X=1\nunset X\nrun --a $X", None),
        ("X=1\n((X++))\nrun --a $X", None),
        ("X=1\nprintf -v X 3\nrun --a $X", None),
        ("X=1\nbash -c 'run --a $X'", None),
        ("run --a $((1 / 0))", None),
        ("run --a $((010))", None),
        ("IFS=,\nX=a,b\nrun --a $X", None),
        ("(X=2)\nrun --a $X", None),
        ("X=$Y\nrun --a $X", None),
    ],
)  # fmt: skip
def test_a_value_is_known_or_said_to_be_unknown(source, expected):
    document = shell(source)
    value = document.plain(program(document, "run").get("--a").value)
    if expected is None:
        assert isinstance(value, Unknown)
        assert value.why
    else:
        assert value == expected


@for_each(
    ("command", "chain"),
    [
        ("srun -N 4 --mem 8G torchrun --nnodes 4 -m pkg.train --x 1", ["srun", "torchrun", "pkg.train"]),
        ("srun -n8 python -u train.py --x 1", ["srun", "python", "train.py"]),
        ("deepspeed --num_gpus 8 --module pkg.train --x", ["deepspeed", "pkg.train"]),
        ("accelerate launch --config_file a.yaml --multi_gpu train.py", ["accelerate launch", "train.py"]),
        ("accelerate-launch -m pkg.train", ["accelerate launch", "pkg.train"]),
        ("python3.11 -m accelerate.commands.launch a/train.py", ["python", "accelerate launch", "a/train.py"]),
        ("python -m torch.distributed.launch --nproc_per_node 2 a.py", ["python", "torchrun", "a.py"]),
        ("uv run --python 3.11 python -m pkg.train", ["uv run", "python", "pkg.train"]),
        ("uv run -m pkg.train", ["uv run", "pkg.train"]),
        ("/usr/bin/env A=1 B=$X python -m pkg.train", ["env", "python", "pkg.train"]),
        ("sudo -E -u me nohup timeout -k 5 10m torchrun a.py", ["sudo", "nohup", "timeout", "torchrun", "a.py"]),
        ("mpirun -np 8 --mca btl tcp,self -x A python a.py", ["mpirun", "python", "a.py"]),
        ("singularity exec --nv --bind /a image.sif torchrun a.py", ["singularity exec", "torchrun", "a.py"]),
        ("docker run --gpus all -v a:b image torchrun --nnodes 1 a.py", ["docker", "torchrun", "a.py"]),
        ("conda run -n env --live-stream python -m pkg.train", ["conda", "python", "pkg.train"]),
        ("$PYTHON -m pkg.train --x", ["python", "pkg.train"]),
        ("torchrun $DIST_ARGS train.py cfg.yaml", ["torchrun", "train.py"]),
        ("torchrun $DIST_ARGS -m pkg.train cfg.yaml", ["torchrun", "pkg.train"]),
        ("ray job submit --address a -- python -m pkg.train", ["ray job submit", "python", "pkg.train"]),
        ("ray job submit --no-wait python -m pkg.train", ["ray job submit", "python", "pkg.train"]),
        ("ray start --head --num-gpus 8", ["ray"]),
        ("llamafactory-cli train a.yaml x=1", ["llamafactory-cli"]),
        ("bash run.sh a b", ["shell", "run.sh"]),
        ("ssh -p 22 host 'torchrun a.py --x'", ["ssh", "torchrun", "a.py"]),
        ("pip install deepspeed accelerate", ["pip"]),
        ("echo torchrun a.py", ["echo"]),
        ("python -c 'import torch' --x", ["python"]),
    ],
)  # fmt: skip
def test_programs_of_a_command(command, chain):
    document = shell(command)
    assert [one.program for one in document.invocations] == chain
    for outer, inner in zip(document.invocations, document.invocations[1:]):
        assert inner.parent == outer.number
    assert [one.program for one in document.enclosing(document.invocations[-1])] == chain[-2::-1]


def test_each_program_has_its_own_words():
    document = shell("A=1 srun -N 4 --gres=gpu:8 torchrun --nnodes 4 --standalone -m pkg.train cfg.yaml --x 1 --y -- z")
    assert options(document, "srun") == {"-N": "4", "--gres": "gpu:8"}
    assert options(document, "torchrun") == {"--nnodes": "4", "--standalone": True, "-m": True}
    assert options(document, "pkg.train") == {"--x": "1", "--y": True}
    train = program(document, "pkg.train")
    assert [word.text for word in train.arguments] == ["cfg.yaml", "z"]
    assert program(document, "srun").environment == (Setting("A", "1"),)
    assert {one.command for one in document.invocations} == {1}


def test_batch_directives_are_options_too():
    document = shell((FIXTURES / "slurm.sh").read_bytes())
    assert options(document, "sbatch") == {"-p": "batch", "-N": "2", "--gpus-per-node": "8", "--mem": "480G"}
    with pytest.raises(CannotEdit, match="comment"):
        document.edits([Set((0, "-N"), "4")])


def test_options_stand_where_they_are_written():
    document = shell((FIXTURES / "shared_heredoc.sh").read_bytes())
    train = program(document, "openrlhf.cli.train_rm")
    assert document.around(train.entries[0].span)[0] == "heredoc"
    for entry in train.entries:
        assert document.text(entry.key.span) == entry.name
    assert document.text(train.get("--train_batch_size").value.span) == "256"
    launcher = program(document, "torchrun")
    assert document.around(launcher.entries[0].span)[0] == "string"
    assert document.text(launcher.get("--nproc_per_node").span) == "--nproc_per_node $GPUS_PER_NODE"


def test_the_last_duplicate_wins():
    document = shell("python train.py --a 1 --b --a 2")
    assert options(document, "train.py") == {"--a": "2", "--b": True}
    assert [entry.name for _, entry, _ in document.duplicate_keys()] == ["--a"]
    assert list(shell("docker run -v a:b -v c:d image").duplicate_keys()) == []


def test_hidden_options_are_said_to_be_there():
    assert program(shell("python train.py --a $EXTRA"), "train.py").open == ""
    assert program(shell("python train.py --a 1 $EXTRA"), "train.py").open == "$EXTRA"
    assert program(shell("python train.py $EXTRA --a 1"), "train.py").open == "$EXTRA"
    assert program(shell('f() { python train.py --a 1 "$@"; }'), "train.py").open == "$@"
    forwards = program(shell('python train.py --a 1 "$@"'), "train.py")
    assert (forwards.open, forwards.forwards) == ("", True)


def test_comments_and_places():
    source = "\ufeff# é\npython train.py --é ü --a 1  # tail\r\n"
    document = shell(source)
    assert [comment.text for comment in document.comments()] == ["# é", "# tail"]
    entry = program(document, "train.py").get("--a")
    assert document.position(entry.key.span.start) == (2, 23)
    assert document.text(entry.value.span) == "1"


def test_placeholders_do_not_hide_the_command():
    document = shell((FIXTURES / "placeholder.sh").read_bytes())
    assert options(document, "openrlhf.cli.train_sft") == {"--pretrain": "gpt2", "--max_len": "2048"}


def test_carriage_returns_read_as_line_ends():
    document = shell((FIXTURES / "crlf.sh").read_bytes())
    plain = shell((FIXTURES / "direct.sh").read_bytes())
    assert options(document, "openrlhf.cli.train_dpo") == options(plain, "openrlhf.cli.train_dpo")


def test_the_exported_environment():
    document = shell("export A=1 B=$X\nC=2\nD=3 E=4 python train.py")
    found = document.exported(program(document, "train.py"))
    assert {name: given.text for name, given in found.items()} == {"A": "1", "B": None, "D": "3", "E": "4"}


# --- writing ---------------------------------------------------------------------------------------------------------

DIRECT = """\
python train.py \\
  --a 1 \\
  --b two --c \\
  --d=4    # tail
# --e 5
"""


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (Set((1, "--a"), 3), "--a 1 ", "--a 3 "),
        (Set((1, "--a"), ["x", "y"]), "--a 1 ", "--a x y "),
        (Set((1, "--a"), 0.5), "--a 1 ", "--a 0.5 "),
        (Set((1, "--a"), True), "--a 1 ", "--a "),
        (Set((1, "--c"), "new"), "--c ", "--c new "),
        (Set((1, "--d"), "5"), "--d=4", "--d=5"),
        (Set((1, "--n"), 1, ("--a",)), "--a 1 \\\n", "--a 1 \\\n  --n 1 \\\n"),
        (Set((1, "--n"), 1, ("--c",)), "--c \\", "--c --n 1 \\"),
        (Delete((1, "--a")), "  --a 1 \\\n", ""),
        (Delete((1, "--c")), " --c", ""),
        (Delete((1, "--b")), "--b two --c", "--c"),
        (Rename((1, "--d"), "--dd"), "--d=4", "--dd=4"),
        (Append((1, "--b"), "three"), "--b two", "--b two three"),
    ],
)  # fmt: skip
def test_edits_touch_what_they_must(change, before, after):
    assert DIRECT.count(before) == 1
    assert edited(DIRECT, change) == DIRECT.replace(before, after)


def test_inserting_before_a_tail_comment_stays_on_the_line():
    assert edited(DIRECT, Set((1, "--n"), True)) == DIRECT.replace("--d=4 ", "--d=4 --n ")


def test_the_last_option_takes_the_backslash_with_it():
    source = "python train.py \\\n  --a 1 \\\n  --b 2\npython other.py\n"
    assert edited(source, Delete((1, "--b"))) == "python train.py \\\n  --a 1\npython other.py\n"
    assert edited(source, Delete((1, "--a")), Delete((1, "--b"))) == "python train.py\npython other.py\n"
    assert edited(source, Delete((1, "--b")), Set((1, "--c"), 3)) == source.replace("--b 2", "--c 3")


def test_line_ends_and_a_missing_final_newline_survive():
    source = "python train.py \\\r\n\t--a 1 \\\r\n\t--b 2"
    assert edited(source, Set((1, "--c"), 3)) == source + " \\\r\n\t--c 3"
    assert edited(source, Set((1, "--c"), 3, ("--a",))) == source.replace("--a 1 \\\r\n", "--a 1 \\\r\n\t--c 3 \\\r\n")


@pytest.mark.parametrize(
    ("source", "value", "expected"),
    [
        ("X=8\nrun --a $X\n", "4", "X=4\nrun --a $X\n"),
        ("X='8'\nrun --a $X\n", "4", "X='4'\nrun --a $X\n"),
        ('run --a "8"\n', "4", 'run --a "4"\n'),
        ('A="--a 8 --b"\nrun $A\n', "4", 'A="--a 4 --b"\nrun $A\n'),
        ("A=(--a 8)\nrun ${A[@]}\n", "4", "A=(--a 4)\nrun ${A[@]}\n"),
        ("bash -c \"run --a 8\"\n", "4", "bash -c \"run --a 4\"\n"),
        ("run --a 1 --a 8\n", "4", "run --a 1 --a 4\n"),
        ("run --a x\\ y\n", "4", "run --a 4\n"),
        ("run --a 'x'\"y\"\n", "4", "run --a 4\n"),
        ("X=8\nrun --a=$X\n", "4", "X=4\nrun --a=$X\n"),
    ],
)  # fmt: skip
def test_values_are_set_where_they_stand(source, value, expected):
    document = shell(source)
    number = program(document, "run").number
    assert apply(document.source, document.edits([Set((number, "--a"), value)])).decode() == expected


@pytest.mark.parametrize(
    ("source", "value", "why"),
    [
        ("X=8\nrun --a $X\nother $X\n", "4", "used elsewhere"),
        ("export X=8\nrun --a $X\n", "4", "used elsewhere"),
        ("X=8\nX=9\nrun --a $X\n", "4", "not set in one place"),
        ("run --a $1\n", "4", r"depends on \$1"),
        ("run --a ${X:-8}\n", "4", "depends on"),
        ("run --a $(nproc)\n", "4", "depends on"),
        ("X=1\nrun --a $X/y\n", "4", "several places"),
        ("X=2\nrun --a $((X*3))\n", "4", "several places"),
        ("run --a 8\n", "x y", "quotes"),
        ("run --a 8\n", "$HOME", "quotes"),
        ("run --a 8\n", "--b", "option"),
        ("run --a 8\n", False, "not a word"),
        ("run --a 8\n", None, "not a word"),
        ("run --a 8\n", {"b": 1}, "not a word"),
        ("run --a=8\n", True, "one word"),
        ("A='--a 8'\nrun $A\npython other.py $A\n", "4", "shared"),
    ],
)  # fmt: skip
def test_what_one_place_does_not_decide_is_refused(source, value, why):
    document = shell(source)
    number = program(document, "run").number
    with pytest.raises(CannotEdit, match=why):
        document.edits([Set((number, "--a"), value)])


def test_other_refusals():
    document = shell("python train.py --a 1\nARGS=(\n --b 2 # why\n)\npython other.py ${ARGS[@]}\n")
    other = program(document, "other.py").number
    with pytest.raises(CannotEdit, match="comment"):
        document.edits([Delete((other, "--b"))])
    for route in ((), (1,), ("--a",), (99, "--a"), (1, "--a", 5)):
        with pytest.raises(CannotEdit):
            document.edits([Set(route, "2")])
    with pytest.raises(CannotEdit, match="name"):
        document.edits([Set((1, "not a flag"), "2")])
    with pytest.raises(CannotEdit, match="name"):
        document.edits([Rename((1, "--a"), "--b c")])


def test_what_only_prints_may_print_something_else():
    source = "A='--a 8'\necho $A\npython train.py $A\n"
    document = shell(source)
    number = program(document, "train.py").number
    assert apply(document.source, document.edits([Set((number, "--a"), "4")])).decode() == source.replace("8", "4")


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.sh")), ids=lambda path: path.stem)
def test_writing_what_is_there_changes_nothing(path):
    document = shell(path.read_bytes())
    for invocation in document.invocations:
        if invocation.is_directive:
            continue
        for name, value in document.plain(invocation).items():
            known = value if isinstance(value, list) else [value]
            if any(isinstance(one, Unknown) for one in known):
                continue
            edits, refusal = attempted(document, Set((invocation.number, name), value))
            assert edits == []
            assert not refusal or "quotes" in refusal or "option" in refusal


# --- hostile text ----------------------------------------------------------------------------------------------------


def test_zero_bytes_and_other_encodings_are_one_error():
    with pytest.raises(DocumentError, match="0x00"):
        shell(b"echo a\npython \0 --x")
    with pytest.raises(DocumentError, match="UTF-8"):
        shell(b"echo a\npython caf\xe9")


def test_conditions_nested_without_end_are_one_error():
    with pytest.raises(DocumentError, match="nested"):
        shell("if a; then\n" * 300 + "b\n" + "fi\n" * 300)


@pytest.mark.parametrize("piece", ['"', "'", "`", "$(", "${", "((", "<<EOF\n", "[[ ", "case x in ", "a=(", "${a:-"])
def test_unclosed_quotes_and_brackets_never_crash(piece):
    document = shell(piece * 200 + " python train.py --a 1")
    assert isinstance(document.root.items, list)


@pytest.mark.slow
def test_a_long_line_is_read_to_its_end():
    document = shell("python train.py " + "--a 1 " * 1_400)
    assert len(program(document, "train.py").entries) == 1_400
    with pytest.raises(BeyondLimits, match="a command of more than 3,000 words"):
        shell("true\npython train.py " + "--a 1 " * 1_500)


@pytest.mark.slow
def test_variables_that_multiply_each_other_end():
    doubling = "".join(f"A{i + 1}=$A{i}$A{i}\n" for i in range(60))
    document = shell(f"A0='--x y '\n{doubling}python train.py $A60\n")
    words = program(document, "train.py").words
    assert [word.known for word in words] == [False]
    strings = shell(f"A='{'--x y ' * 1400}'\n" + 'bash -c "python train.py $A"\n' * 300)
    assert 0 < sum(one.program == "train.py" for one in strings.invocations) < 300
    chain = "".join(f"B{i + 1}=$B{i}\n" for i in range(500))
    assert program(shell(f"B0=1\n{chain}run --a $B500"), "run").words[1].why


@pytest.mark.parametrize("text", ["é !foo 1 &&", "a && 0 && # x", "é !foo 1 &&\npython train.py --a 1\n"])
def test_a_word_that_the_grammar_misses_is_none(text):
    assert all(word.text for one in shell(text).invocations for word in one.words)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab \n\\\"'`$(){}[]<>|&;#=-!*~é\t:", max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        document = shell(text + "\npython train.py --a 1\n")
    except DocumentError:
        return
    document.value()
    document.comments()
    for invocation in document.invocations:
        for entry in invocation.entries:
            assert 0 <= entry.key.span.start <= entry.key.span.end <= len(document.source)
        edits, refusal = attempted(document, Set((invocation.number, "--new"), "1"))
        assert edits or refusal
