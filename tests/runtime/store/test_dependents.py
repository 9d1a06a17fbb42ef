"""store.dependents: who would lose an import."""

from __future__ import annotations

from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from aos_runtime.store.dependents import find_dependents
from tests.runtime.store.conftest import Install

EXPORTS = '\n[exports]\n"acme:notes" = "1.0.0"\n'
IMPORTS = '\n[imports]\n"acme:notes" = { version = "^1.0", optional = true }\n'


def test_a_sole_exporter_is_needed_even_for_an_optional_import(home: Home, install: Install) -> None:
    install("provider", extra=EXPORTS)
    install("user", extra=IMPORTS)
    assert find_dependents(home, DEFAULT_PRINCIPAL, CapsuleName("provider")) == (("user", "acme:notes"),)
    assert find_dependents(home, DEFAULT_PRINCIPAL, CapsuleName("user")) == ()


def test_a_second_exporter_frees_the_first(home: Home, install: Install) -> None:
    install("provider", extra=EXPORTS)
    install("second", extra=EXPORTS)
    install("user", extra=IMPORTS)
    assert find_dependents(home, DEFAULT_PRINCIPAL, CapsuleName("provider")) == ()
