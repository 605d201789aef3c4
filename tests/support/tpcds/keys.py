"""The 24 tables of TPC-DS: their keys, and what refers to what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = dict[str, Any]

FACTS = {
    "inventory": ("inv_date_sk", "inv_item_sk", "inv_warehouse_sk"),
    "store_sales": ("ss_item_sk", "ss_ticket_number"),
    "store_returns": ("sr_item_sk", "sr_ticket_number"),
    "catalog_sales": ("cs_item_sk", "cs_order_number"),
    "catalog_returns": ("cr_item_sk", "cr_order_number"),
    "web_sales": ("ws_item_sk", "ws_order_number"),
    "web_returns": ("wr_item_sk", "wr_order_number"),
}
DIMENSIONS = {
    "call_center": ("cc_call_center_sk",),
    "catalog_page": ("cp_catalog_page_sk",),
    "customer_address": ("ca_address_sk",),
    "customer_demographics": ("cd_demo_sk",),
    "date_dim": ("d_date_sk",),
    "income_band": ("ib_income_band_sk",),
    "household_demographics": ("hd_demo_sk",),
    "item": ("i_item_sk",),
    "promotion": ("p_promo_sk",),
    "reason": ("r_reason_sk",),
    "ship_mode": ("sm_ship_mode_sk",),
    "store": ("s_store_sk",),
    "time_dim": ("t_time_sk",),
    "warehouse": ("w_warehouse_sk",),
    "customer": ("c_customer_sk",),
    "web_page": ("wp_web_page_sk",),
    "web_site": ("web_site_sk",),
}
KEYS = {**DIMENSIONS, **FACTS}
# Cross products and calendars, which have every value that queries ask for.
COMPLETE = ("customer_demographics", "date_dim", "household_demographics", "time_dim")

# What a column refers to, by how its name ends.
REFERENCES = {
    "_income_band_sk": "income_band",
    "_item_sk": "item",
    "_customer_sk": "customer",
    "_addr_sk": "customer_address",
    "_cdemo_sk": "customer_demographics",
    "_hdemo_sk": "household_demographics",
    "_time_sk": "time_dim",
    "_catalog_page_sk": "catalog_page",
    "_call_center_sk": "call_center",
    "_promo_sk": "promotion",
    "_reason_sk": "reason",
    "_ship_mode_sk": "ship_mode",
    "_store_sk": "store",
    "_warehouse_sk": "warehouse",
    "_web_page_sk": "web_page",
    "_web_site_sk": "web_site",
}


def references(name: str, row: Row) -> Iterator[tuple[str, str]]:
    """The columns that refer to a dimension, and that dimension; dates only of facts."""
    for column in row:
        for end, target in REFERENCES.items():
            if column.endswith(end) and target != name:
                yield column, target
        if name in FACTS and column.endswith("_date_sk"):
            yield column, "date_dim"
