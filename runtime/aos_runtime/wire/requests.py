"""Requests to kernel, admin and tools door, decoded; their replies, encoded.

Source: daemon-kernel.md 5.1 to 5.3.  Requests must carry the `raw_json` tag.  A payload without `method`
is not for us (the topics are shared with capsules) and is left alone; a method that nobody knows, or
parameters that do not fit, are answered with an `Error` that says so.  This module decides no permission:
`required_capabilities` only names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from aos_runtime.errors import AosError
from aos_runtime.wire.methods import ADMIN_METHODS, METHODS, Method
from aos_runtime.wire.payloads import RAW_JSON

MAX_CALL_TIMEOUT_S = 3600.0
DEFAULT_CALL_TIMEOUT_S = 60.0
MAX_EXPORT = 1000
DEFAULT_EXPORT = 500


class Request(Struct, frozen=True):
    """A well-formed request.

    `params` holds every parameter of the method, absent ones with their default.
    """

    method: Method
    params: dict[str, Any]
    request_id: str | None = None


class BadRequest(Struct, frozen=True):
    """A request that must be answered with `error(text, request_id)`."""

    text: str
    request_id: str | None = None


class _Params(Struct, frozen=True):
    pass


class _ById(_Params, frozen=True):
    id: str


class _Principal(_Params, frozen=True):
    target_principal: str


class _Shutdown(_Params, frozen=True):
    reason: str | None = None


class _Remove(_ById, frozen=True):
    force: bool = False
    purge: bool = False


class EnvValue(Struct, frozen=True):
    """One `[env]` value that comes with an install."""

    key: str
    value: str
    kind: Literal["Text", "Secret"] = "Text"


class _Install(_Params, frozen=True):
    source: str
    workspace: bool = False
    target_principal: str | None = None
    provenance: dict[str, Any] | None = None
    authority: Literal["automatic", "explicit_approval", "operator_distribution"] = "automatic"
    env: list[EnvValue] = field(default_factory=list)
    expected_generation: Any = None
    batch: Any = None


class _Activate(_Params, frozen=True):
    stage_id: str
    principal: str


class _BeginBatch(_Params, frozen=True):
    members: list[dict[str, Any]]
    target_principal: str | None = None


class _FinishBatch(_Params, frozen=True):
    batch_id: str
    target_principal: str | None = None


class _Receipt(_Params, frozen=True):
    receipt: Any


class _Approve(_Params, frozen=True):
    request_id: str
    signature: str


class _AuditExport(_Params, frozen=True):
    session: str
    principal: str | None = None
    from_entry: Annotated[int, Meta(ge=0)] = field(default=0, name="from")
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_EXPORT)] = DEFAULT_EXPORT


class _ApprovalList(_Params, frozen=True):
    principal: str | None = None


class _ApprovalAnswer(_ApprovalList, frozen=True, kw_only=True):
    request_id: str
    decision: Literal["approve", "approve_session", "approve_always", "deny"]


class _ApprovalRevoke(_ApprovalList, frozen=True, kw_only=True):
    id: str


Names = Annotated[list[str], Meta(max_length=256)]
"""Groups, capsules or capabilities in one request."""


class _Agent(_Params, frozen=True):
    principal: str


class _AgentCreate(_Params, frozen=True):
    name: str
    groups: Names = field(default_factory=list)
    grants: Names = field(default_factory=list)
    inherit_from: str | None = None
    clone_from: str | None = None
    allow_admin_clone: bool = False


class _AgentModify(_Agent, frozen=True):
    add_groups: Names = field(default_factory=list)
    remove_groups: Names = field(default_factory=list)
    add_capsules: Names = field(default_factory=list)
    remove_capsules: Names = field(default_factory=list)


class _Group(_Params, frozen=True):
    name: str


class _GroupCreate(_Group, frozen=True):
    capabilities: Names
    description: str | None = None
    unsafe_admin: bool = False


class _GroupModify(_Group, frozen=True):
    """What is left out stays; a description of null is taken away."""

    capabilities: Names | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    unsafe_admin: bool | UnsetType = UNSET


class _CapsGrant(_Agent, frozen=True):
    capabilities: Names
    unsafe_admin: bool = False


class _CapsRevoke(_Agent, frozen=True):
    capabilities: Names


class _CapsExplain(_Agent, frozen=True):
    capability: str


class _QuotaSet(_Agent, frozen=True):
    quotas: dict[str, int]


class _ToolName(_Params, frozen=True):
    name: str


class _ToolCall(_Params, frozen=True):
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    timeout_s: float = DEFAULT_CALL_TIMEOUT_S

    def __post_init__(self) -> None:
        if not 0 < self.timeout_s <= MAX_CALL_TIMEOUT_S:
            raise ValueError(f"timeout_s must be over 0 and at most {MAX_CALL_TIMEOUT_S:g}")


class _ToolCancel(_Params, frozen=True):
    corr: str | None = None
    call_id: str | None = None

    def __post_init__(self) -> None:
        if (self.corr is None) == (self.call_id is None):
            raise ValueError("cancel takes either `corr` or `call_id`")


_KERNEL_PARAMS: dict[str, type[_Params]] = {
    "GetCapsuleMetadataForPrincipal": _Principal,
    "Shutdown": _Shutdown,
    "ReloadCapsule": _ById,
    "UnloadCapsule": _ById,
    "RemoveCapsule": _Remove,
    "PromoteWorkspace": _ById,
    "RollbackWorkspace": _ById,
    "InstallCapsule": _Install,
    "ActivateStage": _Activate,
    "BeginCapsuleInstallBatch": _BeginBatch,
    "FinishCapsuleInstallBatch": _FinishBatch,
    "GetInstalledCapsuleIdentity": _ById,
    "GetCapsuleInstallResumeReceipt": _ById,
    "PutCapsuleInstallResumeReceipt": _Receipt,
    "ApproveCapability": _Approve,
}
"""What each kernel method takes; one that is not here takes nothing."""

_ADMIN_PARAMS: dict[str, type[_Params]] = {
    "AgentCreate": _AgentCreate,
    "AgentDelete": _Agent,
    "AgentEnable": _Agent,
    "AgentDisable": _Agent,
    "AgentModify": _AgentModify,
    "GroupCreate": _GroupCreate,
    "GroupDelete": _Group,
    "GroupModify": _GroupModify,
    "CapsGrant": _CapsGrant,
    "CapsRevoke": _CapsRevoke,
    "CapsExplain": _CapsExplain,
    "QuotaGet": _Agent,
    "QuotaSet": _QuotaSet,
    "UsageGet": _Agent,
    "AuditExport": _AuditExport,
    "ApprovalList": _ApprovalList,
    "ApprovalAnswer": _ApprovalAnswer,
    "ApprovalRevoke": _ApprovalRevoke,
}
"""What each admin method takes; one that is not here takes nothing."""

TOOLS_PARAMS: dict[str, type[_Params]] = {
    "list": _Params,
    "show": _ToolName,
    "call": _ToolCall,
    "calls": _Params,
    "cancel": _ToolCancel,
}
"""What each verb of the tools door takes: show `name`; call `name`, `arguments`, `timeout_s`; cancel
`corr` or `call_id`.
"""


def decode_door_request(
    shapes: Mapping[str, type[Struct]], door: str, verb: str, body: bytes, kind: str | None = RAW_JSON
) -> dict[str, Any] | BadRequest:
    """The parameters of a request to `door`; the verb of its topic decides which of `shapes` they have."""
    head = _read_head(body) if kind == RAW_JSON else None
    if head is None:
        return BadRequest(f"a request to the {door} door is a raw_json payload with `params`")
    return _read_params(shapes[verb], head.params, f"{door}.{verb}")


class _Head(Struct, frozen=True):
    method: Any = None
    params: Raw = Raw(b"")
    request_id: Any = None


_decode_head = msgspec.json.Decoder(_Head).decode
_encode = msgspec.json.Encoder().encode
_NOT_JSON = (msgspec.DecodeError, RecursionError, UnicodeError)


def decode_request(body: bytes, kind: str | None = RAW_JSON) -> Request | BadRequest | None:
    """A kernel request from a normalised payload; None where it is not one and must be ignored."""
    return _decode(body, kind, METHODS, _KERNEL_PARAMS)


def decode_admin_request(body: bytes, kind: str | None = RAW_JSON) -> Request | BadRequest | None:
    """An admin request, which also carries `request_id`; None where it is not one and must be ignored."""
    return _decode(body, kind, ADMIN_METHODS, _ADMIN_PARAMS)


def decode_tools_request(verb: str, body: bytes, kind: str | None = RAW_JSON) -> dict[str, Any] | BadRequest:
    """The parameters of a tools-door request; `verb` is that of its topic and decides."""
    head = _read_head(body) if kind == RAW_JSON else None
    if head is None:
        return BadRequest("a request to the tools door is a raw_json payload with `params`")
    return _read_params(TOOLS_PARAMS[verb], head.params, f"tools.{verb}")


def required_capabilities(request: Request, caller: str) -> tuple[str, ...]:
    """What `caller` must hold, in the order in which it is checked (daemon-kernel.md 5.1).

    The global form is needed where the request is about another principal; a secret value needs env:write
    as well, and a new principal that starts with another's things the right to take them.
    """
    method, params = request.method, request.params
    target = params.get("target_principal") or params.get("principal") or caller
    foreign = target != caller and method.others is not None
    needed = [method.others if foreign and method.others else method.own]
    needed += [capability for name, capability in _BY_SOURCE.items() if params.get(name) is not None]
    if any(value["kind"] == "Secret" for value in params.get("env", ())):
        needed.append("env:write" if foreign else "self:env:write")
    return tuple(needed)


def ok(
    status: str, data: object = UNSET, request_id: str | None = None, cause: AosError | None = None
) -> bytes:
    """A reply: `{"status": ..., "data": ...}`, with `request_id` in front for admin.

    That of a failure with a `cause` has its code and hint beside them, as `"error"`.
    """
    fields: dict[str, object] = {} if request_id is None else {"request_id": request_id}
    fields["status"] = status
    if data is not UNSET:
        fields["data"] = data
    if cause is not None:
        fields["error"] = {"code": cause.code, "hint": cause.hint}
    return _encode(fields)


def failed(cause: AosError) -> bytes:
    """The reply to a request that failed."""
    return ok("Error", cause.message, cause=cause)


def error(text: str, request_id: str | None = None) -> bytes:
    """The reply that says what went wrong."""
    return ok("Error", text, request_id)


def working() -> bytes:
    """The keepalive while a request runs; not an answer."""
    return _WORKING


_BY_SOURCE = {"inherit_from": "agent:create:inherit", "clone_from": "agent:create:clone"}

_WORKING = ok("Working")


def _decode(
    body: bytes, kind: str | None, methods: dict[str, Method], shapes: dict[str, type[_Params]]
) -> Request | BadRequest | None:
    head = _read_head(body) if kind == RAW_JSON else None
    if head is None or not isinstance(head.method, str):
        return None
    request_id = head.request_id if isinstance(head.request_id, str) else None
    method = methods.get(head.method)
    if method is None:
        return BadRequest(f"unknown method {head.method[:128]!r}", request_id)
    params = _read_params(shapes.get(method.name, _Params), head.params, method.name)
    if isinstance(params, BadRequest):
        return BadRequest(params.text, request_id)
    return Request(method, params, request_id)


def _read_head(body: bytes) -> _Head | None:
    try:
        return _decode_head(body)
    except _NOT_JSON:
        return None


@cache
def _decoder(shape: type[Struct]) -> msgspec.json.Decoder[Struct]:
    """The decoder of one shape; there are as many as methods."""
    return msgspec.json.Decoder(shape)


def _read_params(shape: type[Struct], raw: Raw, name: str) -> dict[str, Any] | BadRequest:
    """Checked parameters as plain values, or which one does not fit and where."""
    try:
        value = _decoder(shape).decode(b"{}" if bytes(raw) in (b"", b"null") else raw)
    except msgspec.ValidationError as problem:
        return BadRequest(f"bad parameters for {name}: {problem}")
    except _NOT_JSON:
        return BadRequest(f"bad parameters for {name}: not JSON that can be held")
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return fields
