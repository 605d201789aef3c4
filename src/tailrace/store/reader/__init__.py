"""The one reader of a table's files, for everything that reads rows in this process.

A read answers five questions, each in one module:

1. Which files? Those of a `Scan` (visibility), less those that cannot hold a wanted row by their
   statistics (`filters`).
2. Which of their rows? A `RowRange`: positions of a file, without the deleted ones (`row_range`).
3. Which row groups? Those that hold such a position, and by their statistics may hold a wanted row.
4. Which columns? The ones that a filter looks at first, the others only where it found something.
   The rows come as Arrow batches with their positions (`batches`).
5. Here, or on Spark? What a read costs, and what this process takes on (`budget`).

Objects are opened as Parquet, footers read and row groups decoded in `opened` alone. What the
process keeps of that in memory, for the next read, is in `kept`.
"""
