"""Which iterations a group of jobs needs now: a function of what the cache says.

- A new job runs at once, from nothing to where its group is, while the others go on.
- Those at the front of the group go on together, to the newest snapshot.
- A straggler catches up with the front, one at a time; what it reads there the others have read.
- What was begun before and not committed ends where it was going to end.
- One that was away for so long that the changes since its watermark are purged is like a new one.
- A job that stands on others begins nothing while one of them is behind and cannot run.

How jobs that stand on each other then go together is in `chain`.
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
    # Jobs whose triggers raised, which are asked again later; and that have failed, by whatever,
    # and whose triggers say that they are not due. None for those.
    faults: list[tuple[Job, Exception | None]] = field(default_factory=list)

    def later(self, moment: datetime) -> None:
        if self.next_due is None or moment < self.next_due:
            self.next_due = moment


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a plan depends on beside the cache."""

    now: datetime
    # Whether a job can run here: at rest, not claimed by a living node, its consumer known.
    is_ready: Callable[[Entry], bool]
    live: Collection[str]  # the nodes that are alive
    # The time of a snapshot; None if it is no longer known.
    time_of: Callable[[int], datetime | None]
    # Ignore triggers and pauses: someone is waiting.
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
            # Who is there before the others waits for them, and goes on with them.
            if not front_is_moving:
                bound.setdefault((front, cache.snapshot), []).append(entry)
        else:
            laggards.append(entry)
    for (since, to), entries in bound.items():
        if since is None or to > since:
            # What was begun to catch up is still no more than that.
            catches_up = all(e.job.claim_to is not None and e.job.catches_up for e in entries)
            # Nor does a rebuild take the others further: they go on meanwhile.
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
    """Whether an iteration of a job can begin now, as far as the job itself is concerned."""
    if entry.work is not None or not entry.job.is_active or not rules.is_ready(entry):
        return False
    return _retry_at(entry, rules) is None


def _retry_at(entry: Entry, rules: Rules) -> datetime | None:
    """When a job that has failed is tried again, if that is later."""
    retry_at = entry.job.retry_at
    return None if rules.eager or retry_at is None or retry_at <= rules.now else retry_at


def _may_start(cache: JobCache, entry: Entry, rules: Rules, plan: Plan) -> bool:
    needed = [entry]
    if entry.job.upstream:
        beneath = cache.upstream(entry.job)
        if len(beneath) < len(entry.job.upstream):
            return False  # not read yet
        needed += [one for one in beneath if not cache.is_settled(one)]
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
    """A work of some jobs, the most urgent first."""
    ordered = sorted(members, key=lambda m: (-m.job.priority, m.job.id))
    return Work(
        members=tuple(ordered),
        to=to,
        priority=ordered[0].job.priority,
        tenant=ordered[0].job.tenant,
        together=tuple(together),
    )
