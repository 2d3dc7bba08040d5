"""A pytest plugin (`-p suite.live`): one line for each test as it ends, with its time, for scripts/test to show."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from suite.checks import TEST_ENDED


class _Live:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._phases: dict[str, list[pytest.TestReport]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, tuple[str, object, object], tuple[str, object, object]]:
        """Take away pytest's own letter for a test; the counts stay."""
        category, _letter, word = yield
        return category, "", word

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the test's line when its last phase is over."""
        phases = self._phases.setdefault(report.nodeid, [])
        phases.append(report)
        if report.when != "teardown":
            return
        outcomes = {phase.outcome for phase in phases}
        verdict = "FAILED" if "failed" in outcomes else "SKIPPED" if "skipped" in outcomes else "ok"
        seconds = sum(phase.duration for phase in phases)
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"{TEST_ENDED}{report.nodeid}: {verdict} in {seconds:.1f} s")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    config.pluginmanager.register(_Live(config), "suite-live")
