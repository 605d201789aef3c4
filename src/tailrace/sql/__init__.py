"""The language: Spark SQL for queries, and statements for what a lake has beyond them.

`script` cuts a text into statements; `cursor` reads one of them, token by token, and knows at each
place what would have been valid there. One module for each kind of statement gives a value with a
`run(lake)`; `statements` is the table of them. Queries go to Spark as they were written, with the
names of tables replaced (`names`); writes go through the store (`edits`).
"""
