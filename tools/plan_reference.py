"""Write docs/plan-file.md from `plan.fields` and `plan.choices`.

python -m tools.plan_reference
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from cfglint_train.foundation.typed import Final, list_members
from cfglint_train.plan import choices as aliases
from cfglint_train.plan import fields as source
from cfglint_train.whatif.grid import NAMES

HEAD: Final = """\
# Plans as JSON

`cfglint estimate --plan FILE.json` takes a plan instead of a configuration: one JSON object with the fields below,
by group or by dotted name, and what is known of the hardware. This page is made from `lint/cfglint_train/plan/`
(`python -m tools.plan_reference`).

    {
      "model": {"id": "meta-llama/Llama-3.1-8B"},
      "method": {"tuning": "full"},
      "precision": {"params": "bf16", "compute": "bf16", "master": "none"},
      "optimizer": {"name": "adamw", "implementation": "fused"},
      "batch": {"micro": 1, "accumulation": 4},
      "sequence.length": 4096,
      "activations": {"checkpointing": "full", "attention": "flash"},
      "parallel": {"strategy": "fsdp2"},
      "launch": {"nodes": 1, "gpus_per_node": 8},
      "hardware": {"gpu": "H100", "host-memory": "480GiB"}
    }

- What is left out, or null, is unknown. An estimate needs `model.id` (or `model_config`, the object of a
  `config.json`), `method.tuning`, `precision.params`, `optimizer.name`, `batch.micro` (or `batch.tokens_per_gpu`),
  `sequence.length`, `parallel.strategy` and, for more than one GPU, `launch.nodes` and `launch.gpus_per_node`; what
  is missing is named under "not known". Other fields have a neutral meaning where they are left out: no accumulation,
  no checkpointing, no fused loss, DeepSpeed's own bucket.
- Nothing is inferred: `precision.master` of a DeepSpeed job in bf16 is `fp32` only if the plan states it.
- `hardware` has gpu, gpu-memory, host-memory, disk (nodes and gpus-per-node may be there, too); flags of the same
  names win. Without one an 80 GB card is taken.
- `--what-if AXIS=VALUE,VALUE` takes fields as axes, `gpu`, or {names}. A text field takes the
  words that an estimate knows (`attention=eager,flash`); free text such as `model.id` is refused. A cell
  is the peak of the step, and behind it that of an evaluation which is worse, where the run evaluates or an axis is
  one of evaluation's (`batch.eval_micro`).
- `--format json` gives sizes in bytes: per phase and place `expected`, `low`, `high`, `capacity`, `verdict`, and the
  components.
"""


def _list_fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Yield (name, type, docstring) of a record's fields."""
    return _list_assignments(node.body)


def _list_assignments(body: list[ast.stmt]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, annotation or value, docstring) of the assignments of a body."""
    for index, statement in enumerate(body):
        if isinstance(statement, ast.AnnAssign):
            target: ast.expr = statement.target
            kind = statement.annotation
        elif isinstance(statement, ast.Assign):
            target, kind = statement.targets[0], statement.value
        else:
            continue
        if not isinstance(target, ast.Name):
            continue
        words = ""
        following = body[index + 1] if index + 1 < len(body) else None
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            words = " ".join(str(following.value.value).split())
        yield target.id, ast.unparse(kind).removesuffix(" | None"), words


TARGET: Final = Path(__file__).resolve().parents[1] / "docs" / "plan-file.md"

_TYPES: Final = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "tuple[str, ...]": "list of names",
    "tuple[Role, ...]": "list of objects (Role, below)",
    "tuple[tuple[str, Any], ...]": "object",
    "tuple[tuple[str, str], ...]": "object of text",
    "tuple[tuple[str, int], ...]": "object of whole numbers",
    "int | Literal['all']": "whole number or `all`",
}


def _parse_module(path: str) -> ast.Module:
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def build_page() -> str:
    """Return the text of the page."""
    tree = _parse_module(source.__file__)
    choice_docs = {name: words for name, _, words in _list_assignments(_parse_module(aliases.__file__).body)}
    records = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    groups = [(name, kind) for name, kind, _ in _list_fields(records["Plan"])]
    lines = [HEAD.replace("{names}", ", ".join(f"`{name}`" for name in NAMES))]
    for group, kind in groups:
        node = records[kind]
        lines += [f"## {group}", "", ast.get_docstring(node, clean=True) or "", "", "| field | type | meaning |"]
        lines.append("|---|---|---|")
        for name, annotation, words in _list_fields(node):
            field = f"{group}.{name}"
            if annotation in choice_docs:
                kind = " / ".join(f"`{choice}`" for choice in list_members(getattr(aliases, annotation)))
                words = " ".join(filter(None, (words, choice_docs[annotation])))
            else:
                kind = _TYPES.get(annotation, annotation)
            words = words.replace("|", "\\|")
            lines.append(f"| `{field.removesuffix('_')}` | {kind} | {words} |")
        lines.append("")
    role = records["Role"]
    lines += ["## Role", "", ast.get_docstring(role) or "", "", "| key | type | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {_TYPES.get(kind, kind)} | {words} |" for name, kind, words in _list_fields(role)]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


def main() -> int:
    """Write the page into the docs of the checkout."""
    TARGET.write_text(build_page(), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
