"""Whether the audit trail is what was recorded: every signature, every digest, every chain.

A changed, missing, added or reordered entry is named.  A batch that a kill tore is not there at all, and is
no finding.  What this cannot see is an old copy of the whole file put in place of the new: for that, keep a
head (`aos audit stats`) elsewhere and give it as `expected_head`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from nacl.signing import VerifyKey

from aos_runtime.store.audit_entry import (
    FIRST_DIGEST,
    GENESIS,
    ChainKey,
    Head,
    Link,
    batch_digest,
    decode_link,
    is_signed_batch,
    is_signed_receipt,
    line_hash,
)
from aos_runtime.store.audit_reader import AuditReader, Batch

MAX_FINDINGS = 100
UNKNOWN = ""
"""The hash of a head that a change has made unknowable; whatever follows it is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it was recorded.  `entry` and `id` where one entry can be named."""

    sentence: str
    batch: int | None = None
    entry: int | None = None
    id: str | None = None

    def to_json(self) -> dict[str, object]:
        return {"sentence": self.sentence, "batch": self.batch, "entry": self.entry, "id": self.id}


@dataclass(slots=True, kw_only=True)
class Verification:
    """What a run found.  `findings` holds the first hundred."""

    entries: int = 0
    batches: int = 0
    chains: int = 0
    pruned_entries: int = 0
    head: str | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_intact(self) -> bool:
        return not self.findings

    def add(self, finding: Finding) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)


def verify(reader: AuditReader, public_key: bytes, *, expected_head: str | None = None) -> Verification:
    """Check everything.  `public_key` is the runtime's, 32 bytes; `expected_head` a digest in hexadecimal."""
    return _Check(reader, VerifyKey(public_key), expected_head).run(from_segment=0)


def verify_tail(reader: AuditReader, public_key: bytes) -> Verification:
    """Check the newest segment only: what a start can afford, however long the trail is."""
    return _Check(reader, VerifyKey(public_key), None).run(from_segment=reader.last_segment())


