"""Table of all settings: their types, meanings and examples, for the reader, the documentation and the schema."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final, Literal

Kind = Literal["selectors", "globs", "boolean", "choice", "address", "path", "seconds", "table", "tables"]


class Setting(Frozen):
    """A setting of `cfglint.toml`; texts are Markdown for the page of settings."""

    kind: Kind
    purpose: str
    example: str


SETTINGS: Final[Mapping[str, Setting]] = {
    "select": Setting(
        "selectors", "The rules that are on: code, family, name or `ALL`.", 'select = ["MEM", "CKP", "removed-key"]'
    ),
    "extend-select": Setting(
        "selectors", "More rules, in addition to `select` or the extended file.", 'extend-select = ["PRF"]'
    ),
    "ignore": Setting(
        "selectors",
        "The rules that are off. If a rule is selected and ignored, the more precise selector wins, then `ignore`.",
        'ignore = ["PRF003"]',
    ),
    "extend-ignore": Setting("selectors", "More rules that are off.", 'extend-ignore = ["SEC001"]'),
    "per-file-ignores": Setting(
        "table",
        "Rules that are off for some files, by glob; `!glob` means all other files.",
        '[per-file-ignores]\n"examples/**" = ["MEM"]\n"!prod/**" = ["SEC001"]',
    ),
    "fixable": Setting("selectors", "The rules whose fixes may be applied.", 'fixable = ["ALL"]'),
    "unfixable": Setting("selectors", "The rules whose fixes are not even shown.", 'unfixable = ["BAT"]'),
    "extend-safe-fixes": Setting(
        "selectors", "Rules whose unsafe fixes count as safe.", 'extend-safe-fixes = ["SEC001"]'
    ),
    "extend-unsafe-fixes": Setting(
        "selectors", "Rules whose safe fixes count as unsafe.", 'extend-unsafe-fixes = ["MEM001"]'
    ),
    "fix": Setting(
        "boolean", "Has no effect: settings in a repository cannot make a lint write. Use `--fix`.", "fix = true"
    ),
    "unsafe-fixes": Setting(
        "boolean", "Makes `--fix` apply unsafe fixes too, without `--unsafe-fixes`.", "unsafe-fixes = true"
    ),
    "exclude": Setting(
        "globs",
        "Files and folders to skip, as in a `.gitignore`: a bare name anywhere, or a path from the folder of the "
        "settings file. cfglint does not read them as launch scripts or framework copies either. "
        "Replaces the default list.",
        'exclude = ["outputs", "third_party/**"]',
    ),
    "extend-exclude": Setting(
        "globs", "More files and folders to skip, in addition to `exclude`.", 'extend-exclude = ["archive"]'
    ),
    "force-exclude": Setting(
        "boolean",
        "Skip excluded files even if you name them, as pre-commit does.",
        "force-exclude = true",
    ),
    "respect-gitignore": Setting(
        "boolean",
        "Skip what `.gitignore` files and `.git/info/exclude` name when walking folders, unless git tracks it.",
        "respect-gitignore = false",
    ),
    "fail-on": Setting(
        "choice",
        "The lowest severity that gives exit code 1. It applies to the command, the hooks and the action.",
        'fail-on = "error"',
    ),
    "fail-on-assumed": Setting(
        "boolean",
        "Findings that rest on an assumption (`certainty` is `assumed` in reports) give exit code 1 too.",
        "fail-on-assumed = true",
    ),
    "require-checked": Setting(
        "boolean",
        "Runs whose memory could not be checked (CHK001) give exit code 1. The CHK rules are then on, whatever "
        "`select` and `ignore` say. Use `per-file-ignores` and comments to exempt single files.",
        "require-checked = true",
    ),
    "resumable": Setting(
        "boolean",
        "Whether runs must be able to resume from their checkpoints (the default). If not, fixes that leave the "
        "optimizer state out of checkpoints are safe.",
        "resumable = false",
    ),
    "severity": Setting(
        "table",
        "The level of rules, by code, family or name: `error`, `warning`, `info` or `off` (as in `ignore`). The most "
        "specific name wins. A finding that rests on an assumption is at most a warning.",
        '[severity]\nKEY002 = "info"\nPRF = "off"',
    ),
    "output-format": Setting(
        "choice",
        "The format of the report.",
        'output-format = "concise"',
    ),
    "rule-url": Setting(
        "address",
        "The URL of the rule pages, with `{code}` or `{name}`, for links in terminals, reports and editors. The "
        "default is the documentation URL of the installed package. An empty text turns the links off.",
        'rule-url = "https://docs.example.org/cfglint/rules/{code}"',
    ),
    "require": Setting(
        "tables",
        "House rules, reported as [HSE001](rules/HSE001.md). Each table names a `field` of the plan "
        "([list](plan-file.md)) or a `key` of a framework (`datasets[].type` applies to each item of a list), and a "
        "condition: `equals`, `one-of`, `at-most`, `at-least`, `present = true` or `absent = true`. `present` can be "
        "combined with the others. Instead, `that` states a condition on several fields in "
        "[arithmetic](rules/HSE001.md). `message` gives the reason. `severity` is `error`, `warning` (the default) or "
        "`info`. `paths` (globs) and `frameworks` limit the rule to some files. A file that extends another adds its "
        "tables. Two tables that no value can satisfy are an error.",
        '[[require]]\nfield = "batch.global"\none-of = [256, 512]\nmessage = "learning rates are tuned for these"\n\n'
        '[[require]]\nthat = "batch.global * sequence.length <= 4_000_000"\n\n'
        '[[require]]\nkey = "save_total_limit"\npresent = true\nat-most = 3\nseverity = "error"\n'
        'paths = ["production/**"]\nframeworks = ["llamafactory", "axolotl"]',
    ),
    "baseline": Setting(
        "path",
        "The file of accepted findings, which are neither reported nor fixed. The path is relative to this file, in "
        "the same repository. `--write-baseline` writes it.",
        'baseline = "cfglint-baseline.json"',
    ),
    "measurements": Setting(
        "path",
        "The file with the peaks of your own runs, which narrow intervals ([details](memory/own-runs.md)). The path is "
        "relative to this file, in the same repository. `cfglint calibrate record` adds to it. The default is in the "
        "root of the repository, whatever the folder of the settings file.",
        'measurements = "evidence/runs.jsonl"',
    ),
    "max-cpu-seconds": Setting(
        "seconds",
        "The CPU seconds that a whole run may use, in all processes. One error (SYN008, exit code 2) names the files "
        "that are not checked by then. Earlier findings are still reported, and no fix is written. The setting of the "
        "working directory counts, and `--max-cpu-seconds` overrides it.",
        "max-cpu-seconds = 60",
    ),
    "cache-dir": Setting(
        "path",
        "The folder of the cache. The path is relative to this file, in the same repository. `--cache-dir` and "
        "`CFGLINT_CACHE_DIR` override it and may point anywhere. The default is `cfglint` in `XDG_CACHE_HOME` or "
        "`~/.cache`. cfglint uses no folder with files that git tracks, nor any in the Action's checkout.",
        'cache-dir = ".cfglint_cache"',
    ),
    "extend": Setting(
        "path",
        "A settings file that this one extends. The path is relative to this file.",
        'extend = "../cfglint.toml"',
    ),
    "hardware": Setting(
        "table",
        "The cluster. It overrides launch scripts and the config; a pragma in a file and a flag override it.",
        '[hardware]\ngpu = "H100"\ngpus-per-node = 8\nnodes = 4\nhost-memory = "1TB"',
    ),
    "releases": Setting(
        "table", "The releases to check against, by package.", '[releases]\naxolotl = "0.18.0"\ntorch = "2.8"'
    ),
    "overrides": Setting(
        "tables",
        "Hardware, releases and ignores for some paths. Later tables override earlier ones.",
        '[[overrides]]\npaths = ["big/**"]\nhardware = {nodes = 32}\nreleases = {torch = "2.6"}\nignore = ["PRF"]',
    ),
}

FACTS: Final[Mapping[str, str]] = {
    "nodes": "number of nodes",
    "gpus-per-node": "GPUs per node",
    "gpu": "a known GPU (`H100`, `A100-40GB`), or its memory (`80GB`)",
    "gpu-memory": "memory of one GPU, if it differs from that of `gpu`",
    "host-memory": "memory of one node",
    "disk": "space for checkpoints",
    "tokens-per-second": "throughput of the whole job, as you measured it ([time and cost](fit.md#time-and-cost))",
    "price-per-gpu-hour": "price of one GPU for an hour: a number, or a number with a currency (`2.40 EUR`)",
}
"""Meanings of the keys of `[hardware]`."""


def list_settings(kind: Kind) -> list[str]:
    """Return the names of the settings of a kind."""
    return [name for name, setting in SETTINGS.items() if setting.kind == kind]
