"""Shell scripts: the words of commands before and after edits, checked against bash."""

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
    Span,
    Unknown,
    apply_edits,
)
from cfglint_train.documents.limits import LimitExceeded
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import resolve_working_folder
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Setting
from tests.support import bash
from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY

FIXTURES = REPOSITORY / "fixtures" / "openrlhf"
# Number of launcher calls in each script.
RUNS = {
    "arrays": 1, "blanks": 2, "broken_continuation": 2, "control": 4, "dangling": 2, "direct": 1, "heredoc": 1,
    "hybrid_flat": 1, "launchers": 11, "not_a_run": 5, "quoted_heredoc": 3, "quotes": 3, "ray_submit": 2,
    "redirects": 3, "shared_heredoc": 2, "slurm": 3, "strings": 3, "uv": 1,
}  # fmt: skip


def parse_script(source: str | bytes) -> ShellDocument:
    return ShellDocument("x.sh", source.encode() if isinstance(source, str) else source)


def find_program(document: ShellDocument, name: str) -> Invocation:
    return next(invocation for invocation in document.invocations if invocation.program == name)


def read_options(document: ShellDocument, name: str) -> dict[str, Any]:
    value: dict[str, Any] = document.build_value(find_program(document, name))
    return {key: repr(setting) if isinstance(setting, Unknown) else setting for key, setting in value.items()}


def try_change(document: ShellDocument, change: Any) -> tuple[list[Edit], str]:
    """Return the edits of a change, or the reason why there are none."""
    try:
        return document.build_edits([change]), ""
    except CannotEdit as error:
        return [], str(error)


def apply_changes(source: str, *changes: Any) -> str:
    document = parse_script(source)
    return apply_edits(document.source, document.build_edits(changes)).decode()


# --- bash as the judge -----------------------------------------------------------------------------------------------


@bash.needs_bash
@pytest.mark.parametrize("name", RUNS)
def test_reads_what_bash_hands_over(name, tmp_path):
    source = (FIXTURES / f"{name}.sh").read_bytes()
    calls = bash.run_script(source, tmp_path)
    commands = bash.list_commands(parse_script(source))
    assert len(calls) == RUNS[name]
    for call in calls:
        assert any(bash.is_same_call(words, call) for words in commands), call


def test_every_fixture_is_judged():
    # crlf cannot run, placeholder is not valid bash.
    assert {path.stem for path in FIXTURES.glob("*.sh")} == {*RUNS, "crlf", "placeholder"}


def test_the_judge_can_say_no():
    words = bash.list_commands(parse_script("torchrun --a 1 $X --b"))[0]
    assert bash.is_same_call(words, ["torchrun", "--a", "1", "any", "thing", "--b"])
    assert not bash.is_same_call(words, ["torchrun", "--a", "2", "--b"])
    assert not bash.is_same_call(words, ["torchrun", "--a", "1", "--b", "more"])
    assert not bash.is_same_call(words, ["python", "--a", "1", "--b"])


WORD = st.from_regex(r"[A-Za-z0-9_./:,@%+][A-Za-z0-9_./:=,@%+-]{0,6}", fullmatch=True)
NAME = st.from_regex(r"--[a-z]{2,4}(?:[._][a-z]{1,3})?", fullmatch=True)
FLAGS = st.dictionaries(NAME, st.lists(WORD, max_size=2), min_size=1, max_size=6)
TARGET = "openrlhf.cli.train_sft"


def _format_flags(flags: dict[str, list[str]], end: str) -> str:
    rows = [" ".join((name, *values)) for name, values in flags.items()]
    return end.join(f"   {row}" for row in rows)


