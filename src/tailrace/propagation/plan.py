"""Which iterations a group of jobs needs now: a pure function of the job cache.

- A new job runs at once, from nothing to the front of its group, while the others go on.
- The jobs at the front of the group advance together, to the newest snapshot.
- Stragglers catch up with the front, one at a time, over changes that the others have read.
- An iteration that was begun and not committed ends where it was meant to end.
- A job whose next changes have been purged is planned like a new one.
- A job does not start while an upstream job is behind and cannot run.

How upstream and downstream jobs then go together is in `chain`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
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
