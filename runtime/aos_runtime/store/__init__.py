"""The only writers of the home: every file below `$AOS_HOME/runtime` is created, changed and removed here.

Two rules hold everywhere.  A change of a file is a rename of a finished, synced one, so that a reader meets
the old bytes or the new ones.  A change of several files ends in one rename that makes all of them visible;
what a killed process leaves behind is invisible until the next writer sweeps it, and readers never repair.

This room decides nothing about policy, opens no socket and runs no guest.
"""
