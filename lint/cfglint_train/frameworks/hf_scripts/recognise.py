"""Which Python scripts train a causal language model, with the Trainer of transformers or in another way than TRL's."""

from __future__ import annotations

import ast
import os
import re

from cfglint_train.documents.document import Document
from cfglint_train.documents.python.class_variables import calls_by_variable
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.script import callee
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.framework import Found

if TYPE_CHECKING:
    from cfglint_train.frameworks.trl.script import Settings

_SCORE: Final = 55
_LIBRARIES: Final = frozenset(("transformers", "liger_kernel"))
_CAUSAL: Final = ("ForCausalLM", "LMHeadModel", "ForCausalLMWithValueHead")
"""Ends of the names of classes that load causal language models."""
_CAUSAL_CLASS: Final = re.compile(rb"ForCausalLM|LMHeadModel|CAUSAL_LM")
_TUNED: Final = re.compile(_CAUSAL_CLASS.pattern + rb"|\b(?:SFT|DPO|GRPO|PPO|RM|Reward)Trainer\b")
"""What shows that a model of an own class is a language model: a class of such models, or a trainer that is named after
how they are tuned.
"""
_LANGUAGE_MODEL: Final = re.compile(
    _TUNED.pattern + rb"|\bmlm\s*=\s*False|(?i:deepseek|gemma|gpt-?(?:2|j|neo)|llama|mistral|mixtral|olmo|pythia|qwen)"
)
"""What shows that a model which something else makes is a language model."""
_TRAINED_WITH: Final = ("transformers", "trl")
_OTHERS: Final = ("olmo_core",)
"""Packages whose scripts other frameworks read, and which make trainers of their own."""


def recognise(document: Document) -> list[Found]:
    """Each Trainer that a script makes. What trains a causal language model and cannot be read is named with the
    reason.
    """
    if not isinstance(document, PythonDocument):
        return []
    from cfglint_train.frameworks.trl.script_names import HF_TRAINERS, TRAINERS
    from cfglint_train.frameworks.trl.script_runs import makes_trainer, packages, replaced_by, unreached

    modules = packages(document)
    if not modules.intersection(_TRAINED_WITH) or modules.intersection(_OTHERS):
        return []
    if "trl" in modules and makes_trainer(document, TRAINERS):
        return []
    replacing = replaced_by(modules, "hf_scripts")
    if replacing is not None:
        return [Found((), _SCORE, f"{replacing} replaces the Trainer", "other")]
    if not makes_trainer(document, HF_TRAINERS):
        return _by_other_means(document, modules)
    runs = _runs(document)
    if not runs and _CAUSAL_CLASS.search(document.source):
        return unreached(document, HF_TRAINERS, _SCORE)
    return [_found(document, number, one) for number, one in enumerate(runs)]


def _found(document: Document, number: int, run: Settings) -> Found:
    from cfglint_train.frameworks.trl.script_runs import role_of

    module, _, name = run.model.rpartition(".")
    causal = module.partition(".")[0] in _LIBRARIES and name.endswith(_CAUSAL)
    other = "" if causal else "it cannot be determined that its Trainer gets a causal language model"
    reason = run.refused or other
    if not reason:
        return Found((number,), _SCORE, "it makes a Trainer of transformers")
    # A class of transformers of another kind is one of another kind of model; PEFT's classes are for any, and a class
    # of another module may hold a language model.
    is_open = not run.model or module.partition(".")[0] == "peft"
    is_own = bool(run.model) and module.partition(".")[0] not in _LIBRARIES
    trains = causal or (is_open and _LANGUAGE_MODEL.search(document.source) is not None)
    trains = trains or (is_own and _TUNED.search(document.source) is not None)
    return Found((number,), _SCORE, reason, (role_of(run) or "unread") if trains else "other", run.span)


def _by_other_means(document: PythonDocument, modules: set[str]) -> list[Found]:
    """A run of a trainer from another module, or of a loop in the script, where a causal language model is in sight: by
    its class, or by a part of TRL, which trains hardly anything else.
    """
    in_sight = "trl" in modules or _CAUSAL_CLASS.search(document.source) is not None
    if not in_sight or os.path.basename(document.path).startswith("test_"):
        return []
    from cfglint_train.frameworks.trl.script_runs import undetermined

    imported = _imported(document)
    for call in _with_arguments(document.calls(*imported) if imported else []):
        why = f"its trainer (`{callee(call)}`) is of another module"
        return [Found((), _SCORE, why, "unread", document.span(call))]
    for call in _with_arguments(calls_by_variable(document, imported)):
        return [Found((), _SCORE, undetermined(document, call), "unread", document.span(call))]
    backward, stepping = document.calls("backward"), document.calls("step")
    loads = any(callee(call).endswith(_CAUSAL) or _loads(call) for call in document.nodes(ast.Call))
    if backward and stepping and loads:
        why = f"its training loop is its own (`{document.cut(document.span(backward[0].func))}`)"
        return [Found((), _SCORE, why, "unread", document.span(backward[0]))]
    for call in document.calls("train") if loads else ():
        trainer = document.cut(document.span(call.func))
        if "trainer" in trainer.lower():
            why = f"what trains it (`{trainer}`) is of another module"
            return [Found((), _SCORE, why, "unread", document.span(call))]
    return []


def _loads(call: ast.Call) -> bool:
    """Whether a call makes a causal language model of a class of transformers (`AutoModelForCausalLM.from_config`)."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in ("from_pretrained", "from_config"):
        return False
    owner = function.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return str(name).endswith(_CAUSAL)


def _imported(document: PythonDocument) -> set[str]:
    """The trainers that the script imports, by name or with all that a module has."""
    names = [one for node in document.nodes(ast.ImportFrom) for one in node.names]
    found = {one.asname or one.name for one in names if "Trainer" in one.name}
    if any(one.name == "*" for one in names):
        own = {node.name for node in document.nodes(ast.ClassDef)}
        called = map(callee, document.nodes(ast.Call))
        found |= {name for name in called if name.endswith("Trainer") and name not in own}
    return found


def _with_arguments(calls: list[ast.Call]) -> list[ast.Call]:
    """The calls that get arguments of training (`args`)."""
    return [call for call in calls if any(keyword.arg == "args" for keyword in call.keywords)]


def prepare(document: Document) -> None:
    """The calls of a script are read as runs."""
    _runs(document)


def _runs(document: Document) -> list[Settings]:
    from cfglint_train.frameworks.trl import script_runs

    return script_runs.prepare(document, plain=True)
