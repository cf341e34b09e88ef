"""Argument parser whose messages are safe to print, and flags that several commands share."""

from __future__ import annotations

import re
import sys
from argparse import SUPPRESS, Action, ArgumentError, ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Sequence

from cfglint_train.foundation.typed import Any, Final, NoReturn
from cfglint_train.foundation.wording import format_count, suggest_name
from cfglint_train.front.commands.outcome import TROUBLE
from cfglint_train.front.commands.output import sanitize


class _HelpFormatter(RawDescriptionHelpFormatter):
    """Help formatter with the width of the terminal, which argparse itself would import `shutil` to determine."""

    def __init__(self, prog: str) -> None:
        """Create a formatter with the width of the terminal."""
        from cfglint_train.front.terminal import detect_columns

        super().__init__(prog, max_help_position=32, width=detect_columns() - 2)


SCREEN: Final = 65
"""Maximum number of lines of a help text that fits one screen."""
_RARE_FLAGS: Final = frozenset((
    "add_ignore", "baseline", "cache_dir", "color", "config", "disk", "exit_non_zero_on_fix", "exit_zero",
    "explain", "fail_on", "fail_on_assumed", "fix_only", "force_exclude", "gpu_memory", "isolated", "jobs",
    "max_cpu_seconds", "model_config", "model_folder", "no_baseline", "no_cache", "online", "output_file",
    "price_per_gpu_hour", "quiet", "require_checked", "shown", "stdin_filename", "tokens_per_second", "verbose",
    "write_baseline",
))  # fmt: skip
"""Flags, as argparse spells them, that `--help` omits if not all flags fit on one screen."""


_MIN_SIMILARITY: Final = 0.8
"""Minimum similarity of suggestions; higher than usual because the leading dashes make short flags similar."""
_MIN_PREFIX: Final = 4
"""Flags of at most this many characters, including dashes, are not completed."""


class _HelpAllAction(Action):
    """The action of `--help-all`: print every flag and exit."""

    def __call__(self, parser: ArgumentParser, *_: Any) -> None:
        """Print the full help and exit."""
        assert isinstance(parser, Parser)
        parser._print_message(parser.format_full_help(), sys.stdout)
        parser.exit()


class Parser(ArgumentParser):
    """Argument parser that suggests corrections, escapes its messages and keeps its help to one screen."""

    def __init__(self, prog: str, more: str = "", **others: Any) -> None:
        """Create a parser; only `--help-all` shows `more`, after the epilog."""
        super().__init__(prog, formatter_class=_HelpFormatter, allow_abbrev=False, **others)
        self._more = more
        self._all = self.add_argument("--help-all", action=_HelpAllAction, nargs=0, dest=SUPPRESS, help=SUPPRESS)

    def format_full_help(self) -> str:
        """Return the help with every flag."""
        text = super().format_help()
        return f"{text}\n{self._more}" if self._more else text

    def format_help(self) -> str:
        """Return the help with all flags if they fit one screen, or else without rare ones."""
        text = self.format_full_help()
        rare = [action for action in self._actions if action.dest in _RARE_FLAGS and action.help != SUPPRESS]
        if text.count("\n") <= SCREEN or not rare:
            return text
        help_texts = [action.help for action in rare]
        try:
            for action in rare:
                action.help = SUPPRESS
            self._all.help = f"show {format_count(len(rare), 'more flag')}"
            return super().format_help()
        finally:
            self._all.help = SUPPRESS
            for action, help_text in zip(rare, help_texts):
                action.help = help_text

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """Parse arguments; exit on unknown flags, suggesting similar ones."""
        self._arguments = () if args is None else args
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._suggest_flags(unknown)}")
        return options

    def _suggest_flags(self, words: Sequence[str]) -> str:
        """Return a suggestion for the first unknown flag among some words, or an empty string."""
        flags = [word.partition("=")[0] for word in words if word.startswith("--")]
        for flag in flags:
            if flag not in self._option_string_actions and (suggestion := self._suggest_flag(flag)):
                return f"; {suggestion}"
        return ""

    def _suggest_flag(self, flag: str) -> str:
        """Return a suggestion such as `did you mean --fix?`, or an empty string.

        The candidates are flags with the same letters, similar flags, longer flags, and flags that have `flag` as a
        choice.
        """
        visible = {name: action for name, action in self._option_string_actions.items() if action.help != SUPPRESS}
        anagrams = [name for name in self._option_string_actions if sorted(name) == sorted(flag)]
        if anagrams or (suggestion := suggest_name(flag, list(visible), cutoff=_MIN_SIMILARITY)):
            return f"did you mean {anagrams[0]}?" if anagrams else suggestion
        longer = [name for name in visible if len(flag) > _MIN_PREFIX and name.startswith(flag)]
        longer += [f"{name} {flag[2:]}" for name, action in visible.items() if flag[2:] in (action.choices or ())]
        return f"did you mean {longer[0]}?" if longer else ""

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            hint = suggest_name(str(value), choices, f"choose from {', '.join(choices)}")
            raise ArgumentError(action, f"invalid choice {value!r}; {hint}")

    def error(self, message: str) -> NoReturn:
        """Print the message and exit."""
        if " are required: " in message:
            message += self._suggest_flags(self._arguments)
        self.exit(TROUBLE, f"{self.prog}: {sanitize(message)}\nsee {self.prog} --help\n")