CONTINUED = " \\\n"
CONTAINERS = {
    "direct": lambda flags: f"set -e\npython3 -m {TARGET}{CONTINUED}{_format_flags(flags, CONTINUED)}\n# --x 1\n",
    "one line": lambda flags: f"python3 -m {TARGET} {_format_flags(flags, ' ')} | cat",
    "tabs": lambda flags: f"\tpython3 -m {TARGET}\t\\\n{_format_flags(flags, CONTINUED).replace('   ', chr(9))} &> log",
    "heredoc": lambda flags: (
        f"read -r -d '' args <<EOF\n{TARGET}{CONTINUED}{_format_flags(flags, CONTINUED)}\nEOF\npython3 -m $args\n"
    ),
    "quoted heredoc": lambda flags: (
        f"read -r -d '' args <<'EOF'\n{TARGET}\n{_format_flags(flags, chr(10))}\nEOF\npython3 -m $args\n"
    ),
    "captured heredoc": lambda flags: (
        f"args=$(cat <<EOF\n{TARGET}{CONTINUED}{_format_flags(flags, CONTINUED)}\nEOF\n)\npython3 -m ${{args}}\n"
    ),
    "string": lambda flags: (
        f'srun bash -c "cd . && python3 -m {TARGET}{CONTINUED}{_format_flags(flags, CONTINUED)}" &> log\n'
    ),
    "single quotes": lambda flags: f"bash -c 'python3 -m {TARGET}{CONTINUED}{_format_flags(flags, CONTINUED)}'\n",
    "fed": lambda flags: f"bash <<'EOF'\npython3 -m {TARGET}{CONTINUED}{_format_flags(flags, CONTINUED)}\nEOF\n",
    "array": lambda flags: f'ARGS=(\n{_format_flags(flags, chr(10))}\n)\npython3 -m {TARGET} "${{ARGS[@]}}"\n',
    "inline array": lambda flags: f"ARGS=({_format_flags(flags, ' ')})\npython3 -m {TARGET} ${{ARGS[@]}}\n",
    "variable": lambda flags: f'ARGS="{_format_flags(flags, CONTINUED)}"\npython3 -m {TARGET} $ARGS\n',
    "variable in a string": lambda flags: (
        f"ARGS='{_format_flags(flags, ' ')}'\nbash -c \"python3 -m {TARGET} $ARGS\"\n"
    ),
}


