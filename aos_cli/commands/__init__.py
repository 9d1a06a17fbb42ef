"""One file per noun: parse, call, render.  The tree that names them is `aos_cli.tree`."""
