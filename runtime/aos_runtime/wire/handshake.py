"""The server's side of the handshake, as values.

Source: daemon-kernel.md 2.2.  One exchange binds the connection to `anonymous`; with a claimed principal the
server answers with a challenge, and a second frame proves a key of that principal.  Order of checks: protocol
version, token, challenge.  The other side learns only "authentication failed"; the cause is for the log.
Additive to the published protocol: the first frame may name a `workspace`.

Sans-I/O: frames go in and come out, keys are passed in, deadlines belong to the owner of the socket.  The
client's side is `handshake_client`.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import NamedTuple

from aos_runtime.errors import InvalidInput
from aos_runtime.names import ANONYMOUS_PRINCIPAL, PrincipalName, parse_principal_name
from aos_runtime.wire.handshake_client import (
    AUTHENTICATION_FAILED,
    HEX_DIGITS,
    PROTOCOL_VERSION,
    malformed,
    read_object,
    signed_text,
)

MAX_WORKSPACE_BYTES = 2048
MAX_CLIENT_VERSION_CHARS = 64
MAX_VERSION_NUMBER = 2**32 - 1

SERVER_TIMEOUT_S = 5.0
"""How long the server waits for each handshake frame."""


class KeyEntry(NamedTuple):
    """One public key of a principal's profile.

    `public_key` is 64 hexadecimal digits of ed25519.  A scoped device may only do what `allow` covers and
    `deny` does not; `allow` is None for an unscoped one.
    """

    key_id: str
    public_key: str
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


NO_WORKSPACE = ""


class Identity(NamedTuple):
    """Who a connection is.

    `verified` is True only after a signature; `client_version` is the peer's own text.
    """

    principal: PrincipalName
    device: KeyEntry | None
    client_version: str
    workspace: str | None
    """Absolute; `NO_WORKSPACE` where the peer says that it is in none, None where it says nothing."""

    @property
    def verified(self) -> bool:
        return self.device is not None

    @property
    def device_key_id(self) -> str | None:
        return None if self.device is None else self.device.key_id


class Rejected(NamedTuple):
    """The connection must be closed once the reply is sent.  `cause` is for the log, never for the peer."""

    cause: str


class Reply(NamedTuple):
    """What the server sends, and whether the handshake has ended (None: it waits for the second frame)."""

    frame: bytes
    outcome: Identity | Rejected | None


class ServerHandshake:
    """The server's side of one connection.

    `token` is the daemon's session token; `find_keys` gives the keys of an enabled principal that may
    authenticate with a key pair, else None; `nonce` is 32 fresh random bytes.
    """

    __slots__ = ("_challenged", "_find_keys", "_nonce", "_server_version", "_token")

    def __init__(
        self,
        token: str,
        server_version: str,
        find_keys: Callable[[PrincipalName], tuple[KeyEntry, ...] | None],
        nonce: bytes,
    ) -> None:
        self._token = token.encode()
        self._server_version = server_version
        self._find_keys = find_keys
        self._nonce = nonce.hex()
        self._challenged: tuple[PrincipalName, str | None] | None = None

    def receive(self, frame: bytes) -> Reply:
        """Answer one frame.  PeerFault `handshake-malformed`: it is none, close without a word."""
        request = read_object(frame)
        version = _version_number(request.get("protocol_version"))
        client_version = request.get("client_version")
        if version is None or not isinstance(client_version, str):
            raise malformed()
        if version != PROTOCOL_VERSION:
            return self._reject(_version_text(version), f"protocol version {version}")
        token = request.get("token")
        if not isinstance(token, str) or not compare_digest(token.encode("utf-8", "replace"), self._token):
            return self._reject(AUTHENTICATION_FAILED, "wrong or missing token")
        if self._challenged is None:
            return self._identify(request, client_version[:MAX_CLIENT_VERSION_CHARS])
        return self._verify(request, client_version[:MAX_CLIENT_VERSION_CHARS], *self._challenged)

    def _identify(self, request: Mapping[str, object], client_version: str) -> Reply:
        claimed, workspace = request.get("claimed_principal"), request.get("workspace")
        if workspace is not None:
            problem = workspace_problem(workspace)
            if problem is not None:
                return self._reject(problem, problem)
        folder = str(workspace) if workspace is not None else NO_WORKSPACE if "workspace" in request else None
        if claimed is None:
            return self._accept(Identity(ANONYMOUS_PRINCIPAL, None, client_version, folder))
        return self._challenge(claimed, folder)

    def _challenge(self, claimed: object, workspace: str | None) -> Reply:
        """Whether the principal exists is not told: an unknown one is challenged too."""
        try:
            principal = parse_principal_name(claimed if isinstance(claimed, str) else "")
        except InvalidInput:
            return self._reject(AUTHENTICATION_FAILED, "the claimed principal is no principal name")
        self._challenged = (principal, workspace)
        return Reply(self._render("ok", challenge=self._nonce), None)

    def _verify(
        self,
        request: Mapping[str, object],
        client_version: str,
        principal: PrincipalName,
        workspace: str | None,
    ) -> Reply:
        if request.get("claimed_principal") != principal:
            return self._reject(AUTHENTICATION_FAILED, "the claimed principal changed")
        signature = request.get("signature")
        if not isinstance(signature, str) or not _is_signature(signature):
            return self._reject(AUTHENTICATION_FAILED, f"no signature for principal {principal}")
        keys = self._find_keys(principal)
        if keys is None:
            return self._reject(AUTHENTICATION_FAILED, f"principal {principal} cannot authenticate")
        signed = signed_text(principal, self._nonce)
        for key in keys:
            if _is_signed_by(key.public_key, signed, bytes.fromhex(signature)):
                return self._accept(Identity(principal, key, client_version, workspace))
        return self._reject(AUTHENTICATION_FAILED, f"no key of principal {principal} made the signature")

    def _accept(self, identity: Identity) -> Reply:
        return Reply(self._render("ok"), identity)

    def _reject(self, reason: str, cause: str) -> Reply:
        return Reply(self._render("error", reason=reason), Rejected(cause))

    def _render(self, status: str, **optional: str) -> bytes:
        fields = {
            "status": status,
            "protocol_version": PROTOCOL_VERSION,
            "server_version": self._server_version,
        }
        return json.dumps({**fields, **optional}).encode()


def workspace_problem(workspace: object) -> str | None:
    """What is wrong with the text of a workspace; whether the folder may serve is the server's check."""
    if not isinstance(workspace, str) or not workspace.startswith("/") or "\0" in workspace:
        return "workspace must be an absolute path"
    if len(workspace.encode("utf-8", "surrogatepass")) > MAX_WORKSPACE_BYTES:
        return f"workspace is longer than {MAX_WORKSPACE_BYTES} bytes"
    if posixpath.normpath(workspace) != workspace or workspace.startswith("//"):
        return "workspace must be a canonical path, without `.`, `..` or doubled slashes"
    return None


def _version_number(value: object) -> int | None:
    """A protocol version that can be talked about; a bool, a fraction or an absurd number is no version."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_VERSION_NUMBER:
        return value
    return None


def _is_signature(text: str) -> bool:
    return len(text) == 128 and HEX_DIGITS.issuperset(text.lower())


def _is_signed_by(public_key: str, text: bytes, signature: bytes) -> bool:
    from nacl.exceptions import CryptoError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(bytes.fromhex(public_key)).verify(text, signature)
    except (CryptoError, ValueError, TypeError):
        return False
    return True


def _version_text(client: int) -> str:
    return (
        f"Protocol version mismatch (client={client}, server={PROTOCOL_VERSION}). "
        "Restart the daemon with `aos restart`."
    )
