"""`cfglint fit FILE`: the smallest change that makes a run fit its GPUs."""

from __future__ import annotations

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.front.commands.options import build_options, read_inputs
from cfglint_train.front.commands.outcome import CLEAN, FINDINGS, TROUBLE
from cfglint_train.front.commands.output import (
    format_troubles,
    format_verbose,
    print_remarks,
    report_gaps,
    write_report,
)
from cfglint_train.front.commands.parser import Parser, add_cluster, add_model, add_output_format, add_settings

_ABOUT = """\
Find the smallest change that makes a run fit its GPUs: what each change saves and
costs, which changes are enough, and which hardware the run needs if none are.
Exit codes: 0 the run fits, or fits with the change that --diff or --write makes,
1 a change is needed (with --across: on all hardware), 2 wrong usage, no run, or
a run that cannot be estimated."""


def fit(argv: list[str]) -> int:
    """Find changes that make the runs fit, print or write them, and return the exit code."""
    parser = Parser(prog="cfglint fit", description=_ABOUT)
    parser.add_argument("paths", nargs="*", metavar="FILE", help="files and folders; - reads stdin")
    keep = "a setting not to change: a key of the file or a plan field; may be repeated"
    parser.add_argument("--keep", action="append", metavar="KEY", default=[], help=keep)
    goal = (
        "default: the change that the lint proposes; throughput: the least slowdown that fits; "
        "smallest-edit: the fewest settings; memory: the lowest peak that costs only time"
    )
    parser.add_argument(
        "--goal", choices=("default", "throughput", "smallest-edit", "memory"), default="default", help=goal
    )
    most = "also print the largest value whose upper bound fits, with everything else unchanged"
    parser.add_argument("--max", choices=("micro_batch", "sequence_length"), help=most)
    across = "compare hardware: H100x8,A100-80GBx8,L40Sx4x2 (GPU x GPUs per node x nodes), or a CSV, JSON or TOML file"
    parser.add_argument("--across", metavar="LIST", help=across)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--diff", action="store_true", help="print the change as a unified diff; write nothing")
    action.add_argument("--write", action="store_true", help="write the change")
    add_cluster(parser)
    add_model(parser)
    add_output_format(parser, ("text", "json", "html"), help="default: text; html needs --across")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: only on a terminal"
    )
    parser.add_argument("--output-file", metavar="FILE", help="write the report to FILE")
    parser.add_argument("-v", "--verbose", action="store_true", help="explain why a file contains no run")
    parser.add_argument("--stdin-filename", metavar="PATH", help="name of standard input in reports")
    add_settings(parser)
    parser.set_defaults(select=None, ignore=None)
    options = parser.parse_args(argv)
    from cfglint_train import api
    from cfglint_train.foundation.errors import UsageError
    from cfglint_train.front.commands.estimation import choose_style
    from cfglint_train.reports import fit as report

    if not options.paths:
        raise UsageError("fit needs a configuration")
    if options.across is not None:
        return _compare_hardware(options)
    if options.output_format == "html":
        raise UsageError("--output-format html needs --across")
    paths, sources = read_inputs(options)
    if options.write and sources:
        raise UsageError("--write needs a file; standard input is only shown (--diff)")
    result = api.fit(
        paths, build_options(options), sources, keep=options.keep, goal=options.goal, most=options.max,
        change=options.diff or options.write, write=options.write,
    )  # fmt: skip
    print_remarks([*format_troubles(result.raw), *format_verbose(result.raw, options)])
    if options.diff:
        write_report(result.diff(), options)
    elif options.output_format == "json":
        write_report(report.render_json(result.ladders), options)
    else:
        write_report(report.render_text(result.ladders, choose_style(options)), options)
    is_change = options.diff or options.write
    print_remarks(f"not changed: {refusal.path}: {refusal.reason}" for refusal in result.refused)
    if is_change:
        print_remarks(f"not changed: {path}: no change to its files makes it fit" for path in result.hopeless)
    tight = []
    if options.write:
        print_remarks(f"changed: {path}" for path in sorted(result.sources))
        tight = [
            f"{alternatives.run.main.document.path}: expected to fit, but tight: {margins}"
            for alternatives in result.ladders
            if alternatives.solution is not None and (margins := report.describe_tight(alternatives.solution.outcomes))
        ]
        print_remarks(tight)
    is_complete = report_gaps([alternatives.run for alternatives in result.ladders], result.raw, options.paths)
    if result.raw.troubles or result.refused or not is_complete:
        return TROUBLE
    return FINDINGS if result.hopeless or tight or (result.needs_change and not is_change) else CLEAN


_EXCLUDED: Final = ("diff", "write", "max", "gpu", "gpu_memory", "gpus_per_node", "nodes")
"""Flags that cannot be combined with `--across`, as argparse spells them."""


def _compare_hardware(options: Any) -> int:
    """Print the table of `--across`, and return 1 if a run fits nowhere as it is."""
    from cfglint_train import api
    from cfglint_train.fitting.across import compare_hardware
    from cfglint_train.foundation.errors import UsageError
    from cfglint_train.front.commands.estimation import choose_style
    from cfglint_train.hardware.offers import read_offers
    from cfglint_train.reports import across as report

    flag = next((name for name in _EXCLUDED if getattr(options, name)), None)
    if flag is not None:
        raise UsageError(f"--across cannot be used with --{flag.replace('_', '-')}")
    offers = read_offers(options.across)
    paths, sources = read_inputs(options)
    results = []
    for offer in offers:
        nodes = 1 if offer.nodes is None and offer.gpus_per_node is not None else offer.nodes
        lint_options = build_options(options).replace(gpu=offer.gpu, gpus_per_node=offer.gpus_per_node, nodes=nodes)
        results.append(api.fit(paths, lint_options, sources, keep=options.keep, goal=options.goal))
    by_run = [
        {(item.run.main.document.path, item.run.main.root): item for item in result.ladders} for result in results
    ]
    tables = [
        (run[0], compare_hardware(offers, [ladders[run] for ladders in by_run]))
        for run in by_run[0]
        if all(run in ladders for ladders in by_run)
    ]
    first = results[0]
    print_remarks([*format_troubles(first.raw), *format_verbose(first.raw, options)])
    render = {"json": report.render_json, "html": report.render_html}.get(options.output_format)
    write_report(render(tables) if render else report.render_text(tables, choose_style(options)), options)
    is_complete = report_gaps([alternatives.run for alternatives in first.ladders], first.raw, options.paths)
    if first.raw.troubles or not is_complete:
        return TROUBLE
    fits = all(any(row.headroom is not None and not row.change for row in rows) for _, rows in tables)
    return CLEAN if fits else FINDINGS
