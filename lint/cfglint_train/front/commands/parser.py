"""Parsers of arguments that complain on safe lines, and the flags that several commands share."""

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
    """As wide as the terminal. (Left to itself, argparse imports `shutil` to find out, also where the width is not
    needed.)
    """

    def __init__(self, prog: str) -> None:
        from cfglint_train.front.terminal import detect_columns

        super().__init__(prog, max_help_position=32, width=detect_columns() - 2)


SCREEN: Final = 65
"""Lines of a help that fits one screen."""
_RARE_FLAGS: Final = frozenset((
    "add_ignore", "baseline", "cache_dir", "color", "config", "disk", "exit_non_zero_on_fix", "exit_zero",
    "explain", "fail_on_assumed", "fix_only", "force_exclude", "gpu_memory", "isolated", "jobs", "model_config",
    "model_folder", "no_baseline", "no_cache", "online", "output_file", "quiet", "require_checked", "shown",
    "stdin_filename", "write_baseline",
))  # fmt: skip
"""Flags, as argparse spells them, that `--help` leaves out where all flags would not fit one screen."""


_MIN_SIMILARITY: Final = 0.8
"""How much a mistyped flag has to be like one: two dashes alone make short ones alike."""
_MIN_PREFIX: Final = 4
"""Characters of a flag, dashes included, that are too few to suggest a flag."""


class _HelpAllAction(Action):
    """`--help-all`: print every flag, and exit."""

    def __call__(self, parser: ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, Parser)
        parser._print_message(parser.format_full_help(), sys.stdout)
        parser.exit()


class Parser(ArgumentParser):
    """A parser that answers mistakes, on lines that are safe to print, and whose help fits one screen."""

    def __init__(self, prog: str, more: str = "", **others: Any) -> None:
        """`more`: what only `--help-all` says, behind the epilog."""
        super().__init__(prog, formatter_class=_HelpFormatter, allow_abbrev=False, **others)
        self._more = more
        self._all = self.add_argument("--help-all", action=_HelpAllAction, nargs=0, dest=SUPPRESS, help=SUPPRESS)

    def format_full_help(self) -> str:
        """Return the help with every flag."""
        text = super().format_help()
        return f"{text}\n{self._more}" if self._more else text

    def format_help(self) -> str:
        """Return the help: every flag where those fit one screen, else the usual ones."""
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
        """Parse arguments. Unknown flags end the program, with the nearest ones that there are."""
        self._arguments = () if args is None else args
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._suggest_flags(unknown)}")
        return options

    def _suggest_flags(self, words: Sequence[str]) -> str:
        """Return the flag that the first unknown one among some words stands for."""
        flags = [word.partition("=")[0] for word in words if word.startswith("--")]
        for flag in flags:
            if flag not in self._option_string_actions and (suggestion := self._suggest_flag(flag)):
                return f"; {suggestion}"
        return ""

    def _suggest_flag(self, flag: str) -> str:
        """Return `did you mean --fix?`: a flag with the same letters, one like it, a longer one, or its choice."""
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
        """Say what is wrong, and exit."""
        if " are required: " in message:
            message += self._suggest_flags(self._arguments)
        self.exit(TROUBLE, f"{self.prog}: {sanitize(message)}\nsee {self.prog} --help\n")


def add_output_format(
    parser: Any, choices: Sequence[str], default: str | None = "text", help: str | None = None
) -> None:
    """Add `--output-format`, and `--format` for it."""
    parser.add_argument("--output-format", choices=choices, default=default, help=help)
    parser.add_argument("--format", choices=choices, dest="output_format", default=SUPPRESS, help=SUPPRESS)


def add_settings(parser: Any) -> None:
    """Which settings files count, and where the cache is."""
    parser.add_argument("--config", metavar="FILE", help="the settings file (default: the nearest one)")
    parser.add_argument("--isolated", action="store_true", help="no settings file")
    parser.add_argument("-n", "--no-cache", action="store_true", help="neither read nor write the cache")
    parser.add_argument("--cache-dir", metavar="DIR", help="the folder of the cache (default: ~/.cache/cfglint)")


