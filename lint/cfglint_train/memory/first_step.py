"""The first training step, whose forward and backward passes run before the optimizer has states.

Optimizers create the states of a parameter in their first update: torch 2.13.0 `optim/adam.py: Adam._init_group`
(`if len(state) == 0`), bitsandbytes 0.50.2 `optim/optimizer.py: Optimizer8bit.step`, torchao 0.18.0
`optim/adam.py: _AdamBase.step`, DeepSpeed 0.19.8 `ops/adam/fused_adam.py: FusedAdam.step`. DeepSpeed before 0.13.2 made
an update with empty gradients when it built its optimizer (0.10.0 to 0.13.1 `runtime/zero/stage_1_and_2.py` and
`stage3.py: initialize_optimizer_states`), so that its first step was like the others. A resumed run has loaded them.
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import Budget
from cfglint_train.memory.components import OPTIMIZER, PAGED

_LAZY: Final = ("none", "ddp", "fsdp1", "fsdp2", "zero")
"""Strategies under which the optimizer creates its states in its first update."""
LAZY_SINCE: Final = ("deepspeed", "0.13.2")
"""The package behind `zero`, and its first release under which the optimizer does so."""


def build_first_step_budget(phase: str, budget: Budget, is_eager: bool) -> Budget:
    """Return the GPU budget of a step phase in the first step of a new run, or `budget` if it is the same.

    With `is_eager`, ZeRO creates the states before the first step. The interval moves by the states that do not exist
    yet. The allocator's reserve is at most that of a later step.
    """
    setup = budget.setup
    strategy = setup.ranks.strategy
    is_late = strategy in _LAZY and not (strategy == "zero" and is_eager)
    if phase == "optimizer step" or not is_late or setup.optimizer.updates != "after":
        return budget
    sizes = tuple(pair for pair in budget.sizes if pair[0] not in (OPTIMIZER, PAGED))
    absent = budget.expected - sum(size for _, size in sizes)
    return budget._replace(sizes=sizes, low=max(0, budget.low - absent), high=budget.high - absent)
