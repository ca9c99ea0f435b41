"""Runs and judgements as tables, without a database: `kbeval.evaluate`, and TREC files.

`reading` converts the caller's data into two columns of ids and one of numbers, `ranking` finds the ranks of the
judged documents, and `kernel` computes metrics with the expressions of `sql/metrics`.
"""
