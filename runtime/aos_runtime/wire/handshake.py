"""The handshake of a connection, both sides, as values.

Source: daemon-kernel.md 2.2.  One exchange binds the connection to `anonymous`; with a claimed principal
the server answers with a challenge, and a second frame proves a key of that principal.  Order of checks:
protocol version, token, challenge.  The other side learns only "authentication failed"; the cause is for
the daemon's log.

Sans-I/O: frames go in and come out, keys and signing are passed in, deadlines belong to the owner of the
socket. The client side needs only the standard library; the server loads its signature check when it
meets a signature. Additive to the published protocol: the first frame may name a `workspace`.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import NamedTuple

from aos_runtime.errors import AosError, Denied, InvalidInput, PeerFault
from aos_runtime.names import ANONYMOUS_PRINCIPAL, PrincipalName, parse_principal_name

PROTOCOL_VERSION = 1
MAX_WORKSPACE_BYTES = 2048
MAX_CLIENT_VERSION_CHARS = 64

SERVER_TIMEOUT_S = 5.0
"""How long the server waits for each handshake frame."""

CLIENT_TIMEOUT_S = 10.0

_AUTHENTICATION_FAILED = "authentication failed"
_HEX = frozenset("0123456789abcdef")


class KeyEntry(NamedTuple):
    """One public key of a principal's profile.

    `public_key` is 64 hexadecimal digits of ed25519.  A scoped device may only do what `allow` covers and
    `deny` does not; `allow` is None for an unscoped one.
    """

    key_id: str
    public_key: str
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class Identity(NamedTuple):
    """Who a connection is.  `verified` is True only after a signature; `client_version` is the peer's own
    text.
    """

    principal: PrincipalName
    device: KeyEntry | None
    client_version: str
    workspace: str | None

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


class ServerHello(NamedTuple):
    """What the client learnt: the handshake is done."""

    server_version: str
    protocol_version: int


def signed_text(principal: str, challenge: str) -> bytes:
    """The bytes that the principal's key signs."""
    return f"astrid-principal-auth:v1:{principal}:{challenge}".encode("ascii")


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
        """Answer one frame.  PeerFault `handshake-malformed` where it is no handshake: close without a
        word.
        """
        request = _read_object(frame)
        version = request.get("protocol_version")
        client_version = request.get("client_version")
        if not isinstance(version, int) or isinstance(version, bool) or not isinstance(client_version, str):
            raise _malformed()
        if version != PROTOCOL_VERSION:
            return self._reject(_version_text(version), f"protocol version {version}")
        token = request.get("token")
        if not isinstance(token, str) or not compare_digest(token.encode("utf-8", "replace"), self._token):
            return self._reject(_AUTHENTICATION_FAILED, "wrong or missing token")
        return self._identify(request, client_version[:MAX_CLIENT_VERSION_CHARS])

    def _identify(self, request: Mapping[str, object], client_version: str) -> Reply:
        claimed = request.get("claimed_principal")
        if self._challenged is not None:
            principal, workspace = self._challenged
            if claimed != principal:
                return self._reject(_AUTHENTICATION_FAILED, "the claimed principal changed")
            return self._verify(principal, request.get("signature"), client_version, workspace)
        workspace = request.get("workspace")  # type: ignore[assignment]  # checked on the next line
        problem = None if workspace is None else workspace_problem(workspace)
        if problem is not None:
            return self._reject(problem, problem)
        if claimed is None:
            return self._accept(Identity(ANONYMOUS_PRINCIPAL, None, client_version, workspace))
        return self._challenge(claimed, workspace)

    def _challenge(self, claimed: object, workspace: str | None) -> Reply:
        """Whether the principal exists is not told: an unknown one is challenged too."""
        try:
            principal = parse_principal_name(claimed if isinstance(claimed, str) else "")
        except InvalidInput:
            return self._reject(_AUTHENTICATION_FAILED, "the claimed principal is no principal name")
        self._challenged = (principal, workspace)
        return Reply(self._render("ok", challenge=self._nonce), None)

    def _verify(
        self, principal: PrincipalName, signature: object, client_version: str, workspace: str | None
    ) -> Reply:
        if not isinstance(signature, str) or len(signature) != 128 or not _HEX.issuperset(signature.lower()):
            return self._reject(_AUTHENTICATION_FAILED, f"no signature for principal {principal}")
        keys = self._find_keys(principal)
        if keys is None:
            return self._reject(_AUTHENTICATION_FAILED, f"principal {principal} cannot authenticate")
        signed = signed_text(principal, self._nonce)
        for key in keys:
            if _is_signed_by(key.public_key, signed, bytes.fromhex(signature)):
                return self._accept(Identity(principal, key, client_version, workspace))
        return self._reject(_AUTHENTICATION_FAILED, f"no key of principal {principal} made the signature")

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


