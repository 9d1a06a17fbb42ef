"""Events and calls of the bus as lines for a person.  Pure; whatever a guest wrote is escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from aos_cli.console import safe
from aos_cli.render.units import UNKNOWN, render_size

MAX_PAYLOAD_CHARS = 2000
_BAR_CELLS = 24


def render_event(event: Mapping[str, Any], *, with_principal: bool) -> str:
    """`21:02:03.123  TOPIC  SPEAKER → TARGETS  SIZE  KEYS`, and the payload on its own line."""
    parts = [_clock(event.get("time")), _text(event, "topic"), _way(event)]
    if with_principal:
        parts.append(f"[{_text(event, 'principal')}]")
    parts += [_size(event), _keys(event)]
    line = "  ".join(part for part in parts if part)
    return line if "payload" not in event else f"{line}\n    {render_payload(event['payload'])}"


def render_payload(payload: object) -> str:
    """JSON on one line, cut to 2000 characters."""
    text = safe(json.dumps(payload, ensure_ascii=False, separators=(",", ":")))
    return text if len(text) <= MAX_PAYLOAD_CHARS else f"{text[:MAX_PAYLOAD_CHARS]}… ({len(text)} characters)"


def render_call(call: Mapping[str, Any]) -> str:
    """One call as a waterfall: when each step was, how long it took, and a bar over the whole."""
    total = _number(call, "duration_us")
    head = (
        f"tool {_text(call, 'tool')}, call {_text(call, 'call_id')}, principal {_text(call, 'principal')}: "
        f"{_text(call, 'outcome')} after {_span(total)}"
    )
    lines = [head, "", f"{'AT':>9}  {'WAITED':>9}  {'TOOK':>9}  {'':{_BAR_CELLS}}  STEP"]
    for step in call.get("steps") or ():
        if isinstance(step, dict):
            lines.append(_step_line(step, total))
            if "payload" in step:
                lines.append(
                    f"{'':{35 + _BAR_CELLS}}{'  ' * _depth(step)}  {render_payload(step['payload'])}"
                )
    if call.get("omitted"):
        lines.append(f"and {call['omitted']} more steps")
    return "\n".join(line.rstrip() for line in lines)


def _step_line(step: Mapping[str, Any], total_us: float) -> str:
    at = _number(step, "at_us")
    waited = _span(_number(step, "waited_us")) if "waited_us" in step else ""
    took = _span(_number(step, "duration_us")) if "duration_us" in step else ""
    bar = _bar(at, _number(step, "duration_us"), total_us)
    return f"{_span(at):>9}  {waited:>9}  {took:>9}  {bar}  {'  ' * _depth(step)}{_said(step)}"


def _bar(at_us: float, took_us: float, total_us: float) -> str:
    """Where in the whole a step lies: at least one mark, `·` where it took no time that was measured."""
    if total_us <= 0:
        return " " * _BAR_CELLS
    start = min(_BAR_CELLS - 1, max(0, int(at_us / total_us * _BAR_CELLS)))
    length = max(1, min(_BAR_CELLS - start, round(took_us / total_us * _BAR_CELLS)))
    return f"{' ' * start}{('█' if took_us else '·') * length}".ljust(_BAR_CELLS)


def _said(step: Mapping[str, Any]) -> str:
    name, capsule, outcome = _text(step, "name"), _text(step, "capsule"), _text(step, "outcome")
    match step.get("what"):
        case "received":
            return f"the daemon received a call of {name}"
        case "answered":
            return f"the daemon answered: {outcome}"
        case "published":
            details = "  ".join(part for part in (_size(step), _keys(step)) if part)
            return f"{_way(step)} {name}  {details}".rstrip()
        case "handled":
            return f"{capsule} ran {name}: {outcome}"
        case "called":
            return f"{capsule} called {name}{'' if outcome == 'ok' else f': {outcome}'}"
        case "refused":
            return f"{capsule} was refused to publish {name}: {outcome}"
        case "dropped":
            return f"{name} did not reach {capsule}: {outcome}"
        case other:
            return safe(str(other))


def _way(event: Mapping[str, Any]) -> str:
    """Who speaks to whom."""
    speaker = event.get("source" if "source" in event else "capsule")
    targets = [safe(str(name)) for name in event.get("targets") or ()]
    return f"{safe(speaker) if isinstance(speaker, str) else 'host'} → {', '.join(targets) or 'nobody'}"


def _size(event: Mapping[str, Any]) -> str:
    size = event.get("size_bytes")
    return render_size(size) if isinstance(size, int) else UNKNOWN


def _keys(event: Mapping[str, Any]) -> str:
    keys = event.get("keys")
    return f"{{{', '.join(safe(str(key)) for key in keys)}}}" if isinstance(keys, list) else ""


def _clock(moment: object) -> str:
    try:
        local = datetime.fromisoformat(str(moment)).astimezone()
    except ValueError:
        return UNKNOWN
    return f"{local:%H:%M:%S}.{local.microsecond // 1000:03d}"


def _span(microseconds: float) -> str:
    """`12.3 us`, `1.234 ms`, `2.50 s`."""
    if microseconds < 1000:
        return f"{microseconds:.1f} us"
    return f"{microseconds / 1000:.2f} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.2f} s"


def _depth(step: Mapping[str, Any]) -> int:
    depth = step.get("depth")
    return min(depth, 20) if isinstance(depth, int) and depth > 0 else 0


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return safe(value) if isinstance(value, str) else UNKNOWN


def _number(row: Mapping[str, Any], key: str) -> float:
    value = row.get(key)
    return float(value) if isinstance(value, (int, float)) else 0.0
