"""Shell completion, generated from the output of `--help-all`, so it never offers flags that do not exist."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

SHELLS: Final = ("bash", "zsh", "fish")
_PROGRAMS: Final = ("cfglint", "cfglint-train")
_FILES: Final = ("FILE", "PATH", "FOLDER")
_CODES: Final = ("CODES", "code")


class CompletionFlag(Frozen):
    """A flag of a command."""

    names: tuple[str, ...]
    values: tuple[str, ...]
    """Accepted values; empty if the value is not a choice."""
    takes_path: bool
    """True if the value is a path."""
    help: str


class CompletionCommand(Frozen):
    """A command and its completions."""

    name: str
    flags: tuple[CompletionFlag, ...]
    words: tuple[str, ...]
    """Positional words: subcommands, codes of rules."""


def parse_command(name: str, text: str, codes: Sequence[str]) -> CompletionCommand:
    """Parse the `--help-all` of a command. `codes`: the codes to offer if the command accepts rule codes."""
    flags = tuple(_build_flag(head, help_, codes) for head, help_ in _parse_flags(text))
    positional = text.partition("positional arguments:")[2].partition("\n\n")[0]
    words = tuple(word for match in re.findall(r"^  \{([^}]*)\}", positional, re.M) for word in match.split(","))
    if re.search(r"^  code\b", positional, re.M):
        words += tuple(codes)
    return CompletionCommand(name, flags, words)


def _parse_flags(text: str) -> Iterator[tuple[str, str]]:
    """Yield each flag of a help text with the first line of its description."""
    rows = text.splitlines()
    for row, following in zip(rows, [*rows[1:], ""]):
        match = re.match(r"  (-\S.*?)(?:  +(\S.*))?$", row)
        if match is not None:
            description = match[2] or (following.strip() if following.startswith("     ") else "")
            yield match[1], description


def _build_flag(head: str, description: str, codes: Sequence[str]) -> CompletionFlag:
    names = tuple(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", head))
    choices = re.search(r"\{([^}]*)\}", head)
    values = tuple(choices[1].split(",")) if choices else ()
    value = head.rpartition(" ")[2]
    if value in _CODES:
        values = tuple(codes)
    return CompletionFlag(names, values, value in _FILES, description)


def render_script(shell: str, commands: Sequence[CompletionCommand]) -> Iterable[str]:
    """Return the lines of a completion script. The first command is the default one."""
    return _RENDERERS[shell](commands)


def _render_bash(commands: Sequence[CompletionCommand]) -> Iterator[str]:
    yield '# Completion of cfglint for bash: eval "$(cfglint completion bash)"'
    yield "_cfglint() {"
    yield "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} values="
    yield "    local flags= words= files="
    yield '    case "$command" in'
    for command in commands[1:]:
        yield from _render_bash_case(command, command.name)
    yield from _render_bash_case(commands[0], "*", [command.name for command in commands])
    yield "    esac"
    yield '    if [ -n "$values" ]; then COMPREPLY=($(compgen -W "$values" -- "$word")); return; fi'
    yield '    if [ -n "$files" ]; then COMPREPLY=($(compgen -f -- "$word")); return; fi'
    yield '    case "$word" in'
    yield '    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;'
    yield '    *) COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word")) ;;'
    yield "    esac"
    yield "}"
    yield f"complete -o filenames -F _cfglint {' '.join(_PROGRAMS)}"


def _render_bash_case(command: CompletionCommand, pattern: str, extra_words: Sequence[str] = ()) -> Iterator[str]:
    yield f"    {pattern})"
    yield f'        flags="{" ".join(name for flag in command.flags for name in flag.names)}"'
    yield f'        words="{" ".join((*command.words, *extra_words))}"'
    yield '        case "$before" in'
    for flag in command.flags:
        if flag.values:
            yield f'        {"|".join(flag.names)}) values="{" ".join(flag.values)}" ;;'
        elif flag.takes_path:
            yield f"        {'|'.join(flag.names)}) files=1 ;;"
    yield "        esac"
    yield "        ;;"


def _render_zsh(commands: Sequence[CompletionCommand]) -> Iterator[str]:
    yield f"#compdef {' '.join(_PROGRAMS)}"
    yield "# Completion of cfglint for zsh: a file _cfglint in a folder of $fpath, or source <(cfglint completion zsh)"
    yield "_cfglint() {"
    yield "    local -a commands; commands=("
    yield from (f"        {command.name}" for command in commands)
    yield "    )"
    yield '    case "$words[2]" in'
    for command in commands[1:]:
        yield f"    {command.name})"
        yield "        shift words; (( CURRENT-- ))"
        yield from _render_zsh_arguments(command)
        yield "        ;;"
    yield "    *)"
    yield "        (( CURRENT == 2 )) && compadd -a commands"
    yield from _render_zsh_arguments(commands[0])
    yield "        ;;"
    yield "    esac"
    yield "}"
    yield (
        'if [ "$funcstack[1]" = "_cfglint" ]; then _cfglint "$@"; else compdef _cfglint ' + " ".join(_PROGRAMS) + "; fi"
    )


def _render_zsh_arguments(command: CompletionCommand) -> Iterator[str]:
    yield "        _arguments -S \\"
    for flag in command.flags:
        description = re.sub(r"[\[\]:'\\]", " ", flag.help).strip()
        value = f":value:({' '.join(flag.values)})" if flag.values else ":file:_files" if flag.takes_path else ""
        for name in flag.names:
            yield f"            '*{name}[{description}]{value}' \\"
    words = f"({' '.join(command.words)})" if command.words else "_files"
    yield f"            '*:argument:{words}'"


def _render_fish(commands: Sequence[CompletionCommand]) -> Iterator[str]:
    yield "# Completion of cfglint for fish: cfglint completion fish | source"
    names = " ".join(command.name for command in commands)
    others = " ".join(command.name for command in commands[1:])
    for program in _PROGRAMS:
        yield f"complete -c {program} -n 'not __fish_seen_subcommand_from {names}' -a '{names}'"
        for command in commands:
            in_command = f"__fish_seen_subcommand_from {command.name}"
            condition = f"not __fish_seen_subcommand_from {others}" if command is commands[0] else in_command
            for flag in command.flags:
                yield f"complete -c {program} -n '{condition}' {_render_fish_flag(flag)}"
            if command.words:
                yield f"complete -c {program} -n '{condition}' -a '{' '.join(command.words)}'"


def _render_fish_flag(flag: CompletionFlag) -> str:
    parts = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names]
    if flag.values:
        parts.append(f"-x -a '{' '.join(flag.values)}'")
    elif flag.takes_path:
        parts.append("-r -F")
    if flag.help:
        description = flag.help.replace("\\", " ").replace("'", " ")
        parts.append(f"-d '{description}'")
    return " ".join(parts)


_RENDERERS: Final[Mapping[str, Callable[[Sequence[CompletionCommand]], Iterator[str]]]] = {
    "bash": _render_bash,
    "zsh": _render_zsh,
    "fish": _render_fish,
}
