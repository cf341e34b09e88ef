"""`cfglint preflight -- COMMAND`: check a launch, then run it unless it certainly fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal
from cfglint_train.front.commands.options import add_baseline, build_options
from cfglint_train.front.commands.outcome import CLEAN, FINDINGS
from cfglint_train.front.commands.output import build_style, print_lines, print_remarks, sanitize
from cfglint_train.front.commands.parser import Parser, add_cluster, add_model, add_settings, parse_codes

if TYPE_CHECKING:
    from cfglint_train.findings.finding import Finding
    from cfglint_train.judging.result import Result

    Verdict = Literal["checked", "started", "forced", "refused"]

_USAGE: Final = "cfglint preflight [flags] -- COMMAND [ARGUMENT ...]"
_ABOUT: Final = """\
Check a launch, then run it unless a finding is a certain error: sbatch, srun,
torchrun, accelerate, deepspeed, ray job submit, llamafactory-cli, axolotl, ...
The report goes to standard error. The command replaces cfglint, without a shell.
Exit codes: those of the command, or 1 refused, 2 wrong usage or a plan that
cannot be written, 126 not executable, 127 not found."""

NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
_SCRIPT: Final = "command"
"""Name, without its extension, under which reports show the command."""
_FOREIGN: Final = ("ray", "ssh", "kubectl", "docker", "podman")
"""Programs that start the command elsewhere, without the variables of this process."""
_SLURM: Final = ("sbatch", "srun")
_SECRET_NAMES: Final = ("auth", "cookie", "credential", "key", "pass", "private", "pwd", "secret", "token")


def preflight(argv: list[str]) -> int:
    """Check a command and run it; return an exit code only if the command is not run."""
    flags, command = _split_command(argv)
    options = _parse_flags(flags)
    from cfglint_train import api
    from cfglint_train.foundation.errors import UsageError

    if not command:
        raise UsageError(f"preflight needs a command after --: {_USAGE}")
    script = _choose_name()
    stated = build_options(options)
    settings = api.settings(stated)
    lint_options = add_baseline(stated, options, settings)._replace(
        launch_environment=select_environment(command, os.environ)
    )
    result = api.lint([script], lint_options, {script: format_script(command)}).raw
    grounds = list(_list_grounds(result, options.strict))
    if result.findings or result.troubles or result.runs:
        from cfglint_train.reports import text
        from cfglint_train.reports.folding import fold_places

        style = build_style(options, settings, sys.stderr)._replace(
            fix_command=_format_fix_command(result, script, options)
        )
        print_lines(text.full(fold_places(result), style), sys.stderr)
    verdict: Verdict = "refused" if grounds else "checked" if options.dry_run else "started"
    if grounds and options.force and not options.dry_run:
        verdict = "forced"
    if options.plan is not None:
        _write_plan(options.plan, command, result, verdict)
    print_remarks(_describe(command, result, grounds, verdict, options))
    if verdict in ("refused", "checked"):
        return FINDINGS if grounds else CLEAN
    return _run_command(command)


def _split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the flags in front of the first `--`, and the words after it."""
    end = argv.index("--") if "--" in argv else len(argv)
    return [*argv[:end]], [*argv[end + 1 :]]


def _parse_flags(flags: list[str]) -> Any:
    parser = Parser(prog="cfglint preflight", usage=_USAGE, description=_ABOUT)
    parser.add_argument(
        "--force", action="store_true", help="run the command even with certain errors, and report them"
    )
    parser.add_argument("--strict", action="store_true", help="refuse also for warnings and for what was not checked")
    parser.add_argument("--dry-run", action="store_true", help="only check: exit 1 if the command would be refused")
    parser.add_argument(
        "--plan", metavar="FILE", help="write the resolved settings of each run with their origins as JSON"
    )
    parser.add_argument("--select", type=parse_codes, action="extend", metavar="CODES", help="run only these rules")
    parser.add_argument("--ignore", type=parse_codes, action="extend", metavar="CODES", help="rules not to run")
    parser.add_argument("-q", "--quiet", action="store_true", help="print findings and refusals only")
    parser.add_argument("--color", choices=("auto", "always", "never"), help="default: only on a terminal")
    add_cluster(parser)
    add_model(parser)
    add_settings(parser)
    parser.set_defaults(color="auto", baseline=None, no_baseline=False, output_file=None)
    return parser.parse_args(flags)


