"""Programs of a command: `srun torchrun -m train` has three, each with its own words.

A launcher takes options and then the program that it starts. To separate them, cfglint must know which options take a
value. Sources: torch 2.13 `distributed/run.py`, DeepSpeed 0.19.8 `launcher/runner.py`, accelerate 1.11.0
`commands/launch.py`, Ray 2.55.0 `dashboard/modules/job/` (cli.py, job_supervisor.py), the manuals of srun, sbatch,
mpirun, env, uv and bash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cfglint_train.documents.shell.words import Setting, Word
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final


class Launcher(Frozen):
    """The command-line syntax of one launcher."""

    flags: frozenset[str] = frozenset()
    """Options that take no value; every other option takes one."""
    value_flags: frozenset[str] | None = None
    """If set, only these options take a value."""
    pair_flags: frozenset[str] = frozenset()
    """Options that take two words."""
    module_flags: frozenset[str] = frozenset()
    """Options whose value is a Python module to start (`python -m`)."""
    target_kind: str = "program"
    """Kind of the words after the options.

    One of program (parsed in turn), script (a file or module), shell (`bash -c`) and text (the remaining words are a
    shell script: `eval`, `ssh`).
    """
    skips: int = 0
    """Number of words between the options and the program: `timeout 10m`, `singularity exec IMAGE`."""
    script_flags: frozenset[str] = frozenset()
    """Options whose value is a shell script (`sbatch --wrap`)."""
    reads_input: bool = False
    """True if the launcher runs its standard input as a shell script if the command names no program."""
    has_assignments: bool = False
    """True if `NAME=value` words before the program set its environment (`env`; also Ray, which runs a shell)."""
    runtime_flags: frozenset[str] = frozenset()
    """Options whose value is a JSON object with variables of the program in `env_vars` (Ray)."""


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNKNOWN_PART: Final = "\ue000"
"""Mark for an unknown part of a text: a private character, which JSON allows in texts."""
_TRANSPARENT: Final = Launcher(value_flags=frozenset())

LAUNCHERS: Final[Mapping[str, Launcher]] = {
    "torchrun": Launcher(
        _split_names("--standalone -m --module --no-python --no_python --run-path --run_path --virtual-local-rank "
             "--virtual_local_rank --use-env --use_env -h --help"),
        target_kind="script",
    ),
    "deepspeed": Launcher(
        _split_names("--module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid "
             "--bind_cores_to_rank -q --quiet --elastic_training -h --help"),
        target_kind="script",
    ),
    "accelerate launch": Launcher(
        _split_names("-h --help --quiet -q --cpu --multi_gpu --tpu --enable_cpu_affinity --dynamo_use_fullgraph "
             "--dynamo_use_dynamic --dynamo_use_regional_compilation --use_deepspeed --use_fsdp "
             "--use_parallelism_config --use_megatron_lm --use_xpu --same_network -m --module --no_python "
             "--tpu_cluster --no_tpu_cluster --tpu_use_sudo --downcast_bf16 --fp8_use_autocast_during_eval --debug "
             "--multi-gpu --use-deepspeed --use-fsdp --same-network --no-python"),
        target_kind="script",
    ),
    "python": Launcher(
        value_flags=_split_names("-W -X --check-hash-based-pycs"), module_flags=_split_names("-m"), target_kind="script"
    ),
    "ray job submit": Launcher(
        _split_names("--no-wait -v --verbose --help"),
        has_assignments=True,
        runtime_flags=_split_names("--runtime-env-json"),
    ),
    "uv run": Launcher(
        value_flags=_split_names("--with --with-requirements --with-editable --extra --no-extra --group --no-group "
                                 "--only-group "
                    "--python -p --project --package --directory --env-file --index --index-url --default-index -i "
                    "--extra-index-url -f --find-links --refresh-package -P --upgrade-package --reinstall-package "
                    "--index-strategy --keyring-provider --resolution --prerelease --exclude-newer --link-mode "
                    "--config-setting -C --cache-dir --config-file --color --allow-insecure-host --python-platform"),
        module_flags=_split_names("-m --module"),
    ),
    "srun": Launcher(
        _split_names("--overlap --unbuffered -u --label -l --no-kill -k --quiet -Q --verbose -v --preserve-env -E "
                     "--pty "
             "--test-only -Z --no-allocate --contiguous --disable-status -X --oversubscribe -s --overcommit -O "
             "--reboot --spread-job --use-min-nodes --hold -H --immediate -I --exclusive --kill-on-bad-exit -K "
             "--multi-prog --propagate --exact --resv-ports --wait-for-nodes --no-container-mount-home "
             "--container-mount-home --container-remap-root --no-container-remap-root --container-writable "
             "--container-readonly --no-container-entrypoint --container-entrypoint --whole --help"),
    ),
    "sbatch": Launcher(
        _split_names("--contiguous --exclusive --get-user-env -h --help -H --hold --ignore-pbs -k --no-kill --nice "
             "--no-requeue -O --overcommit -s --oversubscribe --parsable --propagate -Q --quiet --reboot --requeue "
             "--spread-job --stepmgr --test-only --usage --use-min-nodes -v --verbose -V --version -W --wait"),
        script_flags=_split_names("--wrap"),
        reads_input=True,
    ),
    "mpirun": Launcher(
        value_flags=_split_names("-n -np --np -c -N --npernode -npernode --ppn -ppn -perhost --hostfile -hostfile "
                                 "--machinefile "
                    "-machinefile -f -H --host -host -hosts --bind-to -bind-to --map-by -map-by --rank-by -rank-by "
                    "--report-bindings-to -wdir --wdir -path --prefix -prefix --tag-output-to -iface --timeout "
                    "--output-filename -x -env -envlist -genvlist"),
        pair_flags=_split_names("--mca -mca --gmca -gmca --prtemca --pmixmca -genv"),
    ),
    "env": Launcher(value_flags=_split_names("-u --unset -C --chdir"), has_assignments=True),
    "sudo": Launcher(value_flags=_split_names("-u --user -g --group -h --host -p --prompt -C -D --chdir -R -T "
                                              "-U"), has_assignments=True),
    "nice": Launcher(value_flags=_split_names("-n --adjustment")),
    "ionice": Launcher(value_flags=_split_names("-c --class -n --classdata -p -P -u")),
    "stdbuf": Launcher(value_flags=_split_names("-i -o -e --input --output --error")),
    "timeout": Launcher(value_flags=_split_names("-k --kill-after -s --signal"), skips=1),
    "taskset": Launcher(value_flags=frozenset(), skips=1),
    "numactl": Launcher(value_flags=_split_names("-i -m -p -N -C -l -L")),
    "nohup": _TRANSPARENT,
    "time": Launcher(value_flags=_split_names("-f --format -o --output")),
    "exec": Launcher(value_flags=_split_names("-a")),
    "command": _TRANSPARENT,
    "builtin": _TRANSPARENT,
    "unbuffer": _TRANSPARENT,
    "setsid": _TRANSPARENT,
    "catchsegv": _TRANSPARENT,
    "singularity exec": Launcher(
        value_flags=_split_names("-B --bind --env --env-file -H --home -W --workdir --pwd --cwd --overlay -o -S "
                                 "--scratch "
                    "--app --mount --network --hostname --security --add-caps --drop-caps"),
        skips=1,
    ),
    "shell": Launcher(value_flags=_split_names("-O +O -o +o --init-file --rcfile"), target_kind="shell"),
    "eval": Launcher(value_flags=frozenset(), target_kind="text"),
    "ssh": Launcher(
        value_flags=_split_names("-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w"), target_kind="text",
        skips=1, reads_input=True,
    ),
}  # fmt: skip

# Other names of these launchers, and Python modules that are launchers.
_ALIASES: Final[Mapping[str, str]] = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.launcher": "torchrun",
    "deepspeed.launcher.runner": "deepspeed",
    "ds": "deepspeed",
    "accelerate-launch": "accelerate launch",
    "accelerate.commands.launch": "accelerate launch",
    "mpiexec": "mpirun",
    "orterun": "mpirun",
    "llamafactory.cli": "llamafactory-cli",
    "lmf": "llamafactory-cli",
    "llamafactory.launcher": "llamafactory-cli",
    "axolotl.cli.main": "axolotl",
    "gtime": "time",
    "bash": "shell",
    "sh": "shell",
    "zsh": "shell",
    "dash": "shell",
    "ksh": "shell",
}
# Launchers that consist of a program and a subcommand.
_SUBCOMMANDS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "accelerate": (("launch",), "accelerate launch"),
    "accelerate.commands.accelerate_cli": (("launch",), "accelerate launch"),
    "ray": (("job", "submit"), "ray job submit"),
    "uv": (("run",), "uv run"),
    "singularity": (("exec",), "singularity exec"),
    "apptainer": (("exec",), "singularity exec"),
}
# Launchers whose options are not listed here: the program that they start is found by its name.
_WRAPPERS: Final = _split_names(
    "docker podman nerdctl conda mamba micromamba pixi poetry pipenv pdm rye hatch kubectl enroot nsys ncu strace "
    "ltrace py-spy memray xargs parallel aprun jsrun flux bsub qsub tmux screen script sky runai dstack poe tox nvprof "
    "proxychains proxychains4 hfai clush pdsh fabric modal numawrap wandb clearml-agent mlflow gantry beaker salloc "
    "gcloud ngc su runuser flock watch parallel-ssh pssh"
)
_SCRIPT_OPTIONS: Final = _split_names("--cmd --command --commandline --wrap")
"""Options whose value is a shell script if it holds a command, in any program."""
_PROGRAM_NAMES: Final = _split_names(
    "torchrun deepspeed accelerate accelerate-launch axolotl llamafactory-cli lmf python python3 ray srun mpirun uv "
    "bash sh"
)
_STARTED: Final = compile_on_use(
    r"(?:^|[;&|(\n]|\b(?:do|then|else|exec|nohup|time|sudo|env)\b)\s*(?:\w+=\S*\s+)*"
    rf"(?:\S*/)?(?:{'|'.join(sorted(_PROGRAM_NAMES))}|python[0-9.]+)\s"
)
"""Start of a program by name in the text of a script."""
PRINTERS: Final = ("echo", "printf")
"""Programs that only print their words."""
_PYTHON: Final = compile_on_use(r"(?:python|pypy)[0-9.]*(?:\.exe)?")
_MODULE: Final = compile_on_use(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_ASSIGNMENT: Final = compile_on_use(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.S)
_SHORT: Final = compile_on_use(r"-[A-Za-z]")
_OPTION: Final = compile_on_use(r"-[A-Za-z]|--[A-Za-z0-9_]")


class CommandFlag(Frozen):
    """One option of a program; the numbers are indices into the words of the command."""

    name: str
    word: int
    values: tuple[int, ...]
    value_offset: int = 0
    """Start of the value inside the option's own word (`--flag=value`, `-N4`), or 0 if it is not there."""


