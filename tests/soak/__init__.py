"""Long runs: what finds a fault only by being tried many times.  Run by `scripts/soak`, never by pytest.

A soak is a function in its own module that takes a `Budget` and returns a `Report`; registering it is one line in
`tests.soak.registry`.
"""
