"""The command tree as data: which command lives in which module, and what one line says about it.

`aos --help`, the completion scripts and the typo suggestions read this table, so that none of them imports a
command.  The module of a command is imported when that command runs (`aos_cli.lazy`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One command or group.  `target` is `module:function` below `aos_cli.commands`; a group has children."""

    name: str
    summary: str
    target: str = ""
    panel: str = ""
    examples: tuple[str, ...] = ()
    """Of a group; a command's examples end its docstring."""
    children: tuple[Entry, ...] = ()

    def child(self, name: str) -> Entry | None:
        return next((entry for entry in self.children if entry.name == name), None)


DEVELOP = "Develop"
RUN = "Run"
INSPECT = "Inspect"
SECURE = "Secure"
HELP = "Help"

_CAPSULE = Entry(
    name="capsule",
    summary="Make, build, install and list capsules",
    panel=DEVELOP,
    examples=(
        "aos capsule new my-capsule",
        "aos capsule build my-capsule",
        "aos capsule install ./dist/my-capsule.capsule",
    ),
    children=(
        Entry(name="new", summary="Start a capsule project from a template", target="new:new"),
        Entry(name="build", summary="Build a project into a .capsule file", target="build:build"),
        Entry(name="install", summary="Install capsules from files or projects", target="install:install"),
        Entry(name="list", summary="List installed capsules", target="capsule:list_capsules"),
        Entry(name="show", summary="Show one installed capsule", target="capsule:show"),
        Entry(name="config", summary="Show or change the values of a capsule", target="config:config"),
        Entry(name="remove", summary="Remove an installed capsule", target="remove:remove"),
    ),
)

_TOOL = Entry(
    name="tool",
    summary="List and call the tools that capsules offer",
    panel=RUN,
    examples=("aos tool list", "aos tool call hello --arg name=Ada"),
    children=(
        Entry(name="list", summary="List the tools of the running capsules", target="tool:list_tools"),
        Entry(name="show", summary="Show one tool and its input schema", target="tool:show"),
        Entry(name="call", summary="Call a tool and print its answer", target="tool_call:call"),
        Entry(name="calls", summary="List the tool calls that run now", target="tool_cancel:calls"),
        Entry(name="cancel", summary="Cancel a tool call that runs", target="tool_cancel:cancel"),
    ),
)

_EVENTS = Entry(
    name="events",
    summary="Watch the bus and speak on it",
    panel=INSPECT,
    examples=("aos events tail", "aos events pub my-agent.v1.wake '{}'"),
    children=(
        Entry(name="tail", summary="Show the messages on the bus as they pass", target="events:tail"),
        Entry(name="pub", summary="Publish one message in your own name", target="events:pub"),
        Entry(
            name="request", summary="Publish one message and print its answer", target="events:send_request"
        ),
    ),
)

_TOPICS = Entry(
    name="topics",
    summary="Explain topics and patterns",
    panel=INSPECT,
    examples=("aos topics match tool.v1.execute.hello 'tool.v1.execute.*'",),
    children=(
        Entry(
            name="match",
            summary="Say what every matcher makes of a topic and a pattern",
            target="topics:match",
        ),
    ),
)

_AUDIT = Entry(
    name="audit",
    summary="Read and check what was put on record",
    panel=INSPECT,
    examples=("aos audit tail -f", "aos audit verify", "aos audit export --session ID"),
    children=(
        Entry(
            name="stats", summary="Say how much is on record, and how recording goes", target="audit:stats"
        ),
        Entry(name="tail", summary="Show the newest entries", target="audit_read:tail"),
        Entry(name="verify", summary="Check that nothing was changed or cut", target="audit:verify"),
        Entry(name="export", summary="Print entries as JSON lines", target="audit_read:export"),
    ),
)

_AGENT = Entry(
    name="agent",
    summary="Make, change and list principals",
    panel=SECURE,
    examples=("aos agent create bob", "aos --principal bob tool list", "aos agent delete bob"),
    children=(
        Entry(name="create", summary="Create a principal", target="agent:create"),
        Entry(name="list", summary="List the principals", target="agent:list_agents"),
        Entry(name="show", summary="Show one principal", target="agent:show"),
        Entry(name="enable", summary="Let a principal act again", target="agent:enable"),
        Entry(name="disable", summary="Stop a principal", target="agent:disable"),
        Entry(name="delete", summary="Delete a principal and its data", target="agent:delete"),
        Entry(name="modify", summary="Change its groups and capsules", target="agent:modify"),
    ),
)

