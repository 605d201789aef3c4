"""Materialized views: queries whose results are kept equal to a recompute by work that follows
the change.

    query/        what a query means: SQL → `translate` → `plan`
    incremental/  how its result changes: `rules` for each operator, put together as a `program`;
                  `layout` says how the result is stored, `stored_delta` how that changes
    refresh/      one refresh: `choose` the cheapest way, `execution` of the program in this
                  process or on Spark, `apply` to the stored table; `explain` and `verify`

All of it is SQL trees until `execution`, the only place that starts Spark jobs. `definition` is
what is known of one view, and `resolve` how its query finds tables; `consumer` is the job that
keeps it fresh; `views` and `view` are what users call.
"""
