"""Trace steps of published models: one JSON object per line in, the same with its peak out.

Needs what `step_trace.py` needs.

    {"model": "qwen2.5-0.5b", "step": {"sequence": 1024, "micro": 4}}
    {"model": "qwen2.5-0.5b", "step": {"sequence": 1024, "micro": 4}, "peak": 11548475904}
"""

from __future__ import annotations

import json
import sys

from step_trace import Case, trace
from trace_rows import MODELS


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        family, arguments = MODELS[request["model"]]
        peak = trace(Case(family, dict(arguments), **request["step"])).peak
        print(json.dumps({**request, "peak": peak}), flush=True)


if __name__ == "__main__":
    main()
