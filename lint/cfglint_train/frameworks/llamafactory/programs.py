"""LLaMA-Factory configurations that a Python program or notebook builds: it writes them to a file, or calls `run_exp`.

Source: LLaMA-Factory 0.9.5 train/tuner.py (run_exp), hparams/parser.py (read_args: a dictionary is parsed as it is).
"""

from __future__ import annotations

import ast

from cfglint_train.documents.document import Sequence, Span, Unknown
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.walk import Walk
from cfglint_train.documents.python.tree import Record, Value, find_condition
from cfglint_train.documents.python.values import Arguments, Function, prune_tree
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script.line import make_mapping

_WRITERS: Final = ("json.dump", "json.dumps", "yaml.dump", "yaml.safe_dump")
_RUNNERS: Final = ("llamafactory.train.tuner.run_exp", "llamafactory.train.run_exp", "llmtuner.run_exp")
_LAUNCHES: Final = (b"run_exp", b"llamafactory-cli")
_TRAINERS: Final = (b"SFTTrainer", b"DPOTrainer", b"GRPOTrainer", b"Trainer(")


class _ConfigWalk(Walk):
    """A walk that keeps the dictionaries which the program writes or trains with."""

    def __init__(self, *arguments: Any) -> None:
        """Start without configurations."""
        super().__init__(*arguments)
        self.configs: list[Record] = []


def _keep_config(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Any:
    """Handle `json.dump(config, file)` and `run_exp(config)`."""
    value = arguments.positional[0] if arguments.positional else arguments.get("args") or arguments.get("data")
    is_complete = isinstance(value, Record) and value.call is None and not value.open and not value.implicit
    if is_complete and isinstance(evaluator, _ConfigWalk) and find_condition(value) is None:
        copy = evaluator.copy_record(value)
        copy.sealed = value.sealed or "it is a dictionary"
        if all(copy.entries != present.entries for present in evaluator.configs):
            evaluator.configs.append(copy)
    return None


_HANDLERS: Final = {"dict": make_mapping, **dict.fromkeys((*_WRITERS, *_RUNNERS), _keep_config)}


def read_programs(document: PythonDocument) -> list[Record]:
    """Return the configurations that a program builds; the first call attaches them to the document as its tree."""
    if document.root is None and _is_candidate(document):
        walk = _ConfigWalk(document, _HANDLERS, {}, {})
        walk.run()
        if not walk.configs:
            for function in [value for value in walk.module.names.values() if isinstance(value, Function)]:
                if id(function.node) not in walk.entered_functions:
                    walk.enter_function(function)
            walk.configs = [config for config in walk.configs if _names_model(config)]
        configs = [] if walk.is_exhausted else [pruned for item in walk.configs if (pruned := prune_tree(item))]
        if configs:
            document.attach_tree(Sequence(Span(0, len(document.source)), [*configs], True))
    items = document.root.items if isinstance(document.root, Sequence) else []
    return [item for item in items if type(item) is Record]


def _names_model(config: Record) -> bool:
    """Return whether a configuration states its model, rather than getting it as an argument."""
    entry = config.get("model_name_or_path")
    return entry is None or (isinstance(entry.value, Value) and not isinstance(entry.value.value, Unknown))


def _is_candidate(document: PythonDocument) -> bool:
    """Return whether a program may start LLaMA-Factory with settings of its own, and has no trainer itself."""
    source = document.source
    commands = getattr(document, "commands", "").encode()
    return any(name in source or name in commands for name in _LAUNCHES) and not any(
        name in source for name in _TRAINERS
    )
