"""Turns what kbeval found into text: `table` for eyes, `json` for programs, `csv` and `md` for pasting."""
