"""What is done behind requests: Redis, workers, beat, the queue, clusters, comparisons, the audit's checkpoints, and backups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import redis
from django.conf import settings
from django.db import connection
from django.utils import timezone

from audit.models import AuditEntry
from portal import celery_app
from portal.backup.freshness import backups_standing
from portal.doctor.findings import FAILED, Finding, elsewhere, failed, ok, warning
from portal.heartbeat import heartbeat_age
from portal.scheduling import LEASE
from tenants.clusters.selfcheck import EXPIRES_SOON
from tenants.models import Cluster, Operation, OperationState, Phase, Status, Workspace
from tenants.suspensions import installation_closed

_OLDEST_REDIS: Final = 6
_ANSWER_SECONDS: Final = 1.0
_STUCK: Final = timedelta(minutes=5)
_COMPARED: Final = timedelta(hours=1)
_CHECKPOINT: Final = timedelta(minutes=10)


def cache() -> Iterator[Finding]:
    """Redis answers, and is new enough."""
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
    try:
        version = str(client.info("server")["redis_version"])
    except redis.RedisError as error:
        yield failed(
            "redis", f"it does not answer ({type(error).__name__})", "Start it, or put right what REDIS_URL says."
        )
        return
    finally:
        client.close()
    if int(version.partition(".")[0]) < _OLDEST_REDIS:
        yield failed("redis", f"{version} is too old", "Move to Redis 6 or newer.")
    else:
        yield ok("redis", version)


def workers() -> Iterator[Finding]:
    """A worker answers, and a beat wakes them."""
    answers = celery_app.control.ping(timeout=_ANSWER_SECONDS)
    woken = timedelta(seconds=heartbeat_age())
    if answers:
        yield ok("workers", f"{len(answers)} answer")
    else:
        # The question ends by this host's clock: a worker whose clock is ahead takes it for late.
        remedy = "Start one: celery -A portal worker; where one runs, compare its host's clock with this one's."
        yield failed("workers", "none answers", remedy)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            [LEASE],
        )
        (holders,) = cursor.fetchone()
    if not holders:
        yield failed("beat", "none holds the lease: nothing is swept", "Start one: celery -A portal beat.")
    elif answers and woken >= _STUCK:
        yield warning(
            "beat",
            f"one holds the lease, and nobody was woken for {woken // timedelta(minutes=1)} minutes",
            "Ask again in a minute if it was just started, else look at its log and at those of the workers.",
        )
    else:
        yield ok("beat", "one holds the lease")


def queue() -> Iterator[Finding]:
    """No operation waits for long, and none has been given up."""
    now = timezone.now()
    waiting = Operation.objects.filter(state__in=[OperationState.PENDING, OperationState.RUNNING])
    oldest = waiting.filter(not_before__lt=now - _STUCK).order_by("created_at").first()
    stuck = Operation.objects.filter(state=OperationState.RUNNING, lease_until__lt=now - _STUCK).count()
    vain = Operation.objects.filter(state=OperationState.FAILED).order_by("created_at")
    if oldest is not None:
        yield failed(
            "queue",
            f"{oldest} is due since {_ago(now, oldest.not_before)} ({stuck} leases have run out)",
            "Look at the workers' logs, and start more of them if all are busy.",
        )
    elif (first := vain.first()) is not None:
        yield warning(
            "queue",
            f"{vain.count()} tried in vain, the oldest: {first}: {first.error[:120]}",
            "Mend the cause, and press Try again on the page Operations.",
        )
    else:
        yield ok("queue", f"{waiting.count()} under way")


def clusters() -> Iterator[Finding]:
    """Each cluster answers, its credential lasts, and its last check found every right and fence."""
    now = timezone.now()
    for cluster in Cluster.objects.order_by("name"):
        name = f"cluster {cluster.name}"
        bad = [each for each in cluster.checks if each.get("state") == FAILED]
        ends = cluster.credential_expires_at
        if cluster.sealed_credential is None:
            yield failed(name, "it has no credential", "Register its kubeconfig again on the cluster's page.")
        elif cluster.unreached_since is not None:
            yield failed(
                name,
                f"not reached since {_ago(now, cluster.unreached_since)}: {cluster.unreached_why[:120]}",
                "Look whether its API server runs and can be reached from the workers.",
            )
        elif ends is not None and ends < now + EXPIRES_SOON:
            state = failed if ends < now else warning
            own = cluster.kind == Cluster.Kind.EMBEDDED
            yield state(
                name,
                f"its credential ends on {ends:%Y-%m-%d %H:%M}",
                "Run manage.py rotate client-certificates." if own else "Rotate the credential on the cluster's page.",
            )
        elif bad:
            for each in bad:
                yield failed(name, f"{each.get('name')}: {each.get('found')}", each.get("remedy") or "Press Check now.")
        else:
            yield ok(name, f"{cluster.version or 'not asked yet'}")


def drift() -> Iterator[Finding]:
    """Workspaces are compared with their clusters, one after the other, and none waits for an hour."""
    ready = Workspace.objects.filter(phase=Phase.READY, status=Status.ACTIVE, ready_at__lt=timezone.now() - _COMPARED)
    late = ready.filter(cluster__unreached_since=None).exclude(checked_at__gte=timezone.now() - _COMPARED)
    if count := late.count():
        yield warning(
            "drift",
            f"{count} workspaces were not compared with their cluster within {_COMPARED}",
            "Start more workers, or look in their logs why comparing takes so long.",
        )
    else:
        yield ok("drift", f"{ready.count()} workspaces compared in time")


def checkpoints() -> Iterator[Finding]:
    """What the audit's chains end with was signed since the last entry."""
    newest = AuditEntry.objects.order_by("-created_at").values_list("created_at", flat=True).first()
    file = settings.AUDIT_CHECKPOINTS_FILE
    if newest is None:
        yield ok("checkpoints", "nothing is audited yet")
        return
    if not file.is_file() and settings.KEYS_DIR is not None and not settings.AUDIT_CHECKPOINTS_KEY_FILE.is_file():
        yield elsewhere(
            "checkpoints",
            "this part signs none and has no key for it",
            "Ask where each worker runs: manage.py doctor checkpoints.",
        )
        return
    if not file.is_file():
        yield warning(
            "checkpoints",
            f"{file} is not there",
            "Ask on a host that runs a worker, and see that beat runs there or elsewhere.",
        )
        return
    with file.open("rb") as lines:
        last = b""
        for line in lines:
            last = line if line.strip() else last
    signed = datetime.fromisoformat(json.loads(last)["time"]) if last else newest - timedelta(days=1)
    if newest - signed > _CHECKPOINT:
        yield failed(
            "checkpoints",
            f"the audit goes on until {newest:%Y-%m-%d %H:%M}, the last checkpoint is of {signed:%Y-%m-%d %H:%M}",
            "See that workers and beat run and can write the file; it signs once a minute.",
        )
    else:
        yield ok("checkpoints", f"the last one is of {signed:%Y-%m-%d %H:%M}")


