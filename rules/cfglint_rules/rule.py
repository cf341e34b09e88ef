"""Rule metadata, which each rule module defines as `RULE`; the docstring of that module documents the rule."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.findings.finding import Applicability, Severity
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Literal
from cfglint_train.memory.budget import Resource
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.names import Field

Scope = Literal["file", "config", "run"]
Occasion = Literal["file", "syntax", "limit", "absent", "run", "pragma", "suppression", "secret"]
"""Occasions on which the engine itself reports, without calling a rule's `check`."""


class Rule(Frozen):
    """Metadata of a rule."""

    code: str
    name: str
    severity: Severity
    """Default severity of its findings; a report may set another."""
    module: str = ""
    """Module below `cfglint_rules`, such as `memory.step_exceeds_gpu`; the registry sets it."""
    scope: Scope = "run"
    """Argument of `check`: a run or a config. The engine itself reports the rules with scope `file`."""
    particular: bool = False
    """True if the rule applies only to frameworks that name it in their `framework.json`."""
    fix: Applicability | None = None
    """Safest applicability of its fixes, or None if the rule has no fixes."""
    refuses: bool = False
    """True if its module defines `refused(config)`, which yields reasons why the framework would reject the config."""
    needs: Mapping[Field, tuple[Any, ...]] = {}
    """Plan fields and the values that they must have for `check` to be called; an empty tuple allows any known value.

    The module is imported only if a run meets these conditions.
    """
    inputs: tuple[str, ...] = ()
    """Fields of `RunInputs`, such as `companions`; `check` is called, and its module imported, if one is not empty."""
    capacities: tuple[Resource, ...] = ()
    """Resources; `check` is called, and its module imported, only if the capacity of one of them is stated."""
    writes: tuple[Field, ...] = ()
    """Plan fields that its fixes change, except fixes that are chosen with the estimate."""
    estimates: tuple[Resource, ...] = ()
    """Resources whose estimated use the rule judges."""
    rests_on_vocabulary: bool = False
    """True if the rule judges keys. Its findings are milder if a fork, a condition or a guard in a script may apply."""
    rests_on_release: bool = False
    """True if the rule depends on a release. Its default help names the place where the release is pinned."""
    depends_on_unseen_flags: bool = False
    """True if the rule compares numbers that unseen options of the launch may override."""
    folds: bool = False
    """True if reports show its findings with one cause once per repository, with their places."""
    tag: Literal["deprecated", "unnecessary"] | None = None
    """Way in which editors show the text that it reports: struck through, or faded."""
    reported_by_engine: Occasion | None = None
    """Occasion on which the engine itself reports under this rule's code."""
    unchecked: Literal["memory", "host", "keys", "run"] | None = None
    """Part of a run that was not checked, for rules that only report that. `require-checked` keeps these rules on."""
    since: str = "0.1.0"

    def has_needs(self, plan: Plan) -> bool:
        """Return whether a plan has the values that the rule needs."""
        for field, values in self.needs.items():
            value = plan.get(field)
            if value is None or (values and value not in values):
                return False
        return True
