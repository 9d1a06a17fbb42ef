"""The journey of `aos capsule install`: what is named, what it asks, who agrees, and the activation.

Decides and asks; every write of the home is `aos_runtime.store`'s.
"""
