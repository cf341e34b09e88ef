"""CPU time of the language server's answers after an edit, and the memory of its process.

    python benchmarks/editor.py [FILE] [--runs N]

Prints medians in milliseconds of CPU time, in one process without the protocol around it: what a keystroke costs.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from cfglint_train.editor import budget, completion, hover
from cfglint_train.editor.session import Session

_DEFAULT = Path(__file__).parents[1] / "fixtures" / "cases" / "5-axolotl-3b" / "llama-3b.yaml"


def measure(work: Callable[[int], object], runs: int) -> float:
    """Return the median CPU time of some work in milliseconds, after one run that is not counted."""
    times = []
    for number in range(runs + 1):
        start = time.process_time()
        work(number)
        times.append((time.process_time() - start) * 1_000)
    return statistics.median(times[1:])


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=_DEFAULT)
    parser.add_argument("--runs", type=int, default=50)
    arguments = parser.parse_args()
    path, text = arguments.file.resolve().as_posix(), arguments.file.read_text(encoding="utf-8")
    session = Session()
    session.has_watcher = True

    def edit(number: int) -> None:
        session.put(path, f"{text}# {number}\n")
        assert session.check(path).result.findings is not None

    print(f"diagnostics after an edit  {measure(edit, arguments.runs):6.1f} ms (bar: 60)")
    lenses = measure(lambda number: (edit(number), list(budget.list_budget_lines(session.check(path)))), arguments.runs)
    print(f"... with budget lines      {lenses:6.1f} ms")
    places = [index for index in range(0, len(text), max(1, len(text) // 40)) if session.find_setting(path, index)]

    def point(number: int) -> None:
        setting = session.find_setting(path, places[number % len(places)])
        assert setting is not None
        hover.describe_setting(setting)

    if places:  # a script's words may set keys of another file
        print(f"hover                      {measure(point, max(arguments.runs, 2 * len(places))):6.1f} ms (bar: 10)")
    cursor = len(text)
    session.put(path, f"{text}mic")
    completing = measure(lambda _: completion.complete(session, path, cursor + 3), arguments.runs)
    print(f"completion                 {completing:6.1f} ms")
    print(f"memory of the process      {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:6.0f} MB (bar: 150)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