def _run_bash(source: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        calls = bash.run_script(source.encode(), Path(folder))
    last = next(call for call in reversed(calls) if TARGET in call)
    return last[last.index(TARGET) + 1 :]


def _flatten(flags: dict[str, list[str]]) -> list[str]:
    return [word for name, values in flags.items() for word in (name, *values)]


@bash.needs_bash
@pytest.mark.parametrize("container", CONTAINERS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flags=FLAGS, data=st.data())
def test_what_is_written_is_what_bash_reads(container, flags, data):
    source = CONTAINERS[container](flags)
    document = parse_script(source)
    invocation = find_program(document, TARGET)
    assert [entry.name for entry in invocation.entries] == list(flags)
    for name, values in flags.items():
        plain = document.build_value(invocation.get(name).value)
        assert plain == (True if not values else values[0] if len(values) == 1 else values)
    where = invocation.number
    name = data.draw(st.sampled_from(list(flags)))
    kind = data.draw(
        st.sampled_from(["set", "bare", "insert", "insert beside", "delete", "delete two", "rename", "append"])
    )
    expected = {key: list(values) for key, values in flags.items()}
    value = data.draw(WORD)
    if kind == "set":
        changes = [Set((where, name), value)]
        expected[name] = [value]
    elif kind == "bare":
        changes = [Set((where, name), True)]
        expected[name] = []
    elif kind == "insert":
        changes = [Set((where, "--new.flag"), value)]
        expected["--new.flag"] = [value]
    elif kind == "insert beside":
        changes = [Set((where, "--new.flag"), True, ("--absent", name))]
        at = list(flags).index(name) + 1
        expected = dict([*list(expected.items())[:at], ("--new.flag", []), *list(expected.items())[at:]])
    elif kind == "delete":
        changes = [Delete((where, name))]
        del expected[name]
    elif kind == "delete two":
        other = data.draw(st.sampled_from(list(flags)))
        changes = [Delete((where, deleted)) for deleted in dict.fromkeys((name, other))]
        for deleted in {name, other}:
            del expected[deleted]
    elif kind == "rename":
        changes = [Rename((where, name), "--re.named")]
        expected = {("--re.named" if key == name else key): values for key, values in expected.items()}
    else:
        changes = [Append((where, name), value)]
        expected[name].append(value)
    after = apply_edits(document.source, document.build_edits(changes)).decode()
    assert _run_bash(after) == _flatten(expected), after
    again = parse_script(after)
    assert [word.text for word in find_program(again, TARGET).words] == _flatten(expected)
    assert [comment.text for comment in again.list_comments()] == [comment.text for comment in document.list_comments()]
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
        ("if a; then E='--a 3 --b'; else E='--a 3'; fi\nrun $E", "3"),
        ("case $1 in x) E=(--a 3);; *) E=(--b --a 3);; esac\nrun ${E[@]}", "3"),
        ("if a; then E='--a 3'; else E='--a 4'; fi\nrun $E", None),
        ("if a; then E='--a 3'; E+=' --a 4'; else E='--a 3'; fi\nrun $E", None),
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
        ("f() { run --a ${1:-8}; }\nf 4", "4"),
        ("f() { run --a ${1:-8}; }\nf", "8"),
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
    document = parse_script(source)
    value = document.build_value(find_program(document, "run").get("--a").value)
    if expected is None:
        assert isinstance(value, Unknown)
        assert value.reason
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
        ("ray job submit --runtime-env-json '{\"a\": 1}' -- python a.py", ["ray job submit", "python", "a.py"]),
        ("ray start --head --num-gpus 8", ["ray"]),
        ("llamafactory-cli train a.yaml x=1", ["llamafactory-cli"]),
        ("bash run.sh a b", ["shell", "run.sh"]),
        ("ssh -p 22 host 'torchrun a.py --x'", ["ssh", "torchrun", "a.py"]),
        ("pip install deepspeed accelerate", ["pip"]),
        ("echo torchrun a.py", ["echo"]),
        ("echo 'torchrun a.py'", ["echo"]),
        ("git commit -m 'run python a.py'", ["git"]),
        ("docker build -t 'a b' .", ["docker"]),
        ("git checkout -- a.py", ["git"]),
        ("sbatch -N2 --wrap 'torchrun a.py'", ["sbatch", "torchrun", "a.py"]),
        ("gcloud compute ssh x --command='A=1 torchrun a.py'", ["gcloud", "torchrun", "a.py"]),
        ("python -c 'import torch' --x", ["python"]),
    ],
)  # fmt: skip
def test_programs_of_a_command(command, chain):
    document = parse_script(command)
    assert [invocation.program for invocation in document.invocations] == chain
    for outer, inner in zip(document.invocations, document.invocations[1:]):
        assert inner.parent == outer.number
    assert [invocation.program for invocation in document.list_launchers(document.invocations[-1])] == chain[-2::-1]


def test_each_program_has_its_own_words():
    document = parse_script(
        "A=1 srun -N 4 --gres=gpu:8 torchrun --nnodes 4 --standalone -m pkg.train cfg.yaml --x 1 --y -- z"
    )
    assert read_options(document, "srun") == {"-N": "4", "--gres": "gpu:8"}
    assert read_options(document, "torchrun") == {"--nnodes": "4", "--standalone": True, "-m": True}
    assert read_options(document, "pkg.train") == {"--x": "1", "--y": True}
    train = find_program(document, "pkg.train")
    assert [word.text for word in train.arguments] == ["cfg.yaml", "z"]
    assert find_program(document, "srun").environment == (Setting("A", "1", span=Span(0, 3)),)
    assert {invocation.command for invocation in document.invocations} == {1}


def test_batch_directives_are_options_too():
    document = parse_script((FIXTURES / "slurm.sh").read_bytes())
    assert read_options(document, "sbatch") == {"-p": "batch", "-N": "2", "--gpus-per-node": "8", "--mem": "480G"}
    with pytest.raises(CannotEdit, match="comment"):
        document.build_edits([Set((0, "-N"), "4")])


