"""The one-shot activator: what the toolchain starts to activate a stage where no daemon runs.

It compiles into the code cache and runs the lifecycle hook, prints one JSON object and ends.  It serves
nobody, so what a hook publishes has nowhere to go.
"""

from __future__ import annotations

import json
from contextlib import ExitStack

from aos_runtime.config import load_settings
from aos_runtime.daemon.audit import open_trail
from aos_runtime.daemon.journal import LogJournal
from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.host import CodeCache, EngineSettings, HostEngine
from aos_runtime.kernel.activation import Activation, Activator
from aos_runtime.names import PrincipalName
from aos_runtime.store.keys import cache_key, load_runtime_seed
from aos_runtime.store.kv import KvStore
from aos_runtime.store.logs import LogSink
from aos_runtime.store.stage import open_stage

NO_BUS = "unknown:nothing listens during activation"


def activate_once(home: Home, principal: PrincipalName, stage_id: str) -> Activation:
    """Activate the stage that the calling process holds.  Errors as `open_stage` and `Activator.activate`."""
    settings = load_settings(home)
    with ExitStack() as resources:
        stage = resources.enter_context(open_stage(home, principal, stage_id))
        sink = LogSink(home)
        resources.callback(sink.close)
        state = resources.enter_context(KvStore(home.state_db))
        engine = HostEngine(
            EngineSettings(
                memory_bytes=settings.memory_bytes,
                fuel_per_call=settings.fuel_per_call,
                call_timeout_s=settings.call_timeout_s,
            )
        )
        resources.callback(engine.close)
        seed = load_runtime_seed(home, create=True)
        journal = LogJournal(sink, settings.log_level, echo=False)
        trail = open_trail(home, seed, settings, journal.daemon)
        resources.callback(trail.close)
        activator = Activator(
            codes=CodeCache(engine, home.code_cache, cache_key(seed)),
            state=state,
            journal=journal,
            publish=lambda stage, source, topic, payload: NO_BUS,
            trail=trail,
        )
        return activator.activate(stage)


def render_activation(activation: Activation) -> str:
    """`{"wasm_hash", "phase", "hook"}` on one line."""
    return json.dumps(activation.to_json())


def render_failure(error: AosError) -> str:
    """`{"error": {"code", "message", "hint"}}` on one line."""
    return json.dumps({"error": {"code": error.code, "message": error.message, "hint": error.hint}})
