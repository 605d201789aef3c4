"""TPC-H for tests and benchmarks: its tables, its 22 queries, and changes to keep views fresh of.

The rows come from the generator that the lock names, and changes are drawn with a seed: the same
run gives the same rows. Read on in `tables`, `rounds` (changes of all kinds, for tests) and
`order_changes` (many changed orders, for benchmarks).
"""
