"""Test tiers and skips: with CI=true, a test that lacks a requirement fails.

Markers: `slow` takes over two seconds or requires a program besides Python, git and bash; `oracle` runs a framework's
own code, or fuzzes for long; `recorded` compares with recorded answers of that code. Tests marked `oracle` or
`recorded` are slow too. `pytest` without a path runs the unmarked tests, which require only the extra `dev`. `pytest -m
slow` runs the rest, `pytest tests` runs everything, and a path runs everything in it. With CFGLINT_ORACLE=sample
(`tests/support/oracle.py`), a random tenth of the `oracle` tests runs; the header shows the seed.

A skip is always allowed if its reason starts with `not applicable: ...` (`tests/support/skips.py`), or reports missing
data next to the repository.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.support import oracle
from tests.support.skips import is_fine

CI = os.environ.get("CI", "").lower() in ("1", "true")
_collected: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.markexpr:
        config.option.markexpr = "not slow"
    # Set here for the worker processes of `-n`, which must collect the same tests.
    os.environ.setdefault("CFGLINT_ORACLE_SEED", str(random.randrange(10**6)))


def pytest_report_header() -> list[str]:
    return [f"CFGLINT_ORACLE=sample CFGLINT_ORACLE_SEED={oracle.get_seed()}"] if oracle.get_mode() == "sample" else []


def pytest_collection_finish() -> None:
    """Disable Hypothesis' constants from loaded modules, which make examples depend on earlier tests."""
    if settings.get_current_profile_name() == "ci":
        none = providers.Constants()
        assert callable(providers._get_local_constants), "Hypothesis keeps these elsewhere now"
        providers._get_local_constants = lambda: none


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if oracle.get_mode() == "sample":
        draw = random.Random(oracle.get_seed())
        deselected = {
            item for item in items if item.get_closest_marker("oracle") and draw.random() > oracle.SAMPLE_RATE
        }
        config.hook.pytest_deselected(items=list(deselected))
        items[:] = [item for item in items if item not in deselected]
    for item in items:
        if any(item.get_closest_marker(name) is not None for name in ("oracle", "recorded")):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report = yield
    if CI and report.skipped and not hasattr(report, "wasxfail") and not is_fine(reason := get_reason(report)):
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI runs everything: {reason}"
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped and not is_fine(reason := get_reason(report)):
        _collected.append(f"{report.nodeid}: {reason}")


@pytest.fixture(scope="session", autouse=True)
def _extensions(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Build torch's extensions in a fresh folder.

    A killed build leaves a lock in the user's cache, which blocks all later builds.
    """
    os.environ["TORCH_EXTENSIONS_DIR"] = str(tmp_path_factory.mktemp("torch_extensions"))


def get_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if CI and _collected and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if CI:
        for line in _collected:
            terminalreporter.write_line(f"not collected, and CI runs everything: {line}", red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Repeat the names of failed tests at the very end: in CI, pytest's own summary prints whole messages."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if CI and reporter is not None:
        for report in (*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())):
            reporter.write_line(f"failed: {report.nodeid}", red=True)
