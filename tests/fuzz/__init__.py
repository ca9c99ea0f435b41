"""Input that nobody meant: invented, given to the real commands, and judged by rules that hold whatever the input is.

`python -m tests.fuzz --help` says how to run it for long, repeat one case, and make a case smaller.
"""
