"""Propagation: jobs follow tables, and every change reaches each of them once.

Read in this order: `job` and `spec` (what a job is), `joblog` (where it is written down), `cache`,
`plan` and `chain` (what should run), `runner` (when), `scheduler` (where), `iteration` (how),
`changes` and `consumer` (what the code of a job gets), `versions` (what its output reflects),
`jobs` (what users call).

Always true: what an iteration writes and the watermark it reaches are one commit, which compares
the job's epoch and watermark with those the iteration was begun with.
"""
