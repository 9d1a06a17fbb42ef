"""`scripts/soak mutants`: which changes are made, and that a weak test is told from a strong one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.soak.mutants import LISTED, End, fault_of_share, read_reasons
from tests.support.mutation import read_mutations

ROOT = Path(__file__).parents[2]

LIMITS = '''"""Docstring."""
ENDLESS = False

def is_short(text: str) -> bool:
    return len(text) < 3

def count_down(number: int) -> list[int]:
    numbers = []
    while number > 0:
        numbers.append(number)
        number -= 1
    return numbers

TABLE = dict(zip("ab", [1, 2]))
BASE = int("7")
'''
STRONG = """
from planted.limits import count_down, is_short, TABLE, ENDLESS

def test_short():
    assert is_short("ab") and not is_short("abc") and is_short("") is True

def test_count_down():
    assert count_down(2) == [2, 1] and count_down(1) == [1]

def test_table():
    assert TABLE == {"a": 1, "b": 2} and ENDLESS is False
"""
WEAK = """
import planted.limits

def test_runs():
    assert planted.limits.is_short("a")
"""

DRIVER = """
import json, sys
from pathlib import Path
from tests.soak import mutants
from tests.soak.registry import Budget

folder = Path.cwd()
room = mutants.Room(
    package="planted", sources=folder / "planted", tests=folder / "checks", roots=(folder,)
)
reasons = {tuple(one): "" for one in json.loads(sys.argv[1])}
tally = mutants.try_rooms([room], reasons, mutants.Order(budget=Budget(for_s=None), seed=1))
print(json.dumps([tally.total(), sorted(f"{m.line} {m.what}" for m in tally.survivors), tally.faults]))
"""


def changes(tmp_path: Path, source: str) -> list[str]:
    path = tmp_path / "one.py"
    path.write_text(source, encoding="utf-8")
    found = read_mutations(path, "one")
    for mutation in found:
        mutation.code()
    return [mutation.what for mutation in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = b < c", ["b < c -> b <= c"]),
        ("a = b >= c", ["b >= c -> b > c"]),
        ("a = b < c == d", ["b < c == d -> b <= c == d", "b < c == d -> b < c != d"]),
        ("a = b is None", ["b is None -> b is not None"]),
        ("a = b in c", ["b in c -> b not in c"]),
        ("a = b and c", ["b and c -> c", "b and c -> b"]),
        ("a = b or (c, d)", ["b or (c, d) -> (c, d)", "b or (c, d) -> b"]),
        (
            "a = b or c or d",
            ["b or c or d -> c or d", "b or c or d -> b or d", "b or c or d -> b or c"],
        ),
        ("a = not b", ["not b -> b"]),
        ("a = -b", ["-b -> b"]),
        ("a = b(c) if d else e", ["d -> not d"]),
        ("a = [b for b in c if b.d]", ["b.d -> not b.d"]),
        ("a = 3", ["3 -> 4"]),
        ("a = True", ["True -> False"]),
        ("a = 'b'", ["'b' -> ''"]),
        ("a = ''", ["'' -> 'mutant'"]),
        ("a = b''", ["b'' -> b'mutant'"]),
        ("a = f'{b}:{c}'", ["':' -> ''"]),
        ("a = b + c", ["b + c -> b - c"]),
        ("a = b << c", ["b << c -> b >> c"]),
        ("a = {b: c, d: e}", ["without b: {b: c, d: e}", "without d: {b: c, d: e}"]),
        ("a = {b, c}", ["without b: {b, c}", "without c: {b, c}"]),
        ("a = [b]", ["without b: [b]"]),
        ("a = (b, c)", ["without b: (b, c)", "without c: (b, c)"]),
        ("a += b", ["a += b -> a -= b", "a += b -> removed"]),
        ("a.b = c", ["a.b = c -> removed"]),
        ("a[b] = c", ["a[b] = c -> removed"]),
        ("a(b)", ["a(b) -> removed"]),
        ("raise a", ["raise a -> removed"]),
        ("while a:\n  break", ["a -> not a", "break -> continue"]),
        ("def a(b=1):\n  return b", ["1 -> 2", "return b -> return None"]),
    ],
)
def test_each_kind_of_change(tmp_path: Path, source: str, expected: list[str]) -> None:
    assert changes(tmp_path, source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Docstring."""',
        "def a():\n  '''Docstring.'''",
        "def a(b: 'c') -> 'd': ...",
        "a: Literal['b']",
        "A = NewType('A', str)",
        "@dataclass(frozen=True)\nclass A(B, gc=False): ...",
        "class A:\n  __slots__ = ('b', 'c')",
        "if TYPE_CHECKING:\n  a = 1",
        "a = 'a sentence for people'",
        "a, b = c, d",
        "def a():\n  return None",
        "a = 'b' + c",
    ],
)
def test_what_cannot_matter_is_left_alone(tmp_path: Path, source: str) -> None:
    left = changes(tmp_path, source)
    assert left == (["'b' -> ''"] if source == "a = 'b' + c" else [])


