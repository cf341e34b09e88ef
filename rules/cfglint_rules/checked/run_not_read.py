"""CHK005 run-not-read: the settings of a training run cannot be read, so nothing about it is checked.

## What it does
Reports training runs that cfglint cannot read:

- A Python script that trains a causal language model and imports its model, trainer or arguments from another module.
- A Python script with its own training loop, or with a trainer that no rule covers.
- A command that trains with a program that cfglint cannot read. Each program is reported once per script.
- A command whose config file is known only when the script runs (`llamafactory-cli train $1`), unless the repository
  has files of that framework.

A run of which cfglint reads only a part is checked for that part, and reported here instead of by CHK001:

- A script creates its trainer in a method that nothing in the script calls.
- A dictionary passes further settings (`SFTConfig(bf16=True, **settings)`).
- A script imports unsloth and creates a transformers Trainer: only its keys are checked, because unsloth patches the
  Trainer's steps and the model.

cfglint finds commands in shell scripts, Python programs (`subprocess.run`, `os.system`), notebooks, Makefiles,
justfiles and YAML job files. It reads the code cells of a notebook as one script.

## Why is this bad?
Nothing is known about the run. The repository passes only because the settings were not read.

## Example
    from my_trainer import LLaVATrainer

    trainer = LLaVATrainer(model=model, args=training_args)

## Use instead
    cfglint estimate --plan run.json         # docs/plan-file.md

## When it does not apply
This rule affects the exit code only with `require-checked = true`.

Scripts and commands are reported only if something shows that they train a causal language model:

- a class of such models, in the script or in the program that a command starts
- a vocabulary or tokenizer, if DeepSpeed trains a custom model
- a reward trainer
- an option that names a model, or a DeepSpeed or accelerate file
- an option that makes the Trainer shard the model (`--fsdp`)

## References
docs/plan-file.md; docs/frameworks/trl.md (Python scripts); docs/shell-scripts.md.
"""

from __future__ import annotations

from cfglint_rules.rule import Rule
from cfglint_train.foundation.typed import Final

RULE: Final = Rule("CHK005", "run-not-read", "info", scope="file", reported_by_engine="run", unchecked="run")
