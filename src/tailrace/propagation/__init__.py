"""Propagation: jobs follow tables, and every change reaches each of them once.

    job, spec, trigger          what a job is
    joblog, claims              where it is written down
    job_cache, plan             what should run
    runner, scheduler           when, and on which threads
    iteration, bundle           how: the sources are read once, and the consumers of each bundle run
                                and commit (`outputs`, `history`)
    changes, consumer           what the code of a job gets
    service, node, health       a process that does all this, with `background`; `until_fresh` while
                                someone waits
    maintenance, monitor        tasks beside the iterations: who runs them, and when they are due;
                                what they do is in `task_types`
    jobs, status, serving       what users call; `registration` behind it

Always true: what an iteration writes and the watermark it reaches are one commit, which compares
the job's epoch and watermark with those the iteration was begun with.
"""
