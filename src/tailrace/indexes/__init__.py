"""Full-text and vector indexes that follow their table.

An index is a job and a list of segments. Read `segment` for what they are, `kind` for what differs
between full text and vectors, `consumer` for how an iteration adds segments, `maintenance` for how
they are merged, `index_snapshot` for what a search sees, and `index` for what users call.
"""
