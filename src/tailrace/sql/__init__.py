"""The language: Spark SQL for queries, and statements for what a lake has beyond them.

`parser` cuts a text into statements, and reads one of them, token by token; it knows at each place
what would have been valid there. `statements` has the table of all statements; its modules read
them, and give what runs them. A query becomes a DataFrame in `query_frame`; a write becomes a query
over the table's rows, whose result `statements.edits` applies. `listings` has what a lake knows of
itself, and `diagnostics` the form of error messages.
"""