_CAPS = Entry(
    name="caps",
    summary="Grant, revoke and explain capabilities",
    panel=SECURE,
    examples=("aos caps show bob", "aos caps grant bob capsule:install", "aos caps why bob capsule:install"),
    children=(
        Entry(name="show", summary="Show what a principal may do", target="caps:show"),
        Entry(name="grant", summary="Grant a capability", target="caps:grant"),
        Entry(name="revoke", summary="Revoke a capability", target="caps:revoke"),
        Entry(name="check", summary="Say whether it is allowed", target="caps:check"),
        Entry(name="why", summary="Explain what decides a capability", target="caps:why"),
    ),
)

_GROUP = Entry(
    name="group",
    summary="Make, change and list groups",
    panel=SECURE,
    examples=("aos group list", "aos group create builders --caps capsule:install"),
    children=(
        Entry(name="create", summary="Create a group", target="group:create"),
        Entry(name="list", summary="List the groups", target="group:list_groups"),
        Entry(name="show", summary="Show one group", target="group:show"),
        Entry(name="modify", summary="Change a group", target="group:modify"),
        Entry(name="delete", summary="Delete a group", target="group:delete"),
    ),
)

_KEYPAIR = Entry(
    name="keypair",
    summary="Make and list key pairs",
    panel=SECURE,
    examples=("aos keypair list", "aos keypair generate --name laptop"),
    children=(
        Entry(name="generate", summary="Make a key pair", target="keypair:generate"),
        Entry(name="list", summary="List the key pairs", target="keypair:list_pairs"),
        Entry(name="show", summary="Show one key pair", target="keypair:show"),
        Entry(name="pubkey", summary="Print a public key", target="keypair:pubkey"),
        Entry(name="delete", summary="Delete a key pair", target="keypair:delete"),
    ),
)

_QUOTA = Entry(
    name="quota",
    summary="Show and set what a principal may use",
    panel=SECURE,
    examples=("aos quota show --agent bob", "aos quota set --agent bob --memory 128MiB"),
    children=(
        Entry(name="show", summary="Show quotas and use", target="quota:show"),
        Entry(name="set", summary="Set quotas", target="quota:set_quota"),
    ),
)

ROOT = Entry(
    name="aos",
    summary="Build capsules, run them, and call their tools",
    examples=("aos demo", "aos capsule new my-capsule", "aos tool list"),
    children=(
        Entry(name="init", summary="Install the capsules that come with aos", target="init:init", panel=RUN),
        _CAPSULE,
        Entry(name="start", summary="Start the daemon", target="daemon:start", panel=RUN),
        Entry(name="stop", summary="Stop the daemon", target="daemon:stop", panel=RUN),
        Entry(
            name="restart", summary="Stop the daemon and start it again", target="daemon:restart", panel=RUN
        ),
        _TOOL,
        Entry(
            name="approve",
            summary="List what capsules ask to be allowed, and answer",
            target="approve:approve",
            panel=RUN,
        ),
        Entry(
            name="status",
            summary="Say whether the daemon runs, and how it is",
            target="status:status",
            panel=INSPECT,
        ),
        Entry(name="ps", summary="List the capsules that the daemon runs", target="status:ps", panel=INSPECT),
        Entry(
            name="logs", summary="Show what capsules and the daemon logged", target="logs:logs", panel=INSPECT
        ),
        _EVENTS,
        Entry(name="trace", summary="Show one tool call step by step", target="trace:trace", panel=INSPECT),
        Entry(name="top", summary="Show what every capsule does now", target="top:top", panel=INSPECT),
        _TOPICS,
        _AUDIT,
        _AGENT,
        _CAPS,
        _GROUP,
        _KEYPAIR,
        _QUOTA,
        Entry(
            name="demo", summary="See a capsule answer, in a throw-away home", target="demo:demo", panel=HELP
        ),
        Entry(
            name="completions",
            summary="Print the completion script of a shell",
            target="completions:completions",
            panel=HELP,
        ),
        Entry(
            name="version",
            summary="Show the versions of aos and its parts",
            target="version:version",
            panel=HELP,
        ),
    ),
)