def _choose_name() -> str:
    """Return a name of a shell script that does not exist in the working directory."""
    from itertools import count

    from cfglint_train.foundation import filesystem

    names = (f"{_SCRIPT}{number or ''}.sh" for number in count())
    return next(name for name in names if not filesystem.exists(name))


def format_script(command: Sequence[str]) -> bytes:
    """Return a shell script that runs exactly these words."""
    import shlex

    return os.fsencode(f"{shlex.join(command)}\n")


def select_environment(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the processes of a command inherit, without those that may hold a credential.

    A job on another machine inherits none. Slurm replaces its own variables, and `--export` chooses the others.
    """
    from cfglint_train.foundation.redact import build_redaction

    words, inherited = _split_env(command, environment)
    program = os.path.basename(words[0]) if words else ""
    if program in _FOREIGN:
        return {}
    selected = dict(inherited)
    if program in _SLURM:
        selected = {name: text for name, text in inherited.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        exports = _find_export(words, inherited)
        if exports is not None:
            kept = [name for name in exports if "=" not in name]
            assigned = dict(name.split("=", 1) for name in exports if "=" in name)
            selected = selected if "ALL" in kept else {name: selected[name] for name in kept if name in selected}
            selected |= assigned
    redact = build_redaction(())
    return {
        name: text
        for name, text in selected.items()
        if not any(word in name.lower() for word in _SECRET_NAMES) and redact(f"{name}={text}") == f"{name}={text}"
    }


def _split_env(command: Sequence[str], environment: Mapping[str, str]) -> tuple[Sequence[str], dict[str, str]]:
    """Return the command that `env NAME=value COMMAND` runs, and its variables; other commands are unchanged."""
    words, variables = [*command], {**environment}
    if os.path.basename(words[0]) != "env":
        return words, variables
    del words[0]
    while words and (words[0].startswith("-") or "=" in words[0]):
        word = words.pop(0)
        if word in ("-", "-i", "--ignore-environment"):
            variables.clear()
        elif word in ("-u", "--unset"):
            variables.pop(words.pop(0) if words else "", None)
        elif word.startswith("--unset="):
            variables.pop(word.removeprefix("--unset="), None)
        elif not word.startswith("-"):
            name, _, variables[name] = word.partition("=")
    return words, variables


def _find_export(command: Sequence[str], environment: Mapping[str, str]) -> list[str] | None:
    """Return the names in Slurm's `--export`, or None if it is not used.

    As in Slurm, the option of the command comes first, then the variable, then the directive of the job script.
    """
    import re

    from cfglint_train.foundation import filesystem, regular_files

    job = next((index for index, word in enumerate(command) if index and filesystem.is_file(word)), len(command))
    options = " ".join(command[1:job])
    directives = ""
    if command[0].endswith("sbatch") and job < len(command):
        try:
            text = regular_files.read(command[job]).decode("utf-8", "replace")
        except (OSError, ValueError):
            text = ""
        directives = " ".join(re.findall(r"(?m)^#SBATCH[ \t]+(.*)$", text))
    variable = environment.get("SBATCH_EXPORT" if command[0].endswith("sbatch") else "SLURM_EXPORT_ENV")
    stated = [re.search(r"(?:^|\s)--export[= ](\S*)", words) for words in (options, directives)]
    names = stated[0][1] if stated[0] else variable if variable is not None else stated[1] and stated[1][1]
    return None if names is None else names.split(",")


def _list_grounds(result: Result, strict: bool) -> Iterator[str]:
    """Yield the reasons to refuse: certain errors and, if `strict`, warnings and what was not checked."""
    from cfglint_train.foundation.wording import format_count

    certain = sum(map(_is_certain_error, result.findings))
    if certain:
        yield format_count(certain, "certain error")
    if strict:
        others = sum(finding.severity != "info" and not _is_certain_error(finding) for finding in result.findings)
        unchecked = result.run_counts.memory_not_checked + result.run_counts.not_read
        if others:
            yield format_count(others, "other finding")
        if result.troubles and not result.findings:
            yield "an error of cfglint"
        if unchecked:
            yield f"{format_count(unchecked, 'run')} not checked"
        if not result.runs:
            yield "no training launch recognised"


def _is_certain_error(finding: Finding) -> bool:
    return finding.severity == "error" and finding.certainty in ("stated", "followed")


def _format_fix_command(result: Result, script: str, options: Any) -> str:
    """Return the command that fixes the files of a launch on its cluster, or words for fixes of the command itself.

    It states the facts that this command states, and the nodes and GPUs of the launch.
    """
    import shlex

    from cfglint_train.front.commands.repeated import spell_facts, spell_flags

    fixes = [(finding.path, finding.fix) for finding in result.findings]
    paths = sorted({path for path, fix in fixes if fix is not None and fix.edits and path != script})
    if not paths:
        return "other options of the command"
    words = ["cfglint", "--fix", *spell_facts(options), *spell_flags(options, ("select", "ignore"))]
    clusters = {run.cluster for run in result.runs}
    for flag, count in zip(("--nodes", "--gpus-per-node"), clusters.pop() if len(clusters) == 1 else ()):
        words += [] if count is None or flag in words else [flag, str(count)]
    return sanitize(shlex.join([*words, *paths]))


def _describe(
    command: Sequence[str], result: Result, grounds: Sequence[str], verdict: Verdict, options: Any
) -> Iterator[str]:
    """Yield the line that says what happens, and why."""
    import shlex

    name = sanitize(shlex.join(command))
    reasons = ", ".join(grounds)
    if verdict == "refused":
        hint = "" if options.dry_run else "; --force runs it anyway"
        yield f"preflight: refused ({reasons}): {name}{hint}"
    elif verdict == "forced":
        yield f"preflight: runs despite {reasons} (--force): {name}"
    elif not options.quiet:
        is_recognised = result.runs or result.findings or result.unread_runs
        reason = "no certain error" if is_recognised else "no training launch recognised, nothing was checked"
        yield f"preflight: {reason}; {'would run' if verdict == 'checked' else 'runs'}: {name}"


def _write_plan(path: str, command: Sequence[str], result: Result, verdict: Verdict) -> None:
    """Write the verdict, the findings and the settings of each run with their origins. Raise OSError."""
    import shlex

    from cfglint_train.foundation import atomic
    from cfglint_train.foundation.redact import build_redaction
    from cfglint_train.reports import json, origins
    from cfglint_train.reports.escape import escape_data

    document = {
        "version": 1,
        "command": escape_data(build_redaction(result.secrets)(shlex.join(command))),
        "verdict": verdict,
        "findings": [json.convert_record(finding) for finding in json.list_findings(result)],
        "runs": origins.build_runs(result.runs, result.secrets),
    }
    atomic.write_output(path, f"{json.encode(document)}\n".encode())


def _run_command(command: Sequence[str]) -> int:
    """Replace this process with a command; return an exit code if that fails, and that of the command on Windows."""
    from cfglint_train.front import programs

    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    try:
        return programs.replace_process(command)
    except FileNotFoundError:
        code, problem = NOT_FOUND, "no such program"
        if "=" in command[0]:
            problem += "; set variables with env: env NAME=value COMMAND"
    except OSError as error:
        code, problem = NOT_EXECUTABLE, error.strerror or str(error)
        if problem == "Exec format error":
            problem += "; is its first line #!/bin/bash?"
    print_remarks([f"preflight: {sanitize(command[0])}: {problem}"])
    return code
