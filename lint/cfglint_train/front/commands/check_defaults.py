"""Defaults of the flags of `cfglint check`.

A hook passes only switches and files. These are parsed without argparse, whose import takes 5 % of the time to lint one
file; the parser uses the same defaults. A flag that defaults to False is a switch, named `--` and its key.
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Any, Final

DEFAULTS: Final[dict[str, Any]] = {
    "fix": False,
    "unsafe_fixes": None,
    "fix_only": False,
    "diff": False,
    "exit_non_zero_on_fix": False,
    "select": None,
    "ignore": None,
    "nodes": None,
    "gpus_per_node": None,
    "gpu": None,
    "gpu_memory": None,
    "host_memory": None,
    "disk": None,
    "tokens_per_second": None,
    "price_per_gpu_hour": None,
    "release": None,
    "set": None,
    "model_config": None,
    "model_folder": None,
    "online": False,
    "output_format": None,
    "output_file": None,
    "color": "auto",
    "exit_zero": False,
    "fail_on": None,
    "fail_on_assumed": None,
    "require_checked": None,
    "jobs": 0,
    "max_cpu_seconds": None,
    "verbose": False,
    "quiet": False,
    "force_exclude": False,
    "baseline": None,
    "no_baseline": False,
    "write_baseline": False,
    "add_ignore": False,
    "config": None,
    "isolated": False,
    "no_cache": False,
    "cache_dir": None,
    "stdin_filename": None,
    "shown": None,
    "explain": None,
}
