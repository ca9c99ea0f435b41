"""Invented, malformed input for the real commands, judged by rules that hold for any input.

`python -m tests.fuzz --help` says how to run it for long, repeat one case, and make a case smaller.
"""