class ClientHandshake:
    """The client's side of one connection.

    With `principal` and `sign` (ed25519 over bytes, 64 bytes back) it authenticates; without, it is
    anonymous. `workspace` is the absolute path of the folder that `cwd://` means for this connection.
    """

    __slots__ = ("_fields", "_principal", "_proved", "_sign")

    def __init__(
        self,
        token: str,
        client_version: str,
        principal: str | None = None,
        sign: Callable[[bytes], bytes] | None = None,
        workspace: str | None = None,
    ) -> None:
        self._principal = principal if sign is not None else None
        self._sign = sign
        self._proved = False
        self._fields: dict[str, object] = {
            "token": token,
            "protocol_version": PROTOCOL_VERSION,
            "client_version": client_version,
            "claimed_principal": self._principal,
        }
        if workspace is not None:
            self._fields["workspace"] = workspace

    def start(self) -> bytes:
        """The first frame to send."""
        return self._render(None)

    def receive(self, frame: bytes) -> bytes | ServerHello:
        """One reply: the next frame to send, or the end.

        PeerFault `protocol-version` (versions of both sides, case DMN-17), `handshake-malformed`; Denied
        `authentication-failed`, `handshake-refused`.
        """
        reply = _read_object(frame)
        version, server_version = reply.get("protocol_version"), reply.get("server_version")
        if not isinstance(version, int) or not isinstance(server_version, str):
            raise _malformed()
        if version != PROTOCOL_VERSION:
            raise _versions_differ(str(self._fields["client_version"]), server_version, version)
        if reply.get("status") != "ok":
            raise _refused(reply.get("reason"), self._principal)
        challenge = reply.get("challenge")
        if challenge is not None:
            return self._prove(challenge)
        if self._principal is not None and not self._proved:
            raise _malformed()  # it never asked for the proof, so it cannot have bound us to the principal
        return ServerHello(server_version, version)

    def _prove(self, challenge: object) -> bytes:
        """Sign only what has the shape of a challenge: a server must not choose other text for us to
        sign.
        """
        shaped = isinstance(challenge, str) and len(challenge) == 64 and _HEX.issuperset(challenge)
        if not shaped or self._principal is None or self._sign is None or self._proved:
            raise _malformed()
        self._proved = True
        return self._render(self._sign(signed_text(self._principal, str(challenge))).hex())

    def _render(self, signature: str | None) -> bytes:
        return json.dumps({**self._fields, "signature": signature}).encode()


def workspace_problem(workspace: object) -> str | None:
    """What is wrong with the text of a workspace; whether the folder may serve as one is the server's
    check.
    """
    if not isinstance(workspace, str) or not workspace.startswith("/") or "\0" in workspace:
        return "workspace must be an absolute path"
    if len(workspace.encode("utf-8", "surrogatepass")) > MAX_WORKSPACE_BYTES:
        return f"workspace is longer than {MAX_WORKSPACE_BYTES} bytes"
    if posixpath.normpath(workspace) != workspace or workspace.startswith("//"):
        return "workspace must be a canonical path, without `.`, `..` or doubled slashes"
    return None


def _read_object(frame: bytes) -> dict[str, object]:
    try:
        value = json.loads(frame)
    except (ValueError, RecursionError):
        raise _malformed() from None
    if not isinstance(value, dict):
        raise _malformed()
    return value


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


def _versions_differ(client_version: str, server_version: str, protocol: int) -> PeerFault:
    return PeerFault(
        "protocol-version",
        f"this is aos {client_version} with protocol {PROTOCOL_VERSION}, the running daemon is {server_version[:64]} "
        f"with protocol {protocol}",
        hint="run `aos restart`",
        client_version=client_version,
        server_version=server_version,
        client_protocol=PROTOCOL_VERSION,
        server_protocol=protocol,
    )


def _refused(reason: object, principal: str | None) -> AosError:
    if reason == _AUTHENTICATION_FAILED:
        return Denied(
            "authentication-failed",
            f"the daemon did not accept this client as principal {principal or ANONYMOUS_PRINCIPAL}",
            hint="check that AOS_HOME is the daemon's; `aos restart` makes a new token",
        )
    text = reason[:512] if isinstance(reason, str) else "no reason given"
    return Denied("handshake-refused", f"the daemon refused the connection: {text}", hint="see `aos logs`")


def _malformed() -> PeerFault:
    return PeerFault(
        "handshake-malformed",
        "the other side does not speak the handshake of this protocol",
        hint="check that the socket is that of an aos daemon; `aos restart` replaces a foreign one",
    )
