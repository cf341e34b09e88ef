"""Many cases in one test: a pytest item costs more than most cases, and every worker process collects it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.skips import is_fine

Cases = Iterable[Any] | Callable[[], Iterable[Any]]
Test = Callable[..., None]
_PARAMETERS = type(pytest.param())


def for_each(
    names: str | tuple[str, ...], cases: Cases, ids: Callable[[Any], str] | list[str] = str
) -> Callable[[Test], Test]:
    """Run a test once per case and fail with every case that fails: `pytest.mark.parametrize` in one item.

    If `cases` is callable, it is called when the test runs. Each case has its own `tmp_path` and shares the other
    fixtures.
    """
    arguments = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names

    def decorate_test(test: Test) -> Test:
        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        assert len(fixtures) + len(arguments) == len(signature.parameters), f"{test.__name__} does not take {names}"

        @functools.wraps(test)
        def run_cases(**shared: Any) -> None:
            failures, passed_count, allowed_skip, other_skip = [], 0, None, None
            for number, case in enumerate(cases() if callable(cases) else cases):
                if isinstance(case, _PARAMETERS):
                    values, name = case.values, case.id or str(case.values)
                    assert not case.marks, "marks are for items"
                else:
                    values = (case,) if len(arguments) == 1 else case
                    name = ids(case) if callable(ids) else ids[number]
                if "tmp_path" in shared:
                    case_fixtures: dict[str, Path] = {"tmp_path": shared["tmp_path"] / str(number)}
                    case_fixtures["tmp_path"].mkdir()
                else:
                    case_fixtures = {}
                try:
                    test(**{**shared, **case_fixtures}, **dict(zip(arguments, values, strict=True)))
                    passed_count += 1
                except pytest.skip.Exception as skipped:
                    if is_fine(skipped.msg or ""):
                        allowed_skip = skipped
                    else:
                        other_skip = other_skip or skipped
                except (Exception, pytest.fail.Exception) as error:
                    failures.append(f"[{name}] {type(error).__name__}: {error}")
            assert not failures, f"{len(failures)} of {len(failures) + passed_count} cases fail:\n" + "\n".join(
                failures
            )
            skip = other_skip or (None if passed_count else allowed_skip)
            if skip is not None:
                raise skip
            assert passed_count, "there are no cases"

        run_cases.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        del run_cases.__wrapped__  # pytest would request its fixtures
        return run_cases

    return decorate_test
