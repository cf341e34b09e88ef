"""Parsers of arguments that complain on safe lines, and the flags that several commands share."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter

from cfglint_train.foundation.typed import Any, NoReturn
from cfglint_train.front.commands.outcome import TROUBLE
from cfglint_train.front.commands.output import shown


class _Help(RawDescriptionHelpFormatter):
    """As wide as the terminal. (Left to itself, argparse imports `shutil` to find out, also where the width is not
    needed.)
    """

    def __init__(self, prog: str) -> None:
        from cfglint_train.front.terminal import columns

        super().__init__(prog, max_help_position=32, width=columns() - 2)


class Parser(ArgumentParser):
    """Complains on lines that are safe to print, whatever the arguments are."""

    def __init__(self, prog: str, **more: Any) -> None:
        super().__init__(prog, formatter_class=_Help, allow_abbrev=False, **more)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and exit."""
        self.exit(TROUBLE, f"{self.prog}: {shown(message)}\nsee {self.prog} --help\n")


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


def count(text: str) -> int:
    """A number of things, from 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError("must be a positive integer")
    return int(text)


def seconds(text: str) -> float:
    """A time, above 0."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or not float(text):
        raise ArgumentTypeError("must be a positive number")
    return float(text)


def code_at_line(text: str) -> tuple[str, int]:
    """The code of a rule, and the line that it finds something on."""
    code, _, line = text.partition(":")
    if not code or not line.isascii() or not line.isdigit():
        raise ArgumentTypeError("CODE:LINE is expected, such as MEM001:12")
    return code.upper(), int(line)


def codes(text: str) -> list[str]:
    """Codes with commas between them."""
    return [code.strip() for code in text.split(",") if code.strip()]
