"""Labelling: the pool of candidates, the order of work, decisions, and what is written to the golden file.

Both front ends, the page and the terminal, use `session` alone. Neither knows SQL.
"""
