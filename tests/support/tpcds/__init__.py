"""TPC-DS for tests: its tables, its 99 queries in Spark's SQL, and changes to keep views fresh of.

Tables and queries come from DuckDB's extension, and everything that is drawn has a seed: the same
run gives the same rows. Read on in `tables` (rows, made small and dense), `texts` (the queries),
`wishes` (what the queries ask for), `aim` (rows that they find) and `rounds` (changes of all
kinds).
"""
