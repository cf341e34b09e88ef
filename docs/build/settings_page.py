"""The reference of the settings: names, types and defaults from the code, what they are for from here.

Every example is loaded when the page is made; a setting without a text, or a text without a setting, stops the build.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from markdown_text import fenced, table

from cfglint_train.frameworks.registry import spellings
from cfglint_train.settings import cluster_facts, settings
from cfglint_train.settings.settings import Settings, load_settings


class Text(NamedTuple):
    """What a setting is for, and an example of it."""

    purpose: str
    example: str


SETTINGS = {
    "select": Text("The rules that are on: codes, families, names, `ALL`.", 'select = ["MEM", "CKP", "removed-key"]'),
    "extend-select": Text("More rules, on top of `select` (or of what `extend` brings).", 'extend-select = ["PRF"]'),
    "ignore": Text(
        "The rules that are off. Where a rule is both selected and ignored, the more precise selector wins; of two "
        "equally precise ones `ignore` wins.",
        'ignore = ["PRF003"]',
    ),
    "extend-ignore": Text("More rules that are off.", 'extend-ignore = ["SEC001"]'),
    "per-file-ignores": Text(
        "Rules that are off for some files, by glob; `!glob` means every file but those.",
        '[per-file-ignores]\n"examples/**" = ["MEM"]\n"!prod/**" = ["SEC001"]',
    ),
    "fixable": Text("The rules whose fixes may be applied.", 'fixable = ["ALL"]'),
    "unfixable": Text("The rules whose fixes are not even shown.", 'unfixable = ["BAT"]'),
    "extend-safe-fixes": Text("Rules whose unsafe fixes count as safe.", 'extend-safe-fixes = ["SEC001"]'),
    "extend-unsafe-fixes": Text("Rules whose safe fixes count as unsafe.", 'extend-unsafe-fixes = ["MEM001"]'),
    "fix": Text("No effect by itself: a file of the repository never makes a lint write. Use `--fix`.", "fix = true"),
    "unsafe-fixes": Text("With `--fix` given: unsafe fixes, too, without `--unsafe-fixes`.", "unsafe-fixes = true"),
    "exclude": Text(
        "What is left out when folders are walked, as in a `.gitignore`: a bare name anywhere, a path from the folder "
        "of the settings file. Nothing in it is evidence about other files: no launch script, no copy of a framework. "
        "Replaces the default list.",
        'exclude = ["outputs", "third_party/**"]',
    ),
    "extend-exclude": Text("More to leave out, on top of `exclude`.", 'extend-exclude = ["archive"]'),
    "force-exclude": Text(
        "Leave excluded files out even when they are named, as pre-commit does.",
        "force-exclude = true",
    ),
    "respect-gitignore": Text(
        "Leave out what `.gitignore` files and `.git/info/exclude` name when folders are walked, unless git tracks it.",
        "respect-gitignore = false",
    ),
    "fail-on": Text(
        "The mildest severity that makes the exit code 1: `error`, `warning`, `info` or `never`. The same in the "
        "command, the hooks and the action.",
        'fail-on = "error"',
    ),
    "fail-on-assumed": Text(
        "Findings that rest on an assumption (`certainty` is `assumed` in the reports) make the exit code 1, too.",
        "fail-on-assumed = true",
    ),
    "require-checked": Text(
        "Runs whose memory could not be checked (CHK001) make the exit code 1. The CHK rules are then on, whatever "
        "`select` and `ignore` say; `per-file-ignores` and comments leave out single files.",
        "require-checked = true",
    ),
    "resumable": Text(
        "Whether runs must be able to resume from their checkpoints (the default). Where they need not, fixes that "
        "leave the optimizer state out of checkpoints are safe.",
        "resumable = false",
    ),
    "severity": Text(
        "The level of rules, by code, family or name: `error`, `warning`, `info` or `off` (as in `ignore`). The most "
        "precise name counts. What rests on an assumption stays a warning at most.",
        '[severity]\nKEY002 = "info"\nPRF = "off"',
    ),
    "output-format": Text(
        f"How findings are reported: {', '.join(f'`{one}`' for one in settings.FORMATS)}.",
        'output-format = "concise"',
    ),
    "rule-url": Text(
        "Where the pages about the rules are, with `{code}` or `{name}` in the address: links in terminals and in "
        "every report lead there. By default the documentation that the installed package names.",
        'rule-url = "https://docs.example.org/cfglint/rules/{code}"',
    ),
    "require": Text(
        "House rules, reported as [HSE001](rules/HSE001.md). Each table names a `field` of the plan "
        "([list](plan-file.md)) or a `key` of a framework (`datasets[].type`: of each item of a list), and "
        "what it must be: `equals`, `one-of`, `at-most`, "
        "`at-least`, `present = true`, `absent = true`; `present` may be combined with the others. `message` says why; "
        "`severity` is `error`, `warning` or `info`, `warning` by default. `paths` (globs) and `frameworks` limit the "
        "rule to some files. An extending file adds its tables to those of the file that it extends. Two "
        "tables that no value meets are an error.",
        '[[require]]\nfield = "batch.global"\none-of = [256, 512]\nmessage = "learning rates are tuned for these"\n\n'
        '[[require]]\nkey = "save_total_limit"\npresent = true\nat-most = 3\nseverity = "error"\n'
        'paths = ["production/**"]\nframeworks = ["llamafactory", "axolotl"]',
    ),
    "baseline": Text(
        "The file of accepted findings, which are neither reported nor fixed; a path from this file, in the same "
        "repository. `--write-baseline` writes it.",
        'baseline = "cfglint-baseline.json"',
    ),
    "max-cpu-seconds": Text(
        "The CPU time in seconds that a whole run may use, all its processes together. Files that are not checked by "
        "then are one error (SYN008, exit code 2) that names them; what was checked is still reported, and no fix is "
        "written. The setting of the working directory counts; `--max-cpu-seconds` wins over it.",
        "max-cpu-seconds = 60",
    ),
    "cache-dir": Text(
        "The folder of the cache; a path from this file, in the same repository. `--cache-dir` and `CFGLINT_CACHE_DIR` "
        "win over it, and may lead anywhere. Default: `cfglint` below `XDG_CACHE_HOME` or `~/.cache`. A folder with "
        "files that git tracks is not used, and the Action uses none in the checkout.",
        'cache-dir = ".cfglint_cache"',
    ),
    "extend": Text(
        "Another settings file whose settings this one completes; a path from this file.",
        'extend = "../cfglint.toml"',
    ),
    "hardware": Text(
        "The cluster. It wins over launch scripts and the configuration; a pragma in a file and a flag win over it.",
        '[hardware]\ngpu = "H100"\ngpus-per-node = 8\nnodes = 4\nhost-memory = "1TB"',
    ),
    "releases": Text("The releases to check against, by package.", '[releases]\naxolotl = "0.18.0"\ntorch = "2.8"'),
    "overrides": Text(
        "Hardware, releases and ignores for some paths. Later tables win over earlier ones.",
        '[[overrides]]\npaths = ["big/**"]\nhardware = {nodes = 32}\nreleases = {torch = "2.6"}\nignore = ["PRF"]',
    ),
}  # fmt: skip

FACTS = {
    "nodes": "nodes of the job",
    "gpus-per-node": "GPUs on each",
    "gpu": "a GPU of the table (`H100`, `A100-40GB`), or its memory (`80GB`)",
    "gpu-memory": "memory of one GPU, where it differs from what `gpu` means",
    "host-memory": "memory of one node",
    "disk": "space for checkpoints",
}

# Where the defaults are in `Settings`, if not under the setting's own name.
_FIELDS = {
    "extend-select": None, "extend-ignore": None, "extend-exclude": None, "hardware": None, "releases": None,
    "overrides": None, "require": None, "extend": None, "per-file-ignores": None, "extend-safe-fixes": "safe_fixes",
    "extend-unsafe-fixes": "unsafe_fixes", "unsafe-fixes": "apply_unsafe",
}  # fmt: skip


def names() -> list[str]:
    """Every setting, as the reader of settings defines them."""
    return [*settings._SELECTORS, *settings._GLOBS, *settings._BOOLEANS, *settings._OTHERS]


def pages() -> dict[str, str]:
    """The page by its path below docs/. Raises AssertionError where the texts and the code differ."""
    assert sorted(SETTINGS) == sorted(names()), sorted(SETTINGS.keys() ^ set(names()))
    assert sorted(FACTS) == sorted(cluster_facts.HARDWARE_FACTS)
    parts = [_HEAD]
    for name, text in SETTINGS.items():
        parts.append(f"## {name}\n\n{text.purpose}\n\n{_facts(name)}\n{fenced(_checked(text.example), '.toml')}")
    parts.append("## Facts about the cluster\n")
    parts.append(table(("`hardware.`", "means"), [(f"`{name}`", meaning) for name, meaning in FACTS.items()]))
    packages = ", ".join(f"`{name}`" for name in spellings())
    parts.append(f"## Packages\n\nReleases can be stated of {packages}.\n")
    return {"settings.md": "\n".join(parts)}


_HEAD = """\
# Settings

