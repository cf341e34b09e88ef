"""Settings reference: names, types and defaults come from the code, descriptions and examples from here.

Every example is loaded when the page is built. A setting without a text, or a text without a setting, stops the build.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from markdown_text import format_code_block, format_table

from cfglint_train.frameworks.registry import map_spellings
from cfglint_train.settings import cluster_facts, settings
from cfglint_train.settings.settings import Settings, load_settings


class Text(NamedTuple):
    """Purpose of a setting, with an example."""

    purpose: str
    example: str


SETTINGS = {
    "select": Text("The rules that are on: code, family, name or `ALL`.", 'select = ["MEM", "CKP", "removed-key"]'),
    "extend-select": Text("More rules, in addition to `select` or the extended file.", 'extend-select = ["PRF"]'),
    "ignore": Text(
        "The rules that are off. If a rule is selected and ignored, the more precise selector wins, then `ignore`.",
        'ignore = ["PRF003"]',
    ),
    "extend-ignore": Text("More rules that are off.", 'extend-ignore = ["SEC001"]'),
    "per-file-ignores": Text(
        "Rules that are off for some files, by glob; `!glob` means all other files.",
        '[per-file-ignores]\n"examples/**" = ["MEM"]\n"!prod/**" = ["SEC001"]',
    ),
    "fixable": Text("The rules whose fixes may be applied.", 'fixable = ["ALL"]'),
    "unfixable": Text("The rules whose fixes are not even shown.", 'unfixable = ["BAT"]'),
    "extend-safe-fixes": Text("Rules whose unsafe fixes count as safe.", 'extend-safe-fixes = ["SEC001"]'),
    "extend-unsafe-fixes": Text("Rules whose safe fixes count as unsafe.", 'extend-unsafe-fixes = ["MEM001"]'),
    "fix": Text("Has no effect: settings in a repository cannot make a lint write. Use `--fix`.", "fix = true"),
    "unsafe-fixes": Text("Makes `--fix` apply unsafe fixes too, without `--unsafe-fixes`.", "unsafe-fixes = true"),
    "exclude": Text(
        "Files and folders to skip, as in a `.gitignore`: a bare name anywhere, or a path from the folder of the "
        "settings file. cfglint does not read them as launch scripts or framework copies either. "
        "Replaces the default list.",
        'exclude = ["outputs", "third_party/**"]',
    ),
    "extend-exclude": Text("More files and folders to skip, in addition to `exclude`.", 'extend-exclude = ["archive"]'),
    "force-exclude": Text(
        "Skip excluded files even if you name them, as pre-commit does.",
        "force-exclude = true",
    ),
    "respect-gitignore": Text(
        "Skip what `.gitignore` files and `.git/info/exclude` name when walking folders, unless git tracks it.",
        "respect-gitignore = false",
    ),
    "fail-on": Text(
        "The lowest severity that gives exit code 1: `error`, `warning`, `info` or `never`. It applies to the "
        "command, the hooks and the action.",
        'fail-on = "error"',
    ),
    "fail-on-assumed": Text(
        "Findings that rest on an assumption (`certainty` is `assumed` in reports) give exit code 1 too.",
        "fail-on-assumed = true",
    ),
    "require-checked": Text(
        "Runs whose memory could not be checked (CHK001) give exit code 1. The CHK rules are then on, whatever "
        "`select` and `ignore` say. Use `per-file-ignores` and comments to exempt single files.",
        "require-checked = true",
    ),
    "resumable": Text(
        "Whether runs must be able to resume from their checkpoints (the default). If not, fixes that leave the "
        "optimizer state out of checkpoints are safe.",
        "resumable = false",
    ),
    "severity": Text(
        "The level of rules, by code, family or name: `error`, `warning`, `info` or `off` (as in `ignore`). The most "
        "specific name wins. A finding that rests on an assumption is at most a warning.",
        '[severity]\nKEY002 = "info"\nPRF = "off"',
    ),
    "output-format": Text(
        f"The format of the report: {', '.join(f'`{one}`' for one in settings.FORMATS)}.",
        'output-format = "concise"',
    ),
    "rule-url": Text(
        "The URL of the rule pages, with `{code}` or `{name}`, for links in terminals, reports and editors. The "
        "default is the documentation URL of the installed package. An empty text turns the links off.",
        'rule-url = "https://docs.example.org/cfglint/rules/{code}"',
    ),
    "require": Text(
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
    "baseline": Text(
        "The file of accepted findings, which are neither reported nor fixed. The path is relative to this file, in "
        "the same repository. `--write-baseline` writes it.",
        'baseline = "cfglint-baseline.json"',
    ),
    "measurements": Text(
        "The file with the peaks of your own runs, which narrow intervals ([details](memory/own-runs.md)). The path is "
        "relative to this file, in the same repository. `cfglint calibrate record` adds to it. The default is in the "
        "root of the repository, whatever the folder of the settings file.",
        'measurements = "evidence/runs.jsonl"',
    ),
    "max-cpu-seconds": Text(
        "The CPU seconds that a whole run may use, in all processes. One error (SYN008, exit code 2) names the files "
        "that are not checked by then. Earlier findings are still reported, and no fix is written. The setting of the "
        "working directory counts, and `--max-cpu-seconds` overrides it.",
        "max-cpu-seconds = 60",
    ),
    "cache-dir": Text(
        "The folder of the cache. The path is relative to this file, in the same repository. `--cache-dir` and "
        "`CFGLINT_CACHE_DIR` override it and may point anywhere. The default is `cfglint` in `XDG_CACHE_HOME` or "
        "`~/.cache`. cfglint uses no folder with files that git tracks, nor any in the Action's checkout.",
        'cache-dir = ".cfglint_cache"',
    ),
    "extend": Text(
        "A settings file that this one extends. The path is relative to this file.",
        'extend = "../cfglint.toml"',
    ),
    "hardware": Text(
        "The cluster. It overrides launch scripts and the config; a pragma in a file and a flag override it.",
        '[hardware]\ngpu = "H100"\ngpus-per-node = 8\nnodes = 4\nhost-memory = "1TB"',
    ),
    "releases": Text("The releases to check against, by package.", '[releases]\naxolotl = "0.18.0"\ntorch = "2.8"'),
    "overrides": Text(
        "Hardware, releases and ignores for some paths. Later tables override earlier ones.",
        '[[overrides]]\npaths = ["big/**"]\nhardware = {nodes = 32}\nreleases = {torch = "2.6"}\nignore = ["PRF"]',
    ),
}  # fmt: skip

FACTS = {
    "nodes": "number of nodes",
    "gpus-per-node": "GPUs per node",
    "gpu": "a known GPU (`H100`, `A100-40GB`), or its memory (`80GB`)",
    "gpu-memory": "memory of one GPU, if it differs from that of `gpu`",
    "host-memory": "memory of one node",
    "disk": "space for checkpoints",
    "tokens-per-second": "throughput of the whole job, as you measured it ([time and cost](fit.md#time-and-cost))",
    "price-per-gpu-hour": "price of one GPU for an hour: a number, or a number with a currency (`2.40 EUR`)",
}

# Fields of `Settings` that hold the defaults, if not named like the setting.
_FIELDS = {
    "extend-select": None, "extend-ignore": None, "extend-exclude": None, "hardware": None, "releases": None,
    "overrides": None, "require": None, "extend": None, "per-file-ignores": None, "extend-safe-fixes": "safe_fixes",
    "extend-unsafe-fixes": "unsafe_fixes", "unsafe-fixes": "apply_unsafe",
}  # fmt: skip


def list_names() -> list[str]:
    """Return every setting that the settings parser defines."""
    return [*settings._SELECTORS, *settings._GLOBS, *settings._BOOLEANS, *settings._OTHERS]


def build_pages() -> dict[str, str]:
    """Return the page by its path below docs/.

    Raise AssertionError if the texts and the code differ.
    """
    assert sorted(SETTINGS) == sorted(list_names()), sorted(SETTINGS.keys() ^ set(list_names()))
    assert sorted(FACTS) == sorted(cluster_facts.HARDWARE_FACTS)
    parts = [_HEAD]
    for name, text in SETTINGS.items():
        parts.append(
            f"## {name}\n\n{text.purpose}\n\n{_describe_type(name)}\n"
            f"{format_code_block(_check_example(text.example), '.toml')}"
        )
    parts.append("## Facts about the cluster\n")
    parts.append(format_table(("`hardware.`", "meaning"), [(f"`{name}`", meaning) for name, meaning in FACTS.items()]))
    packages = ", ".join(f"`{name}`" for name in map_spellings())
    parts.append(f"## Packages\n\nYou can state the releases of {packages}.\n")
    return {"settings.md": "\n".join(parts)}


_HEAD = """\
# Settings

