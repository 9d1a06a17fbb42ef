"""The uplinks of one capsule: where it brings in what people say on other platforms.

Source: host-abi.md 1.12.  What comes in is a `user_input` on `user.v1.prompt` of the capsule's own principal,
as if it had been said to this daemon by a client; who said it elsewhere is data beside it and never an
identity here (ADR 0019).  It waits for room in a queue as a client's own message does.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from aos_runtime.capsule.manifest import Uplink
from aos_runtime.host.people import UplinkRefused
from aos_runtime.kernel.outside import Note
from aos_runtime.kernel.ports import Submission
from aos_runtime.policy.capability_gate import CapabilityDenial, check_uplink
from aos_runtime.policy.platforms import MAX_ID_CHARACTERS, MAX_UPLINK_CHARACTERS, read_platform, read_text
from aos_runtime.policy.publish import MAX_PAYLOAD_BYTES
from aos_runtime.wire.payloads import USER_INPUT, UserInput

PROMPT_TOPIC = "user.v1.prompt"
MAX_UPLINKS = 32
"""Of one capsule (daemon-kernel.md 6)."""
MAX_UPLINK_ID_CHARACTERS = 64
ONE_WAY = "notify"
"""The profile of what only goes out: nothing comes in through it."""

HandIn = Callable[[str, bytes, str], Submission | None]
"""`GuestPort.hand_in`."""
_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class _Registered:
    name: str
    platform: str
    profile: str


class GuestUplinks:
    """`host.people.Uplinks` of one instance; what it registered ends with it.

    `declared` are the manifest's rows.  `hand_in` brings a message to the bus, `denied` and `note` hear of
    refusals and of every call.
    """

    def __init__(
        self,
        declared: Iterable[Uplink],
        hand_in: HandIn,
        note: Note,
        denied: Callable[[CapabilityDenial], None],
        *,
        is_uplink: bool,
    ) -> None:
        self._declared = {_key(row.name, row.platform): row.profile for row in declared}
        self._hand_in = hand_in
        self._is_uplink = is_uplink
        self._note = note
        self._denied = denied
        self._registered: dict[str, _Registered] = {}

    def register(self, name: str, platform: str, profile: str) -> str:
        """A new uplink's id.

        `invalid-input` for what is no name and for a name that is taken, `invalid-profile` where the manifest
        declares the uplink with another one, `quota` for the 33rd.
        """
        return self._run("uplink-register", f"{platform}:{name}", lambda: self._add(name, platform, profile))

    def send(self, uplink: str, platform_user: str, content: str) -> bool:
        """Whether somebody takes it; nobody does where no capsule handles prompts, or its queue is full."""
        return self._run("uplink-send", uplink, lambda: self._bring_in(uplink, platform_user, content))

    def _add(self, name: str, platform: str, profile: str) -> str:
        one = _Registered(
            name=_valid(read_text(name.strip(), MAX_UPLINK_CHARACTERS)),
            platform=_valid(read_platform(platform)),
            profile=profile,
        )
        if any(
            (other.name, other.platform) == (one.name, one.platform) for other in self._registered.values()
        ):
            raise UplinkRefused("invalid-input")
        if self._declared.get(_key(one.name, one.platform), profile) != profile:
            raise UplinkRefused("invalid-profile")
        if len(self._registered) >= MAX_UPLINKS:
            raise UplinkRefused("quota")
        made = str(uuid.uuid4())
        self._registered[made] = one
        return made

    def _bring_in(self, uplink: str, platform_user: str, content: str) -> bool:
        if len(uplink) > MAX_UPLINK_ID_CHARACTERS:
            raise UplinkRefused("invalid-input")
        sender = _valid(read_text(platform_user, MAX_ID_CHARACTERS))
        one = self._registered.get(uplink)
        if one is None:
            raise UplinkRefused("unknown-uplink")
        if not self._declared:
            raise UplinkRefused("quota")  # published: without an [[uplink]] row there is no way in
        if one.profile == ONE_WAY:
            return False
        body = _message(uplink, one, sender, content)
        if len(body) > MAX_PAYLOAD_BYTES:
            raise UplinkRefused("invalid-input")
        outcome = self._hand_in(PROMPT_TOPIC, body, USER_INPUT)
        if outcome is None:
            raise UplinkRefused("quota")
        return outcome is Submission.ACCEPTED

    def _run(self, operation: str, target: str, act: Callable[[], _T]) -> _T:
        """Ask the gate, act, and put on record how it ended, before the guest hears of it."""
        call = operation.replace("-", ".", 1)
        denial = check_uplink(operation, self._is_uplink, target)
        try:
            if denial is not None:
                self._denied(denial)
                raise UplinkRefused("capability-denied")
            answer = act()
        except UplinkRefused as refusal:
            self._note(call, target, refusal.case)
            raise
        self._note(call, target, None)
        return answer


def _message(uplink: str, one: _Registered, sender: str, content: str) -> bytes:
    """What is said, in a session of its own for each person and uplink, the same after a restart."""
    session = uuid.uuid5(uuid.NAMESPACE_URL, f"uplink:{one.platform}\0{one.name}\0{sender}")
    origin = {"id": uplink, "name": one.name, "platform": one.platform, "profile": one.profile}
    context = {"uplink": origin, "platform_user_id": sender}
    return _encode(UserInput(text=content, session_id=str(session), context=context))


def _key(name: str, platform: str) -> tuple[str, str]:
    return name.strip(), platform.strip().lower()


def _valid(text: str | None) -> str:
    if text is None:
        raise UplinkRefused("invalid-input")
    return text
