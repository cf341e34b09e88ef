"""KEY007 environment-variable: a variable that the launch sets is misspelt, refused, or disables what the run needs.

## What it does
Checks the environment variables that a launch script sets for the training program, also if the options of the
command are the configuration (`CUDA_LAUNCH_BLOCKING=1 llamafactory-cli train --stage sft ...`):

- `NCCL_*` and `TORCH_NCCL_*`: names that nothing reads but that resemble a known name, names that current releases no
  longer read, and words where a number is needed
- `PYTORCH_CUDA_ALLOC_CONF` and `PYTORCH_ALLOC_CONF`: options and values that torch refuses
- variables that switch off what the run needs, such as `NCCL_P2P_DISABLE`, or that are meant for debugging only

## Why is this bad?
A variable that is never read has no effect and causes no warning. NCCL reads `NCCL_IB_DISABLE=true` as 0, so it
changes nothing. torch refuses `expandable_segments=True` when the first tensor reaches the GPU.

## Example
    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments=True

## Use instead
    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

## When it does not apply
A plugin or fork of NCCL may read names of its own. Names that resemble no known name, and those of NVIDIA's RDMA and
SHARP plugin, are not reported.

## References
`environment.json` beside this module names the source and the releases of each name, option and effect.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.launched import list_launches
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Setting
from cfglint_train.findings.finding import Report, Severity
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.wording import find_similar
from cfglint_train.plan.origin import Place
from cfglint_train.runs.run import Run

RULE: Final = Rule("KEY007", "environment-variable", "warning", needs={"launch.environment": ()})

Problem = tuple[Severity, str, str]
"""The severity, the fault with its effect, and the remedy."""

# NCCL reads numbers with strtoll, which reads a word as 0.
_NUMBER: Final = compile_on_use(r"\s*[+-]?(0[xX][0-9a-fA-F]|\d).*")
_SIMILARITY: Final = 0.85
_DATA_CENTRE: Final = (8.0, 9.0, 10.0, 10.3)
"""Compute capabilities of A100, H100, B200 and B300, which copy directly over NVLink or PCIe."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report for each variable with a problem, once per variable and launch."""
    for document, invocation in _list_programs(run):
        settings = document.collect_environment(invocation)
        for setting in settings.values():
            for severity, fault, remedy in _find_problems(run, document, invocation, setting, settings):
                place = Place(document, invocation.span if setting.span is None else setting.span)
                yield Report(f"`{setting.name}={setting.text}`: {fault}", place, severity, help=remedy)


def _list_programs(run: Run) -> Iterator[tuple[ShellDocument, Invocation]]:
    """Yield the invocations that start a run: those of its launches, and the one that is its config."""
    main = run.inputs.main
    if isinstance(main.document, ShellDocument) and main.root:
        yield main.document, main.document.invocations[int(main.root[0])]
    yield from list_launches(main)


def _find_problems(
    run: Run, document: ShellDocument, invocation: Invocation, setting: Setting, settings: Mapping[str, Setting]
) -> Iterator[Problem]:
    table, text = _read_table(), setting.text
    if text is None or setting.assumption or not text.strip():
        return
    yield from _check_name(table["names"], setting.name, text)
    if setting.name in table["allocator"]["variables"]:
        yield from _check_allocator(table["allocator"]["options"], text)
    for row in table["effects"]:
        if row["variable"] == setting.name and re.fullmatch(row["value"], text.strip()):
            beside = row.get("beside", {})
            if not all(
                re.fullmatch(value, (settings[name].text or "") if name in settings else "")
                for name, value in beside.items()
            ):
                continue
            option = _find_option(document, invocation, row)
            if option is not None and _has_size(run, row):
                severity = row["severity"]
                if row.get("data_centre") and not _is_data_centre(run):
                    severity = "info"
                yield severity, row["effect"].replace("<option>", option), row["help"]


def _check_name(prefixes: Mapping[str, Mapping[str, Any]], name: str, text: str) -> Iterator[Problem]:
    """Yield what is wrong with a name or the number behind it."""
    prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), None)
    if prefix is None:
        return
    row, end = prefixes[prefix], name.removeprefix(prefix)
    reader, names = row["reader"], row["known"].split()
    if end in row["removed"]:
        yield "warning", f"{reader} reads it up to {row['removed'][end]} only, so it has no effect", "remove it"
    elif end in names:
        if end in row["numbers"].split() and not _NUMBER.fullmatch(text):
            yield "warning", f"{reader} expects a number and reads this as 0", "write `1` or `0`"
    # torch reads its variables without `TORCH_`, too
    elif end not in (*row["plugins"].split(), *prefixes["TORCH_NCCL_"]["known"].split()):
        similar = find_similar(end, names, _SIMILARITY)
        if similar is not None:
            yield (
                "warning",
                f"no release of {reader} reads it, so it has no effect",
                f"did you mean `{prefix}{similar}`?",
            )


def _check_allocator(options: Mapping[str, str], text: str) -> Iterator[Problem]:
    """Yield the first option or value that torch's allocator refuses. It accepts a spare comma."""
    for part in filter(None, re.split(r",(?![^\[]*\])", text.replace(" ", ""))):
        name, colon, value = part.partition(":")
        kind = options.get(name)
        if kind is None:
            stem = re.match(r"\w*", name)
            similar = find_similar(stem.group() if stem is not None else name, options, _SIMILARITY)
            remedy = f"use one of {', '.join(sorted(options))}"
            if similar is not None:
                remedy = f"write `{similar}:{_VALUES[options[similar]][1]}`"
            yield "error" if similar is not None else "warning", f"torch refuses the option `{name}`", remedy
            return
        if not colon or not _VALUES[kind][0].fullmatch(value):
            yield "error", f"torch refuses this value of `{name}`", f"write `{name}:{_VALUES[kind][1]}`"
            return


_VALUES: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "switch": (compile_on_use("True|False"), "True"),
    "size": (compile_on_use(r"[2-9]\d|\d{3,}"), "512"),
    "fraction": (compile_on_use(r"0?\.\d*[1-9]\d*"), "0.8"),
    "backend": (compile_on_use("native|cudaMallocAsync|hipMallocAsync"), "native"),
    "text": (compile_on_use(".+"), "VALUE"),
}
"""Values that torch accepts, and an example, by the kind of the option."""


def _find_option(document: ShellDocument, invocation: Invocation, row: Mapping[str, Any]) -> str | None:
    """Return the option that an effect needs, "" if it needs none, or None if the launch lacks it."""
    if "launcher" not in row:
        return ""
    for launcher in document.list_launchers(invocation):
        if launcher.program == row["launcher"]:
            return next((option for option in row["options"] if launcher.get(option) is not None), None)
    return None


def _has_size(run: Run, row: Mapping[str, Any]) -> bool:
    """Return whether a run has the nodes and the GPUs per node that an effect needs."""
    nodes, gpus = run.plan.launch.nodes or 1, run.plan.launch.gpus_per_node or 1
    return bool(nodes >= row.get("nodes", 1) and gpus >= row.get("gpus", 1))


def _is_data_centre(run: Run) -> bool:
    """Return whether the stated GPU copies directly between the GPUs of a node."""
    hardware = run.hardware
    return hardware.gpu_origin.kind != "assumed" and hardware.compute_capability in _DATA_CENTRE


@cache
def _read_table() -> Mapping[str, Any]:
    with open(os.path.join(os.path.dirname(__file__), "environment.json"), encoding="utf-8") as file:
        table: Mapping[str, Any] = json.load(file)
    return table
