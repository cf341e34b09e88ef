"""Recognition of Python scripts that train a causal language model with the HF Trainer or their own code."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable
from functools import cache
from json import load as parse

from cfglint_train.documents.document import Document
from cfglint_train.documents.python.class_variables import find_calls_by_variable
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.static.modules import find_imports, find_module
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.regular_files import is_python_test
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.framework import RecognisedConfig
from cfglint_train.frameworks.hf_scripts.model_sources import find_imported_source, is_passing, list_model_arguments
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.frameworks.trainer_script.runs import list_imported_trainers, list_packages

if TYPE_CHECKING:
    from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

_SCORE: Final = 55
_LIBRARIES: Final = frozenset(("transformers", "liger_kernel"))
_CAUSAL_SUFFIXES: Final = ("ForCausalLM", "LMHeadModel", "ForCausalLMWithValueHead")
"""Suffixes of the classes that load causal language models."""
_CAUSAL_CLASS: Final = compile_on_use(rb"ForCausalLM|LMHeadModel|CAUSAL_LM")
_LANGUAGE_MODEL_TRAINING: Final = compile_on_use(
    _CAUSAL_CLASS.pattern + rb"|\b(?:SFT|DPO|GRPO|PPO|RM|Reward)Trainer\b|\bTrlParser\b"
)
"""Evidence that a model of a custom class is a language model.

