"""Source tree in, `.capsule` out.

`scaffold` writes new projects; `plan` reads the manifest; `toolchain`, `rustflags` and `cargo` compile;
`component` makes the component; `package` packs and signs; `pipeline` is the journey through them, and
`bundle` runs it over the first-party capsules.  Nothing here talks to a daemon or writes into the home.
"""
