"""Small queries over Arrow tables, answered in this process instead of by a Spark job.

A warm Spark job takes longer than most refreshes have work to do. So a query whose tables are
all in memory is run by DuckDB, if it is certain that Spark would give the same rows: every
expression is typed by Spark's rules (`kinds`) and said to DuckDB with its types spelled out
(`expressions`, `queries`), and whatever is not known to mean the same (`DiffersError`), or fails
(an overflow, a division by zero), is left to Spark.

`compiled` says a program's steps before anything is read; `engine` runs them.
"""
