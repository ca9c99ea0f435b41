"""Turns results into text: `table` for terminals, `json` for programs, `csv` and `md` for pasting."""
