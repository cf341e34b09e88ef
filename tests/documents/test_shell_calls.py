"""Calls of shell functions, checked against bash."""

from __future__ import annotations

import random

import pytest

from cfglint_train.documents.document import CannotEdit, Set, Unknown, apply_edits
from cfglint_train.documents.shell.document import ShellDocument
from tests.support import bash

SCRIPTS = {
    "bare": 'run() { "$@"; }\nrun torchrun a.py --x 1\n',
    "in a condition": 'run() {\n  if "$@"; then echo done; fi\n}\nrun torchrun a.py --x 1\nrun torchrun b.py\n',
    "behind a title": 'run() {\n  local title=$1\n  shift\n  "$@" || exit 1\n}\nrun "the title" torchrun a.py --x 1\n',
    "behind two": 'run() { shift 2; "$@"; }\nrun a --b torchrun a.py --x "1 2"\n',
    "from the second on": 'run() { "${@:2}"; }\nrun title torchrun a.py --x 1\n',
    "behind a launcher": 'run() { torchrun --nnodes 2 "$@" --last; }\nrun a.py --x 1\nrun b.py\n',
    "by eval": "run() { eval \"$@\"; }\nrun 'torchrun a.py --x 1'\n",
    "with a log": 'log() { echo "$@"; }\nrun() { log "$@"; nohup "$@" > /dev/null 2>&1; }\nrun torchrun a.py --x 1\n',
    "by another": 'run() { nohup "$@"; }\nw() { shift; run "$@"; }\nw t torchrun a.py --x 1\nrun torchrun b.py\n',
    "given another": 'run() { "$@"; }\nlater() { sleep 0; "$@"; }\nrun later torchrun a.py --x 1\n',
    "numbered": 'train() { local lr=$1 n=${2:-8}; torchrun a.py --x $lr --y "$n" "$3"; }\ntrain 1\ntrain 2 4 "a b"\n',
    "some numbered": 'train() {\n  name=$1\n  shift\n  torchrun a.py --name "$name" "$@"\n}\ntrain a --x 1\ntrain b\n',
    "joined": 'train() { torchrun a.py --all "$*" --each $@; }\ntrain 1 "2 3"\n',
    "a main function": 'main() { torchrun a.py --x 1 "$@"; }\nmain "$@"\n',
    "ended": 'train() { if [ -z "$1" ]; then return; fi; torchrun a.py --x $1; return; torchrun no; }\ntrain 1\n',
    "with a variable": "X=1\ntrain() { torchrun a.py --x $X $1; }\ntrain --y\nX=2\ntrain --z\n",
    "of an outer function": 'inner() { torchrun a.py --x "$1"; }\nouter() { inner "$2"; inner "$1"; }\nouter 1 2\n',
    "set in front": 'run() { A=1 "$@"; }\nB=2 run torchrun a.py --x 1\n',
}


def parse_script(source: str) -> ShellDocument:
    return ShellDocument("x.sh", source.encode())


@bash.needs_bash
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_call_is_the_command_that_it_runs(name, tmp_path):
    calls = bash.run_script(SCRIPTS[name].encode(), tmp_path)
    commands = [
        words
        for words in bash.list_commands(parse_script(SCRIPTS[name]))
        if words[0].text != "log" and "torchrun" in [word.text for word in words]
    ]
    assert len(calls) == len(commands) > 0
    for words, call in zip(commands, calls, strict=True):
        assert bash.is_same_call(words, call), call


@pytest.mark.parametrize(
    "function",
    [
        'run() { [ -n "$A" ] || shift; "$@"; }',
        'run() { shift "$N"; "$@"; }',
        'run() { set -- x "$@"; "$@"; }',
        'run() { while [ $# -gt 4 ]; do shift; done; "$@"; }',
        'run() { "$@"; }\nrun() { echo no; }',
        'run() { again "$@"; }\nagain() { run "$@"; }',
    ],
)
def test_what_a_function_does_with_its_arguments_is_not_guessed(function):
    document = parse_script(f"{function}\nrun torchrun a.py --x 1\n")
    assert [invocation.program for invocation in document.invocations][-1] == "run"


def test_a_variable_that_another_function_sets_is_unknown_in_a_body():
    document = parse_script("X=1\nset_x() { X=2; }\nf() { local Y=$1; set_x; run --x $X --y $Y; }\nf 3\n")
    values = {entry.name: entry.value.value for entry in document.invocations[-1].entries}
    assert (isinstance(values["--x"], Unknown), values["--y"]) == (True, "3")


def test_a_word_of_the_call_overrides_one_of_the_function():
    document = parse_script('train() { python train.py --x 1 "$@"; }\ntrain --x 2\ntrain --y 1 --y 2\n')
    assert [entry.name for _, entry, _ in document.find_duplicate_keys()] == ["--y"]
    document = parse_script('train() { python train.py "$@" --x 1; }\ntrain --x 2\n')
    assert [entry.name for _, entry, _ in document.find_duplicate_keys()] == ["--x"]


