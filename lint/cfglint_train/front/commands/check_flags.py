"""The flags of `cfglint check`."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.front.commands.check_defaults import DEFAULTS
from cfglint_train.front.commands.parser import (
    Parser,
    add_cluster,
    add_model,
    add_output_format,
    add_settings,
    parse_code_at_line,
    parse_codes,
    parse_count,
    parse_seconds,
)
from cfglint_train.settings.settings import FAIL_ON, FORMATS
from cfglint_train.version import VERSION

_USAGE: Final = """\
cfglint [check] [PATH ...] [flags]
       cfglint COMMAND [--help] ..."""

_DESCRIPTION: Final = """\
A linter and fixer for LLM training configs: finds what will crash, not fit or
be ignored, before you book a GPU. Nothing is executed or imported. Nothing is
downloaded, except a model's config.json with --online.

frameworks:
{frameworks}"""

_EPILOG: Final = """\
commands:
  check PATH...     lint (the default)
  estimate FILE     the memory budget of a run, phase by phase
  fit FILE          the smallest change that makes a run fit its GPUs
  diff [BASE]       what a change does to each run, before and after
  preflight -- CMD  check a launch, then run it
  migrate --to R    rewrite configurations for another release
  demo              try cfglint on five broken configs
  init [FOLDER]     set up a repository: settings, pre-commit hook, workflow
  rule CODE...      explain rules
  rules             list the rules
  models [NAME]     list or show the known models
  schema FRAMEWORK  a JSON Schema of one release, for editors
  server            the language server for editors
  calibrate report  compare the memory model with measurements
  completion SHELL  completion for bash, zsh or fish

examples:
  cfglint --gpu H100 --nodes 4 configs/    ... for this cluster
  cfglint --diff config.yaml               what --fix would write
  cfglint --explain MEM001:12 config.yaml  what a finding is based on

exit codes:
  0  no findings        2  wrong usage, or something could not be read
  1  findings         130  interrupted
"""

_MORE: Final = """\
  By default, only certain warnings and errors give exit code 1 (--fail-on, --fail-on-assumed).

more examples:
  cfglint --select MEM,CKP --fail-on error .   some rules; only errors fail
  cfglint --explain-origins config.yaml        what the run will do, and the source of each value
  cfglint --output-format sarif --output-file cfglint.sarif .

environment:
  NO_COLOR, FORCE_COLOR      colours of text reports, unless --color is given
  FORCE_HYPERLINK            1 or 0: link rule codes to their pages or not
  COLUMNS                    width of text reports
  CFGLINT_CACHE_DIR          like --cache-dir; empty: no cache
  GITHUB_WORKSPACE, CI_PROJECT_DIR
                             root of the paths in machine-readable reports

files:
  cfglint.toml, .cfglint.toml, pyproject.toml ([tool.cfglint])
                             settings; the nearest file applies to each config
"""


def build_check_parser() -> ArgumentParser:
    """Build the parser of `cfglint check`."""
    parser = Parser(
        prog="cfglint",
        usage=_USAGE,
        description=_DESCRIPTION.format(frameworks=_format_frameworks()),
        epilog=_EPILOG,
        more=_MORE,
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files and folders (default: .); - reads stdin")
    parser.add_argument("-V", "--version", action="version", version=f"cfglint {VERSION}", help="show the version")
    rules = parser.add_argument_group("rules and fixes")
    rules.add_argument(
        "--select",
        type=parse_codes,
        action="extend",
        metavar="CODES",
        help="run only codes, names, families (MEM) or ALL",
    )
    rules.add_argument("--ignore", type=parse_codes, action="extend", metavar="CODES", help="rules not to run")
    rules.add_argument("--fix", action="store_true", help="apply the safe fixes, then report what is left")
    rules.add_argument("--unsafe-fixes", action="store_true", help="with --fix or --diff: include unsafe fixes")
    rules.add_argument("--no-unsafe-fixes", action="store_false", dest="unsafe_fixes", help=SUPPRESS)
    rules.add_argument("--fix-only", action="store_true", help="apply fixes and report nothing else")
    rules.add_argument("--diff", action="store_true", help="show what --fix would change; write nothing")
    rules.add_argument("--add-ignore", action="store_true", help="write `# cfglint: ignore[CODE]` at every finding")
    rules.add_argument("--exit-non-zero-on-fix", action="store_true", help="exit 1 if anything was fixed")
    add_cluster(parser)
    add_model(parser)
    output = parser.add_argument_group("output and settings")
    add_output_format(output, FORMATS, None, "default: text")
    output.add_argument("--output-file", metavar="FILE", help="write the report to FILE")
    output.add_argument("--color", choices=("auto", "always", "never"), help="default: only on a terminal")
    output.add_argument("--exit-zero", action="store_true", help="exit 0 even with findings")
    output.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        help="lowest severity that fails (default: warning)",
    )
    for flag, description in (
        ("fail-on-assumed", "findings that rest on an assumption fail too"),
        ("require-checked", "runs whose memory could not be checked fail too"),
    ):
        output.add_argument(f"--{flag}", action="store_true", help=description)
        output.add_argument(f"--no-{flag}", action="store_false", dest=flag.replace("-", "_"), help=SUPPRESS)
    output.add_argument("--jobs", type=parse_count, metavar="N", help="number of processes (default: one per core)")
    output.add_argument(
        "--max-cpu-seconds", type=parse_seconds, metavar="N", help="stop after N CPU seconds (default: no limit)"
    )
    output.add_argument("-q", "--quiet", action="store_true", help="print only findings and errors, no summary")
    output.add_argument("-v", "--verbose", action="store_true", help="explain why files were not checked")
    output.add_argument("--force-exclude", action="store_true", help="skip excluded files even if you name them")
    baseline = parser.add_argument_group("baseline: findings accepted for now")
    baseline.add_argument("--baseline", metavar="FILE", help="neither report nor fix the findings listed in FILE")
    baseline.add_argument("--no-baseline", action="store_true", help="ignore the `baseline` setting")
    baseline.add_argument(
        "--write-baseline",
        action="store_true",
        help="accept all findings; an existing baseline only loses stale ones (default: cfglint-baseline.json)",
    )
    add_settings(output)
    output.add_argument("--stdin-filename", metavar="PATH", help="treat standard input as the file PATH")
    other_output = parser.add_argument_group("output instead of findings").add_mutually_exclusive_group()
    for flag, description in (
        ("statistics", "number of findings per rule"),
        ("show-files", "the configurations that would be checked, with their frameworks"),
        ("show-settings", "the settings in effect, and why each rule is on or off"),
        ("explain-origins", "every field of each run, with its value and its source"),
    ):
        other_output.add_argument(f"--{flag}", action="store_const", const=flag, dest="shown", help=description)
    other_output.add_argument(
        "--explain",
        type=parse_code_at_line,
        metavar="CODE:LINE",
        help="the facts behind a finding in PATH, and how to make them certain",
    )
    parser.set_defaults(**DEFAULTS)
    return parser


def _format_frameworks() -> str:
    """Return the titles of all frameworks, wrapped like the rest of the help."""
    from textwrap import fill

    titles = ", ".join(manifest.title for manifest in list_frameworks().values())
    return fill(titles, 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
