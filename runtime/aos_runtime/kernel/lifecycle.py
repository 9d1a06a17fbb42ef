"""Loading, replacing and retiring capsules while the bus runs.

A new generation is ready before the old one is retired; the queue stays, so no queued call is lost.  All
changes of one daemon are made one at a time; readers see whole views.  A broken capsule is a row with a
reason, never a failure of the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Mapping
from typing import Protocol

from aos_runtime.bus.envelope import Envelope
from aos_runtime.errors import AosError, NotFound, Unavailable
from aos_runtime.kernel.actor import Actor
from aos_runtime.kernel.budget import Budget, unbounded
from aos_runtime.kernel.failures import call_of
from aos_runtime.kernel.kernel import Kernel
from aos_runtime.kernel.loading import Loaded, Unready
from aos_runtime.kernel.runloop import LoopState, RunLoop
from aos_runtime.kernel.views import Resident, View, actors_of, bundled_of, make_view, route_table
from aos_runtime.names import CapsuleName, PrincipalName

_POLL_S = 0.005


class Loads(Protocol):
    """The part of `loading.Loader` that is needed here."""

    def load(self, principal: PrincipalName, name: CapsuleName) -> Loaded | Unready: ...


class Lifecycle:
    """Owns the views.

    `names_of(principal)` lists what is installed; `on_change(view)` hears of each new view; `budget_of` gives
    what a principal may use; `refresh(principal)` reads its profile before anything is loaded for it.
    """

    def __init__(
        self,
        kernel: Kernel,
        loader: Loads,
        names_of: Callable[[PrincipalName], tuple[CapsuleName, ...]],
        on_change: Callable[[View], None] = lambda view: None,
        on_loop_failed: Callable[[RunLoop, str, float | None], None] = lambda loop, reason, delay_s: None,
        budget_of: Callable[[PrincipalName], Budget] = unbounded,
        refresh: Callable[[PrincipalName], None] = lambda principal: None,
    ) -> None:
        self._refresh = refresh
        self._budget_of = budget_of
        self._kernel = kernel
        self._loader = loader
        self._names_of = names_of
        self._on_change = on_change
        self._on_loop_failed = on_loop_failed
        self._loops: set[RunLoop] = set()
        """Every loop whose thread may run, those of replaced versions included."""
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
            self._refresh(principal)
            before = view.residents.get(name)
            loaded = self._load_installed(principal, name)
            if isinstance(loaded, Loaded):
                loaded = self._start_loop(loaded, before)
            if isinstance(loaded, Unready):
                others = [one for one in view.unready.values() if one.name != name]
                self._publish(make_view(principal, view.residents.values(), [*others, loaded]), ())
                raise Unavailable("capsule-not-ready", loaded.reason, hint="see `aos logs`", name=name)
            residents = [one for one in view.residents.values() if one.name != name]
            unready = [one for one in view.unready.values() if one.name != name]
            residents.append(self._settle(loaded, before))
            return self._publish(make_view(principal, residents, unready), ())

    def refresh_tools(self, principal: PrincipalName, name: CapsuleName) -> None:
        """A capsule has other tools than when it was loaded: rows and view follow, what runs goes on."""
        with self._changing:
            view = self.view(principal)
            resident = view.residents.get(name)
            if self._closed or resident is None or resident.loaded.relist is None:
                return
            others = [one for one in view.residents.values() if one.name != name]
            renewed = Resident(loaded=resident.loaded.relist(), actor=resident.actor)
            self._publish(make_view(principal, [*others, renewed], view.unready.values()), ())

    def unload(self, principal: PrincipalName, name: CapsuleName) -> bool:
        """Serve it no longer; False where it was not known.  Calls that waited for it are answered."""
        with self._changing:
            view = self._ensure(principal)
            if name not in view.residents and name not in view.unready:
                return False
            gone = view.residents.get(name)
            residents = [one for one in view.residents.values() if one.name != name]
            unready = [one for one in view.unready.values() if one.name != name]
            self._publish(make_view(principal, residents, unready), () if gone is None else (gone,))
            return True

    def stop_loops(self) -> None:
        """Start no loop any more and ask every one that runs to stop; returns at once."""
        self._closed = True
        for loop in tuple(self._loops):
            loop.close()

    def join_loops(self, timeout_s: float) -> bool:
        """Whether every loop's thread has ended within that time."""
        deadline, loops = time.monotonic() + timeout_s, tuple(self._loops)
        for loop in loops:
            loop.join(deadline - time.monotonic())
        return all(loop.join(0.0) for loop in loops)

    def end_loops(self, principal: str | None, call_ids: Container[str]) -> None:
        """Interrupt the loops of `principal` that compute for one of these calls; they are started again."""

        def is_meant(envelope: Envelope) -> bool:
            return envelope.principal == principal and call_of(envelope) in call_ids

        for loop in tuple(self._loops):
            loop.attempt.interrupt(is_meant)

    def sweep(self, now: float) -> None:
        """A chore: look after the loops, and forget those that have ended."""
        for loop in tuple(self._loops):
            loop.sweep(now)
            if loop.state is LoopState.STOPPED and loop.join(0.0):
                self._loops.discard(loop)

    def forget(self, principal: PrincipalName, wait_s: float = 0.0) -> tuple[CapsuleName, ...]:
        """Serve nothing for a principal any more; what it had.

        Calls and loops that run are waited for, `wait_s` seconds; calls that wait are answered.
        """
        with self._changing:
            view = self._views.get(principal)
            if view is None:
                return ()
            gone = tuple(view.residents.values())
            self._publish(View(principal=principal), gone)
            with self._kernel.order:
                self._views = {name: one for name, one in self._views.items() if name != principal}
        deadline = time.monotonic() + wait_s
        while any(one.actor.mailbox.busy for one in gone) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        for loop in (loop for one in gone for loop in one.loops):
            loop.join(deadline - time.monotonic())
        return view.names

    def renew_instances(self, principal: PrincipalName) -> None:
        """The next calls of a principal are served by instances made with its limits of now."""
        for resident in self.view(principal).residents.values():
            resident.actor.generation.renew()

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
            raise _stopping()
        if principal in self._views:
            return self._views[principal]
        self._refresh(principal)
        found = [self._load(principal, name) for name in self._names_of(principal)]
        residents = [self._settle(one, None) for one in found if isinstance(one, Loaded)]
        unready = [one for one in found if isinstance(one, Unready)]
        looping = [one for one in residents if one.loops]
        view = self._publish(make_view(principal, residents, unready), (), is_final=not looping)
        return self._start_loops(view, looping) if looping else view

    def _start_loops(self, view: View, looping: list[Resident]) -> View:
        """Start the loops of a view that serves already, in order; one that is not ready leaves it."""
        failed: dict[str, Unready] = {}
        for resident in looping:
            outcome = self._start_loop(resident.loaded, None)
            if isinstance(outcome, Unready):
                failed[resident.name] = outcome
        left = [one for one in view.residents.values() if one.name not in failed]
        gone = tuple(one for one in looping if one.name in failed)
        unready = [*view.unready.values(), *failed.values()]
        return self._publish(make_view(view.principal, left, unready), gone)

    def _start_loop(self, loaded: Loaded, before: Resident | None) -> Loaded | Unready:
        """Start the run loops of what was loaded, if it has any, beside the version that serves."""
        reason = None
        for loop in loaded.loops:
            loop.on_failed = self._on_loop_failed
            self._loops.add(loop)
            if self._closed:  # whoever closes either sees the loop, or is seen here
                raise _stopping()
            reason = loop.start(is_staged=before is not None and bool(before.loops))
            if reason is not None:
                break
        if reason is None:
            return loaded
        for loop in loaded.loops:
            loop.close()
        loaded.generation.close()
        installed = loaded.installed
        sentence = f"run loop of capsule '{installed.name}' {installed.version} {reason}"
        self._kernel.journal.daemon("error", sentence)
        return Unready(name=installed.name, version=installed.version, state="failed", reason=sentence)

    def _load(self, principal: PrincipalName, name: CapsuleName) -> Loaded | Unready | None:
        """Load one of many: what vanished meanwhile is None.  Unavailable `daemon-stopping`."""
        if self._closed:
            raise _stopping()
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
        budget = self._budget_of(installed.principal)
        actor = Actor(installed.name, installed.principal, loaded.generation, self._kernel, budget)
        return Resident(loaded=loaded, actor=actor)

    def _publish(self, view: View, gone: tuple[Resident, ...], *, is_final: bool = True) -> View:
        """Make `view` the current one of its principal, with its generations, routes and loops, at one
        moment.  `on_change` hears of it unless another view follows at once.
        """
        views = {**self._views, view.principal: view}
        before = self.view(view.principal).residents
        table, actors = route_table(views.values()), actors_of(views.values())
        ended = [loop for one in gone for loop in one.loops]
        with self._kernel.order:
            self._views = views
            self._kernel.install_routes(table, actors, bundled_of(views.values()))
            retired = [one.actor.swap(one.loaded.generation) for one in view.residents.values()]
            left = [(one.actor, delivery) for one in gone for delivery in one.actor.close()]
            retired += [one.actor.retire() for one in gone]
            ended += self._hand_over(view, before)
        for generation in retired:
            if generation is not None:
                generation.close()
        for loop in ended:
            loop.close()
        for actor, delivery in left:
            self._kernel.abandon(actor, delivery)
        if is_final:
            self._on_change(view)
        return view

    def _hand_over(self, view: View, before: Mapping[CapsuleName, Resident]) -> list[RunLoop]:
        """(order) Let new loops receive what waits for those that they replace; gives the replaced."""
        replaced: list[RunLoop] = []
        for name, resident in view.residents.items():
            old, new = before[name].loops if name in before else (), resident.loops
            if old == new:
                continue
            for number, loop in enumerate(new):
                predecessor = old[number].attempt.owner if number < len(old) else None
                self._kernel.subscriptions.promote(loop.attempt.owner, predecessor)
            replaced += old
        return replaced


def _stopping() -> Unavailable:
    return Unavailable("daemon-stopping", "the daemon is stopping", hint="start it again: aos start")
