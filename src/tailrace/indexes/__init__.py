"""Full-text and vector indexes that follow their table.

An index is a job and a list of segments. Read `segment` for what they are, `consumer` for how an
iteration adds to them, `upkeep` for how they are merged, `state` for what a search sees, and
`index` for what users call.
"""
