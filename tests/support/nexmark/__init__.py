"""Nexmark for tests: people, auctions and bids of an auction site, queries, and changes.

Rows are drawn with a seed and keep the benchmark's shape: of 50 events, one is a new person, three
are auctions and the rest are bids. Times are part of the rows, so that nothing depends on a clock.

The queries are those of the benchmark that a view can state, one file each. Where its text leaves
a choice open (the order of equal prices), ours adds columns to the order. Not here:

- q5 counts over windows that overlap and q11 over windows that end after a pause: neither groups
  by an expression over one row;
- q6 averages the last ten rows of a moving set, which adds nothing over q9 and q19 to views;
- q7 joins bids with the maximum of their window, which q8 and q17 show in parts;
- q10 is about writing files, q12 about the machine's clock, and q13 about a table outside of the
  lake.
"""