def test_a_mutation_leaves_the_source_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text("a = 1 < 2", encoding="utf-8")
    for mutation, value in zip(read_mutations(path, "one"), (True, False, True), strict=True):
        names: dict[str, object] = {}
        exec(mutation.code(), names)
        assert names["a"] is value, mutation.what


def plant(tmp_path: Path, test: str) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "checks").mkdir()
    (tmp_path / "planted/limits.py").write_text(LIMITS, encoding="utf-8")
    (tmp_path / "checks/test_limits.py").write_text(test, encoding="utf-8")


def command(tmp_path: Path, listed: list[list[str]]) -> tuple[list[str], dict[str, str]]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "runtime", tmp_path)))
    environment = {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"}
    return [sys.executable, "-c", DRIVER, json.dumps(listed)], environment


def try_planted(
    tmp_path: Path, test: str, listed: list[list[str]] | None = None
) -> tuple[Counter[str], list[str], list[str]]:
    plant(tmp_path, test)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    arguments, environment = command(tmp_path, listed or [])
    done = subprocess.run(
        arguments, cwd=tmp_path, env=environment, capture_output=True, check=True, timeout=300
    )
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    ends, survivors, faults = json.loads(done.stdout)
    return Counter(ends), survivors, faults


def test_a_strong_test_leaves_nobody_alive(tmp_path: Path) -> None:
    ends, survivors, faults = try_planted(tmp_path, STRONG)
    assert (survivors, faults) == ([], [])
    assert ends == {End.KILLED: 14, End.TIMED_OUT: 2, End.VOID: 1}


def test_a_weak_test_is_shown_what_it_does_not_notice(tmp_path: Path) -> None:
    boundary = ["planted.limits", "is_short", "len(text) < 3 -> len(text) <= 3"]
    noticed = ["planted.limits", "is_short", "return len(text) < 3 -> return None"]
    gone = ["planted.limits", "is_short", "len(text) < 4 -> len(text) <= 4"]
    ends, survivors, faults = try_planted(tmp_path, WEAK, [boundary, noticed, gone])
    assert "5 3 -> 4" in survivors
    assert "12 return numbers -> return None" in survivors, "no test calls it"
    assert "5 len(text) < 3 -> len(text) <= 3" not in survivors
    assert ends["equivalent"] == 2
    assert faults == [
        "listed as equivalent, but there is none: planted.limits is_short len(text) < 4 -> len(text) <= 4",
        "listed as equivalent, but killed: planted/limits.py:5: return len(text) < 3 -> return None",
    ]


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        ("checks/test_limits.py", "def test_it():\n    assert False\n", "checks/test_limits.py::test_it"),
        (
            "conftest.py",
            "def pytest_sessionfinish(session):\n    session.exitstatus = 1\n",
            "the tests fail in a process of their own, though nothing is changed",
        ),
    ],
)
def test_tests_that_fail_anyway_notice_nothing(tmp_path: Path, path: str, text: str, told: str) -> None:
    plant(tmp_path, STRONG)
    (tmp_path / path).write_text(text, encoding="utf-8")
    arguments, environment = command(tmp_path, [])
    done = subprocess.run(
        arguments, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=300
    )
    assert done.returncode != 0
    assert f"RuntimeError: {told}" in done.stderr.decode()


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    plant(tmp_path, "import time\n\ndef test_it():\n    time.sleep(100)\n")
    arguments, environment = command(tmp_path, [])
    with subprocess.Popen(
        arguments, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        child = wait_for_child(process.pid)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode != 0
    assert not Path(f"/proc/{child}").exists()
    assert list((tmp_path / "scratch").iterdir()) == []


def wait_for_child(pid: int) -> int:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        if children:
            return int(children[0])
        time.sleep(0.05)
    raise AssertionError("no mutant was started")


def test_a_sample_is_given_what_chance_may_do_and_a_whole_run_is_not() -> None:
    good, poor = Counter(killed=89, survived=11), Counter(killed=80, survived=20)
    assert fault_of_share(good, is_sample=True) is None
    assert fault_of_share(good, is_sample=False) == "89.0% of 100 noticed, less than 90.0%"
    assert fault_of_share(poor, is_sample=True) == "80.0% of 100 noticed, less than 85.1%"
    assert fault_of_share(Counter({End.VOID: 3}), is_sample=True) == "no mutant was tried"
    broken = Counter({End.KILLED: 100, End.BROKEN: 2})
    assert fault_of_share(broken, is_sample=True) == "2 of 100 broke down outside of the tests"


def test_every_listed_mutant_has_a_reason() -> None:
    assert all(len(why) > 20 for why in read_reasons(LISTED).values())
