"""The queue of record: operations claimed with a lease and a fence, in database time (GW15).

Celery's messages only say "look". A worker claims one due row at a time; the fence grows with each claim, so a worker
that was thought dead can no longer commit. Suspensions go first; of the tenants whoever keeps fewest workers busy is
next, by lot among equals, so that nobody's many operations hold another's few, and no registered cluster keeps all
lanes. An operation is claimed only when no other worker can still be calling the cluster for the same workspace: leases
are longer than the longest call, and are renewed before each one.

Why a worker that dies, hangs or is overtaken at any point does no harm:

1. ``claim`` is one statement: it picks a due row that nobody else is looking at (``SKIP LOCKED``), leases it and raises
   its fence. Two workers never get the same fence.
2. Before each call that changes something, ``renew`` proves in the database that fence and generation are still this
   worker's. The lease is longer than the longest call: whoever claims afterwards begins when that call is over.
3. A step's result is committed with its mark in ``steps_done``, under the row locks of workspace and operation, in the
   order in which every service takes them. Dying between call and commit means that the step is done again, so each
   begins with a read and makes only what is missing.
4. A newer request raises the generation in the transaction of its decision. From then on no older worker commits
   anything: ``_lock`` and ``renew`` compare it. It may finish the call it is in, and the next generation waits for that
   by the lease.
5. All times are the database's, so the hosts' clocks need not agree.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from audit import tracing
from audit.actions import Action
from audit.models import Outcome as AuditOutcome
from audit.recorder import WORKER
from tenants.clusters.client import CALL_SECONDS, Answer, ClusterClient, ClusterUnusable, Outcome, client_for
from tenants.failpoints import failpoint
from tenants.models import Cluster, Desired, NoticeKind, Operation, OperationState, Workspace
from tenants.notices import note

logger = logging.getLogger(__name__)

LEASE_SECONDS: Final = CALL_SECONDS + 2
READS_RENEW_AFTER: Final = 1.0
FAILED_RETRY_SECONDS: Final = 300.0
TENANT_LANES: Final = 8
"""How many operations of one tenant may run at once; suspensions are not counted out."""
CLUSTER_LANES: Final = 10
CLUSTER_LANES_CLOSING: Final = 14
"""How many operations may run at once on one registered cluster, and how many when suspensions are among them.

A worker has sixteen lanes: a cluster that answers slowly keeps some of them free for the others, and its own ordinary
operations some for its suspensions.
"""

_CLOSING_BACKOFF_LONGEST: Final = 2.0
_CLOSING_WAIT_LONGEST: Final = 8.0
"""What a closing waits at most, whoever asks it to: it is held within 10 s of the cluster being reachable."""
_BACKOFF_FIRST: Final = 0.5
_BACKOFF_LONGEST: Final = 60.0
_AWAY_SECONDS: Final = 5.0

# A superseded row with a lease in the future is a worker that may still be in a call: the next generation waits.
_CLAIM: Final = """
UPDATE operations SET state = 'running', fence = fence + 1, attempts = attempts + 1,
       lease_until = clock_timestamp() + %(lease)s * interval '1 second',
       not_before = clock_timestamp() + %(lease)s * interval '1 second'
WHERE id = (
  SELECT o.id FROM operations o
  JOIN workspaces w ON w.id = o.workspace_id AND w.generation = o.generation
  JOIN clusters c ON c.id = w.cluster_id
  LEFT JOIN (SELECT bw.tenant_id, count(*) AS lanes FROM operations b JOIN workspaces bw ON bw.id = b.workspace_id
             WHERE b.state = 'running' AND b.lease_until > clock_timestamp()
             GROUP BY bw.tenant_id) busy ON busy.tenant_id = w.tenant_id
  LEFT JOIN (SELECT cw.cluster_id, count(*) AS lanes FROM operations b JOIN workspaces cw ON cw.id = b.workspace_id
             WHERE b.state = 'running' AND b.lease_until > clock_timestamp()
             GROUP BY cw.cluster_id) held ON held.cluster_id = w.cluster_id
  WHERE o.state IN ('pending', 'running', 'failed') AND o.not_before <= clock_timestamp()
    AND (c.away_until IS NULL OR c.away_until <= clock_timestamp())
    AND (%(workspace)s::uuid IS NULL OR o.workspace_id = %(workspace)s)
    AND NOT EXISTS (SELECT 1 FROM operations other WHERE other.workspace_id = o.workspace_id
                    AND other.id <> o.id AND other.lease_until > clock_timestamp())
    AND (o.desired = 'suspended' OR coalesce(busy.lanes, 0) < %(lanes)s)
    AND (c.kind = 'embedded' OR coalesce(held.lanes, 0) <
         CASE o.desired WHEN 'suspended' THEN %(cluster_closing)s ELSE %(cluster)s END)
  ORDER BY o.desired <> 'suspended', coalesce(busy.lanes, 0), md5(w.tenant_id || %(lot)s), o.not_before
  FOR UPDATE OF o SKIP LOCKED LIMIT 1)
