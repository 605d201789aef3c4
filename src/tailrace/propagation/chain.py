"""Chains: jobs that are due together and related run in one bundle, with upstream jobs that lag.

Always true: when a job commits a snapshot, all its upstream reflects that snapshot, by the same
commit or because nothing has changed for it since. An upstream job never goes back, and never waits
for its downstream. Like `plan`, this is a pure function: of the job cache and of what the groups
want to run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from tailrace.propagation.job import Job, Member, Work
from tailrace.propagation.job_cache import JobCache
from tailrace.propagation.plan import work_of


@dataclass(frozen=True, kw_only=True)
class _Node:
    """A job that has to run, for its group or for a job downstream."""

    member: Member
    to: int | None  # where its group wants it to go; None: only its downstream wants it

    @property
    def job(self) -> Job:
        return self.member.job

    @property
    def fixed(self) -> int | None:
        """Where it has to end, because it was begun so.

        None with an upstream, which may have gone further without it.
        """
        return None if self.job.upstream else self.job.claim_to

    @property
    def lowest(self) -> int:
        """The first snapshot that it can go to."""
        since, begun = self.member.since, self.job.claim_to
        wanted = self.to is not None  # or it need not move at all
        return max(-1 if since is None else since + wanted, -1 if begun is None else begun)


def link(cache: JobCache, works: list[Work]) -> list[Work]:
    """Make one bundle of all works that are related, with the upstream jobs that lag."""
    if not any(member.job.upstream for work in works for member in work.members):
        return works
    while True:
        groups = [(group, _target(cache, group)) for group in _related(_nodes(cache, works))]
        apart = [group for group, to in groups if to is None]
        if not apart:
            break
        for group in apart:
            works = _apart(works, group)
    for group, to in groups:
        if to is not None:
            works = _join(works, group, to)
    return works


def _nodes(cache: JobCache, works: list[Work]) -> dict[int, _Node]:
    """The jobs that are going to run, with the upstream jobs that have to come along."""
    nodes = {m.job.id: _Node(member=m, to=work.to) for work in works for m in work.members}
    for node in list(nodes.values()):
        for entry in cache.upstream(node.job):
            if entry.job.id not in nodes and not cache.is_settled(entry):
                member = Member(job=entry.job, since=entry.watermark)
                nodes[entry.job.id] = _Node(member=member, to=None)
    return nodes


def _related(nodes: dict[int, _Node]) -> list[list[_Node]]:
    """Nodes connected by upstream jobs, directly or not; in each group, upstream first."""
    group_of: dict[int, list[_Node]] = {job_id: [node] for job_id, node in nodes.items()}
    for node in nodes.values():
        for upstream in node.job.upstream:
            one, other = group_of[node.job.id], group_of.get(upstream)
            if other is not None and other is not one:
                large, small = (one, other) if len(one) > len(other) else (other, one)
                large += small
                group_of |= dict.fromkeys((n.job.id for n in small), large)
    groups = {id(group): group for group in group_of.values()}.values()
    # A job has fewer upstream jobs than any job downstream of it.
    return [
        sorted(group, key=lambda n: (len(n.job.upstream), n.job.id))
        for group in groups
        if any(node.job.upstream for node in group)
    ]


def _target(cache: JobCache, group: list[_Node]) -> int | None:
    """The snapshot that all of them can go to; None if there is none."""
    members = {node.job.id for node in group}
    lowest = max(node.lowest for node in group)
    for node in group:
        for entry in cache.upstream(node.job):
            if entry.job.id not in members:
                lowest = max(lowest, entry.watermark or 0)
    fixed = {node.fixed for node in group if node.fixed is not None}
    if fixed:
        return fixed.pop() if fixed == {max(fixed)} and max(fixed) >= lowest else None
    # The nearest that anybody wants: a large backlog that was cut stays cut.
    wanted = [node.to for node in group if node.to is not None and node.to >= lowest]
    return min(wanted, default=lowest)


def _join(works: list[Work], group: list[_Node], to: int) -> list[Work]:
    """Put a group in one work and one bundle, beside siblings that go to the same snapshot."""
    moving = [node for node in group if node.member.since is None or node.member.since < to]
    members = {
        node.job.id: replace(node.member, catches_up=node.member.catches_up and node.to == to)
        for node in moving
    }
    bundles = [tuple(members)] if len(members) > 1 else []
    rest = []
    for work in works:
        left = _without(work, members)
        if left is not None and left is not work and work.to == to:
            members |= left.by_job
            bundles += work.together
        elif left is not None:
            rest.append(left)
    return [*rest, work_of(members.values(), to, bundles)]


def _apart(works: list[Work], group: list[_Node]) -> list[Work]:
    """First finish what was begun, each job for itself; what is downstream waits for that."""
    begun = [node for node in group if node.fixed is not None]
    ending = {node.job.id for node in begun}
    blocked = {n.job.id for n in group if n.job.upstream and ending.intersection(n.job.upstream)}
    planned = {job for work in works for job in work.jobs}
    works = [left for work in works if (left := _without(work, blocked)) is not None]
    return works + [
        work_of([node.member], node.fixed)
        for node in begun
        if node.job.id not in planned and node.fixed is not None
    ]


def _without(work: Work, gone: Collection[int]) -> Work | None:
    """A work without some jobs; None if none is left."""
    left = [member for member in work.members if member.job.id not in gone]
    if len(left) == len(work.members):
        return work
    return work_of(left, work.to, work.together) if left else None
