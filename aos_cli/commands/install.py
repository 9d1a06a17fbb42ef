"""`aos capsule install`: from archives, folders of archives, or projects that are built first."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from aos_cli.console import Console, get_console
from aos_cli.install.consent import Answers
from aos_cli.install.env_values import parse_variables
from aos_cli.install.hook_questions import parse_answers
from aos_cli.install.journey import Order, Report, install_archive
from aos_cli.install.sources import Source, expand_source
from aos_cli.install.telling import say_installed, show_failure
from aos_cli.invocation import get_invocation
from aos_cli.render.errors import describe
from aos_runtime.errors import AosError


class Values(NamedTuple):
    """What `--var` and `--answer` said."""

    var: dict[str, str]
    answer: dict[str, str]


def install(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="A .capsule file, a folder of them, or a capsule project."),
    ],
    var: Annotated[
        list[str] | None,
        typer.Option(
            "--var", metavar="KEY=VALUE", help="Value of an [env] key; AOS_VAR_<KEY> keeps it off the line."
        ),
    ] = None,
    answer: Annotated[
        list[str] | None,
        typer.Option(
            "--answer",
            metavar="KEY=VALUE",
            help="Answer to a question of the install hook; AOS_VAR_<KEY> keeps it off the line.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Agree to what a capsule built here asks; ask for no values.")
    ] = False,
    approve_untrusted: Annotated[
        bool,
        typer.Option(
            "--approve-untrusted", help="Agree to capsules that are unsigned or signed by another key."
        ),
    ] = False,
) -> int:
    """Install capsules for the principal; one that is installed already is replaced.

    What was built here and asks for nothing new installs silently. Anything else is shown and needs a
    yes: -y for more permissions or an older version, --approve-untrusted for a foreign origin. Installed
    again with --var, only the value changes. The install or upgrade hook of a capsule may ask questions:
    they are answered at the prompt or with --answer, and where the hook fails nothing is changed. Several
    sources: each is tried, and the exit status is 1 where one failed.
    JSON: the install record, or {installed, failed, total} for several.

    Examples:
      aos capsule install ./dist/my-capsule.capsule
      aos capsule install ./my-capsule --var region=eu
      AOS_VAR_API_KEY=... aos capsule install search.capsule -y
      aos capsule install ./downloads --approve-untrusted
    """
    console = get_console()
    answers = Answers(
        yes=yes, approve_untrusted=approve_untrusted, interactive=console.interactive and not yes
    )
    variables = Values(var=parse_variables(var or ()), answer=parse_answers(answer or ()))
    found = _expand(sources)
    if len(found) == 1 and not isinstance(found[0], AosError):
        return _show_one(console, _install(found[0], answers, variables))
    reports: list[Report] = []
    failures: list[tuple[str, AosError]] = []
    for source, text in zip(found, _labels(found), strict=True):
        try:
            if isinstance(source, AosError):
                raise source
            report = _install(source, answers, variables)
        except AosError as error:
            failures.append((text, error))
            show_failure(console, text, describe(error))
        else:
            reports.append(report)
            say_installed(console, report)
    return _show_many(console, reports, failures)


def _expand(sources: list[str]) -> list[Source | AosError]:
    found: list[Source | AosError] = []
    for text in sources:
        try:
            found += expand_source(text, Path.cwd())
        except AosError as error:
            if len(sources) == 1:
                raise
            found.append(error)
    return found


def _labels(found: list[Source | AosError]) -> list[str]:
    return [
        str(item.path) if isinstance(item, Source) else str(item.context.get("path", "")) for item in found
    ]


def _install(source: Source, answers: Answers, variables: Values) -> Report:
    invocation = get_invocation()
    with _archive_of(source) as archive:
        order = Order(
            home=invocation.home,
            principal=invocation.principal,
            archive=archive,
            source_text=str(source.path),
            answers=answers,
            variables=variables.var,
            hook_answers=variables.answer,
            environ=invocation.environ,
        )
        return install_archive(order, get_console())


@contextmanager
def _archive_of(source: Source) -> Iterator[Path]:
    """The archive itself, or one built from the project into a folder that goes away."""
    if not source.is_project:
        yield source.path
        return
    with tempfile.TemporaryDirectory(prefix="aos-install-") as folder:
        yield _build(source.path, Path(folder))


def _build(project: Path, output: Path) -> Path:
    from aos_cli.build.pipeline import Request, build_project
    from aos_runtime.store.keys import load_runtime_seed
    from aos_runtime.store.layout import open_home

    invocation = get_invocation()
    open_home(invocation.home, create=True)
    request = Request(
        folder=project,
        output=output,
        debug=False,
        locked=False,
        offline=False,
        strict=False,
        compression="gzip",
        seed=load_runtime_seed(invocation.home, create=True),
    )
    return build_project(request, environ=invocation.environ, console=get_console()).path


def _show_one(console: Console, report: Report) -> int:
    if console.is_json:
        console.json(report.document())
    else:
        say_installed(console, report)
    return 0


def _show_many(console: Console, reports: list[Report], failures: list[tuple[str, AosError]]) -> int:
    total = len(reports) + len(failures)
    if console.is_json:
        failed = [{"source": text, **describe(error).document()} for text, error in failures]
        console.json(
            {"installed": [report.document() for report in reports], "failed": failed, "total": total}
        )
    else:
        console.note(f"Installed {len(reports)} of {total}.")
    return 1 if failures else 0
