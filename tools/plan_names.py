"""Write lint/cfglint_train/plan/names.py, the type of plan field names, from the records in `plan.fields`.

python -m tools.plan_names
"""

from __future__ import annotations

from pathlib import Path

from cfglint_train.plan.fields import Plan

TARGET = Path(__file__).resolve().parents[1] / "lint" / "cfglint_train" / "plan" / "names.py"

HEAD = '''"""The names of the plan's fields. Made by `python -m tools.plan_names` from `plan.fields`; do not edit."""

from __future__ import annotations

from cfglint_train.foundation.typed import Literal

Field = Literal[
'''


def format_names() -> str:
    """Return the text of the module."""
    fields = [f"{group}.{field}" for group, record in Plan._field_defaults.items() for field in record._fields]
    return HEAD + "".join(f'    "{field}",\n' for field in fields) + "]\n"


if __name__ == "__main__":
    TARGET.write_text(format_names(), encoding="utf-8")
