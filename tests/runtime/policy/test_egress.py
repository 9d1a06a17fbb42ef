"""The airlock: manifest, addresses, the operator's exemptions, and what a refusal says."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.policy.addresses import blocked_reason
from aos_runtime.policy.bounds import Bounds
from aos_runtime.policy.egress import Airlock, EgressCase, EgressDenial
from aos_runtime.policy.hosts import Host, parse_host

PUBLIC, LOCAL = ip_address("93.184.216.34"), ip_address("127.0.0.1")


def host(text: str) -> Host:
    found = parse_host(text)
    assert found is not None
    return found


def airlock(*exemptions: str, **capabilities: tuple[str, ...]) -> Airlock:
    return Airlock("fetcher", Capabilities(**capabilities), exemptions)  # type: ignore[arg-type]


def test_a_principal_narrows_what_a_manifest_lists_and_never_widens_it() -> None:
    bounds = [Bounds("bob")]
    everything = Capabilities(net=("*",), net_connect=("a.com:*", "b.com:1"))
    lock = Airlock("fetcher", everything, (), lambda: bounds[0])
    assert lock.check_request(host("b.com"), 443, "http") is None
    bounds[0] = Bounds("bob", ("a.com:443",))  # from the next connection on
    assert lock.check_request(host("a.com"), 443, "http") is None
    assert lock.check_connect(host("a.com"), 443, "connect-tcp") is None
    assert lock.check_connect(host("a.com"), 0, "lookup-host") is None
    denials = [
        lock.check_request(host("a.com"), 80, "http"),
        lock.check_connect(host("b.com"), 1, "connect-tcp"),
        Airlock("fetcher", Capabilities(), (), lambda: bounds[0]).check_request(host("a.com"), 443, "http"),
    ]
    assert [one and one.render() for one in denials] == [
        'denied operation=http target="a.com:80" case=capability-denied '
        "rule=\"network.egress of principal 'bob' does not list it\" "
        'allow="etc/profiles/bob.toml: [network] egress = [\\"a.com:80\\"]"',
        'denied operation=connect-tcp target="b.com:1" case=capability-denied '
        "rule=\"network.egress of principal 'bob' does not list it\" "
        'allow="etc/profiles/bob.toml: [network] egress = [\\"b.com:1\\"]"',
        'denied operation=http target="a.com:443" case=capability-denied '
        'rule="no net entry covers it" allow="[capabilities] net = [\\"a.com\\"]"',
    ]


@pytest.mark.parametrize(
    ("entries", "name", "is_listed"),
    [
        ((), "example.com", False),
        (("*",), "example.com", True),
        (("example.com",), "EXAMPLE.com.", True),
        (("Example.com.",), "api.example.com", True),
        (("trusted.net",), "nottrusted.net", False),
        (("trusted.net",), "trusted.net.evil.com", False),
        (("api.example.com",), "example.com", False),
        (("münchen.de",), "xn--mnchen-3ya.de", True),
        (("8.8.8.8",), "0x08080808", True),
        (("8.8",), "8.8.8.8", False),
        (("",), "example.com", False),
        (("com..",), "example.com", False),
        (("8.8.8.8",), "8.8.8.8.example.com", False),
        (("1",), "8.8.0.1", False),
    ],
)
def test_sec_06_a_net_entry_lists_a_host_and_what_is_below_it(
    entries: tuple[str, ...], name: str, is_listed: bool
) -> None:
    assert (airlock(net=entries).check_request(host(name), 443, "http-request") is None) is is_listed


@pytest.mark.parametrize(
    ("entries", "name", "port", "is_listed"),
    [
        ((), "db.example", 5432, False),
        (("db.example:5432",), "DB.example", 5432, True),
        (("db.example:5432",), "db.example", 5433, False),
        (("db.example:*",), "db.example", 1, True),
        (("db.example:*",), "x.db.example", 1, False),
        (("*:*",), "db.example", 1, False),
        (("[2606:4700::1]:53",), "2606:4700::1", 53, True),
        (("db.example:5432",), "db.example", 0, False),
        (("db.example:*",), "db.example", 0, True),
    ],
)
def test_net_connect_lists_host_and_port(
    entries: tuple[str, ...], name: str, port: int, is_listed: bool
) -> None:
    assert (airlock(net_connect=entries).check_connect(host(name), port, "connect-tcp") is None) is is_listed


@pytest.mark.parametrize(
    ("name", "port", "case"),
    [
        ("127.0.0.1", 8080, None),
        ("127.0.0.1", 8081, EgressCase.DENIED),
        ("localhost", 0, None),
        ("::1", 1, EgressCase.DENIED),
        ("0.0.0.0", 8080, EgressCase.REJECTED),
        ("::", 8080, EgressCase.REJECTED),
        ("192.168.1.1", 8080, EgressCase.REJECTED),
        ("example.com", 8080, EgressCase.REJECTED),
    ],
)
def test_net_bind_lists_what_is_bound_and_only_on_this_machine(
    name: str, port: int, case: EgressCase | None
) -> None:
    rows = ("127.0.0.1:8080", "localhost:*", "0.0.0.0:8080", "192.168.1.1:*", "example.com:8080")
    denial = airlock(net_bind=rows).check_bind(host(name), port, "bind-tcp")
    assert (None if denial is None else denial.case) == case


@pytest.mark.parametrize(
    ("name", "port", "case"),
    [
        ("0.0.0.0", 0, None),
        ("::", 0, None),
        ("127.0.0.1", 0, None),
        ("localhost", 0, None),
        ("127.0.0.1", 53, None),
        ("127.0.0.1", 54, EgressCase.DENIED),
        ("0.0.0.0", 53, EgressCase.REJECTED),
        ("192.168.1.1", 0, EgressCase.REJECTED),
    ],
)
def test_datagrams_are_bound_where_they_can_be_sent_from(
    name: str, port: int, case: EgressCase | None
) -> None:
    lists = airlock(net_connect=("dns.example:53",), net_bind=("127.0.0.1:53", "0.0.0.0:53"))
    denial = lists.check_datagrams(host(name), port)
    assert (None if denial is None else denial.case) == case
    nobody = airlock(net_bind=("127.0.0.1:53",)).check_datagrams(host(name), port)
    assert nobody is not None and nobody.case is EgressCase.DENIED


def test_a_unix_listener_needs_a_unix_entry() -> None:
    assert airlock(net_bind=("unix:/run/x",)).check_unix("bind-unix") is None
    denial = airlock(net_bind=("127.0.0.1:80",)).check_unix("bind-unix")
    assert denial is not None
    assert denial.allow == '[capabilities] net_bind = ["unix:*"]'


def test_a_denied_host_names_the_manifest_row_that_would_allow_it() -> None:
    denial = airlock(net=("a.example",)).check_request(host("b.example"), 443, "http-request")
    assert denial is not None
    assert denial.render(repeated=2) == (
        'denied operation=http-request target="b.example:443" case=capability-denied '
        'rule="no net entry covers it" allow="[capabilities] net = [\\"b.example\\"]" repeated=2'
    )


@pytest.mark.parametrize(
    ("denial", "line"),
    [
        (
            airlock().check_connect(host("db.example"), 5432, "connect-tcp"),
            'denied operation=connect-tcp target="db.example:5432" case=capability-denied '
            'rule="no net_connect entry covers it" '
            'allow="[capabilities] net_connect = [\\"db.example:5432\\"]"',
        ),
        (
            airlock().check_connect(host("db.example"), 0, "resolve"),
            'denied operation=resolve target="db.example:0" case=capability-denied '
            'rule="no net_connect entry covers it" allow="[capabilities] net_connect = [\\"db.example:*\\"]"',
        ),
        (
            airlock().check_bind(host("::1"), 80, "bind-tcp"),
            'denied operation=bind-tcp target="[::1]:80" case=capability-denied '
            'rule="no net_bind entry covers it" allow="[capabilities] net_bind = [\\"[::1]:80\\"]"',
        ),
        (
            airlock().check_bind(host("0.0.0.0"), 80, "bind-tcp"),
            'denied operation=bind-tcp target="0.0.0.0:80" case=airlock-rejected '
            'rule="a capsule listens on this machine only: localhost, 127.0.0.0/8 or ::1"',
        ),
        (
            airlock().check_datagrams(host("0.0.0.0"), 0),
            'denied operation=udp-bind target="0.0.0.0:0" case=capability-denied '
            'rule="no net_connect entry covers it" allow="[capabilities] net_connect = [\\"HOST:PORT\\"]"',
        ),
        (
            airlock(net_connect=("a:1",)).check_datagrams(host("127.0.0.1"), 53),
            'denied operation=udp-bind target="127.0.0.1:53" case=capability-denied '
            'rule="no net_bind entry covers it" allow="[capabilities] net_bind = [\\"127.0.0.1:53\\"]"',
        ),
        (
            airlock().check_unix("bind-unix"),
            'denied operation=bind-unix target="unix" case=capability-denied '
            'rule="no net_bind entry covers it" allow="[capabilities] net_bind = [\\"unix:*\\"]"',
        ),
    ],
)
def test_each_refusal_names_the_entry_that_would_allow_it(denial: EgressDenial | None, line: str) -> None:
    assert denial is not None
    assert denial.render() == line
    assert denial.kind == (denial.operation, denial.target, denial.rule)


def test_a_blocked_address_says_where_it_leads_and_the_operators_line() -> None:
    denial = airlock().vetted(host("rebound.example"), 80, [LOCAL], "http-request")
    assert isinstance(denial, EgressDenial)
    assert denial.render() == (
        'denied operation=http-request target="rebound.example:80" case=airlock-rejected '
        'rule="127.0.0.1 is this machine" allow="etc/config.toml: [security.capsule_local_egress] '
        'fetcher = [\\"rebound.example:80\\"]"'
    )


def test_sec_04_a_bad_address_beside_a_good_one_is_never_dialled() -> None:
    assert airlock().vetted(host("a.example"), 80, [PUBLIC, LOCAL], "x") == (PUBLIC,)
    assert airlock().vetted(host("a.example"), 80, [LOCAL, PUBLIC], "x") == (PUBLIC,)


def test_a_name_without_an_address_is_no_denial() -> None:
    assert airlock().vetted(host("a.example"), 80, [], "x") == ()


@pytest.mark.parametrize(
    ("entry", "name", "port", "address", "is_open"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080, "127.0.0.1", True),
        ("127.0.0.1:8080", "localhost", 8080, "127.0.0.1", True),
        ("127.0.0.1:8080", "127.0.0.1", 8081, "127.0.0.1", False),
        ("127.0.0.1:8080", "127.0.0.2", 8080, "127.0.0.2", False),
        ("127.0.0.1:*", "127.0.0.1", 1, "127.0.0.1", True),
        ("localhost:8080", "localhost", 8080, "::1", True),
        ("svc.corp:443", "svc.corp", 443, "10.0.0.5", True),
        ("svc.corp:443", "other.corp", 443, "10.0.0.5", False),
        ("svc.corp:443", "svc.corp", 443, "169.254.169.254", False),
        ("svc.corp:443", "svc.corp", 443, "::ffff:169.254.169.254", False),
        ("svc.corp:443", "svc.corp", 443, "168.63.129.16", False),
        ("169.254.169.254:80", "metadata.corp", 80, "169.254.169.254", True),
        ("nonsense", "127.0.0.1", 8080, "127.0.0.1", False),
    ],
)
def test_the_operator_exempts_one_host_and_port(
    entry: str, name: str, port: int, address: str, is_open: bool
) -> None:
    answer = airlock(entry).vetted(host(name), port, [ip_address(address)], "x")
    assert (answer == (ip_address(address),)) is is_open


@given(st.lists(st.ip_addresses(), max_size=4), st.booleans())
def test_without_an_exemption_nothing_blocked_is_ever_dialled(
    addresses: list[IPv4Address | IPv6Address], lists_all: bool
) -> None:
    everything = Capabilities(net=("*",), net_connect=("a.example:*",)) if lists_all else Capabilities()
    answer = Airlock("c", everything).vetted(host("a.example"), 80, addresses, "x")
    good = tuple(one for one in addresses if blocked_reason(one) is None)
    if addresses and not good:
        assert isinstance(answer, EgressDenial)
    else:
        assert answer == good


@given(st.text(max_size=60), st.text(max_size=60))
def test_what_a_guest_names_stays_one_field_of_one_line(target: str, rule: str) -> None:
    line = EgressDenial(operation="x", target=target, case=EgressCase.DENIED, rule=rule).render()
    quoted = line.removeprefix("denied operation=x target=").partition(" case=capability-denied rule=")[0]
    assert "\n" not in line
    assert json.loads(quoted) == target or " case=capability-denied rule=" in json.dumps(target)
