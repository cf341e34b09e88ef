r"""SYN007 broken-command: bash cuts off or changes a training command.

## What it does
Checks the training commands of shell scripts (OpenRLHF, verl, `llamafactory-cli train`, `trl sft` and others). Commands
that start a config file or a Python script with a Trainer are checked too. The rule reports:

- flags that bash runs as a separate command, because the command above them has already ended
- settings (`lr=1e-5`) that bash reads as a variable assignment for the same reason
- white space after a backslash, including inside an array
- words that belong to no flag or setting (`a.b = 1` for Hydra, which verl uses)
- `fi`, `done`, `esac` or `else` after a backslash, which bash passes to the command as a word
- quotes in a variable or heredoc, which the program receives as literal characters
- carriage returns at the ends of lines

## Why is this bad?
Bash starts the training without the flags that were cut off. Its complaint about an unknown command is easy to miss,
and the run trains with defaults. A stray word or a carriage return stops the program's parser, after the job has waited
for its GPUs. White space after a backslash becomes a stray word. A path with literal quotes is not found.

## Example
    deepspeed --module openrlhf.cli.train_sft \
      --pretrain meta-llama/Llama-3.1-8B
      --zero_stage 3 \
      --max_len 4096

## Use instead
    deepspeed --module openrlhf.cli.train_sft \
      --pretrain meta-llama/Llama-3.1-8B \
      --zero_stage 3 \
      --max_len 4096

## Fix safety
The fix removes white space after a backslash:

- Safe if the framework rejects the white space as a word, because the run could not have started.
- Unsafe if the command may already run without the options that follow, because the fix makes it train with them.

If the next line does not continue the command, the fix removes the backslash as well. There is no fix if cfglint cannot
determine that, for example if the next line begins with a variable.

## When it does not apply
These are not reported:

- words that cannot be determined, because they come from the environment or another command
- values of flags that exist in no release, and text that users replace (`your run`)
- values that the framework itself replaces (OpenRLHF's `--input_template ""`)
- assignments that the script uses, that are not indented like an argument, or that set no key of the framework

## References
Bash manual, 3.1.2.1 (a backslash continues a line only directly before the end of the line) and 3.5.7 (after an
expansion, word splitting treats quotes as ordinary characters); argparse rejects words that match no argument.
"""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Config

RULE: Final = Rule("SYN007", "broken-command", "error", scope="config", particular=True, fix="safe")


def check(config: Config) -> Iterable[Report]:
    """Return the reports on the commands that start a config, as bash reads them."""
    if config.document.syntax != "shell" and not config.launches:
        return ()
    from cfglint_rules.syntax.cut_commands import report_cut_commands

    return report_cut_commands(config)


def format_cut_off_note(config: Config) -> str:
    """Return a note for fixes if bash ends a command of the run before all of its options, else an empty string."""
    commands = ((config.document, int(config.root[0])),) if config.document.syntax == "shell" else ()
    for script, number in commands or config.launches:
        from cfglint_train.documents.shell.cuts import find_detached_options
        from cfglint_train.documents.shell.script import ShellScript

        assert isinstance(script, ShellScript)
        first = next(find_detached_options(script, script.invocations[number]), None)
        if first is not None:
            location = f"bash cuts off the command before `{first.program}` ({RULE.code})"
            return f"{location}, so the fix rests on an incomplete command: repair the command first"
    return ""
