"""SQLite databases, each opened by a separate process.

A process that closes any descriptor of a file drops all POSIX locks that it holds on it, including those of SQLite
and of the calling program, which may have the same database open. So this process never opens a database, its journal,
its write-ahead log or the index of that log: `child` does, in a process that holds the only handle, and `process`
communicates with it.
"""
