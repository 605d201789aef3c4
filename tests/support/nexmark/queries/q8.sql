-- A window of ten seconds is the number of the ten seconds that a time lies in.
SELECT p.id, p.name, p.ten_seconds
FROM (
    SELECT id, name, unix_seconds(date_time) DIV 10 AS ten_seconds
    FROM person
    GROUP BY id, name, unix_seconds(date_time) DIV 10
) AS p
INNER JOIN (
    SELECT seller, unix_seconds(date_time) DIV 10 AS ten_seconds
    FROM auction
    GROUP BY seller, unix_seconds(date_time) DIV 10
) AS a
    ON p.id = a.seller AND p.ten_seconds = a.ten_seconds
