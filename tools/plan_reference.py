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
from cfglint_train.plan.field_docs import list_assignments, parse_module
from cfglint_train.whatif.grid import NAMES

HEAD: Final = """\
# Plans as JSON

`cfglint estimate --plan FILE.json` estimates a plan instead of a configuration: one JSON object with the fields below,
by group or by dotted name, and the hardware. `python -m tools.plan_reference` makes this page.

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

- A missing or null field is unknown. An estimate needs `model.id` (or `model_config`, the object of a `config.json`),
  `method.tuning`, `precision.params`, `optimizer.name`, `batch.micro` (or `batch.tokens_per_gpu`), `sequence.length`,
  `parallel.strategy` and, for more than one GPU, `launch.nodes` and `launch.gpus_per_node`. The report lists missing
  ones under "not known". Other fields are neutral if unknown: no accumulation, no checkpointing, no fused loss,
  DeepSpeed's default bucket.
- Nothing is inferred: `precision.master` of a DeepSpeed job in bf16 is `fp32` only if the plan states it.
- `hardware` has gpu, gpu-memory, host-memory, disk, nodes and gpus-per-node; flags with these names override it. The
  default is an 80 GB GPU.
- `--what-if AXIS=VALUE,VALUE` accepts fields, `gpu`, and {names}. Free text such as `model.id` cannot be an axis. A
  cell is the peak of a training step, or of an evaluation if it needs more and the run evaluates or an axis is
  `batch.eval_micro`.
- `--format json` gives sizes in bytes: per phase and place `expected`, `low`, `high`, `capacity`, `verdict`, and the
  components.

In the tables, `bool`, `int`, `float` and `str` are true or false, a whole number, a number and a text. `Format` is one
of {formats}; `none` means that there is no such copy.
"""


TARGET: Final = Path(__file__).resolve().parents[1] / "docs" / "plan-file.md"

_TYPES: Final = {
    "tuple[str, ...]": "list",
    "tuple[Role, ...]": "list of Role",
    "tuple[tuple[str, Any], ...]": "object",
    "tuple[tuple[str, str], ...]": "object of str",
    "tuple[tuple[str, int], ...]": "object of int",
    "int | Literal['all']": "int or all",
}
_EXPLAINED_ONCE: Final = "Format"
"""Type whose choices several fields share, so that the page only lists them once, above the tables."""


def build_page() -> str:
    """Return the text of the page."""
    tree = parse_module(source.__file__)
    records = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    names = ", ".join(f"`{name}`" for name in NAMES)
    lines = [HEAD.replace("{names}", names).replace("{formats}", _format_choices(_EXPLAINED_ONCE))]
    for group, kind, _ in list_assignments(records["Plan"].body):
        lines += [f"## {group}", "", ast.get_docstring(records[kind]) or "", ""]
        lines += [*_render_fields(records[kind], f"{group}."), ""]
    lines += ["## Role", "", ast.get_docstring(records["Role"]) or "", "", *_render_fields(records["Role"], "")]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


def _render_fields(record: ast.ClassDef, prefix: str) -> Iterator[str]:
    """Yield the lines of a table of the documented fields, then a line with the remaining fields."""
    choice_docs = {name: words for name, _, words in list_assignments(parse_module(aliases.__file__).body)}
    obvious_fields = []
    yield from ("| field | meaning |", "|---|---|")
    for name, annotation, words in list_assignments(record.body):
        field = f"{prefix}{name}".removesuffix("_")
        if annotation in choice_docs and annotation != _EXPLAINED_ONCE:
            meaning = " ".join(filter(None, (words, choice_docs[annotation])))
            yield f"| `{field}` | {_format_choices(annotation)}. {meaning} |"
        elif words:
            meaning = words.replace("|", "\\|")
            yield f"| `{field}: {_TYPES.get(annotation, annotation)}` | {meaning} |"
        else:
            obvious_fields.append(f"`{field}: {_TYPES.get(annotation, annotation)}`")
    if obvious_fields:
        yield from ("", f"Also: {', '.join(obvious_fields)}.")


def _format_choices(annotation: str) -> str:
    return ", ".join(f"`{choice}`" for choice in list_members(getattr(aliases, annotation)))


def main() -> int:
    """Write the page into the docs of the checkout and return the exit status."""
    TARGET.write_text(build_page(), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
