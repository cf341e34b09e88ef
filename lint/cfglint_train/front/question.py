"""`cfglint estimate --model NAME`: the estimate of a run that flags describe, made from a minimal configuration."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from cfglint_train import api
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.wording import format_count, suggest_name
from cfglint_train.front import starter
from cfglint_train.front.commands import estimation
from cfglint_train.front.commands.options import build_options
from cfglint_train.front.commands.outcome import CLEAN, TROUBLE
from cfglint_train.front.commands.output import (
    format_troubles,
    format_verbose,
    print_remarks,
    report_gaps,
    sanitize,
    write_report,
)
from cfglint_train.hardware import gpus
from cfglint_train.judging import dispatch
from cfglint_train.judging.remedies import attach_edits
from cfglint_train.models import lookup
from cfglint_train.models.names import get_component
from cfglint_train.plan.names import Field
from cfglint_train.request import Options, build_request
from cfglint_train.runs.run import ASSUMED_GPUS

if TYPE_CHECKING:
    from cfglint_train.judging.result import Result
    from cfglint_train.runs.run import Run

ADAPTERS: Final = ("lora", "qlora")
LENGTH: Final = 4096
_PREFERRED: Final = "axolotl"
"""Default framework, unless it does not support the method."""


class Question(Frozen):
    """The run that the flags of `cfglint estimate` describe, with assumptions for flags that are not set."""

    framework: str
    path: str
    words: frozenset[str]
    """Method, precision and sharding, which select the lines of the starter text."""
    changes: dict[Field, Any]
    facts: dict[str, str]
    """Facts about the cluster for the pragma of the file."""
    assumptions: dict[str, tuple[Field, ...]]
    """Descriptions of values that no flag states, with the affected fields."""

    @property
    def note(self) -> str:
        """All assumptions in one line."""
        return ", ".join(self.assumptions)


def answer_question(options: Any, axes: Sequence[Any]) -> int:
    """Print the requested budget; with `--write`, also save the configuration. Raise UsageError."""
    _check_exclusive(options)
    lint_options = build_options(options)
    build_request([], lint_options, None)  # reject invalid facts before they are written
    question = build_question(options, lint_options)
    if options.write:
        _check_new(question.path, question.framework)
    text, result = lint_question(
        question, lint_options, full=options.output_format == "html" or options.write is not None
    )
    print_remarks([*format_troubles(result), *format_verbose(result, options)])
    runs = tuple(_mark_assumed(run, question) for run in result.runs)
    if result.troubles or not runs:
        return TROUBLE
    _check_model(runs[0], options)
    report = estimation.render_report(
        runs, axes, options.output_format, result._replace(runs=runs), estimation.choose_style(options)
    )
    write_report(report, options)
    if options.write:
        print_remarks(save_config(question.path, text, result))
    return CLEAN if report_gaps(runs) else TROUBLE


def build_question(options: Any, lint_options: Options) -> Question:
    """Build the question from the flags. Raise UsageError."""
    assumptions: dict[str, tuple[Field, ...]] = {}

    def read_flag(flag: str, default: Any, description: str, *fields: Field) -> Any:
        value = getattr(options, flag)
        if value is None:
            assumptions[f"{description.format(default)} (`--{flag}`)"] = fields
        return default if value is None else value

    method = read_flag("method", "lora", "{}", "method.tuning")
    framework, path = _choose_framework(options, method)
    if not options.write:
        read_flag("framework", framework, "{} trains")
    path = path or f"{get_component(options.model) or 'model'}-{method}.yaml"
    if not path.endswith((".yaml", ".yml")) or not path.isprintable():
        raise UsageError(f"--write {framework}={path}: {framework} reads YAML; name a file that ends in .yaml")
    changes: dict[Field, Any] = {
        "model.id": options.model,
        "sequence.length": read_flag(
            "length", _choose_length(options.model), "sequences of {:,} tokens", "sequence.length"
        ),
        "batch.micro": read_flag("micro", 1, "micro batch {}", "batch.micro"),
        "batch.accumulation": read_flag("accumulation", 8, "accumulation {}", "batch.accumulation"),
        **_find_optimizer(read_flag("optimizer", "adamw_torch_fused", "{}", "optimizer.name")),
        "activations.checkpointing": "none" if options.no_checkpointing else "full",
    }
    facts = _collect_facts(path, lint_options)
    precision = read_flag("precision", _choose_precision(facts.get("gpu")), "{}", "precision.compute")
    if method in ADAPTERS:
        rank = read_flag("rank", 16, "rank {}", "method.lora_rank")
        changes |= {"method.lora_rank": rank, "method.lora_alpha": 2 * rank}
        if starter.can_write(framework, "model.dtype"):
            changes["model.dtype"] = precision  # base weights of adapters are kept in 16 bits
    elif options.rank is not None:
        raise UsageError(f"--rank is for {' and '.join(ADAPTERS)}, not for {method}")
    if not options.no_checkpointing:
        assumptions["activation checkpointing (`--no-checkpointing`)"] = ("activations.checkpointing",)
    sharding = "zero" if options.zero else "fsdp" if options.fsdp else "whole"
    if options.zero:
        changes["parallel.zero_stage"] = options.zero
    is_sharded = sharding != "whole" or facts.get("nodes", "1") != "1"
    if "nodes" not in facts:
        facts["nodes"] = "1"
        assumptions["1 node (`--nodes`)"] = ("launch.nodes",)
    if "gpus-per-node" not in facts:
        gpus_per_node = ASSUMED_GPUS if is_sharded else 1
        facts["gpus-per-node"] = str(gpus_per_node)
        assumptions[f"{format_count(gpus_per_node, 'GPU')} per node (`--gpus-per-node`)"] = ("launch.gpus_per_node",)
    words = frozenset((method, precision, sharding, f"{sharding}{options.zero or ''}"))
    return Question(framework, path, words, changes, facts, assumptions)


def _choose_framework(options: Any, method: str) -> tuple[str, str]:
    """Return a framework that supports a method, and the path in `--write` or an empty string."""
    framework, _, path = (options.write or options.framework or "").partition("=")
    if options.write and options.framework not in (None, framework):
        raise UsageError(f"--framework {options.framework} contradicts --write {options.write}")
    frameworks = starter.list_starter_frameworks()
    if framework and framework not in frameworks:
        raise _build_unknown_error("framework", framework, frameworks)
    if method not in starter.METHODS:
        raise _build_unknown_error("method", method, starter.METHODS)
    supporting = [
        name for name in sorted(frameworks, key=lambda name: name != _PREFERRED) if method in starter.list_methods(name)
    ]
    if framework and framework not in supporting:
        raise UsageError(f"{framework} does not support --method {method}; use {' or '.join(supporting)}")
    return framework or supporting[0], path


def lint_question(question: Question, lint_options: Options, full: bool = False) -> tuple[bytes, Result]:
    """Return the configuration of a question and the result of its lint, which has findings only with `full`.

    Raise UsageError.
    """
    skeleton = starter.build_skeleton(question.framework, question.words, question.path, question.facts)
    api_request = build_request([question.path], lint_options, {question.path: skeleton})
    text = starter.fill_plan_fields(api_request.workspace, question.path, question.changes)
    # Reuse the workspace, so that the repository is not read again.
    workspace = api_request.workspace.replace_files({question.path: text})
    return text, attach_edits(
        dispatch.lint(
            workspace, api_request.files, api_request.options if full else api_request.options._replace(select=())
        )
    )


def save_config(path: str, text: bytes, result: Result) -> Iterator[str]:
    """Write a new file, and yield lines about the remaining work. Raise OSError, for example if the file exists."""
    from cfglint_train.foundation import atomic

    atomic.commit(atomic.stage_new(path, text))
    yield f"wrote {sanitize(path)}; fill in before you run it:"
    yield from (f"  line {number}: {sanitize(line)}" for number, line in starter.find_placeholders(text))
    problems = [finding for finding in result.findings if finding.severity != "info"]
    if problems:
        yield f"{format_count(len(problems), 'problem')} in it: run `cfglint {sanitize(path)}`"


def _check_exclusive(options: Any) -> None:
    """Raise UsageError if `--model` or `--write` is combined with a flag that it excludes."""
    files = {"a file": options.paths, "--plan": options.plan, "--stdin-filename": options.stdin_filename}
    clash = next((name for name, value in files.items() if value), None)
    if clash is not None:
        raise UsageError(f"--model estimates without a file and cannot be used with {clash}")
    if options.write and options.set:
        raise UsageError("--write cannot be used with --set; it saves only settings that have their own flag")


def _check_new(path: str, framework: str) -> None:
    """Raise UsageError if no new file can be created at a path."""
    if os.path.lexists(path):
        raise UsageError(f"{path} already exists; name another file with --write {framework}=FILE")
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise UsageError(f"--write {framework}={path}: there is no folder {folder}")


def _collect_facts(path: str, lint_options: Options) -> dict[str, str]:
    """Return the facts about cluster and releases from flags and settings. Raise FactError."""
    from cfglint_train.settings.cluster_facts import HARDWARE_FACTS, merge_facts

    settings = api.settings(lint_options, path).collect_facts(path)
    flags = {
        name: value for name in HARDWARE_FACTS if (value := getattr(lint_options, name.replace("-", "_"))) is not None
    }
    return merge_facts(settings, {**flags, **lint_options.releases})


def _choose_precision(gpu: str | None) -> str:
    """Return the default precision on a GPU: fp16 if its compute capability is below 8.0, or else bf16."""
    card = None if gpu is None else gpus.find_gpu(gpu)
    return "fp16" if card is not None and card.capability is not None and card.capability < (8, 0) else "bf16"


def _choose_length(model: str) -> int:
    """Return the default number of tokens per sequence, at most the context length of the model."""
    architecture = lookup.find_entry(model)
    return min(LENGTH, architecture.context or LENGTH) if architecture is not None else LENGTH


def _find_optimizer(name: str) -> dict[Field, Any]:
    from cfglint_train.frameworks.hf_trainer.optimizers import OPTIMIZERS

    if name not in OPTIMIZERS:
        raise _build_unknown_error("optimizer", name, tuple(OPTIMIZERS))
    return dict(OPTIMIZERS[name])


def _mark_assumed(run: Run, question: Question) -> Run:
    """Return the run with all values that no flag states marked as assumed."""
    fields = [field for assumed_fields in question.assumptions.values() for field in assumed_fields]
    return run.assume_fields(
        {field: question.note for field in fields if run.stated_plan.get_origin(field) is not None}
    )


def _check_model(run: Run, options: Any) -> None:
    """Raise UsageError if the shape of the model is unknown."""
    if run.architecture is not None:
        return
    if run.model_problem is not None:
        raise UsageError(run.model_problem)
    names = lookup.suggest_ids(options.model)
    hint = f"did you mean {' or '.join(names)}? Otherwise, state its shape" if names else "state its shape"
    raise UsageError(f"unknown model {options.model}; {hint} with --model-config FILE, or ask the Hub with --online")


def _build_unknown_error(kind: str, name: str, choices: Iterable[str]) -> UsageError:
    return UsageError(f"unknown {kind} {name}; {suggest_name(name.lower(), choices, 'known: ' + ', '.join(choices))}")
