"""The metadata of a rule: its module holds it as `RULE`, and the module's docstring documents the rule."""

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
    """The metadata of one rule."""

    code: str
    name: str
    severity: Severity
    """The consequence of what it finds; a finding may be milder or graver."""
    module: str = ""
    """Filled in by the registry: `memory.step_exceeds_gpu`."""
    scope: Scope = "run"
    """What `check` receives: a run, or one configuration of one document; the engine itself reports `file` rules."""
    particular: bool = False
    """It applies only to the frameworks that name it in their `framework.json`, not of all."""
    fix: Applicability | None = None
    """The best applicability that its fixes can have; None: it has none."""
    refuses: bool = False
    """Its module has `refused(config)`: why the framework would not start, as far as one file shows."""
    needs: Mapping[Field, tuple[Any, ...]] = {}
    """The plan fields, with the values that they must have before `check` is called; no values: any that is known.
    For other runs its module is not imported."""
    writes: tuple[Field, ...] = ()
    """The plan fields that its fixes change, but for fixes that the estimate chooses."""
    estimates: tuple[Resource, ...] = ()
    """What it judges the estimate of."""
    rests_on_vocabulary: bool = False
    """It judges keys: a fork may have others, a condition may leave an option out, a script may guard it."""
    rests_on_release: bool = False
    """It judges by a release: its help is where that is pinned, unless it has a better one."""
    depends_on_unseen_flags: bool = False
    """It compares numbers of one launch: options that the launch adds out of sight may replace them."""
    reported_by_engine: Occasion | None = None
    """What the engine itself reports under its code."""
    unchecked: Literal["memory", "host", "keys", "run"] | None = None
    """It finds nothing wrong, and says that this was not checked. `require-checked` keeps it on."""
    since: str = "0.1.0"

    def has_needs(self, plan: Plan) -> bool:
        """Return whether a plan has the values that the rule needs."""
        for field, values in self.needs.items():
            value = plan.get(field)
            if value is None or (values and value not in values):
                return False
        return True
