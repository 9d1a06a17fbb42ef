"""store.secrets: private files, and values in no message."""

from __future__ import annotations

import pytest

from aos_runtime.errors import AosError, InvalidInput, LimitExceeded
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, EnvKey
from aos_runtime.store.secrets import delete_secret, list_secrets, read_secret, write_secret

DEMO = CapsuleName("demo")
KEY = EnvKey("TOKEN")


def test_a_secret_lies_in_a_private_file_as_raw_bytes(home: Home) -> None:
    write_secret(home, DEFAULT_PRINCIPAL, DEMO, KEY, "s3cret ü")
    path = home.secret(DEFAULT_PRINCIPAL, DEMO, KEY)
    assert path.read_bytes() == "s3cret ü".encode()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert read_secret(home, DEFAULT_PRINCIPAL, DEMO, KEY) == "s3cret ü"
    assert list_secrets(home, DEFAULT_PRINCIPAL, DEMO) == (KEY,)


def test_a_deleted_secret_is_gone(home: Home) -> None:
    assert not delete_secret(home, DEFAULT_PRINCIPAL, DEMO, KEY)
    write_secret(home, DEFAULT_PRINCIPAL, DEMO, KEY, "x")
    assert delete_secret(home, DEFAULT_PRINCIPAL, DEMO, KEY)
    assert read_secret(home, DEFAULT_PRINCIPAL, DEMO, KEY) is None
    assert list_secrets(home, DEFAULT_PRINCIPAL, DEMO) == ()


@pytest.mark.parametrize(
    ("value", "family"), [("", InvalidInput), ("se\0cret", InvalidInput), ("secret" * 20_000, LimitExceeded)]
)
def test_ins_12_a_refusal_does_not_show_the_value(home: Home, value: str, family: type[AosError]) -> None:
    with pytest.raises(family) as caught:
        write_secret(home, DEFAULT_PRINCIPAL, DEMO, KEY, value)
    shown = f"{caught.value.message} {caught.value.hint} {caught.value.context}"
    assert value == "" or value[:6] not in shown.replace("secret `TOKEN`", "")
    assert not home.root.exists()
