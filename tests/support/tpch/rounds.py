"""A round of inserts, updates and deletes in every table, drawn so that the queries' results move.

Made for small scales: about one row in fifty changes. DuckDB computes the rows from what the lake
holds, so that rounds can follow each other; the lake's own calls apply them, as one transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support import queries
from tests.support.tpch import tables

if TYPE_CHECKING:
    import duckdb

    import tailrace

# Whether a row is one of `share`, and a number below `below` for it: by the row's key, the round
# and a number of the place in this module that asks.
MACROS = """
CREATE OR REPLACE TEMP MACRO chosen(key, place, share) AS hash(key, place, {round}) % share = 0;
CREATE OR REPLACE TEMP MACRO drawn(key, place, below) AS
    (hash(key, place, {round}) % below)::BIGINT;
"""

# What several changes follow from. An order that is new is like an old one; its key is in a gap
# (TPC-H uses 8 of 32 keys) or above all others. New parts and suppliers are like old ones too.
PREPARATION = """
CREATE OR REPLACE TEMP TABLE new_order AS
SELECT template, max(o_orderkey) AS o_orderkey FROM (
    SELECT
        o_orderkey AS template,
        CASE WHEN chosen(o_orderkey, 1, 2) THEN o_orderkey + 8 * (1 + {round} % 3)
        ELSE 1 + row_number() OVER (ORDER BY o_orderkey) + max(o_orderkey) OVER () END
            AS o_orderkey
    FROM orders
    WHERE chosen(o_orderkey, 2, 100) OR (
        chosen(o_orderkey, 3, 4)
        AND o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY ALL HAVING count(*) = 7)
        AND o_orderkey % 32 < 3
    )
)
WHERE o_orderkey NOT IN (SELECT o_orderkey FROM orders)
GROUP BY template;

CREATE OR REPLACE TEMP TABLE gone_order AS
SELECT o_orderkey FROM orders WHERE chosen(o_orderkey, 4, 100);

-- The kinds of part that queries ask for.
CREATE OR REPLACE TEMP TABLE wanted AS SELECT * FROM (VALUES
    (0, 'forest green almond khaki navy', 'Brand#12', 'PROMO BURNISHED COPPER', 3, 'SM BOX'),
    (1, 'green forest linen rose snow', 'Brand#23', 'ECONOMY ANODIZED STEEL', 5, 'MED BOX'),
    (2, 'forest puff plum peru pink', 'Brand#34', 'LARGE POLISHED BRASS', 15, 'LG CASE'),
    (3, 'tan misty green sky sandy', 'Brand#45', 'MEDIUM POLISHED BRASS', 15, 'MED BOX'),
    (4, 'navy moccasin mint maroon lime', 'Brand#31', 'SMALL PLATED TIN', 49, 'JUMBO PKG')
) AS t (kind, p_name, p_brand, p_type, p_size, p_container);

CREATE OR REPLACE TEMP TABLE new_part AS
SELECT
    p_partkey AS template,
    row_number() OVER (ORDER BY p_partkey) + (SELECT max(p_partkey) FROM part) AS p_partkey
FROM part WHERE chosen(p_partkey, 5, 150);

CREATE OR REPLACE TEMP TABLE new_supplier AS
SELECT
    s_suppkey AS template,
    row_number() OVER (ORDER BY s_suppkey) + (SELECT max(s_suppkey) FROM supplier) AS s_suppkey
