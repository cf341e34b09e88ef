"""Functions that run the command which they are given. Bash is the judge of what it gets."""

from __future__ import annotations

import pytest

from cfglint_train.documents.document import CannotEdit, Set, apply
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


def shell(source: str) -> ShellDocument:
    return ShellDocument("x.sh", source.encode())


@bash.needs_bash
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_call_is_the_command_that_it_runs(name, tmp_path):
    calls = bash.run(SCRIPTS[name].encode(), tmp_path)
    read = [words for words in bash.commands(shell(SCRIPTS[name])) if "torchrun" in [word.text for word in words]]
    assert len(calls) == SCRIPTS[name].count(".py") == len(read)
    for words, call in zip(read, calls, strict=True):
        assert bash.agrees(words, call), call


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
    document = shell(f"{function}\nrun torchrun a.py --x 1\n")
    assert [one.program for one in document.invocations][-1] == "run"


def test_the_environment_of_both_is_given():
    document = shell(SCRIPTS["set in front"])
    assert [(one.name, one.text) for one in document.invocations[0].environment] == [("A", "1"), ("B", "2")]


def test_what_stands_in_the_function_is_written_where_one_call_has_it():
    once = SCRIPTS["behind a launcher"].replace("run b.py\n", "")
    document = shell(once)
    assert apply(document.source, document.edits([Set((0, "--nnodes"), "4")])).decode() == once.replace("2", "4")
    document = shell(SCRIPTS["behind a launcher"])
    with pytest.raises(CannotEdit):
        document.edits([Set((0, "--nnodes"), "4")])


def test_what_two_calls_of_an_outer_function_share_is_not_written():
    inner = 'run() { torchrun --nnodes 2 "$@"; }\nwrap() { run "$@"; }\nwrap a.py\n'
    document = shell(inner)
    assert apply(document.source, document.edits([Set((0, "--nnodes"), "4")])).decode() == inner.replace("2", "4")
    document = shell(f"{inner}wrap b.py\n")
    with pytest.raises(CannotEdit):
        document.edits([Set((0, "--nnodes"), "4")])
