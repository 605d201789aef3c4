"""Which iterations jobs need now: pure functions of the job cache.

First each group of jobs for itself (`plan_group`):

- A new job runs at once, from nothing to the front of its group, while the others go on.
- The jobs at the front of the group advance together, to the newest snapshot.
- Stragglers catch up with the front, one at a time, over changes that the others have read.
- An iteration that was begun and not committed ends where it was meant to end.
- A job whose next changes have been purged is planned like a new one.
- A job does not start while an upstream job is behind and cannot run.

Then jobs that are due together and related are joined to one bundle, with upstream jobs that lag
(`link`). Always true: when a job commits a snapshot, all its upstream reflects that snapshot, by
the same commit or because nothing has changed for it since. An upstream job never goes back, and
never waits for its downstream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tailrace.propagation.job import Job, Member, Work
from tailrace.propagation.job_cache import Entry, JobCache


@dataclass(kw_only=True)
class Plan:
    """What to run now, and when to look again."""

    works: list[Work] = field(default_factory=list)
    next_due: datetime | None = None
    # Jobs whose triggers raised; and, with None, jobs that have failed before and whose triggers
    # now say that they are not due.
    faults: list[tuple[Job, Exception | None]] = field(default_factory=list)

    def later(self, moment: datetime) -> None:
        if self.next_due is None or moment < self.next_due:
            self.next_due = moment


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a plan depends on besides the cache."""

    now: datetime
    # Whether a job can run here: at rest, not claimed by a live node, its consumer known.
    is_ready: Callable[[Entry], bool]
    live: Collection[str]  # the nodes that are alive
    # The time of a snapshot; None if it is no longer known.
    time_of: Callable[[int], datetime | None]
    # Someone is waiting: ignore triggers and pauses between tries.
    eager: bool = False


def plan_group(cache: JobCache, members: Sequence[Entry], rules: Rules) -> Plan:
    """The iterations of one group."""
    plan = Plan()
    ready = [entry for entry in members if _may_start(cache, entry, rules, plan)]
    if not ready:
        return plan
    active = [entry for entry in members if entry.job.is_active]
    live = rules.live
    reached = [cache.effective(e) for e in active] + [e.target(live) for e in active]
    known = (position for position in reached if position is not None)
    front = max((position for position in known if position >= cache.oldest), default=None)
    front_is_moving = any(e.target(live) == front and e.moves_front(live) for e in active)
    bound: dict[tuple[int | None, int], list[Entry]] = {}
    laggards = []
    for entry in ready:
        if entry.job.claim_to is not None:
            bound.setdefault((entry.watermark, entry.job.claim_to), []).append(entry)
        elif entry.watermark is None:
            bound.setdefault((None, cache.snapshot if front is None else front), []).append(entry)
        elif not cache.is_stale(entry) or not _is_due(entry, rules, plan):
            continue
        elif entry.watermark < cache.oldest:
            to = cache.snapshot if front is None else front
            bound.setdefault((entry.watermark, to), []).append(entry)
        elif entry.watermark == front:
            # Jobs already at the front wait, then advance with the group.
            if not front_is_moving:
                bound.setdefault((front, cache.snapshot), []).append(entry)
        else:
            laggards.append(entry)
    for (since, to), entries in bound.items():
        if since is None or to > since:
            # An iteration that began as catching up remains that.
            catches_up = all(e.job.claim_to is not None and e.job.catches_up for e in entries)
            # Nor does a rebuild advance the front: the others go on meanwhile.
            catches_up |= since is not None and since < cache.oldest and to == front
            plan.works.append(_work(entries, since, to, catches_up=catches_up))
    running = [(e.work, e.job.id) for e in members]
    catching_up = any(work is not None and work.by_job[i].catches_up for work, i in running)
    laggards = [e for e in laggards if front is not None and (e.watermark or 0) < front]
    if laggards and front is not None and not catching_up:
        first = min(laggards, key=lambda e: (-e.job.priority, e.watermark or 0, e.job.id))
        plan.works.append(_work([first], first.watermark, front, catches_up=True))
    return plan


def can_start(entry: Entry, rules: Rules) -> bool:
    """Whether a job can start now, leaving its upstream aside."""
    if entry.work is not None or not entry.job.is_active or not rules.is_ready(entry):
        return False
    return _retry_at(entry, rules) is None


def _retry_at(entry: Entry, rules: Rules) -> datetime | None:
    """When a failed job is tried again, if that is still to come."""
    retry_at = entry.job.retry_at
    return None if rules.eager or retry_at is None or retry_at <= rules.now else retry_at


def _may_start(cache: JobCache, entry: Entry, rules: Rules, plan: Plan) -> bool:
    needed = [entry]
    if entry.job.upstream:
        upstream = cache.upstream(entry.job)
        if len(upstream) < len(entry.job.upstream):
            return False  # not read yet
        needed += [one for one in upstream if not cache.is_settled(one)]
    for one in needed:
        retry_at = _retry_at(one, rules)
        if retry_at is not None and one.job.is_active and one.work is None:
            plan.later(retry_at)
    return all(can_start(one, rules) for one in needed)


def _is_due(entry: Entry, rules: Rules, plan: Plan) -> bool:
    assert entry.watermark is not None
    if rules.eager:
        return True
    try:
        due = entry.job.trigger.due(rules.time_of(entry.watermark), rules.now)
        is_due = due <= rules.now
    except Exception as error:  # noqa: BLE001  (a user's trigger: the other jobs go on)
        plan.faults.append((entry.job, error))
        return False
    if not is_due:
        plan.later(due)
        if entry.job.tries:
            plan.faults.append((entry.job, None))
    return is_due


def _work(entries: list[Entry], since: int | None, to: int, *, catches_up: bool = False) -> Work:
    members = [Member(job=e.job, since=since, catches_up=catches_up) for e in entries]
    return work_of(members, to)


def work_of(members: Iterable[Member], to: int, together: Iterable[tuple[int, ...]] = ()) -> Work:
    """A work of some jobs, in order of priority."""
    ordered = sorted(members, key=lambda m: (-m.job.priority, m.job.id))
    return Work(
        members=tuple(ordered),
        to=to,
        priority=ordered[0].job.priority,
        tenant=ordered[0].job.tenant,
        together=tuple(together),
    )


# --- jobs upstream and downstream ---------------------------------------------------------------


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
