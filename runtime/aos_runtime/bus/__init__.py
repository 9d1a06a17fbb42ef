"""The topic bus as decisions: who gets a message, whether its queue takes it, what a hook result does
next.

This room holds no lock and no live object of another room: the kernel carries its decisions out.
"""
