"""Everything through which this daemon asks people: questions, approvals, and grants on use."""

from __future__ import annotations

from dataclasses import dataclass

from aos_runtime.home import Home
from aos_runtime.kernel.approvals import Approvals
from aos_runtime.kernel.audited import Trail
from aos_runtime.kernel.grants import GrantOnUse
from aos_runtime.kernel.kernel import Journal, Kernel
from aos_runtime.kernel.principals import Principals
from aos_runtime.kernel.questions import Questions
from aos_runtime.names import PrincipalName


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One per daemon."""

    questions: Questions
    approvals: Approvals
    grants: GrantOnUse


def make_asking(
    *, home: Home, kernel: Kernel, principals: Principals, journal: Journal, trail: Trail
) -> Asking:
    """The table of questions, with approvals on it and grants behind the access gate."""
    questions = Questions(kernel)
    approvals = Approvals(
        home=home, questions=questions, journal=journal, before_block=kernel.before_block, trail=trail
    )

    def let_pass(principal: PrincipalName) -> None:
        principals.refresh(principal)
        kernel.apply_standings()

    grants = GrantOnUse(
        home=home,
        bus=kernel,
        questions=questions,
        journal=journal,
        before_block=kernel.before_block,
        trail=trail,
        note=kernel.on_access_denied,
        on_granted=let_pass,
    )
    kernel.on_access_denied = grants.denied
    return Asking(questions=questions, approvals=approvals, grants=grants)