class CommandPart(Frozen):
    """One program of a command."""

    program: str
    """The launcher's name in `LAUNCHERS`, or else the name, module or path as written."""
    head: tuple[int, ...]
    """Indices of the words that name the program."""
    word_range: range
    """Indices of the words after its name, up to the program that it starts."""
    flags: tuple[CommandFlag, ...]
    arguments: tuple[int, ...]
    """Indices of the words that are neither options nor their values, as far as that can be determined."""
    environment: tuple[Setting, ...] = ()
    """Variables that this program sets for the program that it starts (`env`)."""
    script: tuple[int, ...] | None = None
    """Indices of the words that run as a shell script (`bash -c WORD`); empty if the shell reads stdin."""
    script_offset: int = 0
    """Start of the script in its first word (`--wrap=SCRIPT`)."""
    open: str = ""
    """Reason why its words may be incomplete, such as an unknown variable; else empty."""


def partition(words: Sequence[Word]) -> list[CommandPart]:
    """Partition a command into its programs, outermost first."""
    parts: list[CommandPart] = []
    at = 0
    module = False
    while at < len(words):
        part, following, module = _parse_part(words, at, module)
        parts.append(part)
        if following is None or following <= at:
            break
        at = following
    return parts


def _parse_part(words: Sequence[Word], at: int, module: bool) -> tuple[CommandPart, int | None, bool]:
    """Parse the program that begins at `at`.

    Return the program, the index of the next program that it starts (or None), and whether the latter is a script
    or module.
    """
    program, after = _parse_name(words, at, module)
    launcher = LAUNCHERS.get(program)
    head = tuple(range(at, after))
    if launcher is None:
        is_wrapper = program.rsplit("/", 1)[-1] in _WRAPPERS or not words[at].is_known
        following = _find_program(words, after) if is_wrapper else _find_separated_program(words, after)
        end = len(words) if following is None else following
        script = _find_script(words, range(after, end), is_wrapper)
        if script is not None:
            following, end = None, len(words)
        part = _parse_leaf(program, head, range(after, end), words)
        if script is not None:
            part = part._replace(script=(script.word,), script_offset=script.value_offset)
        return part, following, following is not None and _MODULE.fullmatch(words[following].text) is not None
    return _parse_launcher(program, launcher, head, after, words)