class _Check:
    """One run.  `_heads` is where each chain stands; in a run over a part, unknown until first seen."""

    def __init__(self, reader: AuditReader, key: VerifyKey, expected_head: str | None) -> None:
        self._reader = reader
        self._key = key
        self._expected = expected_head
        self._result = Verification()
        self._heads: dict[ChainKey, Head] = {}
        self._is_whole = True
        self._last: tuple[int, int, bytes] | None = None
        """Number of the last batch, number of the next entry, digest."""

    def run(self, *, from_segment: int) -> Verification:
        self._is_whole = from_segment <= 1
        if self._is_whole:
            self._last = (0, 1, FIRST_DIGEST)
        self._begin_after_receipt(from_segment)
        seen = self._expected is None or (self._last is not None and self._is_expected(self._last[2]))
        for batch in self._reader.batches(from_segment=from_segment):
            self._check_batch(batch)
            seen = seen or self._is_expected(batch.digest)
        self._check_end()
        if not seen:
            self._result.add(
                Finding(
                    sentence=f"no batch has the expected head {self._expected}: the trail was replaced or cut"
                )
            )
        self._result.chains = len(self._heads)
        return self._result

    def _is_expected(self, digest: bytes) -> bool:
        return digest.hex() == self._expected

    def _begin_after_receipt(self, from_segment: int) -> None:
        signed = self._reader.receipt()
        if signed is None:
            return
        receipt = signed.receipt
        self._result.pruned_entries = receipt.omitted_entries
        if not is_signed_receipt(self._key, signed.body, signed.signature):
            self._result.add(Finding(sentence="the prune receipt is not signed by this home's runtime key"))
        if from_segment == 0:
            self._is_whole = True
            digest = bytes.fromhex(receipt.through_digest)
            self._last = (receipt.through_batch, receipt.next_entry, digest)
            self._heads = {
                ChainKey(one.session, one.principal): Head(one.count, one.head) for one in receipt.chains
            }

    def _check_batch(self, batch: Batch) -> None:
        self._check_place(batch)
        lines = batch.lines.split(b"\n")
        digest = batch_digest(batch.number, batch.previous, batch.first, batch.entries, batch.lines)
        is_changed = digest != batch.digest
        if is_changed or len(lines) != batch.entries:
            self._name_changes(batch, lines)
        else:
            self._follow(batch, lines)
        if not is_signed_batch(self._key, batch.digest, batch.signature):
            self._find(batch, f"batch {batch.number} is not signed by this home's runtime key")
        self._last = (batch.number, batch.first + batch.entries, batch.digest)
        self._result.batches += 1
        self._result.entries += len(lines)
        self._result.head = batch.digest.hex()

    def _check_place(self, batch: Batch) -> None:
        if self._last is None:
            return
        number, next_entry, digest = self._last
        if batch.number != number + 1:
            missing = f"{number + 1}" if batch.number == number + 2 else f"{number + 1} to {batch.number - 1}"
            self._find(batch, f"missing: batch {missing}, with entries {next_entry} to {batch.first - 1}")
        elif batch.previous != digest or batch.first != next_entry:
            self._find(batch, f"batch {batch.number} does not follow batch {number}: reordered or replaced")

    def _follow(self, batch: Batch, lines: list[bytes]) -> None:
        """An unchanged batch: its lines must go on where their chains stand."""
        for number, line in enumerate(lines, start=batch.first):
            link = _link(line)
            if link is None:
                self._find(batch, f"entry {number} cannot be read", number)
                continue
            if not self._fits(link):
                sentence = f"entry {number} does not follow the entry before it in its chain"
                self._find(batch, sentence, number, link.id)
            self._advance(link, line)

    def _fits(self, link: Link) -> bool:
        key = _key(link)
        head = self._heads.get(key)
        if head is None:
            return not self._is_whole or link.previous_hash == GENESIS
        return head.hash in (link.previous_hash, UNKNOWN)

    def _advance(self, link: Link, line: bytes) -> None:
        key = _key(link)
        head = self._heads.get(key)
        self._heads[key] = Head((head.length if head else 0) + 1, line_hash(line))

    def _name_changes(self, batch: Batch, lines: list[bytes]) -> None:
        """A batch that is not what was signed: say which lines, by what the next of each chain says."""
        named = len(self._result.findings)
        if len(lines) != batch.entries:
            held = f"holds {len(lines)} entries where {batch.entries} were signed"
            self._find(batch, f"batch {batch.number} {held}")
        links = [_link(line) for line in lines]
        present = {line_hash(line) for line in lines}
        last: dict[ChainKey, tuple[int, Link, bytes]] = {}
        for number, (link, line) in enumerate(zip(links, lines, strict=True), start=batch.first):
            if link is None:
                self._find(batch, f"entry {number} was changed: it cannot be read", number)
                continue
            if not self._fits(link):
                self._blame(batch, number, link, last.get(_key(link)), link.previous_hash in present)
            self._advance(link, line)
            last[_key(link)] = number, link, line
        for number, link, line in last.values():
            self._check_last(batch, number, link, line)
        if len(self._result.findings) == named:
            self._find(batch, f"batch {batch.number} is not what was signed")

    def _blame(
        self, batch: Batch, number: int, link: Link, before: tuple[int, Link, bytes] | None, is_here: bool
    ) -> None:
        """`link` does not follow what stands before it: because of the order, or of what was there."""
        if is_here:
            self._find(batch, f"entry {number} is out of order", number, link.id)
        elif before is None:
            self._find(batch, f"an entry is missing before entry {number}", number, link.id)
        else:
            sentence = f"entry {before[0]} was changed, or one after it is missing"
            self._find(batch, sentence, before[0], before[1].id)

    def _check_last(self, batch: Batch, number: int, link: Link, line: bytes) -> None:
        """The last line of its chain in a changed batch: a later batch or the head knows its hash."""
        if line_hash(line) != self._later_claim(batch, _key(link)):
            self._find(batch, f"entry {number} was changed, or one after it is missing", number, link.id)
        self._heads[_key(link)] = Head(self._heads[_key(link)].length, UNKNOWN)

    def _later_claim(self, batch: Batch, key: ChainKey) -> str | None:
        """What was recorded as the hash of the last line of a chain in `batch`."""
        for later in self._reader.batches(from_segment=batch.segment):
            links = map(_link, later.lines.split(b"\n")) if later.number > batch.number else ()
            for link in links:
                if link is not None and _key(link) == key:
                    return link.previous_hash
        heads = {ChainKey(one.session, one.principal): one.head for one in self._reader.heads()}
        return heads.get(key)

    def _check_end(self) -> None:
        tail = self._reader.tail()
        last = self._last
        if tail is not None and last is not None and tail[0] > last[0]:
            self._result.add(
                Finding(sentence=f"missing: batches {last[0] + 1} to {tail[0]} at the end were cut off")
            )
        elif tail is not None and last is not None and (last[0], last[2]) != tail:
            self._result.add(Finding(sentence=f"batch {last[0]} at the end is not the one that was noted"))
        if not self._is_whole or not self._result.is_intact:
            return
        for one in self._reader.heads():
            head = self._heads.get(ChainKey(one.session, one.principal))
            if head is None or head.hash != one.head or head.length != one.count:
                who = f"the chain of {one.principal or 'the system'} in session {one.session}"
                self._result.add(Finding(sentence=f"{who} does not end where it was noted"))

    def _find(
        self, batch: Batch, sentence: str, entry: int | None = None, identity: str | None = None
    ) -> None:
        self._result.add(Finding(sentence=sentence, batch=batch.number, entry=entry, id=identity))


def _link(line: bytes) -> Link | None:
    try:
        return decode_link(line)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _key(link: Link) -> ChainKey:
    return ChainKey(link.session_id, link.principal)
