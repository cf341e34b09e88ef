"""`cfglint why-oom LOG [CONFIG]`: why a run ran out of memory, from its log and its estimate."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.front.commands.options import build_options
from cfglint_train.front.commands.outcome import CLEAN, FINDINGS
from cfglint_train.front.commands.output import write_report
from cfglint_train.front.commands.parser import Parser, add_cluster, add_model, add_output_format, add_settings

if TYPE_CHECKING:
    from cfglint_train.api import Options
    from cfglint_train.postmortem.report import Diagnosis, PostMortem
    from cfglint_train.runs.run import Run

_ABOUT = """\
Explain why a run ran out of memory: GPU, host, shared memory or disk. The message
and the traceback in the log are compared with the estimate of the configuration.
Nothing is uploaded.
Exit codes: 0 explained, 1 the cause is not known, 2 wrong usage, or a log without
an out-of-memory message."""


def why_oom(argv: list[str]) -> int:
    """Explain the out-of-memory messages in a log, and return the exit code."""
    parser = Parser(prog="cfglint why-oom", description=_ABOUT)
    parser.add_argument("log", metavar="LOG", help="the log of the job; - reads stdin")
    parser.add_argument("run", nargs="?", metavar="CONFIG", help="the configuration of the run")
    row = "print only the measurement, as a row for `cfglint calibrate record`"
    parser.add_argument("--row", action="store_true", help=row)
    add_cluster(parser)
    add_model(parser)
    add_output_format(parser, ("text", "json"))
    parser.add_argument("--output-file", metavar="FILE", help="write the report to FILE")
    add_settings(parser)
    parser.set_defaults(select=None, ignore=None)
    options = parser.parse_args(argv)
    from cfglint_train.foundation import regular_files
    from cfglint_train.foundation.errors import UsageError
    from cfglint_train.front.commands.estimation import estimate_only_run
    from cfglint_train.postmortem import messages, report

    failures = messages.read_log(_read_pieces(options.log))
    if not failures:
        if options.log != "-" and regular_files.read_beginning(options.log, 2) == b"\x1f\x8b":
            raise UsageError(f"{options.log}: compressed; run `zcat {options.log} | cfglint why-oom -`")
        raise UsageError(f"{options.log}: no out-of-memory message")
    lint_options = build_options(options)
    run = None if options.run is None else estimate_only_run(options.run, lint_options)
    diagnoses = report.explain_failures(failures, run)
    if options.row:
        write_report(_build_rows(run, diagnoses), options)
        return CLEAN
    post_mortem = report.PostMortem(options.log, options.run, run, diagnoses)
    if run is not None:
        post_mortem = _add_fit(post_mortem, options.run, lint_options)
    render = report.render_json if options.output_format == "json" else report.render_text
    write_report(render(post_mortem), options)
    return CLEAN if post_mortem.is_explained else FINDINGS


def _read_pieces(path: str) -> Iterator[str]:
    """Yield the text of a log in pieces. Raise OSError."""
    from cfglint_train.foundation import regular_files

    return regular_files.decode_pieces(sys.stdin.buffer.read) if path == "-" else regular_files.read_pieces(path)


def _build_rows(run: Run | None, diagnoses: tuple[Diagnosis, ...]) -> Iterator[str]:
    """Yield the highest need of a GPU as a row. Raise UsageError if it cannot be used as evidence."""
    import json

    from cfglint_train.calibration import record
    from cfglint_train.calibration.logs import OUT_OF_MEMORY, Figure
    from cfglint_train.foundation.errors import UsageError
    from cfglint_train.foundation.sizes import format_gib

    messages = (item.message for item in diagnoses if item.message.kind == "gpu")
    needs = [message.needed for message in messages if message.allocated is not None]
    if run is None or not needs:
        raise UsageError("--row needs a configuration and a log in which torch states what was allocated")
    for compared in (item.comparison for item in diagnoses):
        if compared is not None and compared.is_contradicted:
            raise UsageError(
                f"--row: the log needs at least {format_gib(int(compared.needed))}, but {compared.phase.title} at most "
                f"{format_gib(compared.limit)}, so it is probably that of another run; check whether the job ran this "
                "configuration on as many GPUs, and if it did, run `cfglint calibrate record`"
            )
    rows = record.build_rows(run, [Figure("allocated", max(needs), OUT_OF_MEMORY, is_bound=True)])
    yield from (json.dumps(row, allow_nan=False) for row in rows)


def _add_fit(post_mortem: PostMortem, config: str, lint_options: Options) -> PostMortem:
    """Add the smallest change that fits the GPU of the log, without other processes and what the estimate lacks."""
    from cfglint_train import api
    from cfglint_train.postmortem.report import find_first_gpu

    first, room = find_first_gpu(post_mortem.diagnoses), None
    if first is not None and first.capacity is not None:
        compared, room = first.comparison, first.capacity
        if compared is not None:
            if compared.is_contradicted:
                return post_mortem
            room -= int(compared.shortage)
        if room <= 0:
            return post_mortem
        lint_options = lint_options.replace(gpu_memory=f"{room / 2**30:.3f}GiB")
    ladders = api.fit([config], lint_options).ladders
    return post_mortem._replace(alternatives=ladders[0] if len(ladders) == 1 else None, room=room)