def _parse_name(words: Sequence[Word], at: int, script: bool) -> tuple[str, int]:
    """Return the name of a program and the index after the name."""
    text = words[at].text
    base = text.rsplit("/", 1)[-1]
    if not words[at].is_known and not script and not _has_known_name(words[at]):
        # `$PYTHON -m train`, `$LAUNCHER train.py`
        following = words[at + 1].text if at + 1 < len(words) else ""
        return ("python" if following in ("-m", "-u") or following.endswith(".py") else text), at + 1
    if not script and _PYTHON.fullmatch(base):
        return "python", at + 1
    name = text if script else base
    if name in _SUBCOMMANDS:
        subcommand, program = _SUBCOMMANDS[name]
        if tuple(word.text for word in words[at + 1 : at + 1 + len(subcommand)]) == subcommand:
            return program, at + 1 + len(subcommand)
        return name, at + 1
    if name in _ALIASES:
        return _ALIASES[name], at + 1
    if name in LAUNCHERS and not (script and "/" in text) and " " not in name and name != "shell":
        return name, at + 1
    return text if script or _is_script_path(text) else base, at + 1


def _has_known_name(word: Word) -> bool:
    """Return whether only the folder of a program is unknown (`$(dirname $PYTHON)/torchrun`)."""
    last = word.fragments[-1] if word.fragments else None
    return last is not None and last.is_known and b"/" in last.text


