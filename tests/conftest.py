"""What every test gets: a home, a user folder and an environment of its own.

A test can never see the developer's home or colours.  Rust's tools keep theirs, since they hold toolchains
and not state of ours.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from aos_cli import console, invocation
from tests.support.conformance import Verdict, judge, read_rules

_DROPPED = (
    "AOS_",
    "ASTRID_",
    "CI",
    "GITHUB_",
    "GITLAB_CI",
    "BUILDKITE",
    "TF_BUILD",
    "FORCE_COLOR",
    "CLICOLOR",
    "PY_COLORS",
)


def pytest_sessionstart() -> None:
    """A job in the background, or one under nohup, ignores signals, and so would all that the tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def isolation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test its own AOS_HOME and HOME (neither exists yet), no colour and 100 columns."""
    user = os.environ.get("HOME", "/")
    for name in [name for name in os.environ if name.startswith(_DROPPED)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CARGO_HOME", os.environ.get("CARGO_HOME", f"{user}/.cargo"))
    monkeypatch.setenv("RUSTUP_HOME", os.environ.get("RUSTUP_HOME", f"{user}/.rustup"))
    monkeypatch.setenv("AOS_HOME", str(tmp_path / "aos-home"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(console, "_current", None)
    monkeypatch.setattr(invocation, "_current", None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in CI that skipped anything: there, every shell and tool is installed.  Fail a whole run
    that left out a test of a rule.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or session.exitstatus != pytest.ExitCode.OK:
        return
    skipped = os.environ.get("CI") and reporter.stats.get("skipped")
    if skipped or (_is_whole(session.config) and _verdict(reporter).not_run):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many rules stand; the names of those whose tests did not run, where all should have."""
    verdict = _verdict(terminalreporter)
    if verdict.standing or verdict.broken:
        terminalreporter.write_line(verdict.line())
    if verdict.not_run and _is_whole(terminalreporter.config):
        terminalreporter.write_line(f"not run: {', '.join(rule.id for rule in verdict.not_run)}")


def _verdict(reporter: pytest.TerminalReporter) -> Verdict:
    nodes = {
        outcome: [report.nodeid for report in reporter.stats.get(outcome, ())]
        for outcome in ("passed", "failed", "error")
    }
    return judge(read_rules(), nodes["passed"], [*nodes["failed"], *nodes["error"]])


def _is_whole(config: pytest.Config) -> bool:
    """Whether every test was to be run."""
    # The last one is a plugin's, which can be left out.
    options = ("keyword", "markexpr", "deselect", "collectonly", "lf")
    chosen = any(config.getoption(name, False) for name in options)
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not chosen