def test_options_stand_where_they_are_written():
    document = parse_script((FIXTURES / "shared_heredoc.sh").read_bytes())
    train = find_program(document, "openrlhf.cli.train_rm")
    assert document.find_container(train.entries[0].span)[0] == "heredoc"
    for entry in train.entries:
        assert document.get_text(entry.key.span) == entry.name
    assert document.get_text(train.get("--train_batch_size").value.span) == "256"
    launcher = find_program(document, "torchrun")
    assert document.find_container(launcher.entries[0].span)[0] == "string"
    assert document.get_text(launcher.get("--nproc_per_node").span) == "--nproc_per_node $GPUS_PER_NODE"


def test_the_last_duplicate_wins():
    document = parse_script("python train.py --a 1 --b --a 2")
    assert read_options(document, "train.py") == {"--a": "2", "--b": True}
    assert [entry.name for _, entry, _ in document.find_duplicate_keys()] == ["--a"]
    assert list(parse_script("docker run -v a:b -v c:d image").find_duplicate_keys()) == []
    for change, repeated in (("X=(--a=2)", []), ('X=("${X[@]}" --b=1 --b=2)', ["--b"])):
        script = f'X=(--a=1)\nif [ "$1" = big ]; then\n  {change}\nfi\npython train.py "${{X[@]}}"'
        assert [entry.name for _, entry, _ in parse_script(script).find_duplicate_keys()] == repeated


def test_hidden_options_are_said_to_be_there():
    assert find_program(parse_script("python train.py --a $EXTRA"), "train.py").open == ""
    assert find_program(parse_script("python train.py --a 1 $EXTRA"), "train.py").open == "$EXTRA"
    assert find_program(parse_script("python train.py $EXTRA --a 1"), "train.py").open == "$EXTRA"
    assert find_program(parse_script('f() { python train.py --a 1 "$@"; }'), "train.py").open == "$@"
    forwards = find_program(parse_script('python train.py --a 1 "$@"'), "train.py")
    assert (forwards.open, forwards.forwards) == ("", True)


def test_comments_and_places():
    source = "\ufeff# é\npython train.py --é ü --a 1  # tail\r\n"
    document = parse_script(source)
    assert [comment.text for comment in document.list_comments()] == ["# é", "# tail"]
    entry = find_program(document, "train.py").get("--a")
    assert document.locate(entry.key.span.start) == (2, 23)
    assert document.get_text(entry.value.span) == "1"


def test_placeholders_do_not_hide_the_command():
    document = parse_script((FIXTURES / "placeholder.sh").read_bytes())
    assert read_options(document, "openrlhf.cli.train_sft") == {"--pretrain": "gpt2", "--max_len": "2048"}


def test_carriage_returns_read_as_line_ends():
    document = parse_script((FIXTURES / "crlf.sh").read_bytes())
    plain = parse_script((FIXTURES / "direct.sh").read_bytes())
    assert read_options(document, "openrlhf.cli.train_dpo") == read_options(plain, "openrlhf.cli.train_dpo")


def test_the_exported_environment():
    document = parse_script("export A=1 B=$X\nC=2\nD=3 E=4 python train.py")
    variables = document.collect_environment(find_program(document, "train.py"))
    assert {name: variable.text for name, variable in variables.items()} == {"A": "1", "B": None, "D": "3", "E": "4"}


RAY = "ray job submit %s python train.py"


@pytest.mark.parametrize(("options", "expected"), [
    ("""--runtime-env-json='{"env_vars": {"A": "1", "B": "x y"}, "pip": ["a"]}'""", {"A": "1", "B": "x y"}),
    ("""--runtime-env-json '{"working_dir": "'$PWD'", "env_vars": {"A": "1", "B": "'$B'"}}'""", {"A": "1", "B": None}),
    ('--runtime-env-json "{\\"env_vars\\": {\\"A\\": \\"${A:-1}\\"}}"', {"A": "1"}),
    ("""--runtime-env-json='{"env_vars": {"A": "${HOME}/a", "B": 1}}'""", {"A": None, "B": None}),  # Ray expands A
    ("""--runtime-env-json='{"env_vars": {'$VARIABLES'}}'""", {}),
    ("--runtime-env-json=$ENVIRONMENT", {}),
    ("""--runtime-env-json='{"env_vars": {"A": "1"}}' -- A=2""", {"A": "2"}),
])  # fmt: skip
def test_the_environment_of_a_job_of_ray(options: str, expected: dict[str, str | None]):
    document = parse_script(RAY % options)
    variables = document.collect_environment(find_program(document, "train.py"))
    assert {name: variable.text for name, variable in variables.items()} == expected


