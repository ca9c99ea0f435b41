"""Creates a SQLite database with the tables that store runs."""

from __future__ import annotations

from pathlib import Path

from kbeval.database.connection import Database
from kbeval.engine.relations import read_sql


def make_database(path: Path) -> None:
    """Create a database without runs."""
    with Database(path) as database:
        database.open("rwc")
        with database.transaction():
            make_tables(database)


def make_tables(database: Database) -> None:
    """Create the tables in the open transaction."""
    script = "\n".join(line.partition("--")[0] for line in read_sql("schema/workspace.sql").splitlines())
    for statement in script.split(";"):
        database.execute(statement)
