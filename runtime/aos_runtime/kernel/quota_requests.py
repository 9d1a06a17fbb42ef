"""The admin requests about quotas and use: quota.* and usage.get (daemon-kernel.md 5.3, 7, 9.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aos_runtime.errors import InvalidInput
from aos_runtime.kernel.office import Office, existing_name
from aos_runtime.kernel.requests import Answer, Caller
from aos_runtime.names import PrincipalName
from aos_runtime.policy.quotas import quota_problem
from aos_runtime.store.profile_edits import change_profile, expect_profile, profiles_locked

Params = Mapping[str, Any]


class QuotaRequests:
    """Reads and sets quotas.  `measure` gives memory now and at most, and fuel, of a principal's guests."""

    def __init__(self, office: Office, measure: Callable[[PrincipalName], tuple[int, int, int]]) -> None:
        self._office = office
        self._measure = measure

    def read(self, caller: Caller, params: Params) -> Answer:
        principal = self._expect(params)
        return Answer(status="Quotas", data=self._office.principals.quotas(principal).to_json())

    def write(self, caller: Caller, params: Params) -> Answer:
        """Set the quotas that are given; the others stay.  New limits hold from the next call on."""
        principal, office = existing_name(params["principal"]), self._office
        values: Mapping[str, int] = params["quotas"]
        problem = "no quota was given" if not values else quota_problem(values)
        if problem is not None:
            raise InvalidInput("quota", problem, hint="`aos quota set --help` shows the units")
        with profiles_locked(office.home):
            held = expect_profile(office.home, principal)
            change_profile(
                office.home, principal, lambda text: text.update({"quotas": {**held.quotas, **values}})
            )
        office.applied(principal)
        office.lifecycle.renew_instances(principal)
        return Answer(status="Quotas", data=office.principals.quotas(principal).to_json())

    def usage(self, caller: Caller, params: Params) -> Answer:
        """What the capsules of a principal used since the daemon started; memory is of now and at most."""
        principal = self._expect(params)
        budget = self._office.principals.budget(principal)
        current, peak, fuel = self._measure(principal)
        data = {
            "principal": principal,
            "cpu_fuel_consumed_total": budget.fuel_retired + fuel,
            "cpu_fuel_per_sec_limit": budget.fuel_rate,
            "exempt": budget.is_exempt,
            "memory_bytes_limit_per_instance": budget.quotas.max_memory_bytes,
            "memory_bytes_current_total": current,
            "memory_bytes_peak_total": peak,
            "storage_bytes": self._office.state.stored_bytes(principal)
            + self._office.storage.files_bytes(principal),
        }
        return Answer(status="Usage", data=data)

    def _expect(self, params: Params) -> PrincipalName:
        principal = existing_name(params["principal"])
        expect_profile(self._office.home, principal)
        return principal