@pytest.mark.parametrize(("options", "folder"), [
    ("""--runtime-env-json='{"working_dir": "./src"}'""", "here/src"),
    ("""--working-dir jobs --runtime-env-json='{"working_dir": "./src"}'""", "here/jobs"),
    ("--working-dir .", "here"),
    ("""--runtime-env-json='{"working_dir": "/openrlhf"}'""", "here"),
    ("""--runtime-env-json='{"working_dir": "s3://bucket/a.zip"}'""", "here"),
    ("""--runtime-env-json='{"working_dir": "'$DIR'"}'""", "here"),
])  # fmt: skip
def test_the_folder_of_a_job_of_ray(options: str, folder: str):
    document = parse_script(f"cd here\n{RAY % options}\npython other.py")
    assert resolve_working_folder(document, find_program(document, "train.py")) == folder
    assert resolve_working_folder(document, find_program(document, "other.py")) == "here"


def test_an_edit_before_a_command_with_variables_is_written():
    source = "python a.py --x 1\nA=1 env B=2 python b.py --x 1\n"
    assert apply_changes(source, Rename((1, "--x"), "--longer")) == source.replace("--x", "--longer", 1)


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
    assert apply_changes(DIRECT, change) == DIRECT.replace(before, after)


def test_inserting_before_a_tail_comment_stays_on_the_line():
    assert apply_changes(DIRECT, Set((1, "--n"), True)) == DIRECT.replace("--d=4 ", "--d=4 --n ")


def test_the_last_option_takes_the_backslash_with_it():
    source = "python train.py \\\n  --a 1 \\\n  --b 2\npython other.py\n"
    assert apply_changes(source, Delete((1, "--b"))) == "python train.py \\\n  --a 1\npython other.py\n"
    assert apply_changes(source, Delete((1, "--a")), Delete((1, "--b"))) == "python train.py\npython other.py\n"
    assert apply_changes(source, Delete((1, "--b")), Set((1, "--c"), 3)) == source.replace("--b 2", "--c 3")


def test_line_ends_and_a_missing_final_newline_survive():
    source = "python train.py \\\r\n\t--a 1 \\\r\n\t--b 2"
    assert apply_changes(source, Set((1, "--c"), 3)) == source + " \\\r\n\t--c 3"
    assert apply_changes(source, Set((1, "--c"), 3, ("--a",))) == source.replace(
        "--a 1 \\\r\n", "--a 1 \\\r\n\t--c 3 \\\r\n"
    )


