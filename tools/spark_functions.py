"""Lists the functions of the installed Spark that nobody has looked at yet.

    python tools/spark_functions.py           # what is new, and what Spark says of it
    python tools/spark_functions.py --allow   # enters it in ALLOWED: after having looked at each

What reaches outside of a query (files, the network, Spark's process, other sessions) is entered
in REFUSED before, by hand and with the reason.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.spark_sql import functions
from tailrace.spark_sql.functions import ALLOWED, REFUSED

MODULE = Path(functions.__file__)
INDENT = "    "


def built_in(spark: SparkSession) -> set[str]:
    """Spark's own functions that have a name; operators have none."""
    names = {row[0].lower() for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    return {name for name in names if name.isidentifier()}


def main() -> None:
    """See the module."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    known = built_in(spark)
    for name in sorted(known - ALLOWED - set(REFUSED)):
        described = spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect()
        said = "\n".join(row[0] for row in described)
        sys.stdout.write(f"--- {name}\n{textwrap.indent(said, INDENT)}\n")
    if "--allow" in sys.argv:
        names = ", ".join(f'"{name}"' for name in sorted((ALLOWED | known) - set(REFUSED)))
        block = textwrap.fill(names, 100, initial_indent=INDENT, subsequent_indent=INDENT)
        made, count = re.subn(
            r"ALLOWED = frozenset\(\{.*?\}\)  # fmt: skip\n",
            f"ALLOWED = frozenset({{\n{block},\n}})  # fmt: skip\n",
            MODULE.read_text(encoding="utf-8"),
            flags=re.DOTALL,
        )
        assert count == 1
        MODULE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
