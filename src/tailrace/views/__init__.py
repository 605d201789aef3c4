"""Materialized views: queries whose results are kept equal to a recompute by work that follows
the change.

    SQL → `translate` → `plan` → `rules` → `program` → `run` (Spark) → one commit

`translate` turns a query into a plan, `rules` say for each operator how a change of its input
changes its output, `sink` how a change of the result is brought into the stored table, `choose`
which way is the cheapest. All of it is SQL trees; `run` is the only place that starts Spark jobs.
"""