FROM supplier WHERE chosen(s_suppkey, 6, 20);
"""

# By table: the rows to upsert, new ones and changed ones, and the keys to delete.
CHANGES = {
    # Two regions and two nations change their names with each other, from round to round others.
    "region": (
        """
        SELECT * REPLACE (
            CASE r_name WHEN swap.a THEN swap.b WHEN swap.b THEN swap.a ELSE r_name END AS r_name,
            concat('round ', {round}) AS r_comment
        )
        FROM region, (VALUES (0, 'EUROPE', 'AFRICA'), (1, 'ASIA', 'AMERICA')) swap (number, a, b)
        WHERE swap.number = {round} % 2 AND {round} > 1
        """,
        "SELECT r_regionkey FROM region WHERE false",
    ),
    "nation": (
        """
        SELECT * EXCLUDE (number, a, b) REPLACE (
            CASE n_name WHEN swap.a THEN swap.b WHEN swap.b THEN swap.a ELSE n_name END AS n_name,
            CASE WHEN chosen(n_nationkey, 10, 12) THEN drawn(n_nationkey, 11, 5)
            ELSE n_regionkey END AS n_regionkey
        )
        FROM nation, (VALUES
            (0, 'GERMANY', 'CANADA'), (1, 'SAUDI ARABIA', 'KENYA'), (2, 'FRANCE', 'BRAZIL')
        ) swap (number, a, b)
        WHERE swap.number = {round} % 3
        """,
        "SELECT n_nationkey FROM nation WHERE false",
    ),
    "supplier": (
        """
        SELECT * REPLACE (
            CASE WHEN chosen(s_suppkey, 20, 3) THEN s_nationkey
            ELSE [2, 3, 6, 7, 20][1 + drawn(s_suppkey, 21, 5)] END AS s_nationkey,
            s_acctbal + drawn(s_suppkey, 22, 4000) - 2000 AS s_acctbal,
            concat(s_address, ' ', {round}) AS s_address,
            concat(drawn(s_suppkey, 23, 90) + 10, substring(s_phone, 3)) AS s_phone,
            CASE WHEN chosen(s_suppkey, 24, 3) THEN 'the Customer had many Complaints'
            ELSE s_comment END AS s_comment
        )
        FROM supplier WHERE chosen(s_suppkey, 25, 10)
        UNION ALL BY NAME
        SELECT supplier.* REPLACE (
            new_supplier.s_suppkey AS s_suppkey,
            format('Supplier#{{:09d}}', new_supplier.s_suppkey) AS s_name,
            [2, 3, 6, 7, 20][1 + drawn(template, 26, 5)] AS s_nationkey
        )
        FROM supplier JOIN new_supplier ON template = supplier.s_suppkey
        """,
        "SELECT s_suppkey FROM supplier WHERE chosen(s_suppkey, 27, 50)",
    ),
    "customer": (
        """
        SELECT * REPLACE (
            concat('Customer#', c_custkey, '/', {round}) AS c_name,
            drawn(c_custkey, 30, 25) AS c_nationkey,
            c_acctbal + drawn(c_custkey, 31, 8000) - 2000 AS c_acctbal,
            concat([13, 31, 23, 29, 40, 30][1 + drawn(c_custkey, 32, 6)], substring(c_phone, 3))
                AS c_phone,
            CASE WHEN chosen(c_custkey, 33, 2) THEN 'BUILDING' ELSE 'MACHINERY' END AS c_mktsegment
        )
        FROM customer WHERE chosen(c_custkey, 34, 50)
        UNION ALL
        SELECT * REPLACE (
            c_custkey + (SELECT max(c_custkey) FROM customer) AS c_custkey,
            concat('Customer#', c_custkey, ' again') AS c_name
        )
        FROM customer WHERE chosen(c_custkey, 35, 100)
        """,
        "SELECT c_custkey FROM customer WHERE chosen(c_custkey, 36, 100)",
    ),
    "part": (
        """
        SELECT part.* REPLACE (
            wanted.p_name AS p_name,
            wanted.p_brand AS p_brand,
            wanted.p_type AS p_type,
            wanted.p_size AS p_size,
            wanted.p_container AS p_container
        )
        FROM part JOIN wanted ON kind = drawn(p_partkey, 40, 5)
        WHERE chosen(p_partkey, 41, 50)
        UNION ALL BY NAME
        SELECT part.* REPLACE (
            new_part.p_partkey AS p_partkey,
            wanted.p_name AS p_name,
            wanted.p_brand AS p_brand,
            wanted.p_type AS p_type,
            wanted.p_size AS p_size,
            wanted.p_container AS p_container
        )
        FROM part
        JOIN new_part ON template = part.p_partkey
        JOIN wanted ON kind = drawn(template, 42, 5)
        """,
        "SELECT p_partkey FROM part WHERE chosen(p_partkey, 43, 150)",
    ),
    "partsupp": (
        """
        SELECT * REPLACE (
            drawn((ps_partkey, ps_suppkey), 50, 10000)::INT AS ps_availqty,
            ps_supplycost * (1 + drawn((ps_partkey, ps_suppkey), 51, 3)) / 2 AS ps_supplycost
        )
        FROM partsupp WHERE chosen((ps_partkey, ps_suppkey), 52, 50)
        UNION ALL BY NAME
        SELECT partsupp.* REPLACE (new_part.p_partkey AS ps_partkey)
        FROM partsupp JOIN new_part ON template = ps_partkey
        UNION ALL BY NAME
        SELECT partsupp.* REPLACE (new_supplier.s_suppkey AS ps_suppkey)
        FROM partsupp JOIN new_supplier ON template = ps_suppkey
        WHERE chosen(ps_partkey, 53, 2)
        """,
        """
        SELECT ps_partkey, ps_suppkey FROM partsupp
        WHERE chosen((ps_partkey, ps_suppkey), 54, 100)
        """,
    ),
    "orders": (
        """
        SELECT * REPLACE (
            CASE WHEN chosen(o_orderkey, 60, 3) THEN 1 + drawn(o_orderkey, 61, 1500)
            ELSE o_custkey END AS o_custkey,
            ['F', 'O', 'P'][1 + drawn(o_orderkey, 62, 3)] AS o_orderstatus,
            o_totalprice + drawn(o_orderkey, 63, 90000) AS o_totalprice,
            o_orderdate + drawn(o_orderkey, 64, 200)::INT - 100 AS o_orderdate,
            ['1-URGENT', '2-HIGH', '3-MEDIUM'][1 + drawn(o_orderkey, 65, 3)] AS o_orderpriority,
            CASE WHEN chosen(o_orderkey, 66, 2) THEN 'some special and late requests'
            ELSE o_comment END AS o_comment
        )
        FROM orders WHERE chosen(o_orderkey, 67, 75)
        UNION ALL BY NAME
        SELECT orders.* REPLACE (
            new_order.o_orderkey AS o_orderkey,
            CASE WHEN chosen(template, 68, 3) THEN 3 + o_custkey - o_custkey % 3
            ELSE o_custkey END AS o_custkey
        )
        FROM orders JOIN new_order ON template = orders.o_orderkey
        """,
        "SELECT o_orderkey FROM gone_order",
    ),
    # A line changes by itself, comes or goes with its order, or leaves an order without lines.
    "lineitem": (
        """
        SELECT * REPLACE (
            CASE WHEN chosen((l_orderkey, l_linenumber), 70, 4)
            THEN 1 + drawn(l_orderkey, 71, 2000) ELSE l_partkey END AS l_partkey,
            1 + drawn((l_orderkey, l_linenumber), 72, 50) AS l_quantity,
            l_extendedprice + drawn(l_orderkey, 73, 900) AS l_extendedprice,
            drawn(l_orderkey, 74, 11) / 100 AS l_discount,
            ['A', 'N', 'R'][1 + drawn((l_orderkey, l_linenumber), 75, 3)] AS l_returnflag,
            l_shipdate + drawn(l_orderkey, 76, 60)::INT - 30 AS l_shipdate,
            l_receiptdate + drawn(l_orderkey, 77, 90)::INT - 45 AS l_receiptdate,
            ['DELIVER IN PERSON', 'NONE'][1 + drawn(l_orderkey, 78, 2)] AS l_shipinstruct,
            ['AIR', 'MAIL', 'SHIP', 'RAIL'][1 + drawn(l_orderkey, 79, 4)] AS l_shipmode
        )
        FROM lineitem WHERE chosen((l_orderkey, l_linenumber), 80, 75)
        UNION ALL BY NAME
        SELECT lineitem.* REPLACE (
            new_order.o_orderkey AS l_orderkey,
            CASE WHEN chosen(template, 81, 3) THEN 50 ELSE l_quantity END AS l_quantity,
            l_extendedprice + drawn(template, 82, 900) AS l_extendedprice
        )
        FROM lineitem JOIN new_order ON template = l_orderkey
        """,
        """
        SELECT l_orderkey, l_linenumber FROM lineitem
        WHERE l_orderkey IN (SELECT o_orderkey FROM gone_order)
            OR chosen((l_orderkey, l_linenumber), 83, 200)
            OR chosen(l_orderkey, 84, 500)
        """,
    ),
}


def apply(lake: tailrace.Lake, connection: duckdb.DuckDBPyConnection, number: int) -> int:
    """Change the lake once, and return the snapshot; rounds count from 1, each differs.

    `connection` is a DuckDB that has the lake attached.
    """
    queries.copy_tables(connection, tables.TABLES)
    for text in (MACROS, PREPARATION):
        connection.execute(text.format(round=number))
    with lake.transaction() as txn:
        for name, (upserts, deletes) in CHANGES.items():
            table = txn.table(name)
            gone = connection.execute(deletes.format(round=number)).to_arrow_table()
            table.delete(gone)
            table.upsert(tables.rows(connection, name, upserts.format(round=number)))
    return txn.snapshot
