"""Loading files into a table: Parquet, CSV and newline-delimited JSON, in one transaction.

A file is cut into parts (`parts`), a part is read in blocks (`csv_rows`, `json_rows`,
`parquet_rows`), a block's columns get the table's types (`convert`), and what does not fit is a
rejected row that is known by its file and line. The same code does so in this process for small
input (`locally`) and in Spark's workers for the rest (`with_spark`). Begin with `load`.

This stands on the store alone, below the lake: all that it asks for is a transaction.
"""

from tailrace.loading.loader import LoadReport, load
from tailrace.loading.plan import Progress
from tailrace.loading.rows import Rejected

__all__ = ["LoadReport", "Progress", "Rejected", "load"]
