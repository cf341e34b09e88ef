"""Job files: GPUs that SkyPilot, dstack, Kubernetes and Modal files request.

A job file applies to the configs that it names; the nearest file wins. A job file describes only its
own job, and the config may also be started elsewhere, so every value read here is an assumption.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.roots import measure_distance
from cfglint_train.foundation.typed import Final
from cfglint_train.hardware import gpus
from cfglint_train.plan.origin import FieldValue, Origin
from cfglint_train.repository.index import RepositoryIndex


class JobFile(Frozen):
    """A file that requests GPUs."""

    path: str
    text: str
    facts: Mapping[str, tuple[str | int, int]]
    """Fact (gpu, gpus-per-node, nodes) -> its value and line."""


def read_requested_gpus(index: RepositoryIndex, path: str) -> Mapping[str, FieldValue]:
    """Return the cluster facts in the nearest job file that names a config, all assumed.

    The result is empty if no job file names the config, or if equally near files request different GPUs.
    """
    name, folder = os.path.basename(path), os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
    naming = [job for job in index.compute_once(_list_jobs) if name in job.text and _is_named_in(name, job.text)]
    distances = {job.path: measure_distance(folder, os.path.dirname(job.path)) for job in naming}
    nearest = [job for job in naming if distances[job.path] == min(distances.values())]
    if len({tuple((fact, value) for fact, (value, _) in job.facts.items()) for job in nearest}) != 1:
        return {}
    job = nearest[0]
    return {fact: _build_assumption(fact, value, job.path, line) for fact, (value, line) in job.facts.items()}


def _is_named_in(name: str, text: str) -> bool:
    """Return whether `text` contains a file's name, other than as part of a longer name."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None


def _build_assumption(fact: str, value: str | int, path: str, line: int) -> FieldValue:
    thing = f"{value} GPUs" if fact == "gpu" else f"{fact.replace('-', ' ').replace('gpus', 'GPUs')}: {value}"
    note = f"{thing}, as {os.path.basename(path)}:{line} requests; set `{fact}` to be sure"
    return FieldValue(value, Origin("user", note=os.path.basename(path), assumption=note))


def _list_jobs(index: RepositoryIndex) -> list[JobFile]:
    jobs = []
    for path, text in index.read_texts("jobs"):
        facts = _read_modal_job(text) if path.endswith(".py") else _read_yaml_job(text)
        if facts:
            jobs.append(JobFile(path, text, facts))
    return jobs


# --- YAML ------------------------------------------------------------------------------------------------------------

# Pattern of a line that captures a value -> the fact that it states (`card`: a GPU with an optional count), and a
# string that the file must also contain.
_END: Final = r"[\"']?\}?[ \t]*(?:#.*)?$"
_BEFORE: Final = r"(?:[^#\n]*[ \t{,])[\"']?"
_MORE: Final = r"(?:[\"']?[ \t]*[},][^#\n]*)?"
_LINES: Final[Mapping[str, tuple[str, str]]] = {
    # SkyPilot: `resources: {accelerators: A100-80GB:8}` and `num_nodes: 2`.
    r"[ \t]+accelerators:[ \t]*\{?[\"']?([A-Za-z][\w-]*(?:[ \t]*:[ \t]*\d+)?)": ("card", "accelerators:"),
    r"num_nodes:[ \t]*(\d+)": ("nodes", "accelerators:"),
    # dstack: `resources: gpu: H100:80GB:8` and `nodes: 2` of a task.
    r"[ \t]+gpu:[ \t]*[\"']?([A-Za-z0-9][\w-]*(?::\d+GB)?(?::\d+)?)": ("card", "type: task"),
    r"nodes:[ \t]*(\d+)": ("nodes", "type: task"),
    # Kubernetes: limits of a container, and the label of a node, each on its own line or in braces.
    rf"{_BEFORE}nvidia\.com/gpu[\"']?:[ \t]*[\"']?(\d+){_MORE}": ("gpus-per-node", "nvidia.com/gpu"),
    rf"{_BEFORE}nvidia\.com/gpu\.product[\"']?:[ \t]*[\"']?([\w-]+){_MORE}": ("name", "nvidia.com/gpu"),
    rf"{_BEFORE}cloud\.google\.com/gke-accelerator[\"']?:[ \t]*[\"']?([\w-]+){_MORE}": ("name", "nvidia.com/gpu"),
}


def _read_yaml_job(text: str) -> dict[str, tuple[str | int, int]]:
    values_by_fact: dict[str, set[tuple[str | int, int]]] = {}
    for pattern, (fact, required_text) in _LINES.items():
        for match in re.finditer(f"(?m)^{pattern}{_END}", text) if required_text in text else ():
            line = text.count("\n", 0, match.start(1)) + 1
            facts = _parse_gpu(match[1], fact == "card") if fact in ("card", "name") else {fact: int(match[1])}
            for name, value in facts.items():
                values_by_fact.setdefault(name, set()).add((value, line))
    return {
        name: min(values, key=lambda item: item[1])
        for name, values in values_by_fact.items()
        if len({value for value, _ in values}) == 1
    }


def _parse_gpu(text: str, has_count: bool) -> dict[str, str | int]:
    """Return the GPU and (if `has_count`) the count, default 1, of `A100-80GB:8`, `A100:80GB:8`, `H100` or `80GB:4`."""
    parts = [part.strip() for part in text.split(":")]
    count = int(parts.pop()) if len(parts) > 1 and parts[-1].isdigit() else 1
    name = "-".join(parts)
    gpu = gpus.find_gpu(name) or gpus.find_gpu(parts[0])
    size = re.fullmatch(r"\d+GB", name)
    if (gpu is None and size is None) or not count:
        return {}
    gpu_name = (
        name if size is not None or gpu is None else gpus.get_family(gpu) if gpus.find_smaller(name, gpu) else gpu.name
    )
    return {"gpu": gpu_name, "gpus-per-node": count} if has_count else {"gpu": gpu_name}


# --- Modal -----------------------------------------------------------------------------------------------------------


def _read_modal_job(text: str) -> dict[str, tuple[str | int, int]]:
    """Return the GPUs that a file's training functions request, or nothing if their requests differ."""
    if "gpu=" not in text:
        return {}
    from cfglint_train.releases.pins.modal import find_gpu_requests

    lines_by_facts: dict[tuple[tuple[str, str | int], ...], int] = {}
    for words, line in find_gpu_requests(text):
        lines_by_facts.setdefault(tuple(_parse_gpu(words, has_count=True).items()), line)
    if len(lines_by_facts) != 1:
        return {}
    ((facts, line),) = lines_by_facts.items()
    return {name: (value, line) for name, value in facts}
