"""Shell functions that run the command passed to them, checked against bash."""

from __future__ import annotations

import pytest

from cfglint_train.documents.document import CannotEdit, Set, apply_edits
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
        if "torchrun" in [word.text for word in words]
    ]
    assert len(calls) == SCRIPTS[name].count(".py") == len(commands)
    for words, call in zip(commands, calls, strict=True):
        assert bash.is_same_call(words, call), call


@pytest.mark.parametrize(
    "function",
    [
        'run() { [ -n "$A" ] || shift; "$@"; }',
        'run() { shift "$N"; "$@"; }',
        'run() { set -- x "$@"; "$@"; }',
        'run() { if [ -n "$A" ]; then srun "$@"; else "$@"; fi; }',
        'run() { echo "$@"; }',
        'run() { python train.py "$@"; }',
        'run() { "$@"; }\nrun() { echo no; }',
        'run() { again "$@"; }\nagain() { run "$@"; }',
    ],
)
def test_what_a_function_does_with_its_arguments_is_not_guessed(function):
    document = parse_script(f"{function}\nrun torchrun a.py --x 1\n")
    assert [invocation.program for invocation in document.invocations][-1] == "run"


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