def backups() -> Iterator[Finding]:
    """A backup is as new as it has to be, and the last one that was tried has come to something."""
    now, standing = timezone.now(), backups_standing()
    found = f"the newest is of {standing.holds:%Y-%m-%d %H:%M}" if standing.holds else "there is none"
    if standing.restored:
        found += ", and this database was restored from it"
    if standing.failed_at:
        found += f"; that of {standing.failed_at:%Y-%m-%d %H:%M} has failed: {standing.failure[:200]}"
    if overdue := standing.overdue(now):
        yield failed(
            "backups",
            f"{found}; another is overdue since {overdue // timedelta(hours=1)} hours",
            "Run manage.py backup, and look why nobody else did (in a cluster: the jobs of the CronJob for backups).",
        )
    elif standing.failed_at:
        yield failed("backups", found, "Mend the cause, and run manage.py backup.")
    elif standing.due is None:
        yield ok("backups", f"{found}; none is expected (BACKUP_MAX_AGE_HOURS)")
    elif standing.restored:
        yield warning("backups", found, "Run manage.py backup: what was done since is in none.")
    else:
        yield ok("backups", f"{found}; the next one is due by {standing.due:%Y-%m-%d %H:%M}")


def doors() -> Iterator[Finding]:
    """The installation is not closed after a restore."""
    if reason := installation_closed():
        yield warning("doors", f"closed to tenants: {reason}", "Run manage.py restore --open once you have compared.")
    else:
        yield ok("doors", "open")


def _ago(now: datetime, then: datetime) -> str:
    return f"{int((now - then).total_seconds() // 60)} minutes"