def add_cluster(parser: ArgumentParser) -> None:
    """What the files do not say."""
    cluster = parser.add_argument_group("the cluster (what the files do not state)")
    cluster.add_argument("--nodes", metavar="N", help="nodes of the job")
    cluster.add_argument("--gpus-per-node", metavar="N", help="GPUs of each node")
    cluster.add_argument("--gpu", metavar="NAME", help="A100-80GB, H100, RTX4090, ...")
    cluster.add_argument("--gpu-memory", metavar="SIZE", help="memory of one GPU: 80GB, 79.1GiB")
    cluster.add_argument("--host-memory", metavar="SIZE", help="memory of one node: 480GiB, 2TB")
    cluster.add_argument("--disk", metavar="SIZE", help="space for checkpoints")
    cluster.add_argument(
        "--release", action="append", metavar="NAME=RELEASE", help="target release: axolotl=0.18.0, torch=2.8"
    )
    cluster.add_argument("--set", action="append", metavar="KEY=VALUE", help="a setting that the launch passes")


def add_model(parser: ArgumentParser) -> None:
    """Where the shape of an unknown model comes from."""
    model = parser.add_argument_group("models that cfglint does not know")
    model.add_argument("--model-config", metavar="FILE", help="the model's config.json, or the folder of one")
    model.add_argument(
        "--model-folder", action="append", metavar="DIR", help="models below it may be read, not only the repository's"
    )
    model.add_argument("--online", action="store_true", help="ask the Hub for their config.json, and for nothing else")


def add_question(parser: ArgumentParser) -> None:
    """What is asked of a model without a file."""
    question = parser.add_argument_group("a question without a file (--write saves it as one)")
    question.add_argument("--model", metavar="NAME", help="a model of the Hub or a folder: meta-llama/Llama-3.1-8B")
    question.add_argument("--method", metavar="NAME", help="full, lora, qlora or freeze (default: lora)")
    question.add_argument("--length", type=parse_count, metavar="N", help="tokens per sequence (default: 4096 at most)")
    question.add_argument(
        "--micro", type=parse_count, metavar="N", help="sequences per GPU and forward pass (default: 1)"
    )
    question.add_argument(
        "--accumulation", type=parse_count, metavar="N", help="micro batches per optimizer step (default: 8)"
    )
    question.add_argument("--rank", type=parse_count, metavar="N", help="rank of the adapter (default: 16)")
    question.add_argument("--optimizer", metavar="NAME", help="as transformers names it (default: adamw_torch_fused)")
    question.add_argument("--precision", choices=("bf16", "fp16"), help="default: bf16 where the GPU has it")
    question.add_argument("--no-checkpointing", action="store_true", help="keep all activations")
    sharding = question.add_mutually_exclusive_group()
    sharding.add_argument("--zero", type=int, choices=(1, 2, 3), help="the stage of DeepSpeed's ZeRO")
    sharding.add_argument("--fsdp", action="store_true", help="shard by FSDP2")
    question.add_argument("--framework", metavar="NAME", help="axolotl, llamafactory or trl (default: the first)")
    question.add_argument("--write", metavar="FRAMEWORK[=FILE]", help="save a minimal configuration of that framework")


QUESTION_FLAGS: Final = (
    "method", "length", "micro", "accumulation", "rank", "optimizer", "precision", "no_checkpointing", "zero", "fsdp",
    "framework", "write",
)  # fmt: skip
"""The flags beside `--model`, as argparse spells them."""


def parse_count(text: str) -> int:
    """A number of things, from 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError("must be a positive integer")
    return int(text)


def parse_seconds(text: str) -> float:
    """A time, above 0."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or not float(text):
        raise ArgumentTypeError("must be a positive number")
    return float(text)


def parse_code_at_line(text: str) -> tuple[str, int]:
    """The code of a rule, and the line that it finds something on."""
    code, _, line = text.partition(":")
    if not code or not line.isascii() or not line.isdigit():
        raise ArgumentTypeError("CODE:LINE is expected, such as MEM001:12")
    return code.upper(), int(line)


def parse_codes(text: str) -> list[str]:
    """Codes with commas between them."""
    return [code.strip() for code in text.split(",") if code.strip()]
