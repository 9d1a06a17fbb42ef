"""The process: its socket, its files while it runs, its signals, and the door for tools.

This is the top of the runtime: it joins the rooms below to one daemon.  It decides nothing about routing,
policy or formats.
"""
