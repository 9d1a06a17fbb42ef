"""The source id is a fixed function of name and binary."""

from __future__ import annotations

from aos_runtime.capsule.identity import source_id
from aos_runtime.names import CapsuleName, Digest


def test_the_id_that_the_published_runtime_reports() -> None:
    """Name, wasm digest and id as recorded from a published daemon's GetCapsuleMetadata."""
    digest = Digest("f1595a83ba44e955108c2416256170affce3f8c75989206d28d4136f5c68be56")
    assert source_id(CapsuleName("aos-cli"), digest) == "02439647-5417-5540-88c4-53fb8b04cdf2"


def test_another_binary_has_another_id() -> None:
    name = CapsuleName("aos-cli")
    assert source_id(name, Digest("0" * 64)) != source_id(name, Digest("1" * 64))
