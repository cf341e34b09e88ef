"""Tiers of tests, and skips: with CI=true a test that lacks what it needs fails.

Markers: `slow` takes over two seconds or needs a program beside Python, git and bash; `oracle` asks a framework's own
code, or fuzzes for long; `recorded` compares with recorded answers of such code. Both are slow, too. `pytest` without a
path runs what has no marker: it needs the extra `dev` and nothing else. `pytest -m slow` runs the rest, `pytest tests`
everything, and a path everything in it. With CFGLINT_ORACLE=sample (`tests/support/oracle.py`), a tenth of the tests
that are marked `oracle` run, others every time; the header names the seed.
A skip is fine everywhere only where its reason says `not applicable: ...` (`tests/support/skips.py`), or that data
beside the repository is missing.
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
    # Set here for the processes of `-n`, which must collect the same.
    os.environ.setdefault("CFGLINT_ORACLE_SEED", str(random.randrange(10**6)))


def pytest_report_header() -> list[str]:
    return [f"CFGLINT_ORACLE=sample CFGLINT_ORACLE_SEED={oracle.get_seed()}"] if oracle.get_mode() == "sample" else []


def pytest_collection_finish() -> None:
    """Take from Hypothesis the constants of the modules that are loaded: examples would depend on the tests before."""
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
    """Torch's extensions are built anew: where a build was killed, its lock in the user's cache holds up all others."""
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
    """Name what failed once more, last: pytest's own summary repeats whole messages there in CI."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if CI and reporter is not None:
        for report in (*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())):
            reporter.write_line(f"failed: {report.nodeid}", red=True)
