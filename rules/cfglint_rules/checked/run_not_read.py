"""CHK005 run-not-read: a training run whose settings cannot be read, so that nothing of it is checked.

## What it does
Reports a Python script that trains a causal language model and that cfglint cannot read: its model, its trainer or its
arguments come from another module, no rule covers its trainer, or its training loop is its own. Reports a command that
trains with a program which is not read either, once per program and script, and one with a file that is only named
where the script is started (`llamafactory-cli train $1`), unless the repository has files of that framework.

Commands count in shell scripts, Python programs (`subprocess.run`, `os.system`), notebooks, Makefiles, justfiles, and
jobs in YAML. A training in the code of a notebook is reported as well: notebooks are not read.

## Why is this bad?
Nothing is known of the run: the repository is green because its settings were not read.

## Example
    from my_trainer import LLaVATrainer

    trainer = LLaVATrainer(model=model, args=training_args)

## Use instead
    cfglint estimate --plan run.json         # docs/plan-file.md

## When it does not apply
It never fails a run by itself; `require-checked = true` makes it count. It is silent on scripts and commands in which
nothing shows that they train a causal language model: a class of such models, in the program of a command as well; a
vocabulary or tokenizer where DeepSpeed is given a model of its own; a trainer of rewards; an option that names a model,
the file of DeepSpeed or accelerate, or one with which the Trainer shards it (`--fsdp`).

## References
docs/plan-file.md; docs/frameworks/trl.md (Python scripts); docs/shell-scripts.md.
"""

from __future__ import annotations

from cfglint_rules.rule import Rule
from cfglint_train.foundation.typed import Final

RULE: Final = Rule("CHK005", "run-not-read", "info", scope="file", reported_by_engine="run", unchecked="run")
