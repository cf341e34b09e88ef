"""The first training step, whose forward and backward passes run before the optimizer has states.

Optimizers create the states of a parameter in their first update: torch 2.13.0 `optim/adam.py: Adam._init_group`
(`if len(state) == 0`), bitsandbytes 0.50.2 `optim/optimizer.py: Optimizer8bit.step`, torchao 0.18.0
`optim/adam.py: _AdamBase.step`. DeepSpeed creates them when it builds its optimizer (0.15.4
`runtime/zero/stage_1_and_2.py: initialize_optimizer_states`), so that its first step is like the others. A resumed run
has loaded them.
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import Budget
from cfglint_train.memory.components import OPTIMIZER, PAGED

_LAZY: Final = ("none", "ddp", "fsdp1", "fsdp2")
"""Strategies under which the optimizer creates its states in its first update."""


def build_first_step_budget(phase: str, budget: Budget) -> Budget:
    """Return the GPU budget of a step phase in the first step of a new run, or `budget` if it is the same.

    The interval moves by the states that do not exist yet. The allocator's reserve is at most that of a later step.
    """
    setup = budget.setup
    if phase == "optimizer step" or setup.ranks.strategy not in _LAZY or setup.optimizer.updates != "after":
        return budget
    sizes = tuple(pair for pair in budget.sizes if pair[0] not in (OPTIMIZER, PAGED))
    absent = budget.expected - sum(size for _, size in sizes)
    return budget._replace(sizes=sizes, low=max(0, budget.low - absent), high=budget.high - absent)