def _is_script_path(text: str) -> bool:
    """Return whether a path names a script, whose folder matters, and not an installed program."""
    return "/" in text and text.endswith((".py", ".sh", ".bash"))


def _parse_launcher(
    program: str, launcher: Launcher, head: tuple[int, ...], after: int, words: Sequence[Word]
) -> tuple[CommandPart, int | None, bool]:
    flags: list[CommandFlag] = []
    environment: list[Setting] = []
    skipped: list[int] = []
    unknown_reason = ""
    script: tuple[int, ...] | None = None
    script_offset = 0
    at = after
    following: int | None = None
    is_module = launcher.target_kind == "script"
    while at < len(words):
        word = words[at]
        text = word.text
        if text == "--":
            following = at + 1
            break
        if program == "shell" and _SHORT.match(text) and not text.startswith("--") and "c" in text[1:]:
            flags.append(CommandFlag(text, at, ()))
            script = (at + 1,) if at + 1 < len(words) else None
            break
        if _OPTION.match(text):
            flag = _parse_option(launcher, words, at)
            if flag.name in launcher.module_flags:
                flags.append(CommandFlag(flag.name, at, ()))
                following, is_module = at + 1, True
                break
            if program == "python" and text == "-c":
                return _parse_leaf(program, head, range(after, len(words)), words), None, False
            flags.append(flag)
            if flag.name in launcher.runtime_flags:
                environment += _list_runtime_settings(words, flag)
            if flag.name in launcher.script_flags and (flag.values or flag.value_offset):
                script, script_offset = flag.values or (at,), flag.value_offset
            at += 1 + len(flag.values)
            continue
        if launcher.has_assignments and (setting := _parse_assignment(word)) is not None:
            environment.append(setting)
            at += 1
            continue
        if word.loose and at + 1 < len(words):
            # The variable holds unknown options; the program after them is found by its name.
            program_index = _find_program(words, at + 1)
            following_text = words[at + 1].text
            is_script = following_text.endswith(".py") or (is_module and _MODULE.fullmatch(following_text))
            if program_index is not None or is_script or _OPTION.match(following_text):
                unknown_reason = unknown_reason or word.why
                at += 1
                continue
        if text in ("-", "") and program == "shell":
            at += 1
            continue
        if len(skipped) < launcher.skips:
            skipped.append(at)
            at += 1
            continue
        following = at
        break
    while launcher.has_assignments and following is not None and following < len(words):
        if (setting := _parse_assignment(words[following])) is None:
            break
        environment.append(setting)
        following += 1
    if launcher.target_kind == "text":
        script, following = tuple(range(len(words) if following is None else following, len(words))) or None, None
    elif launcher.target_kind == "shell":
        if script is None and following is None:
            script = ()
        is_module = True
    if script is None and following is None and launcher.reads_input:
        script = ()
    end = len(words) if following is None else min(following, len(words))
    if following is not None and following >= len(words):
        following = None
    used = {index for flag in flags for index in (flag.word, *flag.values)} | {*(script or ())}
    arguments = tuple(index for index in range(after, end) if index not in used and words[index].text != "--")
    part = CommandPart(
        program,
        head,
        range(after, end),
        tuple(flags),
        arguments,
        tuple(environment),
        script,
        script_offset,
        unknown_reason,
    )
    return part, following, is_module


