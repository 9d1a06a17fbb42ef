"""Boot order: uplinks, providers, and cycles that are named."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.kernel.order import BootOrder, boot_order
from aos_runtime.names import CapsuleName
from tests.support.kernels import make_installed


def order(**extras: str) -> BootOrder:
    return boot_order(
        {CapsuleName(name): make_installed(name, extra=extra).manifest for name, extra in extras.items()}
    )


def exports(*names: str) -> str:
    return "".join(f'[exports."t"]\n{name} = "1.2.0"\n' for name in names)


def imports(*names: str, requirement: str = "^1") -> str:
    rows = "".join(f'{name} = "{requirement}"\n' for name in names)
    return f'[imports."t"]\n{rows}'


UPLINK = "[capabilities]\nuplink = true\n"


def test_without_imports_the_order_is_that_of_names() -> None:
    assert order(c="", a="", b="") == BootOrder(names=("a", "b", "c"))


def test_providers_come_first_and_uplinks_before_all() -> None:
    found = order(a=imports("x"), z=exports("x"), up=UPLINK, m=imports("y") + exports("z"), y=exports("y"))
    assert found.names == ("up", "y", "z", "a", "m")
    assert found.notes == ()


def test_a_cycle_is_named_and_stops_nobody() -> None:
    found = order(a=imports("x") + exports("y"), b=imports("y") + exports("x"), c=imports("x"), free="")
    assert set(found.names) == {"a", "b", "c", "free"}
    assert found.names[0] == "free"
    assert found.notes == ("import cycle: a -> b -> a",)


def test_what_nothing_exports_is_named() -> None:
    found = order(a=imports("x", requirement="^2"), b=exports("x"))
    assert found == BootOrder(
        names=("a", "b"), notes=("capsule a imports t/x ^2, which nothing here exports",)
    )


def test_who_exports_the_same_is_named_and_comes_before_who_imports_it() -> None:
    found = order(a=imports("x"), y='[exports."t"]\nx = "1.2.0"\nw = "1.2.0"\n', z=exports("x"))
    assert found == BootOrder(names=("y", "z", "a"), notes=("t/x is exported by y, z",))


def test_an_optional_import_orders_and_is_never_missing() -> None:
    wish = '[imports."t"]\nx = { version = "^1", optional = true }\n'
    assert order(a=wish, b=exports("x")) == BootOrder(names=("b", "a"))
    assert order(a=wish) == BootOrder(names=("a",))


def test_exporting_to_oneself_is_no_cycle() -> None:
    assert order(a=imports("x") + exports("x")) == BootOrder(names=("a",))


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdef"), max_size=3)))
def test_every_capsule_comes_up_once_after_what_it_needs(needs: dict[str, set[str]]) -> None:
    found = order(
        **{
            name: exports(f"i{name}") + (imports(*(f"i{one}" for one in sorted(wanted))) if wanted else "")
            for name, wanted in needs.items()
        }
    )
    assert sorted(found.names) == sorted(needs)
    if not any("cycle" in note for note in found.notes):
        for name, wanted in needs.items():
            for one in wanted & set(needs) - {name}:
                assert found.names.index(CapsuleName(one)) < found.names.index(CapsuleName(name))
