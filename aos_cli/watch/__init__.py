"""Seeing the bus: the client of the events door, and the arithmetic of `aos top`.  It prints nothing."""
