"""The one-shot activator: what the toolchain starts to activate a stage where no daemon runs.

It compiles into the code cache and runs the lifecycle hook, prints JSON objects, one a line, and ends.  What
the hook asks goes to whoever started it, over its standard streams.  It serves nobody, so what a hook
publishes has nowhere to go.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from contextlib import ExitStack

import msgspec

from aos_runtime.config import load_settings
from aos_runtime.daemon.audit import open_trail
from aos_runtime.daemon.journal import LogJournal
from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.host import CodeCache, EngineSettings, HostEngine
from aos_runtime.host.context import ElicitQuestion
from aos_runtime.kernel.activation import Activation, Activator
from aos_runtime.kernel.elicits import ELICIT_TIMEOUT_S, ElicitAnswer, Reached, onboarding_field
from aos_runtime.names import PrincipalName
from aos_runtime.store.keys import cache_key, load_runtime_seed
from aos_runtime.store.kv import KvStore
from aos_runtime.store.logs import LogSink
from aos_runtime.store.stage import open_stage

MAX_ANSWER_BYTES = 4 * 1024 * 1024
NO_BUS = "unknown:nothing listens during activation"


class _Answer(msgspec.Struct):
    value: str | None = None
    values: list[str] | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode


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
        return activator.activate(stage, ask_caller)


def ask_caller(capsule: str, question: ElicitQuestion) -> ElicitAnswer:
    """Ask the process that started this one: a line with the question out, a line with the answer in.

    `{"elicit": {"capsule_id", "field"}}` is answered by `{"value": TEXT}`, `{"values": [TEXT]}`, or `{}` for
    no answer.  The end of the input means that nobody installs any more.
    """
    field = onboarding_field(question)
    sys.stdout.write(json.dumps({"elicit": {"capsule_id": capsule, "field": field}}) + "\n")
    sys.stdout.flush()
    line = _read_line(time.monotonic() + ELICIT_TIMEOUT_S)
    if line is None:
        return ElicitAnswer(Reached.TIMEOUT)
    try:
        answer = _decode_answer(line)
    except msgspec.DecodeError:
        return ElicitAnswer(Reached.GONE)
    values = None if answer.values is None else tuple(answer.values)
    return ElicitAnswer(Reached.ANSWERED, answer.value, values)


def _read_line(deadline: float) -> bytes | None:
    """One line of the input, what there is of it at its end; None where the time was over first."""
    data = b""
    while not data.endswith(b"\n"):
        readable, _, _ = select.select([0], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            return None
        chunk = os.read(0, 65536)
        data += chunk
        if not chunk or len(data) > MAX_ANSWER_BYTES:
            break
    return data


def render_activation(activation: Activation) -> str:
    """`{"wasm_hash", "phase", "hook", "warnings"}` on one line."""
    return json.dumps(activation.to_json())


def render_failure(error: AosError) -> str:
    """`{"error": {"code", "message", "hint"}}` on one line."""
    return json.dumps({"error": {"code": error.code, "message": error.message, "hint": error.hint}})
