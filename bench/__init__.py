"""What aos is held to, measured on an installed wheel over the real socket.  Run by `scripts/bench`.

One module per thing that is measured; `targets` holds every bound, `report` draws.  Nothing here is
imported by the product, and no figure is a test: a busy machine must not fail a build.
"""