The pattern finds the class of a causal language model, a trainer that is named after a tuning method, or TRL's parser.
"""
_LANGUAGE_MODEL: Final = compile_on_use(
    _LANGUAGE_MODEL_TRAINING.pattern
    + rb"|\bmlm\s*=\s*False|(?i:deepseek|gemma|gpt-?(?:2|j|neo)|llama|mistral|mixtral|olmo|pythia|qwen)"
)
"""Evidence that a model that other code builds is a language model."""
_SCORING_SUFFIXES: Final = ("ForSequenceClassification",)
_REWARD_TRAINER: Final = compile_on_use(rb"\b(?:RM|Reward)Trainer\b")
"""Evidence that a sequence classifier is a reward model; sequence classifiers are trained for other tasks too."""
_TEXT_MODEL: Final = compile_on_use(rb"\bvocab_size\b|(?i:tokenizer)")
"""Evidence that the model in a DeepSpeed training loop reads text."""
_OPTIMIZER_ARGUMENTS: Final = ("optimizer", "optim")
_IMPORTED_MODEL_REASON: Final = "its model comes from another module"
_WRAPPED_LOOP: Final = compile_on_use(rb"\b(?:accelerator|engine|model_engine)\.backward\(")
"""Training loop with an object of accelerate or DeepSpeed, which another module may create."""
_TRAINING_PACKAGES: Final = ("transformers", "trl", "deepspeed", "accelerate")
_OTHER_FRAMEWORKS: Final = ("olmo_core",)
"""Packages with their own trainers; other frameworks of cfglint read their scripts."""


def recognise(document: Document) -> list[RecognisedConfig]:
    """Recognize each Trainer that a script creates.

    A script that trains a causal language model but whose settings cannot be read is returned with the reason.
    """
    if not isinstance(document, PythonDocument) or is_python_test(document.path):
        return []
    from cfglint_train.frameworks.trainer_script.names import HF_TRAINERS, TRAINERS
    from cfglint_train.frameworks.trainer_script.runs import (
        drop_repeated,
        find_unreached_trainer,
        has_trainer,
        list_derived_trainers,
        list_gaps,
    )

    modules = list_packages(document)
    is_training = not modules.isdisjoint(_TRAINING_PACKAGES) or _WRAPPED_LOOP.search(document.source) is not None
    if not is_training or not modules.isdisjoint(_OTHER_FRAMEWORKS):
        return []
    if "trl" in modules and has_trainer(document, (*TRAINERS, *list_derived_trainers(document, "trl", TRAINERS))):
        return []
    patch = next((name for name in list_frameworks()["hf_scripts"].patched_by if name in modules), None)
    if patch is not None:
        return _list_keys(document, patch) or [RecognisedConfig((), _SCORE, f"{patch} replaces the Trainer", "other")]
    trainers = (*HF_TRAINERS, *list_derived_trainers(document, "transformers", HF_TRAINERS))
    if not has_trainer(document, trainers):
        return _recognise_other_training(document, modules)
    runs = _prepare_runs(document)
    if not runs and (_has_causal_class(document) or _find_imported_model(document)):
        return find_unreached_trainer(document, trainers, _SCORE)
    if not runs and any(_is_of_transformers(document, name) for name in HF_TRAINERS):
        return [
            recognised._replace(reason=_IMPORTED_MODEL_REASON, role="handed")
            for recognised in find_unreached_trainer(document, trainers, _SCORE)
        ]
    configs = [_recognise_run(document, number, run) for number, run in enumerate(runs)]
    return drop_repeated([*configs, *list_gaps(runs, configs)])


def _list_keys(document: PythonDocument, patch: str) -> list[RecognisedConfig]:
    """Return the settings of a Trainer whose steps and model a package patches; only their keys can be checked."""
    from cfglint_train.frameworks.trainer_script.names import HF_CONFIGS

    return [
        RecognisedConfig((number,), _SCORE, f"{patch} patches its Trainer and its model", "part", run.span)
        for number, run in enumerate(_prepare_runs(document))
        if not run.refusal and run.config_class in HF_CONFIGS
    ]


def _is_of_transformers(document: PythonDocument, name: str) -> bool:
    """Return whether a script imports a name from transformers."""
    return any(module.partition(".")[0] == "transformers" for module, _ in find_imports(document, name))


def _recognise_run(document: PythonDocument, number: int, run: ScriptSettings) -> RecognisedConfig:
    from cfglint_train.frameworks.trainer_script.runs import get_role

    module, _, name = run.model_class.rpartition(".")
    is_causal = is_generating(run.model_class)
    # A transformers class without a causal suffix loads another kind of model. PEFT's classes wrap any model, and a
    # class from another module may be a language model.
    is_open = not run.model_class or module.partition(".")[0] == "peft"
    is_own = bool(run.model_class) and module.partition(".")[0] not in _LIBRARIES
    is_training = is_causal or (is_open and _LANGUAGE_MODEL.search(document.source) is not None)
    is_training = is_training or (is_own and _LANGUAGE_MODEL_TRAINING.search(document.source) is not None)
    is_training = is_training or (
        name.endswith(_SCORING_SUFFIXES) and _REWARD_TRAINER.search(document.source) is not None
    )
    reason = "it cannot be determined whether its Trainer trains a causal language model"
    source = "" if is_causal or not (is_open or is_own) else _find_imported_model(document)
    if source:
        is_training, reason = True, f"its model comes from another module (`{source}`)"
    # A model whose class cannot be determined is a language model if the script names such a class.
    is_named = bool(run.model_class or source) or _CAUSAL_CLASS.search(document.source) is not None
    if is_training and not run.refusal and is_named:
        return RecognisedConfig((number,), _SCORE, "it creates a transformers Trainer")
    if not is_training and is_open:
        return RecognisedConfig((number,), _SCORE, run.refusal or _IMPORTED_MODEL_REASON, "handed", run.span)
    return RecognisedConfig(
        (number,), _SCORE, run.refusal or reason, (get_role(run) or "unread") if is_training else "other", run.span
    )


def is_generating(model_class: str) -> bool:
    """Return whether a class of transformers or Liger loads a causal language model, with or without image input."""
    module, _, name = model_class.rpartition(".")
    if module.partition(".")[0] not in _LIBRARIES:
        return False
    return _is_causal_name(name)


@cache
def _load_vision_classes() -> frozenset[str]:
    """Return the classes of transformers that generate text from images and text."""
    with open(os.path.join(os.path.dirname(__file__), "vision_classes.json"), encoding="utf-8") as file:
        return frozenset(parse(file)["classes"])


def _has_causal_class(document: PythonDocument) -> bool:
    """Return whether a script names a causal language model's class, or calls one that also reads images."""
    return _CAUSAL_CLASS.search(document.source) is not None or any(
        name in document.source for name in map(str.encode, _load_vision_classes())
    )


def is_passing_model(document: PythonDocument, path: str) -> bool:
    """Return whether a script passes a causal language model to code that it imports from the file at `path`."""
    return is_passing(document, path, _CAUSAL_CLASS)


def _find_imported_model(document: PythonDocument) -> str:
    """Return the import that builds the causal language model of a script's Trainers, or an empty string.

    Only imports from the script's repository count.
    """
    from cfglint_train.frameworks.trainer_script.names import HF_TRAINERS
    from cfglint_train.frameworks.trainer_script.runs import find_trainer_calls

    return _find_imported_causal(
        document, [model for call in find_trainer_calls(document, HF_TRAINERS) for model in list_model_arguments(call)]
    )


def _find_imported_causal(document: PythonDocument, expressions: Iterable[ast.expr]) -> str:
    return find_imported_source(document, expressions, _CAUSAL_CLASS)