@pytest.mark.parametrize(
    ("source", "value", "expected"),
    [
        ("X=8\nrun --a $X\n", "4", "X=4\nrun --a $X\n"),
        ("X='8'\nrun --a $X\n", "4", "X='4'\nrun --a $X\n"),
        ('run --a "8"\n', "4", 'run --a "4"\n'),
        ('A="--a 8 --b"\nrun $A\n', "4", 'A="--a 4 --b"\nrun $A\n'),
        ("A=(--a 8)\nrun ${A[@]}\n", "4", "A=(--a 4)\nrun ${A[@]}\n"),
        ("bash -c \"run --a 8\"\n", "4", "bash -c \"run --a 4\"\n"),
        ("gantry run --gpus 8 -- bash -c \"run --a 8\"\n", "4", "gantry run --gpus 8 -- bash -c \"run --a 4\"\n"),
        ("sbatch --wrap \"python run --a 8\"\n", "4", "sbatch --wrap \"python run --a 4\"\n"),
        ("sbatch -N 2 --wrap=\"X=1 python run --a 8\"\n", "4", "sbatch -N 2 --wrap=\"X=1 python run --a 4\"\n"),
        ("sbatch <<EOF\n#!/bin/bash\nrun --a 8\nEOF\n", "4", "sbatch <<EOF\n#!/bin/bash\nrun --a 4\nEOF\n"),
        ("ssh host <<'EOF'\nrun --a 8\nEOF\n", "4", "ssh host <<'EOF'\nrun --a 4\nEOF\n"),
        ("ssh host bash -s <<EOF\nrun --a 8\nEOF\n", "4", "ssh host bash -s <<EOF\nrun --a 4\nEOF\n"),
        ("cat <<EOF | bash\nrun --a 8\nEOF\n", "4", "cat <<EOF | bash\nrun --a 4\nEOF\n"),
        ("bash <<< \"run --a 8\"\n", "4", "bash <<< \"run --a 4\"\n"),
        ("tmux send -t x \"python run --a 8\" C-m\n", "4", "tmux send -t x \"python run --a 4\" C-m\n"),
        ("docker run i \"cd x; python run --a 8\"\n", "4", "docker run i \"cd x; python run --a 4\"\n"),
        ("submit --command \"python run --a 8\"\n", "4", "submit --command \"python run --a 4\"\n"),
        ("run --a 1 --a 8\n", "4", "run --a 1 --a 4\n"),
        ("run --a x\\ y\n", "4", "run --a 4\n"),
        ("run --a 'x'\"y\"\n", "4", "run --a 4\n"),
        ("X=8\nrun --a=$X\n", "4", "X=4\nrun --a=$X\n"),
    ],
)  # fmt: skip
def test_values_are_set_where_they_stand(source, value, expected):
    document = parse_script(source)
    number = find_program(document, "run").number
    assert apply_edits(document.source, document.build_edits([Set((number, "--a"), value)])).decode() == expected


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
        ("if a; then E='--a 3'; else E='--b --a 3'; fi\nrun $E\n", "4", "several places"),
        ("A='--a 8'\nrun $A\npython other.py $A\n", "4", "shared"),
    ],
)  # fmt: skip
def test_what_one_place_does_not_decide_is_refused(source, value, why):
    document = parse_script(source)
    number = find_program(document, "run").number
    with pytest.raises(CannotEdit, match=why):
        document.build_edits([Set((number, "--a"), value)])


def test_other_refusals():
    document = parse_script("python train.py --a 1\nARGS=(\n --b 2 # why\n)\npython other.py ${ARGS[@]}\n")
    other = find_program(document, "other.py").number
    with pytest.raises(CannotEdit, match="comment"):
        document.build_edits([Delete((other, "--b"))])
    for route in ((), (1,), ("--a",), (99, "--a"), (1, "--a", 5)):
        with pytest.raises(CannotEdit):
            document.build_edits([Set(route, "2")])
    with pytest.raises(CannotEdit, match="name"):
        document.build_edits([Set((1, "not a flag"), "2")])
    with pytest.raises(CannotEdit, match="name"):
        document.build_edits([Rename((1, "--a"), "--b c")])


def test_what_only_prints_may_print_something_else():
    source = "A='--a 8'\necho $A\npython train.py $A\n"
    document = parse_script(source)
    number = find_program(document, "train.py").number
    assert apply_edits(document.source, document.build_edits([Set((number, "--a"), "4")])).decode() == source.replace(
        "8", "4"
    )


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.sh")), ids=lambda path: path.stem)
def test_writing_what_is_there_changes_nothing(path):
    document = parse_script(path.read_bytes())
    for invocation in document.invocations:
        if invocation.is_directive:
            continue
        for name, value in document.build_value(invocation).items():
            items = value if isinstance(value, list) else [value]
            if any(isinstance(item, Unknown) for item in items):
                continue
            edits, refusal = try_change(document, Set((invocation.number, name), value))
            assert edits == []
            assert not refusal or "quotes" in refusal or "option" in refusal


# --- hostile text ----------------------------------------------------------------------------------------------------