Settings go into `cfglint.toml`, or below `[tool.cfglint]` in `pyproject.toml` (then `[hardware]` is
`[tool.cfglint.hardware]`, and so on). For each file the nearest settings file above it counts; of several in one folder
`cfglint.toml`, then `.cfglint.toml`, then `pyproject.toml`. `--config FILE` names one for all files, `--isolated` none.
A setting that does not exist is an error. Flags win over settings.
"""


def _facts(name: str) -> str:
    kind = (
        "list of selectors" if name in settings._SELECTORS
        else "list of globs" if name in settings._GLOBS
        else "true or false" if name in settings._BOOLEANS
        else "string" if name in ("output-format", "rule-url", "extend", "fail-on", "cache-dir", "baseline")
        else "list of tables" if name in ("overrides", "require")
        else "number" if name == "max-cpu-seconds"
        else "table"
    )  # fmt: skip
    return f"Type: {kind}. Default: {_default(name)}.\n"


def _default(name: str) -> str:
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
    shown = [getattr(one, "text", one) for one in value]
    return ", ".join(f"`{one}`" for one in shown) if shown else "none"


def _checked(example: str) -> str:
    """An example that loads."""
    with tempfile.TemporaryDirectory() as folder:
        inner = Path(folder, "inner", "cfglint.toml")
        inner.parent.mkdir()
        Path(folder, "cfglint.toml").write_text("")
        inner.write_text(example)
        load_settings(str(inner))
    return example
