"""Look-ups: bounded, cut short, never repeated."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from aos_runtime.network import Dialer, Fault, NetworkFault
from aos_runtime.network.dialer import MAX_ADDRESSES, MAX_LOOKUPS, default_tls
from aos_runtime.network.waits import Wait


def fault_of(dialer: Dialer, wait: Wait) -> Fault:
    with pytest.raises(NetworkFault) as caught:
        dialer.resolve("slow.example", wait)
    return caught.value.fault


def test_a_look_up_that_hangs_is_given_up_and_the_slot_is_freed_when_it_ends() -> None:
    gate = threading.Event()

    def hang(_name: str) -> Sequence[str]:
        gate.wait(20.0)
        return ["93.184.216.34"]

    dialer = Dialer(look_up=hang)
    assert fault_of(dialer, Wait.of(0.05)) is Fault.TIMEOUT
    assert fault_of(dialer, Wait.of(20.0, lambda: True)) is Fault.CUT
    for _ in range(MAX_LOOKUPS - 2):
        assert fault_of(dialer, Wait.of(0.0)) is Fault.TIMEOUT
    assert fault_of(dialer, Wait.of(20.0)) is Fault.CROWDED
    gate.set()
    wait = Wait.of(20.0)
    while True:
        try:
            assert dialer.resolve("now.example", wait) == (ip_address("93.184.216.34"),)
            return
        except NetworkFault as fault:
            assert fault.fault is Fault.CROWDED


@pytest.mark.parametrize("error", [socket.gaierror("x"), OSError("x"), UnicodeError("x")])
def test_a_name_that_has_none_is_unresolved(error: Exception) -> None:
    def fail(_name: str) -> Sequence[str]:
        raise error

    assert fault_of(Dialer(look_up=fail), Wait.of(20.0)) is Fault.UNRESOLVED


def test_answers_are_read_once_each_and_only_so_many() -> None:
    found = ["1.1.1.1", "nonsense", "1.1.1.1", *(f"1.1.1.{n}" for n in range(2, 60))]
    addresses = Dialer(look_up=lambda _name: found).resolve("a.example", Wait.of(20.0))
    assert addresses == tuple(ip_address(f"1.1.1.{n}") for n in range(1, MAX_ADDRESSES + 1))


def test_the_system_s_resolver_knows_this_machine() -> None:
    found = Dialer().resolve("localhost", Wait.of(20.0))
    assert {address.is_loopback for address in found} == {True}


def test_certificates_are_always_checked() -> None:
    context = default_tls()
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert context.minimum_version.name == "TLSv1_2"