def _parse_assignment(word: Word) -> Setting | None:
    """Return the setting of a `NAME=value` word, or None for any other word."""
    assignment = _ASSIGNMENT.fullmatch(word.text)
    if assignment is None:
        return None
    return Setting(assignment.group(1), assignment.group(2) if word.is_known else None, word.assumption, word.span)


def _list_runtime_settings(words: Sequence[Word], flag: CommandFlag) -> Iterator[Setting]:
    """Yield the variables in the JSON object of an option; other text than JSON sets none.

    Source: ray 2.55.0 `_private/runtime_env/validation.py` (parse_and_validate_env_vars); `_private/utils.py`
    (update_envs) expands variables in the values.
    """
    word = words[flag.values[0] if flag.values else flag.word]
    variables = _parse_object(_read_value(words, flag)).get("env_vars")
    for name, text in variables.items() if isinstance(variables, dict) else ():
        is_known = isinstance(text, str) and _UNKNOWN_PART not in text and "$" not in text
        if _UNKNOWN_PART not in name:
            yield Setting(name, text if is_known else None, word.assumption, word.span)


def find_runtime_folder(words: Sequence[Word], flags: Iterable[CommandFlag]) -> str:
    """Return the folder, relative to that of the command, whose copy Ray makes the working folder, or an empty string.

    Source: ray 2.55.0 `dashboard/modules/dashboard_sdk.py` (parse_runtime_env_args).
    """
    folder: Any = None
    for flag in flags:
        if flag.name in ("--working-dir", "--runtime-env-json") and (flag.values or flag.value_offset):
            text = _read_value(words, flag)
            is_named = flag.name == "--working-dir"
            folder = text if is_named else folder or _parse_object(text).get("working_dir")
    is_local = isinstance(folder, str) and not folder.startswith(("/", "~")) and "://" not in folder
    return folder if is_local and _UNKNOWN_PART not in folder else ""


def _read_value(words: Sequence[Word], flag: CommandFlag) -> str:
    """Return the value of an option, with a mark in place of each unknown part."""
    return _mark_unknown(words[flag.values[0] if flag.values else flag.word])[flag.value_offset :]


def _mark_unknown(word: Word) -> str:
    """Return the text of a word with a mark in place of each unknown part."""
    if word.is_known:
        return word.text
    parts = (part.text.decode("utf-8", "replace") if part.is_known else _UNKNOWN_PART for part in word.fragments)
    return "".join(parts)


