"""Which Python scripts train a causal language model, with the Trainer of transformers or in another way than TRL's."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable

from cfglint_train.documents.document import Document
from cfglint_train.documents.python.class_variables import calls_by_variable
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.static.modules import imports, module_of
from cfglint_train.documents.python.syntax import callee
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.framework import Found
from cfglint_train.frameworks.hf_scripts.model_sources import gives, imported_source, models
from cfglint_train.frameworks.trainer_script.runs import packages

if TYPE_CHECKING:
    from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

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
_SCORED: Final = ("ForSequenceClassification",)
_REWARD: Final = re.compile(rb"\b(?:RM|Reward)Trainer\b")
"""What shows that a language model is made to score texts, which classes of other models do, too."""
_READS_TEXT: Final = re.compile(rb"\bvocab_size\b|(?i:tokenizer)")
"""What shows that the model of a loop with DeepSpeed is one of texts."""
_OPTIMIZERS: Final = ("optimizer", "optim")
_HANDED: Final = "its model comes from another module"
_TRAINED_WITH: Final = ("transformers", "trl", "deepspeed", "accelerate")
_OTHERS: Final = ("olmo_core",)
"""Packages whose scripts other frameworks read, and which make trainers of their own."""


def recognise(document: Document) -> list[Found]:
    """Each Trainer that a script makes. What trains a causal language model and cannot be read is named with the
    reason.
    """
    if not isinstance(document, PythonDocument):
        return []
    from cfglint_train.frameworks.trainer_script.names import HF_TRAINERS, TRAINERS
    from cfglint_train.frameworks.trainer_script.runs import makes_trainer, replaced_by, unreached

    modules = packages(document)
    if modules.isdisjoint(_TRAINED_WITH) or not modules.isdisjoint(_OTHERS):
        return []
    if "trl" in modules and makes_trainer(document, TRAINERS):
        return []
    replacing = replaced_by(modules, "hf_scripts")
    if replacing is not None:
        return [Found((), _SCORE, f"{replacing} replaces the Trainer", "other")]
    if not makes_trainer(document, HF_TRAINERS):
        return _by_other_means(document, modules)
    runs = _runs(document)
    if not runs and (_CAUSAL_CLASS.search(document.source) or _imported_model(document)):
        return unreached(document, HF_TRAINERS, _SCORE)
    if not runs and any(_is_of_transformers(document, name) for name in HF_TRAINERS):
        return [one._replace(why=_HANDED, role="handed") for one in unreached(document, HF_TRAINERS, _SCORE)]
    return [_found(document, number, one) for number, one in enumerate(runs)]


def _is_of_transformers(document: PythonDocument, name: str) -> bool:
    """Whether a script imports a name from transformers."""
    return any(module.partition(".")[0] == "transformers" for module, _ in imports(document, name))


def _found(document: PythonDocument, number: int, run: ScriptSettings) -> Found:
    from cfglint_train.frameworks.trainer_script.runs import role_of

    module, _, name = run.model.rpartition(".")
    causal = module.partition(".")[0] in _LIBRARIES and name.endswith(_CAUSAL)
    if causal and not run.refused:
        return Found((number,), _SCORE, "it makes a Trainer of transformers")
    # A class of transformers of another kind is one of another kind of model; PEFT's classes are for any, and a class
    # of another module may hold a language model.
    is_open = not run.model or module.partition(".")[0] == "peft"
    is_own = bool(run.model) and module.partition(".")[0] not in _LIBRARIES
    trains = causal or (is_open and _LANGUAGE_MODEL.search(document.source) is not None)
    trains = trains or (is_own and _TUNED.search(document.source) is not None)
    trains = trains or (name.endswith(_SCORED) and _REWARD.search(document.source) is not None)
    other = "it cannot be determined that its Trainer gets a causal language model"
    if not trains and (is_open or is_own) and (source := _imported_model(document)):
        trains, other = True, f"its model comes from another module (`{source}`)"
    if not trains and is_open:
        return Found((number,), _SCORE, run.refused or _HANDED, "handed", run.span)
    return Found((number,), _SCORE, run.refused or other, (role_of(run) or "unread") if trains else "other", run.span)


def hands(document: PythonDocument, path: str) -> bool:
    """Whether a script gives a causal language model to what it imports from a file."""
    return gives(document, path, _CAUSAL_CLASS)


def _imported_model(document: PythonDocument) -> str:
    """What the script imports from its repository to make the model of its Trainers, where that makes a causal language
    model; empty where nothing does.
    """
    from cfglint_train.frameworks.trainer_script.names import HF_TRAINERS
    from cfglint_train.frameworks.trainer_script.runs import made

    return _imported_causal(document, [model for call in made(document, HF_TRAINERS) for model in models(call)])


def _imported_causal(document: PythonDocument, used: Iterable[ast.expr]) -> str:
    return imported_source(document, used, _CAUSAL_CLASS)


def _by_other_means(document: PythonDocument, modules: set[str]) -> list[Found]:
    """A run of a trainer from another module, or of a loop in the script, where a causal language model is in sight: by
    its class, be it where another module makes it, or by a part of TRL, which trains hardly anything else.
    """
    if os.path.basename(document.path).startswith("test_"):
        return []
    from cfglint_train.frameworks.trainer_script.runs import made, undetermined

    in_sight = "trl" in modules or _CAUSAL_CLASS.search(document.source) is not None
    imported = _imported(document)
    for call in _with_arguments(made(document, imported)):
        if in_sight or _imported_causal(document, models(call)):
            why = f"its trainer (`{callee(call)}`) is of another module"
            return [Found((), _SCORE, why, "unread", document.span(call))]
    for call in _with_arguments(calls_by_variable(document, imported)) if in_sight else ():
        return [Found((), _SCORE, undetermined(document, call), "unread", document.span(call))]
    backward, stepping = document.calls("backward"), document.calls("step")
    loads = any(callee(call).endswith(_CAUSAL) or _loads(call) for call in document.nodes(ast.Call))
    if backward and stepping and (loads or (_is_program(document) and _trains_language_model(document, backward))):
        why = f"its training loop is its own (`{document.cut(document.span(backward[0].func))}`)"
        return [Found((), _SCORE, why, "unread", document.span(backward[0]))]
    for call in document.calls("train"):
        trainer = document.cut(document.span(call.func))
        if "trainer" in trainer.lower() and (loads or _imported_causal(document, [call])):
            why = f"what trains it (`{trainer}`) is of another module"
            return [Found((), _SCORE, why, "unread", document.span(call))]
    for call in _with_optimizer(document) if loads and b"__main__" in document.source else ():
        why = f"what steps its optimizer (`{callee(call)}`) is of another module"
        return [Found((), _SCORE, why, "unread", document.span(call))]
    return []


def _with_optimizer(document: PythonDocument) -> list[ast.Call]:
    """The calls of what the script imports from its repository that get an optimizer by its name."""
    calls = [call for call in document.nodes(ast.Call) if any(word.arg in _OPTIMIZERS for word in call.keywords)]
    return [call for call in calls if isinstance(call.func, ast.Name) and _is_of_repository(document, call.func.id)]


def _is_of_repository(document: PythonDocument, name: str) -> bool:
    return any(module_of(document, module) is not None for module, _ in imports(document, name))


def _is_program(document: PythonDocument) -> bool:
    """Whether a file does something by itself, and is not only imported."""
    return b"__main__" in document.source or any(isinstance(node, ast.Expr) for node in document.module.body[1:])


def _trains_language_model(document: PythonDocument, backward: list[ast.Call]) -> bool:
    """Whether the loop of a program trains a causal language model of another module; with DeepSpeed, one that its
    names show, or its own model that reads text.
    """
    if _imported_causal(document, backward):
        return True
    if "deepspeed" not in packages(document) or not document.calls("initialize"):
        return False
    named = any(sign.search(document.source) for sign in (_LANGUAGE_MODEL, _READS_TEXT))
    return named or bool(imported_source(document, backward, _LANGUAGE_MODEL))


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


def _runs(document: Document) -> list[ScriptSettings]:
    from cfglint_train.frameworks.trainer_script import runs

    return runs.prepare(document, plain=True)
