r"""SYN007 broken-command: a command line that does not reach its program as it was meant.

## What it does
Reports, for the training commands of a shell script (OpenRLHF, `llamafactory-cli train`, `trl sft` and the like): flags
that bash runs as a command of their own, because the command above ended before them, also where it starts a file of
settings or a Python script with a Trainer; settings (`lr=1e-5`) of which it makes a variable there; white space behind
a backslash, in an array, too; words that belong to no flag; quotes that reach the program as characters, because a
variable or heredoc holds them; and carriage returns.

## Why is this bad?
Bash starts the training without the flags that were cut off, complains about a command that does not exist, and that
line is easily overlooked: the run trains with defaults. A stray word (white space behind a backslash is one) or a
carriage return stops the program's parser, once the job has waited for its GPUs, and a quoted path is looked for with
its quotes.

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
White space behind a backslash is removed: safely where the framework refuses it as a word, so that the run could not
have started; unsafe where a script may run without the options that follow, as it then trains with them. Where the next
line does not continue the command, the backslash is removed with it; where the next line begins with a variable,
nothing is.

## When it does not apply
Words that cannot be determined (they come from the environment or another command) are left alone, and so are the
values of flags that no release has, and a value that the framework itself replaces (OpenRLHF's `--input_template ""`).
An assignment that the script uses, that is not indented like an argument, or that is no setting of the framework is a
variable.

## References
Bash manual, 3.1.2.1 (a backslash continues a line only directly before the line's end), 3.5.7 (word splitting takes
quotes that come from an expansion as characters); argparse refuses what no argument takes.
"""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Config

RULE: Final = Rule("SYN007", "broken-command", "error", scope="config", particular=True, fix="safe")


def check(config: Config) -> Iterable[Report]:
    """Return the reports on the commands of a config, as bash reads them."""
    if config.document.syntax != "shell" and not config.launches:
        return ()
    from cfglint_rules.syntax.cut_commands import report_cut_commands

    return report_cut_commands(config)


def format_cut_off_note(config: Config) -> str:
    """Return a note if bash ends a command of a run before all of its options, else an empty text."""
    commands = ((config.document, int(config.root[0])),) if config.document.syntax == "shell" else ()
    for script, number in commands or config.launches:
        from cfglint_train.documents.shell.cuts import find_detached_options
        from cfglint_train.documents.shell.script import ShellScript

        assert isinstance(script, ShellScript)
        first = next(find_detached_options(script, script.invocations[number]), None)
        if first is not None:
            location = f"bash cuts off the command before `{first.program}` ({RULE.code})"
            return f"{location}, so that the fix goes by a command that lacks options: mend that first"
    return ""