def _recognise_other_training(document: PythonDocument, modules: set[str]) -> list[RecognisedConfig]:
    """Recognize a script that trains a causal language model with an imported trainer or its own training loop.

    The model counts as a causal language model if its class shows that, in the script or in the module that builds the
    model, or if the script imports TRL, which is rarely used for other models.
    """
    from cfglint_train.frameworks.trainer_script.runs import explain_undetermined_trainer, find_trainer_calls

    is_in_sight = "trl" in modules or _has_causal_class(document)
    trainer_names = list_imported_trainers(document)
    for call in _filter_with_arguments(find_trainer_calls(document, trainer_names)):
        if is_in_sight or _find_imported_causal(document, list_model_arguments(call)):
            reason = f"its trainer (`{get_callee_name(call)}`) comes from another module"
            return [RecognisedConfig((), _SCORE, reason, "unread", document.find_span(call))]
    for call in _filter_with_arguments(find_calls_by_variable(document, trainer_names)) if is_in_sight else ():
        return [
            RecognisedConfig(
                (), _SCORE, explain_undetermined_trainer(document, call), "unread", document.find_span(call)
            )
        ]
    backward_calls, step_calls = document.find_calls("backward"), document.find_calls("step")
    is_loading = any(
        _is_causal_name(get_callee_name(call)) or _is_loading_model(call) for call in document.list_nodes(ast.Call)
    )
    is_wrapped = _WRAPPED_LOOP.search(document.source) is not None
    is_named = is_loading or _is_training_language_model(document, backward_calls)
    if backward_calls and step_calls and (is_named or is_wrapped):
        span = document.find_span(backward_calls[0])
        reason = (
            f"its training loop is its own (`{document.get_short_text(document.find_span(backward_calls[0].func))}`)"
        )
        return [RecognisedConfig((), _SCORE, reason, "unread" if is_named else "handed", span)]
    for call in document.find_calls("train"):
        trainer = document.get_short_text(document.find_span(call.func))
        if "trainer" in trainer.lower() and (is_loading or _find_imported_causal(document, [call])):
            reason = f"what trains it (`{trainer}`) comes from another module"
            return [RecognisedConfig((), _SCORE, reason, "unread", document.find_span(call))]
    for call in _find_optimizer_calls(document) if is_loading and b"__main__" in document.source else ():
        reason = f"what steps its optimizer (`{get_callee_name(call)}`) comes from another module"
        return [RecognisedConfig((), _SCORE, reason, "unread", document.find_span(call))]
    return []


def _find_optimizer_calls(document: PythonDocument) -> list[ast.Call]:
    """Return the calls that pass an optimizer by keyword to a function from the repository."""
    calls = [
        call
        for call in document.list_nodes(ast.Call)
        if any(word.arg in _OPTIMIZER_ARGUMENTS for word in call.keywords)
    ]
    return [call for call in calls if isinstance(call.func, ast.Name) and _is_of_repository(document, call.func.id)]


def _is_of_repository(document: PythonDocument, name: str) -> bool:
    return any(find_module(document, module) is not None for module, _ in find_imports(document, name))


def _is_program(document: PythonDocument) -> bool:
    """Return whether a file is meant to be run: it mentions `__main__` or has top-level expressions such as calls."""
    return b"__main__" in document.source or any(isinstance(node, ast.Expr) for node in document.module.body[1:])


def _is_training_language_model(document: PythonDocument, backward: list[ast.Call]) -> bool:
    """Return whether a training loop trains a causal language model that another module builds.

    A module counts like a program if it wraps its loop with accelerate or DeepSpeed. With DeepSpeed, names of language
    models or a tokenizer in the source, or names of language models in the module that builds the model, are enough.
    """
    if not _is_program(document) and _WRAPPED_LOOP.search(document.source) is None:
        return False
    if _find_imported_causal(document, backward):
        return True
    if "deepspeed" not in list_packages(document) or not document.find_calls("initialize"):
        return False
    has_evidence = any(pattern.search(document.source) for pattern in (_LANGUAGE_MODEL, _TEXT_MODEL))
    return has_evidence or bool(find_imported_source(document, backward, _LANGUAGE_MODEL))


def _is_loading_model(call: ast.Call) -> bool:
    """Return whether a call loads a causal language model, such as `AutoModelForCausalLM.from_config`."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in ("from_pretrained", "from_config"):
        return False
    owner = function.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return _is_causal_name(str(name))


def _is_causal_name(name: str) -> bool:
    return name.endswith(_CAUSAL_SUFFIXES) or name in _load_vision_classes()


def _filter_with_arguments(calls: list[ast.Call]) -> list[ast.Call]:
    """Return the calls that pass training arguments (`args=`)."""
    return [call for call in calls if any(keyword.arg == "args" for keyword in call.keywords)]


def prepare(document: Document) -> None:
    """Read the Trainer calls in a script as its runs."""
    if isinstance(document, PythonDocument):
        _prepare_runs(document)


def _prepare_runs(document: Document) -> list[ScriptSettings]:
    from cfglint_train.frameworks.trainer_script import runs

    return runs.show_runs(document, is_hf_trainer=True)
