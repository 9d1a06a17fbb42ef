"""Who may do what, as pure decisions: capabilities, publish and subscribe gates, rates, one provider per
surface.

This room reads no file and no clock: profiles, manifests and time are passed in.
"""
