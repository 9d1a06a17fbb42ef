"""The daemon's own words and those of its capsules, into the files of `store.logs`, from a level on."""

from __future__ import annotations

import logging

from aos_runtime.config import LOG_LEVELS
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.logs import LogSink


class LogJournal:
    """Implements `kernel.Journal`.  `echo` repeats the daemon's lines on stderr, for `--foreground`."""

    def __init__(self, sink: LogSink, level: str, *, echo: bool) -> None:
        self._sink = sink
        self._from = LOG_LEVELS.index(level)
        self._echo = _stderr_logger() if echo else None

    def daemon(self, level: str, message: str) -> None:
        """One line of the daemon.  Never raises: a full disk must not end it."""
        if LOG_LEVELS.index(level) >= self._from:
            self._sink.daemon(level, message)
            if self._echo is not None:
                self._echo.info("%s %s", level.upper(), message)

    def capsule(self, principal: PrincipalName, capsule: CapsuleName, level: str, message: str) -> None:
        """One line of a capsule; an error also reaches the daemon's log."""
        if level not in LOG_LEVELS or LOG_LEVELS.index(level) >= self._from:
            self._sink.append(principal, capsule, level, message)

    @property
    def trouble(self) -> str | None:
        """Why lines are being dropped now, None while they are not."""
        return self._sink.trouble


def _stderr_logger() -> logging.Logger:
    logger = logging.Logger("aos-daemon")
    logger.addHandler(logging.StreamHandler())
    return logger
