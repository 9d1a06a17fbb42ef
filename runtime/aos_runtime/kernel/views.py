"""What is loaded, per principal: immutable snapshots for readers, built by `lifecycle`.

A view is one principal's capsules in the order of their names, with who serves which user-invocable topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from aos_runtime.bus.routes import Handler, RouteTable
from aos_runtime.capsule.capability import held_names
from aos_runtime.capsule.manifest import Manifest
from aos_runtime.capsule.topics import tool_topic
from aos_runtime.kernel.actor import Actor
from aos_runtime.kernel.loading import Loaded, Unready
from aos_runtime.kernel.probe import Tool
from aos_runtime.kernel.runloop import RunLoop
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.policy.access import Standing
from aos_runtime.policy.surfaces import Candidate, Surfaces, bind_providers


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A capsule that serves: what was loaded, and the actor that runs it."""

    loaded: Loaded
    actor: Actor

    @property
    def name(self) -> CapsuleName:
        return self.loaded.installed.name

    @property
    def version(self) -> str:
        return self.loaded.installed.version

    @property
    def manifest(self) -> Manifest:
        return self.loaded.manifest

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self.loaded.tools or ()

    @property
    def loops(self) -> tuple[RunLoop, ...]:
        return self.loaded.loops

    @property
    def unheard(self) -> tuple[str, ...]:
        """The handler rows of a capsule with a run loop that its loop does not receive: nothing calls
        them.
        """
        if not self.loops:
            return ()
        handled = (row.topic for row in self.manifest.handlers)
        return tuple(topic for topic in handled if not any(one.receives(topic) for one in self.loops))


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTool:
    """A tool as callers see it: of the capsule whose schema won.  `shadowed` names those that lost."""

    tool: Tool
    capsule: CapsuleName
    shadowed: tuple[CapsuleName, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            **self.tool.to_json(),
            "mutable": self.tool.mutable,
            "capsule": self.capsule,
            "shadowed": list(self.shadowed),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One principal's capsules at one moment."""

    principal: PrincipalName
    residents: Mapping[CapsuleName, Resident] = field(default_factory=dict)
    unready: Mapping[str, Unready] = field(default_factory=dict)
    surfaces: Surfaces = field(default_factory=lambda: bind_providers(()))
    tools: Mapping[str, BoundTool] = field(default_factory=dict)

    @property
    def names(self) -> tuple[CapsuleName, ...]:
        """The capsules that serve, sorted."""
        return tuple(self.residents)


def make_view(principal: PrincipalName, residents: Iterable[Resident], unready: Iterable[Unready]) -> View:
    """A view with its surfaces bound; the order of the arguments does not matter."""
    ordered = {resident.name: resident for resident in sorted(residents, key=lambda one: one.name)}
    surfaces = bind_providers(_candidate(resident) for resident in ordered.values())
    return View(
        principal=principal,
        residents=ordered,
        unready={one.name: one for one in sorted(unready, key=lambda one: one.name)},
        surfaces=surfaces,
        tools=dict(sorted(_bound_tools(ordered, surfaces))),
    )


def holds_capability(view: View, source: str, capability: str) -> bool:
    """Whether the capsule with this source uuid is in the view and holds the capability of that name."""
    holder = next((one for one in view.residents.values() if one.loaded.source_id == source), None)
    return holder is not None and capability in held_names(holder.loaded.installed.receipt.capabilities)


def route_table(views: Iterable[View]) -> RouteTable:
    """The dispatch rows of every serving capsule of every view."""
    views = tuple(views)
    return RouteTable(
        [
            handler
            for view in views
            for name, resident in view.residents.items()
            for handler in _handlers(resident)
            if (name, handler.pattern) not in view.surfaces.yielded
        ],
        {view.principal: view.surfaces.provider_of for view in views},
    )


def actors_of(views: Iterable[View]) -> dict[tuple[PrincipalName, CapsuleName], Actor]:
    """Every actor by whom it belongs to."""
    return {
        (view.principal, name): resident.actor for view in views for name, resident in view.residents.items()
    }


def bundled_of(views: Iterable[View]) -> frozenset[tuple[PrincipalName, CapsuleName]]:
    """The capsules that came with aos, by whom they serve."""
    return frozenset(
        (view.principal, name)
        for view in views
        for name, resident in view.residents.items()
        if resident.loaded.installed.bundled
    )


def visible_tools(view: View, standing: Standing) -> View:
    """The view with only the tools that the principal may see."""
    if standing.enabled and (standing.lists or standing.uses_any):
        return view
    bundled = bundled_of((view,))
    tools = {
        name: tool
        for name, tool in view.tools.items()
        if standing.may_see(tool.capsule, is_bundled=(view.principal, tool.capsule) in bundled)
    }
    return replace(view, tools=tools)


def visible_to(
    view_of: Callable[[PrincipalName], View], standing_of: Callable[[PrincipalName], Standing]
) -> Callable[[PrincipalName], View]:
    """What each principal may see of its own view."""
    return lambda principal: visible_tools(view_of(principal), standing_of(principal))


def _handlers(resident: Resident) -> Iterator[Handler]:
    """The rows that are called; none of a capsule with a run loop, which receives by itself."""
    if resident.loops:
        return
    for row in resident.manifest.handlers:
        if row.handler is not None:
            yield Handler(resident.name, resident.actor.principal, row.handler, row.topic, row.priority)


def _candidate(resident: Resident) -> Candidate:
    tools = resident.loaded.tools
    return Candidate(
        name=resident.name,
        patterns=tuple(row.topic for row in resident.manifest.handlers),
        is_bundled=resident.loaded.installed.bundled,
        installed_at=resident.loaded.installed.meta.installed_at,
        tools=None if tools is None else frozenset(tool.name for tool in tools),
    )


def _bound_tools(
    residents: Mapping[CapsuleName, Resident], surfaces: Surfaces
) -> Iterator[tuple[str, BoundTool]]:
    """Each described tool once, from its provider;

    one without a handler row from the first that describes it.
    """
    seen: dict[str, list[tuple[CapsuleName, Tool]]] = {}
    for name, resident in residents.items():
        for tool in resident.tools:
            seen.setdefault(tool.name, []).append((name, tool))
    for tool_name, described in seen.items():
        provider = surfaces.provider_of(tool_topic(tool_name))
        capsule, tool = next((pair for pair in described if pair[0] == provider), described[0])
        others = tuple(other for other, _ in described if other != capsule)
        yield tool_name, BoundTool(tool=tool, capsule=capsule, shadowed=others)
