"""The completion scripts, generated from the command tree.

`model` reads the tree into plain values, one module per shell renders them.  The scripts themselves are
pure shell: names of capsules, tools and templates come from the index file that the store keeps
(`home.names_index`), so that TAB starts no Python, opens no socket and wakes no daemon.  `python -m
aos_cli.completion` writes them.
"""