def test_zero_bytes_and_other_encodings_are_one_error():
    with pytest.raises(DocumentError, match="0x00"):
        parse_script(b"echo a\npython \0 --x")
    with pytest.raises(DocumentError, match="UTF-8"):
        parse_script(b"echo a\npython caf\xe9")


def test_conditions_nested_without_end_are_one_error():
    with pytest.raises(DocumentError, match="nested"):
        parse_script("if a; then\n" * 300 + "b\n" + "fi\n" * 300)


@pytest.mark.parametrize("piece", ['"', "'", "`", "$(", "${", "((", "<<EOF\n", "[[ ", "case x in ", "a=(", "${a:-"])
def test_unclosed_quotes_and_brackets_never_crash(piece):
    document = parse_script(piece * 200 + " python train.py --a 1")
    assert isinstance(document.root.items, list)


@pytest.mark.slow
def test_a_long_line_is_read_to_its_end():
    document = parse_script("python train.py " + "--a 1 " * 1_400)
    assert len(find_program(document, "train.py").entries) == 1_400
    with pytest.raises(LimitExceeded, match="a command has more than 3,000 words"):
        parse_script("true\npython train.py " + "--a 1 " * 1_500)


@pytest.mark.slow
def test_variables_that_multiply_each_other_end():
    doubling = "".join(f"A{i + 1}=$A{i}$A{i}\n" for i in range(60))
    document = parse_script(f"A0='--x y '\n{doubling}python train.py $A60\n")
    words = find_program(document, "train.py").words
    assert [word.is_known for word in words] == [False]
    strings = parse_script(f"A='{'--x y ' * 1400}'\n" + 'bash -c "python train.py $A"\n' * 300)
    assert 0 < sum(invocation.program == "train.py" for invocation in strings.invocations) < 300
    chain = "".join(f"B{i + 1}=$B{i}\n" for i in range(500))
    assert find_program(parse_script(f"B0=1\n{chain}run --a $B500"), "run").words[1].why


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cd <YOUR_PATH>", [["cd", "$YOUR_PATH_"]]),
        ("cd <path/to/LLaMA-Factory> && run --a 1", [["cd", "$path_to_LLaMA_Factory_"], ["run", "--a", "1"]]),
        ("<your command here>", [["$your_command_here_"]]),
        ("run <config> 2", [["run", "$config_", "2"]]),
        ("run <model.bin> --a 1", [["run", "$model_bin_", "--a", "1"]]),
        ("run <a> <b>", [["run", "$a_", "$b_"]]),
        ("run <words.txt> sorted", [["run"]]),
        ("run <words.txt >sorted", [["run"]]),
        ("run <words>&2", [["run"]]),
        ("while read a; do run; done <words> sorted", [["run"]]),
    ],
    ids=["folder", "list", "command", "middle", "option", "two", "file", "separate", "stream", "loop"],
)
def test_a_placeholder_is_unknown_and_leaves_the_next_line_alone(line, words):
    document = parse_script(f"{line}\npython train.py --a 1\n")
    assert read_options(document, "train.py") == {"--a": "1"}
    texts = [[word.text for word in (*item.head, *item.words)] for item in document.invocations]
    assert [item for item in texts if item[0] != "read"] == [*words, ["python"], ["train.py", "--a", "1"]]


@pytest.mark.parametrize("text", ["é !foo 1 &&", "a && 0 && # x", "é !foo 1 &&\npython train.py --a 1\n"])
def test_a_word_that_the_grammar_misses_is_none(text):
    assert all(word.text for invocation in parse_script(text).invocations for word in invocation.words)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab \n\\\"'`$(){}[]<>|&;#=-!*~é\t:", max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        document = parse_script(text + "\npython train.py --a 1\n")
    except DocumentError:
        return
    document.get_value()
    document.list_comments()
    for invocation in document.invocations:
        for entry in invocation.entries:
            assert 0 <= entry.key.span.start <= entry.key.span.end <= len(document.source)
        edits, refusal = try_change(document, Set((invocation.number, "--new"), "1"))
        assert edits or refusal