def test_each_call_has_its_own_words():
    document = parse_script(SCRIPTS["numbered"])
    runs = [invocation for invocation in document.invocations if invocation.program == "a.py"]
    assert [[word.text for word in run.words] for run in runs] == [
        ["--x", "1", "--y", "8", ""],
        ["--x", "2", "--y", "4", "a b"],
    ]


def test_a_function_that_prints_runs_nothing():
    document = parse_script('log() { echo "$(date) $*" | tee -a log; }\nlog axolotl train a.yaml\n')
    assert "axolotl" not in [invocation.program for invocation in document.invocations]


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ('main() { run --x "$1"; }\nmain "$@"', None),
        ('main() { shift; run --x "$1"; }\nmain a "$@"', None),
        ('main() { run --x "$1"; }\nmain a "$@"', "a"),
        ('X=1\nf() { run --x $X "$@"; }\nX=2 f', "2"),
        ("X=1\nf() { run --x $X; }\nX=2 f", "2"),
        ("X=1\nf() { run --x $X $1; }\nX=$Y f", None),
    ],
)
def test_what_a_call_passes_on_is_unknown_and_what_it_sets_is_known(source, value):
    (entry,) = [entry for item in parse_script(source).invocations for entry in item.entries if entry.name == "--x"]
    assert (entry.value.value == value) if value else isinstance(entry.value.value, Unknown)


def test_the_environment_of_both_is_given():
    document = parse_script(SCRIPTS["set in front"])
    assert [(variable.name, variable.text) for variable in document.invocations[0].environment] == [
        ("A", "1"),
        ("B", "2"),
    ]


def test_what_stands_in_the_function_is_written_where_one_call_has_it():
    once = SCRIPTS["behind a launcher"].replace("run b.py\n", "")
    document = parse_script(once)
    assert apply_edits(document.source, document.build_edits([Set((0, "--nnodes"), "4")])).decode() == once.replace(
        "2", "4"
    )
    document = parse_script(SCRIPTS["behind a launcher"])
    with pytest.raises(CannotEdit):
        document.build_edits([Set((0, "--nnodes"), "4")])


def test_what_two_calls_of_an_outer_function_share_is_not_written():
    inner = 'run() { torchrun --nnodes 2 "$@"; }\nwrap() { run "$@"; }\nwrap a.py\n'
    document = parse_script(inner)
    assert apply_edits(document.source, document.build_edits([Set((0, "--nnodes"), "4")])).decode() == inner.replace(
        "2", "4"
    )
    document = parse_script(f"{inner}wrap b.py\n")
    with pytest.raises(CannotEdit):
        document.build_edits([Set((0, "--nnodes"), "4")])


WORDS = ["1", "a=2", '"b c"', "$X", "--k", "''", '"$X y"']
USES = ['"$@"', "$@", "$1", '"$2"', "${3:-q}", "--x $X", "--l=$L", '"$*"', '"${@:2}"', "${1:+w}"]
STEPS = [
    "shift", "shift 2", "local L=$1", "local L=${2:-d}", "X=$1", "X=5", 'if [ -z "$1" ]; then return; fi',
    '[ "$1" = a=2 ] && shift',
]  # fmt: skip
CALLS = ["{}", "if true; then {}; fi", "for i in 1 2; do {} $i; done", "X=3\n{}", "A=1 {}", "( {} )"]


def write_functions(draw: random.Random) -> str:
    """Write a script with functions that drop, keep and pass on their arguments, and with calls of them."""
    lines, names = ["X=0"], ["f", "g", "h"][: draw.randint(1, 3)]
    for number, name in enumerate(names):
        body = draw.choices(STEPS, k=draw.randint(0, 2))
        body += [f"torchrun {' '.join(draw.choices(USES, k=draw.randint(1, 3)))}" for _ in range(draw.randint(0, 2))]
        body += [f"{other} {draw.choice(USES[:8])}" for other in names[:number] if draw.randint(0, 1)]
        draw.shuffle(body)
        lines.append(f"{name}() {{\n  " + "\n  ".join((*body, 'torchrun end "$@"')) + "\n}")
    for _ in range(draw.randint(1, 4)):
        call = f"{draw.choice(names)} {' '.join(draw.choices(WORDS, k=draw.randint(0, 4)))}"
        lines.append(draw.choice(CALLS).format(call))
    return "\n".join(lines) + "\n"


@bash.needs_bash
def test_whatever_functions_run_is_among_the_commands(tmp_path):
    """Compare random scripts with bash: each of its calls is a command, and what is certain is a call."""
    exact = 0
    for seed in range(60):
        source = write_functions(random.Random(seed))
        calls = bash.run_script(source.encode(), tmp_path)
        commands = [words for words in bash.list_commands(parse_script(source)) if words[0].text == "torchrun"]
        for call in calls:
            assert any(bash.is_same_call(words, call) for words in commands), f"{call} of\n{source}"
        certain = [[word.text for word in words] for words in commands if all(word.is_known for word in words)]
        if not any(sign in source for sign in ("return", "&&")):  # whether a command runs, is another question
            assert all(words in calls for words in certain), source
        exact += sum(call in certain for call in calls)
    assert exact > 100
