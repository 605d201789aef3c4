"""The catalog: the SQL database that says what exists, since which snapshot and until which.

`ducklake` defines the tables of the format, `part` says how each layer adds its own, `database`
gives connections and transactions, `opening` creates it and brings it up to date.
"""
