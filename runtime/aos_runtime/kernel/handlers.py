"""What each kernel and admin method does.

Reading methods answer from the caller's view; see `changes` for the others.

Source: daemon-kernel.md 5.1 to 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from aos_runtime.kernel import answers
from aos_runtime.kernel.agents import AgentRequests
from aos_runtime.kernel.changes import Changes
from aos_runtime.kernel.group_requests import GroupRequests
from aos_runtime.kernel.human import HumanRequests
from aos_runtime.kernel.lifecycle import Lifecycle
from aos_runtime.kernel.office import Office
from aos_runtime.kernel.quota_requests import QuotaRequests
from aos_runtime.kernel.requests import Answer, Caller, Handler
from aos_runtime.kernel.views import View
from aos_runtime.names import PrincipalName, parse_principal_name
from aos_runtime.store.profile_edits import expect_profile

Params = Mapping[str, object]
Run = Callable[[Caller, Mapping[str, object]], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the methods work on.

    `agents(principal)` lists profiles, all of them for None; `may_list_agents` says whether a caller sees
    more than itself; `measure` gives memory now and at most, and fuel, of a
    principal's guests; `stop(reason)` begins the shutdown.
    """

    lifecycle: Lifecycle
    changes: Changes
    human: HumanRequests
    process: Callable[[], answers.Process]
    agents: Callable[[PrincipalName | None], Iterable[answers.AgentProfile]]
    may_list_agents: Callable[[PrincipalName], bool]
    office: Office
    measure: Callable[[PrincipalName], tuple[int, int, int]]
    stop: Callable[[str], None]


def make_handlers(services: Services) -> dict[str, Handler]:
    """Every method that this runtime has, by name."""
    reading: dict[str, Run] = {
        "GetStatus": lambda caller, params: Answer(
            status="Status", data=answers.status(_view(services, caller), services.process())
        ),
        "ListCapsules": lambda caller, params: Answer(
            status="Success", data=list(_view(services, caller).names)
        ),
        "GetCommands": lambda caller, params: Answer(
            status="Commands", data=answers.commands(_view(services, caller))
        ),
        "GetCapsuleMetadata": lambda caller, params: Answer(
            status="CapsuleMetadata", data=answers.metadata(_view(services, caller))
        ),
        "GetAgentReadiness": lambda caller, params: Answer(
            status="AgentReadiness", data=answers.agent_readiness(_view(services, caller))
        ),
        "AgentList": lambda caller, params: _agent_list(services, caller),
        "ApprovalList": services.human.list_all,
        "ApprovalAnswer": services.human.answer,
        "ApprovalRevoke": services.human.revoke,
        "Shutdown": lambda caller, params: _shutdown(services, params),
    }
    agents, groups = AgentRequests(services.office), GroupRequests(services.office)
    quotas = QuotaRequests(services.office, services.measure)
    reading |= {
        "AgentEnable": agents.enable,
        "AgentDisable": agents.disable,
        "AgentModify": agents.modify,
        "CapsGrant": agents.grant,
        "CapsRevoke": agents.revoke,
        "CapsExplain": agents.explain,
        "GroupCreate": groups.create,
        "GroupDelete": groups.delete,
        "GroupModify": groups.modify,
        "GroupList": groups.list_groups,
        "QuotaGet": quotas.read,
        "QuotaSet": quotas.write,
        "UsageGet": quotas.usage,
    }
    slow: dict[str, Run] = {
        "AgentCreate": agents.create,
        "AgentDelete": agents.delete,
        "GetCapsuleMetadataForPrincipal": lambda caller, params: _foreign_metadata(services, params),
        "InstallCapsule": services.changes.install,
        "ActivateStage": services.changes.activate,
        "ReloadCapsule": services.changes.reload,
        "RemoveCapsule": services.changes.remove,
        "UnloadCapsule": services.changes.unload,
    }
    return {name: Handler(run=run) for name, run in reading.items()} | {
        name: Handler(run=run, is_slow=True) for name, run in slow.items()
    }


def _view(services: Services, caller: Caller) -> View:
    return services.lifecycle.view(caller.principal)


def _foreign_metadata(services: Services, params: Params) -> Answer:
    principal = parse_principal_name(str(params["target_principal"]))
    expect_profile(services.office.home, principal)
    return Answer(status="CapsuleMetadata", data=answers.metadata(services.lifecycle.load_all(principal)))


def _agent_list(services: Services, caller: Caller) -> Answer:
    """Rows narrowed to the caller unless it may list all."""
    only = None if services.may_list_agents(caller.principal) else caller.principal
    return Answer(status="AgentList", data=answers.agents(services.agents(only)))


def _shutdown(services: Services, params: Params) -> Answer:
    """The answer is sent first: the caller must learn that its request was taken."""
    reason = params.get("reason")
    text = reason if isinstance(reason, str) else "shutdown request"
    return Answer(status="Success", data={"status": "shutting_down"}, after=lambda: services.stop(text))
