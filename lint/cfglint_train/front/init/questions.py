"""Questions of `cfglint init` about facts that no file states. An empty answer keeps the default in brackets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from cfglint_train.front.init.survey import Survey
from cfglint_train.plan.origin import FieldValue, Origin
from cfglint_train.settings import cluster_facts
from cfglint_train.settings.settings import FAIL_ON, FailOn, Settings

_FACTS: Final = {
    "gpu": "GPU of the jobs, such as H100 [not stated]",
    "gpus-per-node": "GPUs per node [not stated]",
    "nodes": "nodes per job [not stated]",
}
_DEFAULTS: Final = Settings("")

Choice = TypeVar("Choice", bound=str)


class Answers(NamedTuple):
    """Answers that are written to the settings in addition to the survey."""

    facts: Mapping[str, str] = {}
    fail_on: FailOn = _DEFAULTS.fail_on
    require_checked: bool = _DEFAULTS.require_checked
    resumable: bool = True


def ask_questions(survey: Survey, ask: Callable[[str], str]) -> Answers:
    """Ask all questions and return the answers.

    `ask` shows a question and returns the typed line. After an invalid answer, the question is repeated.
    """
    stated_facts = {fact for facts in survey.launches.values() for fact in facts} | {hint.fact for hint in survey.hints}
    facts = {fact: _ask_fact(fact, question, ask) for fact, question in _FACTS.items() if fact not in stated_facts}
    fail_on = _ask_choice(
        "lowest severity that fails a check: error, warning, info or never", FAIL_ON, _DEFAULTS.fail_on, ask
    )
    checked = _ask_choice("fail runs whose memory cannot be checked: yes or no", ("yes", "no"), "no", ask)
    resumable = _ask_choice("runs must be able to resume from their checkpoints: yes or no", ("yes", "no"), "yes", ask)
    answered = {fact: text for fact, text in facts.items() if text}
    return Answers(answered, fail_on, checked == "yes", resumable == "yes")


def _ask_fact(fact: str, question: str, ask: Callable[[str], str]) -> str:
    problem = ""
    while True:
        text = ask(f"{problem}{question}: ").strip()
        if not text:
            return ""
        try:
            cluster_facts.check(fact, FieldValue(text, Origin("user", note="answer")))
        except cluster_facts.FactError as error:
            problem = f"{error.message}; "
        else:
            return text


def _ask_choice(question: str, choices: Sequence[Choice], default: Choice, ask: Callable[[str], str]) -> Choice:
    while True:
        text = ask(f"{question} [{default}]: ").strip().lower() or default
        for choice in choices:
            if text == choice:
                return choice
