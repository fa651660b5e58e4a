"""All checks, in the order in which one depends on another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from portal.doctor import database, exposure, keys, people, replication, work
from portal.doctor.findings import Check, Finding, findings_of

CHECKS: Final[dict[str, Check]] = {
    "secret-key": keys.secret_key,
    "key-files": keys.key_files,
    "certificates": keys.certificates,
    "settings": exposure.unsafe,
    "data-folder": database.disk,
    "database-hosts": replication.hosts,
    "database-role": database.role,
    "row-level-security": database.row_security,
    "migrations": database.migrations,
    "clocks": database.clock,
    "sealing-keys": keys.sealing_keys,
    "redis": work.cache,
    "workers": work.workers,
    "queue": work.queue,
    "clusters": work.clusters,
    "drift": work.drift,
    "checkpoints": work.checkpoints,
    "backups": work.backups,
    "doors": work.doors,
    "addresses": people.addresses,
}


def examination(names: Iterable[str]) -> Iterator[Finding]:
    """What these checks find, in their order here. Reads alone; asks Redis and the workers, and no cluster."""
    wanted = set(names)
    return findings_of((name, check) for name, check in CHECKS.items() if name in wanted)
