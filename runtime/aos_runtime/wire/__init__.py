"""The local protocol as values: bytes in, decisions and bytes out (docs/formats/wire.md).

This room opens no socket, reads no clock and keeps no thread.  `frames`, `handshake_client`, `methods` and
`client` need only the standard library, because `aos status` pays for every import; `payloads`,
`requests`, `ingress` and `egress` are the daemon's side.
"""
