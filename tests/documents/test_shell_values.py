"""Values of variables in shell scripts: certain, assumed, optional or unknown, checked against bash."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfglint_train.documents.document import CannotEdit, Set, Unknown
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.words import Word
from tests.support import bash
from tests.support.cases import for_each


def parse_script(source: str, files: Mapping[str, str] | None = None) -> ShellDocument:
    """Parse a script at /job/run.sh, next to other files."""
    texts = {f"/job/{name}": text.encode() for name, text in (files or {}).items()}
    return ShellDocument("/job/run.sh", source.encode(), texts.get)


def find_words(document: ShellDocument, program: str = "run") -> tuple[Word, ...]:
    return next(invocation for invocation in document.invocations if invocation.program == program).words


def format_words(document: ShellDocument) -> list[str]:
    """Return the words of `run`: optional ones start with `?`, assumed ones with `~`, and unknown ones are `$`."""
    marks = {"optional": "?", "assumed": "~", "unknown": "$"}
    marked = []
    for word in find_words(document):
        kind = "optional" if word.is_optional else "assumed" if word.assumption else "" if word.is_known else "unknown"
        marked.append(marks.get(kind, "") + (word.text if kind != "unknown" else ""))
    return marked


@for_each(
    ("source", "expected"),
    [
        # defaults
        ("run --a ${X:-8}", ["--a", "~8"]),
        ("X=${X:-8}; run --a $X", ["--a", "~8"]),
        ('run --a "${X:-[\'b\',"c"]}"', ["--a", "~['b',c]"]),
        ('run --a "${X:-a\\}b}"', ["--a", "~a}b"]),
        ("run --a ${X:-['b']}", ["--a", "~[b]"]),
        (': "${X:=8}"\nrun --a $X', ["--a", "~8"]),
        ("X=4\nrun --a ${X:-8}", ["--a", "4"]),
        ("run --a ${1:-8}", ["--a", "~8"]),
        ("run --a ${X:-}b", ["--a", "$"]),  # an empty text is not a default
        ("X=${X:-8}; run --a $((X * 2))", ["--a", "~16"]),
        ('X=2\nY=$[ $X * (X + 1) ]\nrun --a $[X*2] --b "a[$X]$[Y]b"', ["--a", "4", "--b", "a[2]6b"]),
        ("run --a $[RANDOM * 2]", ["--a", "$"]),
        ("X=${X:-a}; Y=${X}/b; run --a $Y", ["--a", "~a/b"]),
        ("X=${X:-$(date)}; run --a $X", ["--a", "$"]),
        ("run --a ${WORLD_SIZE:-1} --b ${SLURM_JOB_ID:-0}", ["--a", "$", "--b", "$"]),
        ("read X\nrun --a ${X:-8}", ["--a", "$"]),
        # set by Slurm according to the directives
        ("#SBATCH -N 2\nrun --a $SLURM_NNODES --b $SLURM_JOB_NUM_NODES", ["--a", "~2", "--b", "~2"]),
        ("#!/bin/bash\n\n#SBATCH --mem=0 --nodes=2 # two\nX=$SLURM_NNODES\nrun --a $((X * 8))", ["--a", "~16"]),
        ("#SBATCH --gres=gpu:a100:4\nrun --a $SLURM_GPUS_ON_NODE", ["--a", "~4"]),
        ("#SBATCH --nodes=2\n#SBATCH --nodes=4\nrun --a $SLURM_NNODES", ["--a", "~4"]),
        ("#SBATCH -N 2\nSLURM_NNODES=1\nrun --a $SLURM_NNODES", ["--a", "1"]),
        ("#SBATCH --nodes=2-4\nrun --a $SLURM_NNODES", ["--a", "$"]),
        ("#SBATCH --gres=nic:2\nrun --a $SLURM_GPUS_ON_NODE", ["--a", "$"]),
        ("##SBATCH -N 2\nrun --a $SLURM_NNODES", ["--a", "$"]),
        ("true\n#SBATCH -N 2\nrun --a $SLURM_NNODES", ["--a", "$"]),  # read up to the first command
        ("#SBATCH -N 2\nrun --a $SLURM_JOB_ID", ["--a", "$"]),
        # options under a condition
        ('X="--a 1"\nif t; then X="$X --b"; fi\nrun $X', ["--a", "1", "?--b"]),
        ('X="--a 1"\nif t; then X+=" --b 2"; fi\nrun $X', ["--a", "1", "?--b", "?2"]),
        ('X=""\nif t; then X="--b"; fi\nrun $X', ["?--b"]),
        ('X=""\n[ -n "$E" ] && X="--b"\nrun $X', ["?--b"]),
        ('A=(--a)\nif t; then A+=(--b 2); fi\nrun "${A[@]}"', ["--a", "?--b", "?2"]),
        ('A=(--a)\nif t; then A=("${A[@]}" --b); fi\nrun "${A[@]}"', ["--a", "?--b"]),
        ('if t; then X="--a"; else X="--b 1"; fi\nrun $X', ["?--a", "?--b", "?1"]),
        ('case $E in x) X="--a";; *) X="--b";; esac\nrun $X', ["?--a", "?--b"]),
        ('X="--a"\nif t; then X="$X --b"; X="$X --c"; fi\nrun $X', ["--a", "?--b", "?--c"]),
        ('X="--a 1"\nif t; then X="$X --b $(date)"; fi\nrun $X', ["--a", "1", "?--b", "$"]),
        # not options: a single word in either case, or words that could be anything
        ("X=1\nif t; then X=2; fi\nrun --a $X", ["--a", "$"]),
        ("if t; then X=1; else X=2; fi\nrun --a $X", ["--a", "$"]),
        ('if t; then X="--a"; fi\nrun $X', ["$"]),
        ('X="--a"\nif t; then X="$X b"; fi\nrun $X', ["$"]),
        ('X="--a"\nfor i in 1 2; do X="$X --b $i"; done\nrun $X', ["$"]),
        ('X="--a"\nif t; then X="--b $X"; fi\nrun $X', ["?--a", "?--b", "?--a"]),
        # arrays inside other words
        ('A=(--a 1 "b c")\nX="${A[@]} --d"\nrun $X', ["--a", "1", "b", "c", "--d"]),
        ('A=(a "b c" d)\nrun "x${A[@]}y" "x${A[*]}y"', ["xa", "b c", "dy", "xa b c dy"]),
        ('A=(--a 1)\nif t; then A+=(--b=2); fi\nX="run ${A[@]} --c"\neval "$X"', ["--a", "1", "?--b=2", "--c"]),
        ('A=(--a 1)\neval "run ${A[@]} --c"', ["--a", "1", "--c"]),
        # conditions on known words
        ("M=sft\nif [ $M = sft ]; then X=1; else X=2; fi\nrun --a $X", ["--a", "1"]),
        ("N=4\nif [[ $N -gt 1 && ! -z x ]]; then X=1; else X=2; fi\nrun --a $X", ["--a", "1"]),
        ("M=dpo\ncase $M in sft|x) X=1;; dpo) X=2;; *) X=3;; esac\nrun --a $X", ["--a", "2"]),
        # inside a branch, its condition holds
        ('if [ "$N" -eq 1 ]; then run --a $N; fi', ["--a", "1"]),
        ("N=${M:-8}\nif [[ $N == 1 ]]; then run --a $N $((N*2)); fi", ["--a", "1", "2"]),
        ('N=${M:-8}\nif [ "$N" -eq 1 ]; then x; else run --a $N; fi', ["--a", "~8"]),
        ('if [ "$N" != 1 ]; then x; else run --a $N; fi', ["--a", "1"]),
        ('if [ "$N" = 1 ] && [ "$M" = 2 ]; then run $N $M; fi', ["1", "2"]),
        ('if [ "$N" = 1 ] || [ "$M" = 2 ]; then run $N; fi', ["$"]),
        ('N=${M:-1}\nif [ "$N" -gt 1 ]; then run --a $N; fi', ["--a", "$"]),
        ('case "$N" in 1) run $N;; *) x;; esac', ["1"]),
        ('case "$N" in 1|2) run $N;; *) x;; esac', ["$"]),
        ('if [ "$N" -eq 1 ]; then N=2; run $N; fi', ["2"]),
        ('M=\nif [ -n "$M" ]; then X=1; elif [ y ]; then X=2; fi\nrun --a $X', ["--a", "2"]),
        ("X=1\nif false; then X=2; fi\nrun --a $X", ["--a", "1"]),
        # a branch that defaults decide: its values are assumed
        ("M=${M:-sft}\nif [ $M = sft ]; then X=1; else X=2; fi\nrun --a $X", ["--a", "~1"]),
        ("M=${M:-sft}\nX=1\ncase $M in dpo) X=2;; esac\nrun --a $X", ["--a", "~1"]),
        ("M=${M:-sft}\nX=1\nif [ $M = $N ]; then X=2; fi\nrun --a $X", ["--a", "$"]),
        ("M=${M:-1}\nA=(--b 1)\nif [ $M = 1 ]; then A+=(--c); fi\nrun ${A[@]}", ["--b", "1", "~--c"]),
        ("M=${M:-0}\nA=(--b 1)\nif [ $M = 1 ]; then A+=(--c); fi\nrun ${A[@]}", ["--b", "1", "?--c"]),
        ("X=${X:-}\nY=${X:-8}\nrun --a $Y", ["--a", "~8"]),
        ("X=${1:-}\nY=${X:-8}\nrun --a $Y", ["--a", "~8"]),
        ("X=$(date)\nX=${X:-}\nrun --a ${X:-8}", ["--a", "$"]),
        ("D=${D:-$(python -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)}\nrun --a $D", ["--a", "~gpu"]),
        ("run --a $(npu-smi >/dev/null 2>&1 && echo 16 || echo 8)", ["--a", "~8"]),
        ("run --a $(date; import torch_npu && echo npu || echo gpu)", ["--a", "$"]),
        ("run --a $(python -c 'import torch' && echo 1 || echo 2)", ["--a", "$"]),
        ("if [[ abc == a* ]]; then X=1; fi\nrun --a $X", ["--a", "$"]),
    ],
)
def test_what_a_variable_comes_to(source, expected):
    assert format_words(parse_script(source)) == expected


def test_why_a_word_is_not_certain():
    document = parse_script('X="--a ${N:-8}"\nif t; then X="$X --b"; fi\nrun $X')
    number, switch = find_words(document)[1:]
    assert number.assumption == "`$N` is 8 unless the environment sets it"
    assert switch.why == "a condition around line 2"
    run = document.invocations[-1]
    assert document.get_assumption((run.number, "--a")) == number.assumption
    assert isinstance(document.build_value(run.get("--b").value), Unknown)


def test_neither_a_default_nor_an_optional_word_is_written():
    for source, option in (("run --a ${X:-8}", "--a"), ('X="--b"\nif t; then X="$X --a 8"; fi\nrun $X', "--a")):
        document = parse_script(source)
        with pytest.raises(CannotEdit, match="depends on"):
            document.build_edits([Set((document.invocations[-1].number, option), "4")])


@pytest.mark.parametrize(
    ("source", "alive"),
    [
        ("f() { run; }\ng() { run2; }\nmain() { f; }\nmain", ["main", "f", "run"]),
        ("f() { run; }\ntrap f EXIT\nmake", ["trap", "make", "run"]),
        ("function f { run; }\n# f is old\nmake", ["make"]),
        ('f() { run; }\n"$@"', ["run", "$@"]),
        ('f() { run; }\n"stage_$N"', ["run"]),
        ("CMD=f\nf() { run; }\n$CMD", ["run"]),
        ("f() { run; }\n$PYTHON train.py", ["python"]),
        # A file that only defines functions is for others to source.
        ("set -e\nf() { run; }\ng() { run2; }", ["run", "run2"]),
        ("f() { f; }\nmake", ["make"]),
    ],
)
def test_which_functions_are_called(source, alive):
    programs = {invocation.program for invocation in parse_script(source).invocations}
    assert set(alive) - {"$@", "f", "main"} <= programs
    assert ("run" in programs) == ("run" in alive)
    assert ("run2" in programs) == ("run2" in alive)


ENV = "export MODEL=org/model ZERO=3\nARGS=(--a 1)\nMBS=${MBS:-4}\n"


@pytest.mark.parametrize(
    "word",
    [
        '"$(dirname "$0")/env.sh"',
        '"$(dirname "${BASH_SOURCE[0]}")"/env.sh',
        "$(dirname $0)/env.sh",
        '"${BASH_SOURCE%/*}/env.sh"',
        '"$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/env.sh"',
        '"$(cd -- "$(dirname -- "$0")" >/dev/null 2>&1 && pwd -P)/env.sh"',
        '"$(dirname "$(readlink -f "$0")")/env.sh"',
        "env.sh",
        "./env.sh",
        "/job/env.sh",
    ],
)
def test_a_sourced_file_sets_variables(word):
    for command in ("source", "."):
        document = parse_script(f'{command} {word}\nrun $MODEL --z $ZERO "${{ARGS[@]}}" $MBS', {"env.sh": ENV})
        assert format_words(document) == ["org/model", "--z", "3", "--a", "1", "~4"]


def test_where_a_file_is_sourced():
    folder = 'HERE="$(cd "$(dirname "$0")/.." && pwd)"\nsource $HERE/job/env.sh\nrun $MODEL'
    assert format_words(parse_script(folder, {"env.sh": ENV})) == ["org/model"]
    assert format_words(parse_script("MODEL=mine\nsource env.sh\nrun $MODEL", {"env.sh": ENV})) == ["org/model"]
    assert format_words(parse_script("source env.sh\nMODEL=mine\nrun $MODEL", {"env.sh": ENV})) == ["mine"]
    assert format_words(parse_script("MBS=2\nsource env.sh\nrun $MBS", {"env.sh": ENV})) == ["2"]
    assert format_words(parse_script("if t; then source env.sh; fi\nrun --m $MODEL", {"env.sh": ENV})) == ["--m", "$"]
    assert format_words(
        parse_script("source env.sh\nrun $MODEL", {"env.sh": "source more.sh\nMODEL=$BASE/x", "more.sh": "BASE=b"})
    ) == ["b/x"]


@pytest.mark.parametrize("word", ["missing.sh", "$WHERE/env.sh", "$(which env.sh)", "../away/env.sh"])
def test_a_file_that_is_not_there_changes_nothing(word):
    assert format_words(parse_script(f"MODEL=mine\nsource {word}\nrun $MODEL", {"env.sh": ENV})) == ["mine"]


def test_scripts_that_source_each_other_come_to_an_end():
    assert format_words(parse_script("source run.sh\nrun $X", {"run.sh": "source run.sh\nX=${X:-1}"})) == ["~1"]


def test_what_a_sourced_file_sets_is_not_written():
    document = parse_script("source env.sh\nrun --a $ZERO", {"env.sh": ENV})
    with pytest.raises(CannotEdit):
        document.build_edits([Set((document.invocations[-1].number, "--a"), "2")])


def test_what_a_sourced_file_exports_is_exported():
    document = parse_script("source env.sh\nrun", {"env.sh": ENV})
    assert document.collect_environment(document.invocations[-1])["ZERO"].text == "3"


_TEXTS = st.sampled_from(["a", "b", "1", "--u", "--v 2", "-w", ""])
_SET = st.one_of(
    st.tuples(st.sampled_from("XY"), _TEXTS).map(lambda two: f'{two[0]}="{two[1]}"'),
    st.tuples(st.sampled_from("XY"), _TEXTS).map(lambda two: f'{two[0]}="${two[0]} {two[1]}"'),
    st.tuples(st.sampled_from("XY"), _TEXTS).map(lambda two: f'{two[0]}+=" {two[1]}"'),
    st.tuples(st.sampled_from("XY"), st.sampled_from("EFXY"), _TEXTS).map(
        lambda three: f"{three[0]}=${{{three[1]}:-{three[2]}}}"
    ),
    st.tuples(st.sampled_from("EF"), _TEXTS).map(lambda two: f': "${{{two[0]}:={two[1]}}}"'),
    _TEXTS.map(lambda text: f"A+=({text})"),
    _TEXTS.map(lambda text: f"A=({text})"),
    _TEXTS.map(lambda text: f'A=("${{A[@]}}" {text})'),
    st.sampled_from(["f", "unset X", "export X E", "source env.sh"]),
)
_TEST = st.one_of(
    st.sampled_from(['[ -n "$E" ]', '[ -z "$F" ]', "true", "false"]),
    st.tuples(st.sampled_from("EXY"), _TEXTS).map(lambda two: f'[ "${two[0]}" = "{two[1]}" ]'),
    st.tuples(st.sampled_from("EXY"), _TEXTS).map(lambda two: f'[[ "${two[0]}" != "{two[1]}" && -n "$X" ]]'),
)


def _wrap_script(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(_TEST, inner).map(lambda two: f"if {two[0]}; then\n{two[1]}\nfi"),
        st.tuples(_TEST, inner, inner).map(lambda three: f"if {three[0]}; then\n{three[1]}\nelse\n{three[2]}\nfi"),
        st.tuples(_TEST, inner, _TEST, inner).map(
            lambda four: f"if {four[0]}; then\n{four[1]}\nelif {four[2]}; then\n{four[3]}\nfi"
        ),
        st.tuples(_TEST, _SET).map(lambda two: f"{two[0]} && {two[1]}"),
        st.tuples(_TEST, _SET).map(lambda two: f"{two[0]} || {two[1]}"),
        st.tuples(st.sampled_from("EX"), inner, inner).map(
            lambda three: f'case "${three[0]}" in a) {three[1]} ;; "--u"|b) {three[2]} ;; esac'
        ),
        st.tuples(st.sampled_from("EX"), inner, inner).map(
            lambda three: f'case "${three[0]}" in a) {three[1]} ;; *) {three[2]} ;; esac'
        ),
        inner.map(lambda text: f"for i in 1 2; do\n{text}\ndone"),
        inner.map(lambda text: f"(\n{text}\n)"),
        inner.map(lambda text: f"f() {{\n{text}\n}}"),
        st.tuples(inner, inner).map("\n".join),
    )


_SCRIPT = st.lists(st.recursive(_SET, _wrap_script, max_leaves=4), min_size=1, max_size=6).map("\n".join)
_USE = '\npython $X --x "$Y" "${A[@]}" --z ${E:-3} end\n'


@pytest.mark.slow
@bash.needs_bash
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=_SCRIPT, sourced=st.lists(_SET, max_size=2).map("\n".join))
def test_what_is_told_is_what_bash_hands_over(script, sourced):
    """Compare certain words in every environment and assumed ones in an empty one; optional words may be absent."""
    source, sourced = script + _USE, sourced.replace("source env.sh", "")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "env.sh").write_text(sourced)
        document = ShellDocument(f"{folder}/script.sh", source.encode(), {f"{folder}/env.sh": sourced.encode()}.get)
        [command] = [candidate for candidate in bash.list_commands(document) if candidate[-1].text == "end"]
        for environment in ({}, {"E": "a", "X": "--q r"}, {"E": "--u", "F": "f", "Y": "y"}):
            calls = [call for call in bash.run_script(source.encode(), folder, environment) if call[-1] == "end"]
            for call in calls:
                assert bash.is_same_call(command, call, defaults=not environment), (call, command)


def test_a_default_in_an_unknown_folder_keeps_its_path():
    script = 'R=${R:-"$HOME/verl"}\nM=${M:-"${R}/models/Qwen3-8B"}\npython train.py --model $M --other ${X:-a$Y}'
    document = parse_script(script)
    train = next(item for item in document.invocations if item.program == "train.py")
    model, other = (document.build_value(train.get(name).value) for name in ("--model", "--other"))
    assert model.path == "$HOME/verl/models/Qwen3-8B"
    assert other.path == ""
