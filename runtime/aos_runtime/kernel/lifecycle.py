"""Loading, replacing and retiring capsules while the bus runs.

A new generation is ready before the old one is retired; the queue stays, so no queued call is lost.  All
changes of one daemon are made one at a time; readers see whole views.  A broken capsule is a row with a
reason, never a failure of the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from aos_runtime.errors import AosError, NotFound, Unavailable
from aos_runtime.kernel.actor import Actor
from aos_runtime.kernel.kernel import Kernel
from aos_runtime.kernel.loading import Loaded, Unready
from aos_runtime.kernel.views import Resident, View, actors_of, make_view, route_table
from aos_runtime.names import CapsuleName, PrincipalName


class Loads(Protocol):
    """The part of `loading.Loader` that is needed here."""

    def load(self, principal: PrincipalName, name: CapsuleName) -> Loaded | Unready: ...


class Lifecycle:
    """Owns the views.

    `names_of(principal)` lists what is installed; `on_change(view)` hears of each new view.
    """

    def __init__(
        self,
        kernel: Kernel,
        loader: Loads,
        names_of: Callable[[PrincipalName], tuple[CapsuleName, ...]],
        on_change: Callable[[View], None] = lambda view: None,
    ) -> None:
        self._kernel = kernel
        self._loader = loader
        self._names_of = names_of
        self._on_change = on_change
        self._changing = threading.Lock()
        self._closed = False
        self._views: dict[PrincipalName, View] = {}

    @property
    def views(self) -> Mapping[PrincipalName, View]:
        return dict(self._views)

    def view(self, principal: PrincipalName) -> View:
        """What `principal` has now; an empty view where nothing was loaded for it."""
        return self._views.get(principal) or View(principal=principal)

    def is_loaded(self, principal: PrincipalName) -> bool:
        return principal in self._views

    def load_all(self, principal: PrincipalName) -> View:
        """Load what `principal` has installed, unless that was done before."""
        with self._changing:
            return self._ensure(principal)

    def reload(self, principal: PrincipalName, name: CapsuleName) -> View:
        """Serve what is installed now.

        NotFound `capsule-not-found` where it is not; Unavailable `capsule-not-ready` where it does not load,
        and then the generation that served before goes on serving.
        """
        with self._changing:
            view = self._ensure(principal)
            before = view.residents.get(name)
            loaded = self._load_installed(principal, name)
            if isinstance(loaded, Unready):
                others = [one for one in view.unready.values() if one.name != name]
                self._publish(make_view(principal, view.residents.values(), [*others, loaded]), ())
                raise Unavailable("capsule-not-ready", loaded.reason, hint="see `aos logs`", name=name)
            residents = [one for one in view.residents.values() if one.name != name]
            unready = [one for one in view.unready.values() if one.name != name]
            residents.append(self._settle(loaded, before))
            return self._publish(make_view(principal, residents, unready), ())

    def unload(self, principal: PrincipalName, name: CapsuleName) -> bool:
        """Serve it no longer; False where it was not known.  Calls that waited for it are answered."""
        with self._changing:
            view = self._ensure(principal)
            if name not in view.residents and name not in view.unready:
                return False
            gone = view.residents.get(name)
            residents = [one for one in view.residents.values() if one.name != name]
            unready = [one for one in view.unready.values() if one.name != name]
            self._publish(make_view(principal, residents, unready), () if gone is None else (gone.actor,))
            return True

    def close(self, wait_s: float = 0.0) -> bool:
        """Load nothing more and drop every instance; only once no thread runs guests any more.

        False where a change was still in progress after `wait_s`: then nothing was dropped.
        """
        self._closed = True
        if not self._changing.acquire(timeout=wait_s):
            return False
        with self._kernel.order:
            actors = [one.actor for view in self._views.values() for one in view.residents.values()]
        for actor in actors:
            actor.generation.close()
        self._changing.release()
        return True

    def _ensure(self, principal: PrincipalName) -> View:
        """(changing) The view of `principal`, loaded now if it was not before."""
        if self._closed:
            raise Unavailable("daemon-stopping", "the daemon is stopping", hint="start it again: aos start")
        if principal in self._views:
            return self._views[principal]
        found = [self._load(principal, name) for name in self._names_of(principal)]
        residents = [self._settle(one, None) for one in found if isinstance(one, Loaded)]
        unready = [one for one in found if isinstance(one, Unready)]
        return self._publish(make_view(principal, residents, unready), ())

    def _load(self, principal: PrincipalName, name: CapsuleName) -> Loaded | Unready | None:
        """Load one of many: what vanished meanwhile is None."""
        try:
            return self._loader.load(principal, name)
        except NotFound:
            return None
        except AosError as error:
            return Unready(name=name, version=None, state="failed", reason=error.message)

    def _load_installed(self, principal: PrincipalName, name: CapsuleName) -> Loaded | Unready:
        try:
            return self._loader.load(principal, name)
        except NotFound as error:
            raise NotFound(
                "capsule-not-found",
                f"capsule '{name}' was not found in the install directories or failed to load",
                hint="`aos capsule list` shows what is installed",
                name=name,
            ) from error

    def _settle(self, loaded: Loaded, before: Resident | None) -> Resident:
        """Give a loaded generation its actor: the one that served before, or a new one."""
        if before is not None:
            return Resident(loaded=loaded, actor=before.actor)
        installed = loaded.installed
        actor = Actor(installed.name, installed.principal, loaded.generation, self._kernel)
        return Resident(loaded=loaded, actor=actor)

    def _publish(self, view: View, gone: tuple[Actor, ...]) -> View:
        """Make `view` the current one of its principal, with its generations and routes, at one moment."""
        views = {**self._views, view.principal: view}
        table, actors = route_table(views.values()), actors_of(views.values())
        with self._kernel.order:
            self._views = views
            self._kernel.install_routes(table, actors)
            retired = [one.actor.swap(one.loaded.generation) for one in view.residents.values()]
            left = [(actor, delivery) for actor in gone for delivery in actor.close()]
            retired += [actor.retire() for actor in gone]
        for generation in retired:
            if generation is not None:
                generation.close()
        for actor, delivery in left:
            self._kernel.abandon(actor, delivery)
        self._on_change(view)
        return view
