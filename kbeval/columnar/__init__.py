"""Stored rows as columns: parsed once, kept as Parquet, read again in a fraction of the time.

A *part* is a folder with the facts of some runs, one Parquet file or more for each relation, and a manifest that
says what is in it. `cache` keeps parts beside a database, on its own; `archiving` writes them where they are asked
for, a part a run. Either way a part is written under another name, made whole, and then renamed: what has a
manifest is complete.
"""
