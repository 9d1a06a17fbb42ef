"""The names of the request API: kernel methods, admin methods and the tools door, with their topics and
rights.

Source: daemon-kernel.md 5.1 and 5.3; the tools door, `ActivateStage` and `CapsExplain` are ours.
Names and numbers only: decoding is in `requests`, the caller's side in `client`.  Standard library only.
"""

from __future__ import annotations

from typing import NamedTuple

REQUEST_PREFIX = "astrid.v1.request."
RESPONSE_PREFIX = "astrid.v1.response."
ADMIN_PREFIX = "astrid.v1.admin."
ADMIN_RESPONSE_PREFIX = "astrid.v1.admin.response."
TOOLS_PREFIX = "astrid.v1.request.tools."
EVENTS_PREFIX = "astrid.v1.request.events."

NIL_SOURCE = "00000000-0000-0000-0000-000000000000"
"""`source_id` of everything that is not a capsule."""

TOOLS_VERBS = ("list", "show", "call", "calls", "cancel")
EVENTS_VERBS = ("tail", "stop", "publish", "trace", "top")

WORKING_PERIOD_S = 5.0
"""The daemon says `Working` this often while a request runs."""

INACTIVITY_TIMEOUT_S = 15.0
"""A client gives up after this long without an answer or a `Working`."""

TOTAL_TIMEOUT_S = 600.0


class Method(NamedTuple):
    """One request method.

    `own` is the capability for the caller's own principal, `others` the one for somebody else's (None:
    there is no such form).  `rate_per_minute` is per principal and method, None for no limit.
    """

    name: str
    suffix: str
    own: str
    others: str | None = None
    rate_per_minute: int | None = None


_RELOADS_PER_MINUTE = 14
_CHANGES_PER_MINUTE = 120
"""The published 14 would refuse the fifteenth `aos capsule install` of a minute, and leave the fifteenth
capsule that `aos capsule remove` took away serving (docs/differences.md).
"""

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("ListCapsules", "list_capsules", "self:capsule:list", "capsule:list"),
        Method("GetCommands", "get_commands", "self:capsule:list", "capsule:list"),
        Method("GetCapsuleMetadata", "metadata", "self:capsule:list", "capsule:list"),
        Method("GetCapsuleMetadataForPrincipal", "principal_metadata", "self:capsule:list", "capsule:list"),
        Method("GetAgentReadiness", "agent_readiness", "self:capsule:list", "capsule:list"),
        Method("GetStatus", "status", "system:status"),
        Method("Shutdown", "shutdown", "system:shutdown", None, 1),
        Method("ReloadCapsules", "reload_capsules", "capsule:reload", None, _RELOADS_PER_MINUTE),
        Method("ReloadCapsule", "reload_capsule", "self:capsule:reload", None, _CHANGES_PER_MINUTE),
        Method("UnloadCapsule", "unload_capsule", "self:capsule:remove", None, _CHANGES_PER_MINUTE),
        Method("RemoveCapsule", "remove_capsule", "self:capsule:remove", None, _RELOADS_PER_MINUTE),
        Method("PromoteWorkspace", "promote_workspace", "self:workspace:promote", None, _RELOADS_PER_MINUTE),
        Method(
            "RollbackWorkspace", "rollback_workspace", "self:workspace:rollback", None, _RELOADS_PER_MINUTE
        ),
        Method("InstallCapsule", "install_capsule", "self:capsule:install", "capsule:install", 10),
        Method("ActivateStage", "activate_stage", "self:capsule:install", "capsule:install"),
        Method(
            "BeginCapsuleInstallBatch",
            "begin_capsule_install_batch",
            "self:capsule:install",
            "capsule:install",
            2,
        ),
        Method(
            "FinishCapsuleInstallBatch",
            "finish_capsule_install_batch",
            "self:capsule:install",
            "capsule:install",
            4,
        ),
        Method("GetInstalledCapsuleIdentity", "installed_capsule_identity", "self:capsule:install"),
        Method("GetCapsuleInstallResumeReceipt", "capsule_install_resume_receipt", "self:capsule:install"),
        Method(
            "PutCapsuleInstallResumeReceipt", "put_capsule_install_resume_receipt", "self:capsule:install"
        ),
        Method("ApproveCapability", "approve_capability", "self:approval:respond", None, 10),
    )
}
"""Kernel methods by name."""

