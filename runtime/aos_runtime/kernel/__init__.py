"""Routing and scheduling: who gets a message, on which thread it runs, and what is loaded.

This room decides nothing about bytes on the socket (`wire`), nothing about wasm (`host`) and writes no file
(`store`); it joins their decisions to one running whole.
"""
