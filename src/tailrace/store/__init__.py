"""The table store: tables, transactions, scans and the change feed.

Read in this order: `schema` (what a table is), `files` (what it consists of), `lookup`,
`table_files` and `snapshots` (what is visible), `reader`, `scan` and `changes` (how it is read),
`write` and `find_rows` (how new files come about), `transaction` and `commit` (how they become
visible), `purge` and `sweep` (what is cleaned up). `table` is what users hold in their hands.
"""
