"""`cfglint estimate FILE`: the memory budget of runs, of a plan file, or of a run that only flags describe."""

from __future__ import annotations

from cfglint_train.front.commands.options import build_options, read_inputs
from cfglint_train.front.commands.outcome import CLEAN, TROUBLE
from cfglint_train.front.commands.output import (
    format_troubles,
    format_verbose,
    print_remarks,
    report_gaps,
    write_report,
)
from cfglint_train.front.commands.parser import (
    Parser,
    add_cluster,
    add_model,
    add_output_format,
    add_question,
    add_settings,
)
from cfglint_train.front.commands.repeated import QUESTION_FLAGS

_ABOUT = """\
Estimate the memory of a run, phase by phase.
Exit codes: 0 estimated, 2 wrong usage, no run, or a run that cannot be estimated."""


def estimate(argv: list[str]) -> int:
    """Print memory budgets and return the exit code."""
    parser = Parser(prog="cfglint estimate", description=_ABOUT)
    parser.add_argument("paths", nargs="*", metavar="FILE", help="files and folders; - reads stdin")
    parser.add_argument("--plan", metavar="FILE", help="a JSON plan instead of configurations (docs/plan-file.md)")
    grid = "estimate a grid of values: micro_batch=1,2,4 sequence=4096,8192 gpu=A100-40GB,H100"
    parser.add_argument("--what-if", nargs="+", action="append", metavar="AXIS=VALUES", help=grid)
    add_question(parser)
    add_cluster(parser)
    add_model(parser)
    add_output_format(parser, ("text", "json", "html"))
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: only on a terminal"
    )
    parser.add_argument("--output-file", metavar="FILE", help="write the report to FILE")
    parser.add_argument("-v", "--verbose", action="store_true", help="explain why a file contains no run")
    parser.add_argument("--stdin-filename", metavar="PATH", help="name of standard input in reports")
    add_settings(parser)
    parser.set_defaults(select=None, ignore=None)
    options = parser.parse_args(argv)
    from cfglint_train.front.commands import estimation

    words, files = estimation.split_words(options.what_if or ())
    options.paths = [*options.paths, *files]
    axes = estimation.parse_axes(words)
    if options.model is not None:
        from cfglint_train.front import question

        return question.answer_question(options, axes)
    question_flag = next((name for name in QUESTION_FLAGS if getattr(options, name)), None)
    if question_flag is not None:
        parser.error(f"--{question_flag.replace('_', '-')} needs --model")
    if options.plan is not None:
        plan = estimation.read_plan(options.plan, options)
        write_report(
            estimation.render_report([plan], axes, options.output_format, style=estimation.choose_style(options)),
            options,
        )
        return CLEAN if report_gaps([plan]) else TROUBLE
    from cfglint_train import api
    from cfglint_train.foundation.errors import UsageError

    if not options.paths:
        raise UsageError("estimate needs a configuration, --model NAME or --plan FILE.json")
    lint_options = build_options(options)
    paths, sources = read_inputs(options)
    # The HTML page also contains the findings of all rules.
    result = (api.lint if options.output_format == "html" else api.estimate)(paths, lint_options, sources).raw
    runs = list(result.runs)
    print_remarks([*format_troubles(result), *format_verbose(result, options)])
    write_report(
        estimation.render_report(runs, axes, options.output_format, result, estimation.choose_style(options)), options
    )
    is_complete = report_gaps(runs, result, options.paths)
    return CLEAN if is_complete and not result.troubles else TROUBLE
