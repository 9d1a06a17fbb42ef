"""daemon.call_ids: ids that nobody can guess, each given once."""

from __future__ import annotations

import re
import threading

from aos_runtime.daemon.call_ids import IDS_AT_A_TIME, CallIds


def test_every_id_is_32_hexadecimal_digits_and_given_once() -> None:
    ids = CallIds()
    taken = [ids.take() for _ in range(3 * IDS_AT_A_TIME + 1)]
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in taken)
    assert len(set(taken)) == len(taken)


def test_threads_never_get_the_same_id() -> None:
    ids = CallIds()
    taken: list[list[str]] = [[] for _ in range(8)]

    def work(mine: list[str]) -> None:
        mine.extend(ids.take() for _ in range(5 * IDS_AT_A_TIME))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    everything = [one for mine in taken for one in mine]
    assert len(everything) == 8 * 5 * IDS_AT_A_TIME == len(set(everything))
