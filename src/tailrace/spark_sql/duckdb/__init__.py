"""Spark's expressions, evaluated in this process instead of by a Spark job.

A warm Spark job takes longer than most small questions have work to do. So DuckDB is asked where
it is certain to answer as Spark would: `expressions` translates an expression rule by rule, with
types spelled out by Spark's own rules (`type_rules`), and `engine` runs the result. Whatever may
mean something else in DuckDB (`DiffersError`), or fails there (an overflow, a division by zero),
is left to Spark.
"""
