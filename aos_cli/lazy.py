"""Typer commands made on demand from the table in `aos_cli.tree`, with the global options on every level.

Why not plain Typer groups: a group that knows its commands has imported them all, and `aos status` must
not pay for what `aos capsule install` needs.  Values of plain types are converted here, because Typer's
own conversion imports pydantic (50 ms) for every string.  This module draws help and knows no command.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import typer
from typer._click.core import Command, Context
from typer._click.exceptions import BadParameter, UsageError
from typer._click.formatting import HelpFormatter
from typer._coercion import RuntimeParam
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from aos_cli.console import get_console
from aos_cli.invocation import get_invocation
from aos_cli.suggest import did_you_mean, nearest_names
from aos_cli.tree import Entry
from aos_runtime.errors import InvalidInput
from aos_runtime.names import parse_principal_name

FORMATS = ("pretty", "json")
COLORS = ("always", "never", "auto")
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class PlainRuntimeParam(RuntimeParam):
    """Conversion of str, bool, int, float and lists of them, without pydantic."""

    def _coerce_value(self, value: Any, param: Any, ctx: Context) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._convert(item, param, ctx) for item in value]
        return self._convert(value, param, ctx)

    def _convert(self, value: Any, param: Any, ctx: Context) -> Any:
        if self.annotation in (int, float):
            return self._convert_number(value, param, ctx)
        return bool(value) if self.annotation is bool else str(value)

    def _convert_number(self, value: Any, param: Any, ctx: Context) -> int | float:
        is_whole = self.annotation is int
        try:
            number: int | float = int(value) if is_whole else float(value)
        except ValueError:
            wanted = "a whole number" if is_whole else "a number"
            raise BadParameter(f"{value!r} is not {wanted}", ctx=ctx, param=param) from None
        low, high = self.parameter_info.min, self.parameter_info.max
        if not (low is None or number >= low) or not (high is None or number <= high):
            bounds = f"at least {low:g}" if high is None else f"between {low or 0:g} and {high:g}"
            raise BadParameter(f"{value!r} is out of range: {bounds}", ctx=ctx, param=param)
        return number


_PLAIN = (str, bool, int, float, list[str])


def _make_lean(params: Iterable[Any]) -> None:
    """Give every parameter of a plain type its conversion beforehand."""
    for param in params:
        descriptor = param.type_descriptor
        if (
            descriptor.annotation in _PLAIN
            and descriptor.parameter_info.parser is None
            and not descriptor.is_choice
        ):
            param._runtime_param = PlainRuntimeParam(
                parameter_info=descriptor.parameter_info, annotation=descriptor.annotation
            )


class _LeanHelp:
    """Mixed into commands: the help option, which Typer makes by itself, is converted plainly as well."""

    def get_help_option(self, ctx: Context) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None and option._runtime_param is None:
            _make_lean([option])
        return option


# The global options


def _pick(value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(choices)}")
    return value.lower()


def _set_format(value: str | None) -> str | None:
    if value is not None:
        get_console().format = _pick(value, FORMATS)  # type: ignore[assignment]
    return value


def _set_json(value: bool) -> bool:
    if value:
        get_console().format = "json"
    return value


def _set_principal(value: str | None) -> str | None:
    if value is not None:
        try:
            get_invocation().principal_option = parse_principal_name(value)
        except InvalidInput as error:
            raise typer.BadParameter(f"{error.message}; {error.hint}") from None
    return value


def _set_verbose(value: int) -> int:
    get_console().verbosity += value
    return value


def _set_quiet(value: int) -> int:
    get_console().quiet += value
    return value


def _set_color(value: str | None) -> str | None:
    if value is not None:
        get_console().color = _pick(value, COLORS)  # type: ignore[assignment]
    return value


def _set_no_input(value: bool) -> bool:
    if value:
        get_console().no_input = True
    return value


def _global_options(
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="Form of the result: pretty or json.", callback=_set_format
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Same as --format json.", callback=_set_json)
    ] = False,
    principal: Annotated[
        str | None,
        typer.Option(
            "--principal",
            metavar="NAME",
            help="Act for this principal (AOS_PRINCIPAL; else default).",
            callback=_set_principal,
        ),
    ] = None,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, show_default=False, help="Say more.", callback=_set_verbose
        ),
    ] = 0,
    quiet: Annotated[
        int,
        typer.Option(
            "--quiet",
            "-q",
            count=True,
            show_default=False,
            help="Only results and errors; -qq only the exit code.",
            callback=_set_quiet,
        ),
    ] = 0,
    color: Annotated[
        str | None,
        typer.Option("--color", metavar="WHEN", help="Colour: always, never or auto.", callback=_set_color),
    ] = None,
    no_input: Annotated[
        bool,
        typer.Option("--no-input", help="Never ask; fail with what would answer.", callback=_set_no_input),
    ] = False,
) -> None:
    """Options that every command takes, before or after its name."""


_shared_params: list[Any] = []


def global_params() -> list[Any]:
    """The parameter objects of the global options; one set, shared by every command."""
    if not _shared_params:
        info = CommandInfo(callback=_global_options, name="global")
        command = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
        _make_lean(command.params)
        for param in command.params:
            param.expose_value = False
            _shared_params.append(param)
    return _shared_params


# Help


def split_examples(text: str) -> tuple[str, list[str]]:
    """A docstring into its prose and the lines below its `Examples:` line."""
    prose, mark, examples = inspect.cleandoc(text).partition("\nExamples:\n")
    lines = [line.strip() for line in examples.splitlines() if line.strip()] if mark else []
    return prose, lines


def _write_options(params: list[Any], ctx: Context, formatter: HelpFormatter) -> None:
    shared = {id(param) for param in global_params()}
    arguments, own, common = [], [], []
    for param in params:
        record = param.get_help_record(ctx)
        if record is None:
            continue
        if param.param_type_name == "argument":
            arguments.append(record)
        elif id(param) in shared or "--help" in param.opts:
            common.append(record)
        else:
            own.append(record)
    for title, rows in (("Arguments", arguments), ("Options", own), ("Global options", common)):
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def _write_examples(lines: list[str], formatter: HelpFormatter) -> None:
    if lines:
        with formatter.section("Examples"):
            for line in lines:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def _write_prose(prose: str, formatter: HelpFormatter) -> None:
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(prose.replace("`", ""))


class LeanCommand(_LeanHelp, TyperCommand):
    """A command whose help is plain text: usage, prose, options, examples."""

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        prose, examples = split_examples(self.help or "")
        self.format_usage(ctx, formatter)
        _write_prose(prose, formatter)
        _write_options(self.get_params(ctx), ctx, formatter)
        _write_examples(examples, formatter)


class LazyGroup(_LeanHelp, TyperGroup):
    """A group that knows its commands by name and makes one when it is asked for."""

    def __init__(self, entry: Entry, **attributes: Any) -> None:
        super().__init__(
            name=entry.name,
            context_settings=dict(_CONTEXT),
            params=list(global_params()),
            rich_markup_mode=None,
            help=entry.summary + ".",
            **attributes,
        )
        self.entry = entry

    def list_commands(self, ctx: Context) -> list[str]:
        return [entry.name for entry in self.entry.children]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        entry = self.entry.child(cmd_name)
        return None if entry is None else make_command(entry)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        command = self.get_command(ctx, args[0])
        if command is None and not ctx.resilient_parsing:
            raise UnknownCommand(args[0], self.entry, ctx)
        return args[0], command, args[1:]

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        _write_prose(self.help or "", formatter)
        panels = dict.fromkeys(entry.panel for entry in self.entry.children)
        for panel in panels:
            with formatter.section(panel or "Commands"):
                formatter.write_dl(
                    [(entry.name, entry.summary) for entry in self.entry.children if entry.panel == panel]
                )
        _write_options(self.get_params(ctx), ctx, formatter)
        _write_examples(list(self.entry.examples), formatter)


class UnknownCommand(UsageError):
    """A command name that does not exist, with the nearest ones of the same group."""

    def __init__(self, typed: str, group: Entry, ctx: Context) -> None:
        path = ctx.command_path
        names = [entry.name for entry in group.children]
        near = [f"{path} {name}" for name in nearest_names(typed, names)]
        if not near:
            near = [f"{path} {entry.name} {typed}" for entry in group.children if entry.child(typed)]
        self.hint = did_you_mean(near) or f"run `{path} --help` for the list"
        super().__init__(f"`{path}` has no command {typed[:80]!r}", ctx)


def make_command(entry: Entry) -> Command:
    """The Typer command of one entry; imports its module."""
    if entry.children:
        return LazyGroup(entry, no_args_is_help=True, subcommand_metavar="COMMAND [ARGS]...")
    module_name, _, function_name = entry.target.partition(":")
    module = import_module(f"aos_cli.commands.{module_name}")
    info = CommandInfo(
        name=entry.name,
        cls=LeanCommand,
        callback=getattr(module, function_name),
        context_settings=dict(_CONTEXT),
        short_help=entry.summary,
    )
    command = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
    command.params.extend(global_params())
    _make_lean(command.params)
    return command
