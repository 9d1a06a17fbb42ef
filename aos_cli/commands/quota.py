"""`aos quota show` and `aos quota set`: what a principal may use, and what it has used."""

from __future__ import annotations

from typing import Annotated

import typer

from aos_cli.admin.amounts import parse_seconds, parse_size
from aos_cli.admin.requests import admin_desk, own_name
from aos_cli.console import get_console, safe
from aos_cli.render.admin import render_quotas
from aos_runtime.errors import InvalidInput

_Agent = Annotated[
    str | None,
    typer.Option("-a", "--agent", metavar="NAME", help="The principal (default: the one you act for)."),
]


def show(agent: _Agent = None) -> None:
    """Show the quotas of a principal, and what its capsules used since the daemon started.

    JSON: {principal, max_memory_bytes, max_timeout_secs, max_ipc_throughput_bytes,
    max_background_processes, max_storage_bytes, max_cpu_fuel_per_sec, max_in_flight_calls, usage}.

    Examples:
      aos quota show
      aos quota show --agent bob --json
    """
    console = get_console()
    name = agent or own_name()
    with admin_desk() as desk:
        quotas = desk.ask_row("QuotaGet", {"principal": name})
        usage = desk.ask_row("UsageGet", {"principal": name})
    if console.is_json:
        console.json({"principal": name, **quotas, "usage": usage})
    else:
        console.data(render_quotas(name, quotas, usage))


def set_quota(
    agent: _Agent = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="Memory of one instance, from 1MiB.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="Wall time of one call, to 1d.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option("--storage", metavar="SIZE", help="What its capsules store together, or `unlimited`."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", metavar="N", help="Background processes.", min=0, max=256)
    ] = None,
    ipc_rate: Annotated[
        str | None,
        typer.Option("--ipc-rate", metavar="SIZE", help="Bytes that its capsules publish in a second."),
    ] = None,
    cpu_rate: Annotated[
        int | None, typer.Option("--cpu-rate", metavar="FUEL", help="Fuel of one second.", min=1)
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option("--in-flight", metavar="N", help="Calls that share the cpu-rate.", min=1, max=64),
    ] = None,
) -> None:
    """Set quotas of a principal; what is not named stays. They hold from the next call on.

    JSON: {principal, max_memory_bytes, max_timeout_secs, ...}.

    Examples:
      aos quota set --agent bob --memory 128MiB --timeout 1m30s
      aos quota set --agent bob --cpu-rate 500000000 --ipc-rate 1MiB
    """
    console = get_console()
    values = {
        "max_memory_bytes": None if memory is None else parse_size(memory),
        "max_timeout_secs": None if timeout is None else parse_seconds(timeout),
        "max_storage_bytes": None if storage is None else parse_size(storage),
        "max_background_processes": processes,
        "max_ipc_throughput_bytes": None if ipc_rate is None else parse_size(ipc_rate),
        "max_cpu_fuel_per_sec": cpu_rate,
        "max_in_flight_calls": in_flight,
    }
    quotas = {key: value for key, value in values.items() if value is not None}
    if not quotas:
        raise InvalidInput("nothing-to-change", "no quota was named", hint="see `aos quota set --help`")
    name = agent or own_name()
    with admin_desk() as desk:
        after = desk.ask_row("QuotaSet", {"principal": name, "quotas": quotas})
    if console.is_json:
        console.json({"principal": name, **after})
    else:
        console.success(f"Updated quotas for '{safe(name)}'.")