RETURNING id, fence
"""

_RENEW: Final = """
UPDATE operations o SET lease_until = clock_timestamp() + %(lease)s * interval '1 second',
       not_before = clock_timestamp() + %(lease)s * interval '1 second'
FROM workspaces w
WHERE o.id = %(id)s AND o.fence = %(fence)s AND o.state = 'running'
  AND w.id = o.workspace_id AND w.generation = o.generation
RETURNING o.id
"""


class Superseded(Exception):
    """Another worker or a newer request has taken over; this one writes nothing more."""


class Retry(Exception):
    """Not now: try again after some time."""

    def __init__(self, message: str, after: float | None = None, *, reached: bool = True) -> None:
        super().__init__(message)
        self.after = after
        self.reached = reached


class Refused(Exception):
    """Not without somebody changing something; the text says what, in words for people."""


class OperationLease:
    """One worker's lease of one operation: what it may still do with it, and how it gives it back."""

    def __init__(self, operation: Operation, fence: int) -> None:
        self.operation = operation
        self.workspace: Workspace = operation.workspace
        self._fence = fence
        self._held_at = time.monotonic()

    @cached_property
    def client(self) -> ClusterClient:
        """The gateway's way to the cluster, which renews the lease before each write. Raises ``Refused``."""
        try:
            return client_for(self.workspace.cluster, self.workspace.tenant_id, before_call=self._before_call)
        except ClusterUnusable as error:
            raise Refused(str(error)) from None

    def _before_call(self, changes: bool) -> None:
        # Reads as well, where the calls before took their time: a slow cluster must not cost the lease.
        if changes or time.monotonic() - self._held_at > READS_RENEW_AFTER:
            self.renew()

    def renew(self) -> None:
        """Renew the lease, or raise ``Superseded``: before each call that changes something."""
        self._held_at = time.monotonic()
        with connection.cursor() as cursor:
            cursor.execute(_RENEW, {"lease": LEASE_SECONDS, "id": self.operation.id, "fence": self._fence})
            if cursor.fetchone() is None:
                raise Superseded

    def step(
        self,
        name: str,
        work: Callable[[OperationLease], Mapping[str, Any] | None],
        conclude: Callable[[Workspace], None] | None = None,
    ) -> None:
        """Do a step that is not done yet and commit what it returns into the workspace's columns.

        ``conclude`` may set more of them, and record it, in the same transaction. Raises whatever ``work`` raises, and ``Superseded``.
        """
        if any(done["step"] == name for done in self.operation.steps_done):
            return
        failpoint(f"{name}.before")
        # A step may only read, and would not notice otherwise that it was overtaken.
        self.renew()
        Operation.objects.filter(pk=self.operation.pk, fence=self._fence).update(step=name)
        with tracing.span(f"step {name}"):
            found = work(self)
        failpoint(f"{name}.called")
        with transaction.atomic():
            self._lock()
            self.operation.steps_done = [*self.operation.steps_done, {"step": name, "at": timezone.now().isoformat()}]
            self.operation.attempts, self.operation.error = 0, ""
            self.operation.save(update_fields=["steps_done", "attempts", "error"])
            self._change_workspace(found or {})
            if conclude is not None:
                self._conclude(conclude)
        failpoint(f"{name}.committed")

    def save(self, **columns: Any) -> None:
        """Commit columns of the workspace in the middle of a step. Raises ``Superseded``."""
        with transaction.atomic():
            self._lock()
            self._change_workspace(columns)

    def finish(self, conclude: Callable[[Workspace], None]) -> None:
        """Commit the end: ``conclude`` sets the workspace's columns and records it. Raises ``Superseded``."""
        failpoint("finish.before")
        with transaction.atomic():
            self._lock()
            self.workspace.observed_generation = self.operation.generation
            self.workspace.save(update_fields=["observed_generation"])
            self._conclude(conclude)
            self._close(OperationState.DONE)
        failpoint("finish.committed")

    def postpone(self, error: str, after: float | None) -> None:
        """Give the operation back until later: ``after`` seconds if the cluster asked for it, else by backoff."""
        delay = after if after is not None else backoff(self.operation.attempts)
        if self._closes:
            delay = min(delay, _CLOSING_BACKOFF_LONGEST if after is None else _CLOSING_WAIT_LONGEST)
        self._release(OperationState.PENDING, error, delay)

    def fail(self, error: str) -> None:
        """Stop trying often; the first time an error comes up it is recorded."""
        with transaction.atomic():
            changed = Operation.objects.filter(pk=self.operation.pk, fence=self._fence).exclude(error=error[:1024])
            news = changed.exists()
            retry = _CLOSING_WAIT_LONGEST if self._closes else FAILED_RETRY_SECONDS
            self._release(OperationState.FAILED, error, retry)
            if news:
                WORKER.record(
                    Action.WORKSPACE_FAILED,
                    chain=self.workspace.tenant_id,
                    outcome=AuditOutcome.FAILURE,
                    target=f"workspaces/{self.workspace}",
                    workspace_id=self.workspace.id,
                    detail={"step": self.operation.step, "error": error},
                )
                words = f"The workspace {self.workspace} fails: {error}"
                note(NoticeKind.WORKSPACE_FAILED, words, actor=WORKER, workspace=self.workspace)

    @property
    def _closes(self) -> bool:
        return self.operation.desired in {Desired.SUSPENDED, Desired.DELETED}

    def release(self) -> None:
        """End the lease of an operation that was taken over, so that its successor need not wait for it to end."""
        Operation.objects.filter(pk=self.operation.pk, fence=self._fence).update(lease_until=None)

    def _lock(self) -> None:
        """Lock workspace and operation, in the order of every service, and check that both are still ours."""
        workspace = (
            Workspace.objects.select_for_update(no_key=True).filter(pk=self.workspace.pk).values_list("generation")
        )
        if workspace.first() != (self.operation.generation,):
            raise Superseded
        held = Operation.objects.select_for_update(no_key=True).filter(
            pk=self.operation.pk, fence=self._fence, state=OperationState.RUNNING
        )
        if not held.exists():
            raise Superseded

    def _change_workspace(self, columns: Mapping[str, Any]) -> None:
        for name, value in columns.items():
            setattr(self.workspace, name, value)
        if columns:
            self.workspace.save(update_fields=list(columns))

    def _conclude(self, conclude: Callable[[Workspace], None]) -> None:
        """Save what ``conclude`` changes and nothing else: some requests change a row without a new generation."""
        before = dict(self.workspace.__dict__)
        conclude(self.workspace)
        now = self.workspace.__dict__
        changed = [name for name in before if not name.startswith("_") and now[name] != before[name]]
        if changed:
            self.workspace.save(update_fields=changed)

    def _close(self, state: OperationState) -> None:
        self.operation.state, self.operation.step, self.operation.error = state, "", ""
        self.operation.finished_at, self.operation.lease_until = timezone.now(), None
        self.operation.save(update_fields=["state", "step", "error", "finished_at", "lease_until"])

    def _release(self, state: OperationState, error: str, delay: float) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE operations SET state = %s, error = %s, lease_until = NULL, "
                "not_before = clock_timestamp() + %s * interval '1 second' "
                "WHERE id = %s AND fence = %s AND state = 'running'",
                [str(state), error[:1024], delay, self.operation.pk, self._fence],
            )