def add_output_format(
    parser: Any, choices: Sequence[str], default: str | None = "text", help: str | None = None
) -> None:
    """Add `--output-format` and its alias `--format`."""
    parser.add_argument("--output-format", choices=choices, default=default, help=help)
    parser.add_argument("--format", choices=choices, dest="output_format", default=SUPPRESS, help=SUPPRESS)


def add_settings(parser: Any) -> None:
    """Add the flags for settings files and cache."""
    parser.add_argument("--config", metavar="FILE", help="settings file (default: the nearest one)")
    parser.add_argument("--isolated", action="store_true", help="ignore all settings files")
    parser.add_argument("-n", "--no-cache", action="store_true", help="neither read nor write the cache")
    parser.add_argument("--cache-dir", metavar="DIR", help="cache folder (default: ~/.cache/cfglint)")


def add_cluster(parser: ArgumentParser) -> None:
    """Add the flags for facts that the files do not state."""
    cluster = parser.add_argument_group("cluster (what the files do not state)")
    cluster.add_argument("--nodes", metavar="N", help="number of nodes")
    cluster.add_argument("--gpus-per-node", metavar="N", help="GPUs per node")
    cluster.add_argument("--gpu", metavar="NAME", help="A100-80GB, H100, RTX4090, ...")
    cluster.add_argument("--gpu-memory", metavar="SIZE", help="memory of one GPU: 80GB, 79.1GiB")
    cluster.add_argument("--host-memory", metavar="SIZE", help="memory of one node: 480GiB, 2TB")
    cluster.add_argument("--disk", metavar="SIZE", help="space for checkpoints")
    cluster.add_argument("--tokens-per-second", metavar="N", help="measured throughput of the job, for its time")
    cluster.add_argument("--price-per-gpu-hour", metavar="PRICE", help="2.40 or 2.40 EUR, for the cost")
    cluster.add_argument(
        "--release", action="append", metavar="NAME=RELEASE", help="target release: axolotl=0.18.0, torch=2.8"
    )
    cluster.add_argument("--set", action="append", metavar="KEY=VALUE", help="a setting that the launch command passes")


def add_model(parser: ArgumentParser) -> None:
    """Add the flags that locate the config.json of unknown models."""
    model = parser.add_argument_group("models that cfglint does not know")
    model.add_argument("--model-config", metavar="FILE", help="the model's config.json or its folder")
    model.add_argument(
        "--model-folder", action="append", metavar="DIR", help="allow local models in DIR, not only in the repository"
    )
    model.add_argument(
        "--online", action="store_true", help="download their config.json from the Hub, and nothing else"
    )


def add_question(parser: ArgumentParser) -> None:
    """Add the flags that describe a run without a file."""
    question = parser.add_argument_group("estimate without a file (--write saves one)")
    question.add_argument("--model", metavar="NAME", help="Hub id or folder of a model: meta-llama/Llama-3.1-8B")
    question.add_argument("--method", metavar="NAME", help="full, lora, qlora or freeze (default: lora)")
    question.add_argument("--length", type=parse_count, metavar="N", help="tokens per sequence (default: at most 4096)")
    question.add_argument(
        "--micro", type=parse_count, metavar="N", help="sequences per GPU and forward pass (default: 1)"
    )
    question.add_argument(
        "--accumulation", type=parse_count, metavar="N", help="micro batches per optimizer step (default: 8)"
    )
    question.add_argument("--rank", type=parse_count, metavar="N", help="adapter rank (default: 16)")
    question.add_argument("--optimizer", metavar="NAME", help="name in transformers (default: adamw_torch_fused)")
    question.add_argument("--precision", choices=("bf16", "fp16"), help="default: bf16 if the GPU supports it")
    question.add_argument("--no-checkpointing", action="store_true", help="turn activation checkpointing off")
    sharding = question.add_mutually_exclusive_group()
    sharding.add_argument("--zero", type=int, choices=(1, 2, 3), help="DeepSpeed ZeRO stage")
    sharding.add_argument("--fsdp", action="store_true", help="shard with FSDP2")
    question.add_argument(
        "--framework", metavar="NAME", help="axolotl, llamafactory or trl (default: axolotl if it can)"
    )
    question.add_argument("--write", metavar="FRAMEWORK[=FILE]", help="save a minimal configuration for that framework")


def parse_count(text: str) -> int:
    """Parse a positive integer."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError("must be a positive integer")
    return int(text)


def parse_seconds(text: str) -> float:
    """Parse a positive duration in seconds."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or not float(text):
        raise ArgumentTypeError("must be a positive number")
    return float(text)


def parse_code_at_line(text: str) -> tuple[str, int]:
    """Parse the code of a rule and the line of a finding: `CODE:LINE`."""
    code, _, line = text.partition(":")
    if not code or not line.isascii() or not line.isdigit():
        raise ArgumentTypeError("expected CODE:LINE, such as MEM001:12")
    return code.upper(), int(line)


def parse_codes(text: str) -> list[str]:
    """Parse comma-separated codes."""
    return [code.strip() for code in text.split(",") if code.strip()]