Put settings into `cfglint.toml`, or below `[tool.cfglint]` in `pyproject.toml` (`[hardware]` is then
`[tool.cfglint.hardware]`). For each file, the nearest settings file above it applies. In one folder, `cfglint.toml`
comes before `.cfglint.toml`, and that before `pyproject.toml`. `--config FILE` names one for all files; `--isolated`
uses none. Flags override settings. An unknown setting is an error.
"""


def _describe_type(name: str) -> str:
    kind = (
        "list of selectors" if name in settings._SELECTORS
        else "list of globs" if name in settings._GLOBS
        else "true or false" if name in settings._BOOLEANS
        else "string" if name in ("output-format", "rule-url", "extend", "fail-on")
        else "string" if name in ("cache-dir", "baseline", "measurements")
        else "list of tables" if name in ("overrides", "require")
        else "number" if name == "max-cpu-seconds"
        else "table"
    )  # fmt: skip
    return f"Type: {kind}. Default: {_format_default(name)}.\n"


def _format_default(name: str) -> str:
    field = _FIELDS.get(name, name.replace("-", "_"))
    if field is None:
        return "none"
    value = Settings("")._asdict()[field]
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if name == "output-format":
        return "`text`"
    if isinstance(value, str):
        return f"`{value}`"
    if value is None:
        return "none"
    texts = [getattr(item, "text", item) for item in value]
    return ", ".join(f"`{item}`" for item in texts) if texts else "none"


def _check_example(example: str) -> str:
    """Return the example after loading it."""
    with tempfile.TemporaryDirectory() as folder:
        inner = Path(folder, "inner", "cfglint.toml")
        inner.parent.mkdir()
        Path(folder, "cfglint.toml").write_text("")
        inner.write_text(example)
        load_settings(str(inner))
    return example