def claim(workspace_id: UUID | None = None) -> tuple[UUID, int] | None:
    """The id and fence of the next due operation (of one workspace), now leased to the caller, or ``None``."""
    with connection.cursor() as cursor:
        lot = str(random.random())  # noqa: S311 (a lottery among tenants, no secret)
        values = {
            "lease": LEASE_SECONDS,
            "workspace": workspace_id,
            "lanes": TENANT_LANES,
            "cluster": CLUSTER_LANES,
            "cluster_closing": CLUSTER_LANES_CLOSING,
            "lot": lot,
        }
        cursor.execute(_CLAIM, values)
        row: tuple[UUID, int] | None = cursor.fetchone()
    return row


def run_one(perform: Callable[[OperationLease], None], workspace_id: UUID | None = None) -> bool:
    """Claim one due operation and go as far with it as today allows; whether there was one.

    Every failure ends as a row: postponed, failed with words, or left to whoever took over.
    """
    claimed = claim(workspace_id)
    if claimed is None:
        return False
    failpoint("claimed")
    operation = Operation.objects.select_related(
        "workspace__tenant", "workspace__tier", "workspace__cluster", "workspace__user"
    ).get(pk=claimed[0])
    lease = OperationLease(operation, claimed[1])
    attributes = {"tenantry__tenant": lease.workspace.tenant_id, "tenantry__operation": str(operation.id)}
    try:
        with tracing.resumed(f"operation {operation.desired}", operation.traceparent, **attributes):
            perform(lease)
    except Superseded:
        lease.release()
    except Retry as error:
        if not error.reached:
            mark_unreachable(lease.workspace.cluster, str(error))
        lease.postpone(str(error), error.after)
    except Refused as error:
        lease.fail(str(error))
    except Exception as error:
        # A defect must not stop the queue: it is logged by its kind (its text may hold an answer) and tried again.
        logger.error("operation %s failed with %s", operation.id, type(error).__name__, exc_info=error)  # noqa: TRY400
        lease.postpone("Something went wrong on our side; it is tried again.", None)
    else:
        if lease.workspace.cluster.last_error or lease.workspace.cluster.last_seen_at is None:
            Cluster.objects.filter(pk=lease.workspace.cluster_id).update(
                last_error="", last_seen_at=timezone.now(), away_until=None
            )
    return True


