"""Spark's expressions, answered in this process instead of by a Spark job.

A warm Spark job takes longer than most small questions have work to do. So DuckDB is asked, if it
is certain that Spark would give the same: every expression is typed by Spark's rules (`kinds`) and
said to DuckDB with its types spelled out (`expressions`), and whatever is not known to mean the
same (`DiffersError`), or fails (an overflow, a division by zero), is left to Spark.

`engine` runs what was said.
"""
