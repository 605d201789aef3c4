-- Of equal bids, the first.
SELECT auction, bidder, price, channel, url, date_time, extra, rank_number
FROM (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY auction ORDER BY price DESC, date_time, bidder, extra
        ) AS rank_number
    FROM bid
) AS ranked
WHERE rank_number <= 10