def operation_requeue(workspace: Workspace) -> bool:
    """Make the operation of the workspace's present generation due again, all steps anew; whether it rested."""
    resting = Operation.objects.filter(
        workspace=workspace, generation=workspace.generation, state__in=[OperationState.DONE, OperationState.FAILED]
    )
    changed = resting.update(
        state=OperationState.PENDING,
        steps_done=[],
        step="",
        attempts=0,
        not_before=timezone.now(),
        finished_at=None,
        traceparent=tracing.traceparent(),
    )
    return bool(changed)


def operations_retry_now(*, workspaces: QuerySet[Workspace]) -> int:
    """Make what waits for another attempt due now: somebody has done something about it. How many there were."""
    waiting = Operation.objects.filter(
        workspace__in=workspaces, state__in=[OperationState.PENDING, OperationState.FAILED]
    ).exclude(not_before__lte=Now())
    return waiting.update(state=OperationState.PENDING, attempts=0, not_before=Now())


def operations_due(limit: int) -> int:
    """How many operations a worker could claim now, ``limit`` at most."""
    due = Operation.objects.filter(
        Q(workspace__cluster__away_until=None) | Q(workspace__cluster__away_until__lte=Now()),
        state__in=[OperationState.PENDING, OperationState.RUNNING, OperationState.FAILED],
        not_before__lte=Now(),
    )
    return due[:limit].count()


def database_now() -> datetime:
    """The time by the clock that all workers share."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: datetime = cursor.fetchone()[0]
    return found


def raise_for_outcome(answer: Answer, *, absent_is_fine: bool = False) -> Answer:
    """``answer`` if it is DONE (or ABSENT where that is fine); else the exception that its outcome means."""
    if answer.outcome is Outcome.DONE or (absent_is_fine and answer.outcome is Outcome.ABSENT):
        return answer
    if answer.outcome is Outcome.DENIED:
        raise Refused(answer.message)
    # RETRY and UNKNOWN alike: every step begins with a read, which tells what was done.
    raise Retry(answer.message or "The cluster's state changed in between.", answer.retry_after, reached=answer.reached)


def backoff(attempts: int) -> float:
    """Seconds until the next attempt: doubling, with half of it random, a minute at most."""
    longest = min(_BACKOFF_FIRST * 2.0 ** min(attempts, 10), _BACKOFF_LONGEST)
    return longest * (0.5 + random.random() / 2)  # noqa: S311 (jitter, no secret)


def mark_unreachable(cluster: Cluster, error: str) -> None:
    """Let no worker wait for a cluster that just did not answer."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE clusters SET away_until = clock_timestamp() + %s * interval '1 second', last_error = %s "
            "WHERE id = %s",
            [_AWAY_SECONDS, error[:512], cluster.pk],
        )
