"""The capsule format: names, topics, capabilities, manifest, archive, provenance and wasm sections.

Pure: bytes and values in, values and AosError out.  This room opens no path, reads no clock and runs no
guest; the toolchain and the daemon share it, so that what `aos capsule build` writes is what the daemon
accepts.
"""
