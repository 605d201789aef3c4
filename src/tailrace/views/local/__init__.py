"""Small queries over Arrow tables, answered in this process instead of by a Spark job.

A query whose tables are all in memory is run by DuckDB, if it is certain that Spark would give the
same rows: `queries` says its clauses, `store.local` the expressions in them, and what is not known
to mean the same is left to Spark.

`compiled` says a program's steps before anything is read.
"""
