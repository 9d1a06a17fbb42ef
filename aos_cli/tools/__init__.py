"""Calling tools through the door: arguments from a command line, requests and answers."""