ADMIN_METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("AgentCreate", "agent.create", "agent:create"),
        Method("AgentDelete", "agent.delete", "agent:delete"),
        Method("AgentEnable", "agent.enable", "agent:enable"),
        Method("AgentDisable", "agent.disable", "agent:disable"),
        Method("AgentModify", "agent.modify", "agent:modify"),
        Method("AgentList", "agent.list", "self:agent:list", "agent:list"),
        Method("GroupCreate", "group.create", "group:create"),
        Method("GroupDelete", "group.delete", "group:delete"),
        Method("GroupModify", "group.modify", "group:modify"),
        Method("GroupList", "group.list", "self:group:list"),
        Method("CapsGrant", "caps.grant", "caps:grant"),
        Method("CapsRevoke", "caps.revoke", "caps:revoke"),
        Method("CapsExplain", "caps.explain", "self:agent:list", "agent:list"),
        Method("QuotaGet", "quota.get", "self:quota:get", "quota:get"),
        Method("QuotaSet", "quota.set", "self:quota:set", "quota:set"),
        Method("UsageGet", "usage.get", "self:quota:get", "quota:get"),
        Method("AuditStats", "audit.stats", "audit:stats"),
        Method("AuditHealth", "audit.health", "audit:health"),
        Method("AuditHeads", "audit.heads", "audit:heads"),
        Method("AuditExport", "audit.export", "audit:export"),
        Method("ApprovalList", "approval.list", "self:approval:respond", "approval:respond"),
        Method("ApprovalAnswer", "approval.answer", "self:approval:respond", "approval:respond"),
        Method("ApprovalRevoke", "approval.revoke", "self:approval:respond", "approval:respond"),
    )
}
"""Admin methods by name; `CapsExplain` and those of approvals are ours."""

HUMAN_METHODS = frozenset(("ApprovalList", "ApprovalAnswer", "ApprovalRevoke"))
"""Taken from a client only: a capsule that could send them would approve its own requests."""


def reply_topic(topic: str) -> str | None:
    """Where the answer to a request on `topic` goes; None where `topic` is no request topic.

    A kernel reply keeps suffix and correlation; an admin reply has no correlation segment, it echoes
    `request_id`.
    """
    if topic.startswith(REQUEST_PREFIX):
        return RESPONSE_PREFIX + topic[len(REQUEST_PREFIX) :]
    if topic.startswith(ADMIN_PREFIX) and not topic.startswith(ADMIN_RESPONSE_PREFIX):
        return ADMIN_RESPONSE_PREFIX + topic[len(ADMIN_PREFIX) :]
    return None


class ToolsTopic(NamedTuple):
    """A parsed `astrid.v1.request.tools.<verb>.<correlation>`."""

    verb: str
    correlation: str


def tools_topic(verb: str, correlation: str) -> str:
    """The request topic of the tools door; `verb` is one of TOOLS_VERBS, `correlation` one segment."""
    return f"{TOOLS_PREFIX}{verb}.{correlation}"


def parse_tools_topic(topic: str) -> ToolsTopic | None:
    """The verb and correlation of a tools-door request; None for any other topic."""
    if not topic.startswith(TOOLS_PREFIX):
        return None
    verb, _, correlation = topic[len(TOOLS_PREFIX) :].partition(".")
    if verb not in TOOLS_VERBS or not correlation or "." in correlation:
        return None
    return ToolsTopic(verb, correlation)


class EventsTopic(NamedTuple):
    """A parsed `astrid.v1.request.events.<verb>.<correlation>`."""

    verb: str
    correlation: str


def events_topic(verb: str, correlation: str) -> str:
    """The request topic of the events door; `verb` is one of EVENTS_VERBS, `correlation` one segment."""
    return f"{EVENTS_PREFIX}{verb}.{correlation}"


def parse_events_topic(topic: str) -> EventsTopic | None:
    """The verb and correlation of an events-door request; None for any other topic."""
    if not topic.startswith(EVENTS_PREFIX):
        return None
    verb, _, correlation = topic[len(EVENTS_PREFIX) :].partition(".")
    if verb not in EVENTS_VERBS or not correlation or "." in correlation:
        return None
    return EventsTopic(verb, correlation)
