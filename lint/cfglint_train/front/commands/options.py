"""Conversion of flags to API options, and of paths to input files."""

from __future__ import annotations

import sys

from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cfglint_train.api import Options
    from cfglint_train.settings.settings import Settings

# API option that an OptionError may name -> the flag that sets it.
FLAGS: Final = {
    "select": "--select",
    "ignore": "--ignore",
    "releases": "--release",
    "overrides": "--set",
    "model_folders": "--model-folder",
}


def build_options(options: Any) -> Options:
    """Convert flags to API options. Raise UsageError."""
    from cfglint_train.api import Options

    return Options(
        select=options.select,
        ignore=options.ignore or (),
        require_checked=getattr(options, "require_checked", None),
        nodes=options.nodes,
        gpus_per_node=options.gpus_per_node,
        gpu=options.gpu,
        gpu_memory=options.gpu_memory,
        host_memory=options.host_memory,
        disk=options.disk,
        tokens_per_second=options.tokens_per_second,
        price_per_gpu_hour=options.price_per_gpu_hour,
        releases=dict(_parse_pair("release", assignment, "NAME=RELEASE") for assignment in options.release or ()),
        overrides=tuple(options.set or ()),
        model_config=options.model_config,
        model_folders=options.model_folder or (),
        online=options.online,
        config=options.config,
        isolated=options.isolated,
        no_cache=options.no_cache,
        cache_dir=options.cache_dir,
        max_cpu_seconds=getattr(options, "max_cpu_seconds", None),
        force_exclude=getattr(options, "force_exclude", False),
    )


def add_baseline(lint_options: Options, options: Any, settings: Settings) -> Options:
    """Return the options with the baseline file that flags or settings name."""
    path = None if options.no_baseline else options.baseline or settings.baseline
    return lint_options if path is None else lint_options._replace(baseline=path)


def refuse_combination(flag: str, paths: list[str], options: Any) -> None:
    """Raise UsageError if a flag that writes comments or a baseline is combined with fixes or standard input.

    Also raise it if both of these flags are set.
    """
    if options.fix or options.fix_only or options.diff or options.stdin_filename is not None or paths == ["-"]:
        from cfglint_train.foundation.errors import UsageError

        raise UsageError(f"{flag} cannot be used with --fix, --fix-only, --diff or standard input")
    if options.write_baseline and options.add_ignore:
        from cfglint_train.foundation.errors import UsageError

        raise UsageError("--write-baseline cannot be used with --add-ignore")


_WRITE_FLAGS: Final = ("fix", "fix_only", "diff", "add_ignore", "write_baseline")
"""Flags that change files, or show the change."""


def refuse_write_flags(options: Any) -> None:
    """Raise UsageError if a write flag is combined with a flag that shows something other than findings."""
    show_flag = options.shown or ("explain" if options.explain is not None else None)
    write_flag = (
        next((flag for flag in _WRITE_FLAGS if getattr(options, flag)), None) if show_flag is not None else None
    )
    if write_flag is not None:
        from cfglint_train.foundation.errors import UsageError

        raise UsageError(f"--{write_flag.replace('_', '-')} cannot be used with --{show_flag}, which changes nothing")


def _parse_pair(flag: str, assignment: str, form: str) -> tuple[str, str]:
    name, sign, text = assignment.partition("=")
    if not sign:
        from cfglint_train.foundation.errors import UsageError

        raise UsageError(f"--{flag} {assignment}: expected {form}")
    return name, text


def read_inputs(options: Any) -> tuple[list[str], dict[str, bytes]]:
    """Return the paths to check, and the contents of standard input under its name if it is one of them."""
    from cfglint_train.foundation.errors import UsageError

    if options.stdin_filename is not None and options.paths in ([], ["-"]):
        name = options.stdin_filename
    elif options.stdin_filename is not None:
        raise UsageError("--stdin-filename names standard input, but other files are given")
    elif options.paths == ["-"]:
        name = "-"
    elif "-" in options.paths:
        raise UsageError("- means standard input and cannot be combined with other paths (use ./- for a file named -)")
    else:
        return options.paths or ["."], {}
    return [name], {name: sys.stdin.buffer.read()}
