"""aos_cli.render.table: columns by display width (cases LST-06, LST-11)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aos_cli.render.table import Column, clusters, display_width, one_line, render_table, truncate

COLUMNS = (Column(title="NAME"), Column(title="ABOUT", flexible=True))


def test_lst_06_columns_line_up_whatever_the_script() -> None:
    rows = [
        ["model", "日本語のモデル"],
        ["crab", "🦀 crab"],
        ["cafe\u0301", "an embedded\nnewline"],
    ]
    assert render_table(COLUMNS, rows) == (
        "NAME   ABOUT\nmodel  日本語のモデル\ncrab   🦀 crab\ncafe\u0301   an embedded newline"
    )


def test_lst_06_truncation_never_splits_a_glyph() -> None:
    family = "👩\u200d👩\u200d👧"
    assert truncate("日本語のモデル", 6) == "日本…"
    assert truncate("cafe\u0301s", 4) == "caf…"
    assert truncate(f"{family}{family}", 3) == f"{family}…"
    assert truncate("short", 5) == "short"


def test_lst_11_escape_codes_do_not_count() -> None:
    plain = render_table((Column(title="A"), Column(title="B")), [["ok", "x"], ["broken", "y"]])
    green = "\x1b[32mok\x1b[0m"
    painted = render_table((Column(title="A"), Column(title="B")), [[green, "x"], ["broken", "y"]])
    assert painted.replace("\x1b[32m", "").replace("\x1b[0m", "") == plain


def test_numbers_stand_on_the_right_and_nothing_trails() -> None:
    table = render_table(
        (Column(title="CAPSULE"), Column(title="CALLS", align_right=True)), [["a", "7"], ["bb", "1234567"]]
    )
    assert table == "CAPSULE    CALLS\na              7\nbb       1234567"


def test_only_flexible_columns_shrink() -> None:
    rows = [["a-long-name-that-stays", "a description that is far too long for the terminal"]]
    assert render_table(COLUMNS, rows, width=40) == (
        "NAME                    ABOUT\na-long-name-that-stays  a description t…"
    )


@given(st.text(max_size=40), st.integers(min_value=1, max_value=30))
def test_truncated_text_fits(text: str, width: int) -> None:
    assert display_width(truncate(one_line(text), width)) <= max(width, 1)


@given(st.text(max_size=40))
def test_clusters_are_the_text(text: str) -> None:
    assert "".join(clusters(text)) == text