def _parse_object(text: str) -> Mapping[str, Any]:
    """Return the object that a JSON text holds, or an empty one for any other text."""
    from json import loads  # few commands have such an option

    try:
        value = loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _parse_option(launcher: Launcher, words: Sequence[Word], at: int) -> CommandFlag:
    """Parse an option of a launcher and its value."""
    text = words[at].text
    if text.startswith("--"):
        name, equals, _ = text.partition("=")
        if equals:
            return CommandFlag(name, at, (), len(name) + 1)
    else:
        name = text[:2] if _needs_value(launcher, text[:2]) and text not in (launcher.value_flags or ()) else text
        if len(text) > len(name):
            return CommandFlag(name, at, (), len(name) + (text[len(name)] == "="))
    if name in launcher.pair_flags:
        return CommandFlag(name, at, tuple(range(at + 1, min(at + 3, len(words)))))
    if _needs_value(launcher, name) and at + 1 < len(words):
        return CommandFlag(name, at, (at + 1,))
    return CommandFlag(name, at, ())


def _needs_value(launcher: Launcher, name: str) -> bool:
    return name in launcher.value_flags if launcher.value_flags is not None else name not in launcher.flags


def _parse_leaf(program: str, head: tuple[int, ...], word_range: range, words: Sequence[Word]) -> CommandPart:
    """Parse a program that starts no other program: each option takes the words up to the next option."""
    flags: list[CommandFlag] = []
    arguments: list[int] = []
    unknown_reason = ""
    at = word_range.start
    while at < word_range.stop:
        text = words[at].text
        if text == "--":
            arguments += range(at + 1, word_range.stop)
            break
        if not is_option(words[at]):
            if words[at].loose:
                unknown_reason = unknown_reason or words[at].why
            arguments.append(at)
            at += 1
            continue
        name, equals, _ = text.partition("=")
        last = at + 1
        while last < word_range.stop and not is_option(words[last]) and words[last].text != "--":
            if words[last].loose and (last > at + 1 or words[last].spreads):
                break  # the variable may hold no value or several
            last += 1
        if equals and text.startswith("-"):
            flags.append(CommandFlag(name, at, (), len(name) + 1))
            arguments += range(at + 1, last)
        else:
            flags.append(CommandFlag(text, at, tuple(range(at + 1, last))))
        at = last
    return CommandPart(program, head, word_range, tuple(flags), tuple(arguments), open=unknown_reason)


def is_option(word: Word) -> bool:
    """Return whether a word is an option; a negative number is a value."""
    return _OPTION.match(word.text) is not None


def _find_separated_program(words: Sequence[Word], at: int) -> int | None:
    """Return the index of a program named right after `--` (`submit --gpus 8 -- bash -c ...`), or None."""
    index = next((index for index in range(at, len(words) - 1) if words[index].text == "--"), None)
    is_program = index is not None and words[index + 1].text.rsplit("/", 1)[-1] in _PROGRAM_NAMES
    return index + 1 if index is not None and is_program else None


def _find_script(words: Sequence[Word], places: range, is_wrapper: bool) -> CommandFlag | None:
    """Return the first word that holds a shell script, as a flag with the place of the script, or None.

    It is the value of an option for commands, or any word of a wrapper. In both cases, it starts a program by name.
    """
    for index in places:
        text = words[index].text
        name, equals, value = text.partition("=")
        if name in _SCRIPT_OPTIONS and equals and _STARTED.search(value):
            return CommandFlag(name, index, (), len(name) + 1)
        is_value = index > places.start and words[index - 1].text in _SCRIPT_OPTIONS
        if (is_value or is_wrapper) and not is_option(words[index]) and _STARTED.search(text):
            return CommandFlag(text, index, ())
    return None


def _find_program(words: Sequence[Word], at: int) -> int | None:
    """Return the index of the first launcher name or `-m` module at or after `at`, or None if there is none."""
    for index in range(at, len(words)):
        base = words[index].text.rsplit("/", 1)[-1]
        if base in _PROGRAM_NAMES or (_PYTHON.fullmatch(base) and index > at):
            return index
        if index and words[index - 1].text in ("-m", "--module") and _MODULE.fullmatch(words[index].text):
            return index
    return None
