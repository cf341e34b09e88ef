"""Rule metadata: each rule module defines it as `RULE`, and the module's docstring documents the rule."""

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
"""Reports of the engine itself, without a rule's `check`: files that it cannot read, and comments."""


class Rule(Frozen):
    """Metadata of a rule."""

    code: str
    name: str
    severity: Severity
    """Consequence of the problem; a finding may be milder or more severe."""
    module: str = ""
    """Set by the registry: `memory.step_exceeds_gpu`."""
    scope: Scope = "run"
    """Argument of `check`: a run, or one config of one document; the engine itself reports `file` rules."""
    particular: bool = False
    """True if it applies only to the frameworks that name it in their `framework.json`."""
    fix: Applicability | None = None
    """Safest applicability of its fixes; None: it has none."""
    refuses: bool = False
    """True if its module has `refused(config)`, which yields the reasons for which the framework would not start."""
    needs: Mapping[Field, tuple[Any, ...]] = {}
    """Plan fields with the values that they must have before `check` is called; no values: any known value. For other
    runs the module is not imported.
    """
    writes: tuple[Field, ...] = ()
    """Plan fields that its fixes change, except for fixes that the estimate chooses."""
    estimates: tuple[Resource, ...] = ()
    """Resources whose estimate it judges."""
    rests_on_vocabulary: bool = False
    """True if it judges keys: a fork may have others, a condition may leave an option out, a script may guard it."""
    rests_on_release: bool = False
    """True if it judges by a release; its default help names the place where the release is pinned."""
    depends_on_unseen_flags: bool = False
    """True if it compares numbers of a launch, which unseen options of the launch may override."""
    reported_by_engine: Occasion | None = None
    """Occasion on which the engine itself reports under its code."""
    unchecked: Literal["memory", "host", "keys", "run"] | None = None
    """Set if it only reports that something was not checked. `require-checked` keeps it on."""
    since: str = "0.1.0"

    def has_needs(self, plan: Plan) -> bool:
        """Return whether a plan has the values that the rule needs."""
        for field, values in self.needs.items():
            value = plan.get(field)
            if value is None or (values and value not in values):
                return False
        return True
