"""The toolchain: text in, bytes and messages out.

This package parses what the user typed, calls the rooms of `aos_runtime` that it may see (`capsule`, `wire`,
`store`, `errors`, `names`, `home`, `config`) and renders what came back.  It never hosts a capsule, never
opens the database of a running daemon, and imports what a command needs only when that command runs.
"""
