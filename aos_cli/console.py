"""The one object that owns the terminal: data to stdout, talk to stderr.

Nothing else in the toolchain prints.  Text that a guest, an archive or a daemon wrote goes through
`safe` first, because a terminal obeys control characters and a guest could paint an approval prompt.
This module never decides what a command does; it knows streams, colour, verbosity and whether somebody
is there to answer.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO

from aos_cli import environment
from aos_runtime.errors import Unavailable

if TYPE_CHECKING:
    from aos_cli.spinner import Spinner

Format = Literal["pretty", "json"]
ColorChoice = Literal["always", "never", "auto"]
Style = Literal["bold", "dim", "red", "green", "yellow", "blue", "magenta", "cyan"]

_CODES: dict[str, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_BIDI = frozenset(
    "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_RUN_OF_SPACES = re.compile("  +")
_MAX_ANSWER = 64 * 1024


def _escape(character: str) -> str:
    named = _NAMED.get(character)
    if named is not None:
        return named
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def safe(text: str, *, keep_lines: bool = False) -> str:
    """`text` with every C0, DEL, C1, bidirectional and surrogate character escaped: a terminal obeys none.

    With `keep_lines`, line feeds and tabs stay (a tool's answer has lines); everything else is still escaped.
    """
    if text.isascii() and text.isprintable():
        return text
    out = []
    for character in text:
        number = ord(character)
        if keep_lines and character in "\n\t":
            out.append(character)
        elif number < 0x20 or 0x7F <= number <= 0x9F or character in _BIDI or 0xD800 <= number <= 0xDFFF:
            out.append(_escape(character))
        else:
            out.append(character)
    return "".join(out)


def plain(text: str) -> str:
    """`text` in ASCII without a run of spaces, what is not so escaped: it looks like nothing but itself.

    For what a person agrees to: enough spaces would wrap a line and put words where ours stand, and letters
    of other scripts look like those of a known name.
    """
    escaped = text.encode("ascii", "backslashreplace").decode("ascii")
    return _RUN_OF_SPACES.sub(lambda run: " " + "\\x20" * (len(run[0]) - 1), safe(escaped))


def wants_color(choice: ColorChoice | None, environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Whether one stream is painted.

    `--color`, then AOS_COLOR, then NO_COLOR, then CLICOLOR_FORCE and FORCE_COLOR, then TERM=dumb, then
    whether the stream is a terminal (cli-ux 5.2; NO_COLOR beats the forcing ones, unlike in the published
    client).
    """
    picked = choice or environ.get(environment.COLOR, "")
    if picked in ("always", "never"):
        return picked == "always"
    if environ.get(environment.NO_COLOR):
        return False
    if any(environ.get(name, "") not in ("", "0") for name in environment.FORCE_COLOR):
        return True
    if environ.get(environment.TERM) == "dumb":
        return False
    return is_terminal


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


@dataclass(slots=True, kw_only=True)
class Console:
    """The terminal of one run.  `quiet` 1 keeps results and errors, 2 keeps only the exit code."""

    format: Format = "pretty"
    verbosity: int = 0
    quiet: int = 0
    color: ColorChoice | None = None
    no_input: bool = False
    environ: Mapping[str, str]
    spinner: Spinner | None = None
    """What is drawn now; `hushed` stops it for a question."""

    @property
    def is_json(self) -> bool:
        return self.format == "json"

    @property
    def interactive(self) -> bool:
        """Whether somebody can answer: stdin and stderr are terminals, no `--no-input`, no CI."""
        return (
            not self.no_input
            and _is_terminal(sys.stdin)
            and _is_terminal(sys.stderr)
            and not environment.runs_in_ci(self.environ)
        )

    @property
    def paints_stdout(self) -> bool:
        return wants_color(self.color, self.environ, is_terminal=_is_terminal(sys.stdout))

    @property
    def paints_stderr(self) -> bool:
        return wants_color(self.color, self.environ, is_terminal=_is_terminal(sys.stderr))

    @property
    def stdout_is_terminal(self) -> bool:
        return _is_terminal(sys.stdout)

    @property
    def width(self) -> int | None:
        """Columns of stdout where it is a terminal, or as COLUMNS says; None means: never truncate."""
        text = self.environ.get("COLUMNS", "")
        if text.isdigit() and int(text) > 0:
            return int(text)
        if not self.stdout_is_terminal:
            return None
        try:
            return os.get_terminal_size(sys.stdout.fileno()).columns or None
        except (OSError, ValueError):
            return None

    # stdout: the result, and nothing else
    def data(self, text: str) -> None:
        """Write one result text and a line feed to stdout.  The caller has made guest text `safe`."""
        if self.quiet < 2:
            self._write(sys.stdout, text if text.endswith("\n") else text + "\n")

    def json(self, value: object, *, compact: bool = False) -> None:
        """Write one JSON document to stdout: indented, or on one line (records of a stream)."""
        self.data(
            json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            if compact
            else json.dumps(value, ensure_ascii=False, indent=2)
        )

    def paint(self, text: str, *styles: Style) -> str:
        """`text` in colour for stdout, where stdout is painted."""
        return _painted(text, styles) if self.paints_stdout else text

    def paint_talk(self, text: str, *styles: Style) -> str:
        """`text` in colour for stderr, where stderr is painted."""
        return _painted(text, styles) if self.paints_stderr else text

    # stderr: talk, which JSON mode leaves out: there stderr holds only documents
    def note(self, text: str) -> None:
        self._talk(text)

    def detail(self, text: str) -> None:
        """A line that only `-v` shows."""
        if self.verbosity:
            self._talk(self.paint_talk(text, "dim"))

    def success(self, text: str) -> None:
        self._talk(f"{self.paint_talk('✓', 'green')} {text}")

    def warn(self, text: str) -> None:
        """Something that is not as it should be.  In JSON mode one document a line, as errors are."""
        if self.is_json and not self.quiet:
            self.raw_error(json.dumps({"warning": {"message": text}}, ensure_ascii=False))
        else:
            self._talk(f"{self.paint_talk('warning:', 'yellow', 'bold')} {text}")

    def hint(self, text: str) -> None:
        self._talk(f"{self.paint_talk('hint:', 'cyan')} {text}")

    def error(self, text: str) -> None:
        if self.quiet < 2:
            self._write(sys.stderr, f"{self.paint_talk('error:', 'red', 'bold')} {text}\n")

    def raw_error(self, text: str) -> None:
        """Lines on stderr that `-q` and JSON mode keep: a document, a usage, what a question is about."""
        if self.quiet < 2:
            self._write(sys.stderr, text if text.endswith("\n") else text + "\n")

    @contextmanager
    def progress(self, label: str) -> Iterator[None]:
        """Show `label` while the block runs: a spinner on a terminal's stderr, else one line."""
        if self.quiet or self.is_json:
            yield
        elif _is_terminal(sys.stderr) and not self.verbosity and not environment.runs_in_ci(self.environ):
            from aos_cli.spinner import Spinner

            with Spinner(sys.stderr, safe(label)) as self.spinner:
                try:
                    yield
                finally:
                    self.spinner = None
        else:
            self._talk(f"{safe(label)} ...")
            yield

    @contextmanager
    def hushed(self) -> Iterator[None]:
        """Draw nothing while the block talks with a person."""
        spinner = self.spinner
        if spinner is None:
            yield
            return
        with spinner.held():
            yield

    # answers
    def confirm(self, question: str, default: bool) -> bool:
        """Ask a yes or no on the terminal; an empty line is `default`, end of input is no.

        Only called where `interactive`; without a terminal the command says which flag answers.
        """
        self._require_terminal(question)
        suffix = "[Y/n]" if default else "[y/N]"
        while True:
            answer = self._read_line(f"{question} {suffix} ")
            if answer is None:
                return False
            word = answer.strip().lower()
            if not word:
                return default
            if word in ("y", "yes"):
                return True
            if word in ("n", "no"):
                return False

    def ask(self, question: str, hidden: bool = False, default: str | None = None) -> str:
        """Ask for one line.  `hidden` never echoes (and refuses where echo cannot be turned off)."""
        self._require_terminal(question)
        suffix = f" [{safe(default)}]" if default else ""
        if hidden:
            from aos_cli.install.secret_prompt import read_hidden_line

            answer: str | None = read_hidden_line(f"{question}{suffix}: ")
        else:
            answer = self._read_line(f"{question}{suffix}: ")
        if answer is None:
            raise Unavailable(
                "input-ended",
                "the input ended before the question was answered",
                hint="answer the prompt, or pass the value on the command line",
            )
        return answer or (default or "")

    def _require_terminal(self, question: str) -> None:
        if not self.interactive:
            raise Unavailable(
                "no-terminal",
                f"nobody is there to answer: {safe(question)}",
                hint="run it in a terminal, or pass the answer as an option (see --help)",
            )

    def _read_line(self, prompt: str) -> str | None:
        self._write(sys.stderr, prompt)
        line = sys.stdin.readline(_MAX_ANSWER)
        return line.rstrip("\r\n") if line else None

    def _talk(self, text: str) -> None:
        if not self.quiet and not self.is_json:
            self._write(sys.stderr, text + "\n")

    @staticmethod
    def _write(stream: TextIO | None, text: str) -> None:
        if stream is None:
            return
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def _painted(text: str, styles: tuple[Style, ...]) -> str:
    return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"


_current: Console | None = None


def set_console(console: Console) -> None:
    """Make `console` the one that commands talk through.  Called by `app`, and by tests."""
    global _current
    _current = console


def get_console() -> Console:
    """The console of this run (a plain one where `app` has not made one)."""
    global _current
    if _current is None:
        _current = Console(environ=os.environ)
    return _current
