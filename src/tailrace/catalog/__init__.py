"""The catalog: the SQL database that says what exists, since which snapshot and until which.

`tables` defines its tables once, `database` opens it and gives transactions, `migrate` creates
it and brings it up to date.
"""
