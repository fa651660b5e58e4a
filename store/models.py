"""The tables of the store. Django owns their shape; ``store.postgresql.statements`` reads and writes them.

Text is collated ``C``, so that PostgreSQL, Python and Kubernetes sort names alike.
"""

from __future__ import annotations

from typing import Final

from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Now


def _identity() -> models.TextField[str, str]:
    return models.TextField(db_collation="C")


ROWS_AT_ONCE: Final = 10
"""Of objects with their data, for ``iterator``: each is as large as a tenant makes it, three mebibytes at most."""


class StoredObject(models.Model):
    """One API object as it is now.

    ``registry_key`` is the key of TS9, for people and tools that look at the database. It is derived and not
    unique (``/registry/pods/t1/x`` has two meanings), so nothing is ever decided by it.
    """

    pk = models.CompositePrimaryKey("group", "resource", "space", "namespace", "name")
    group = _identity()
    resource = _identity()
    space = _identity()
    namespace = _identity()
    name = _identity()
    uid = models.TextField(db_collation="C")
    revision = models.BigIntegerField()
    data = models.BinaryField()
    registry_key = models.GeneratedField(
        expression=Func(
            F("group"),
            F("resource"),
            F("space"),
            F("namespace"),
            F("name"),
            function="store_registry_key",
        ),
        output_field=models.TextField(db_collation="C"),
        db_persist=True,
    )

    class Meta:
        db_table = "store_object"
        constraints = (
            models.CheckConstraint(condition=Q(revision__gt=0), name="store_object_revision_positive"),
            models.CheckConstraint(
                condition=~Q(space=Value("")) & ~Q(resource=Value("")) & ~Q(name=Value("")),
                name="store_object_identity_complete",
            ),
        )
        indexes = (models.Index(fields=["registry_key"], name="store_object_registry_key"),)

    def __str__(self) -> str:
        return str(self.registry_key)


class ChangeEvent(models.Model):
    """One entry of the append-only log, partitioned by ranges of ``revision`` (see ``store.log.compaction``).

    ``batch`` is a random number shared by what one transaction wrote: a writer that lost its connection during
    COMMIT finds out by it whether its write was kept.
    """

    revision = models.BigIntegerField(primary_key=True)
    batch = models.BigIntegerField()
    type = models.TextField(db_collation="C")
    space = _identity()
    group = _identity()
    resource = _identity()
    namespace = _identity()
    name = _identity()
    data = models.BinaryField()
    previous = models.BinaryField(null=True)
    written_at = models.DateTimeField()

    class Meta:
        db_table = "store_event"

    def __str__(self) -> str:
        return f"{self.revision} {self.type} {self.space} {self.resource} {self.namespace}/{self.name}"


class Revision(models.Model):
    """The one counter row: the last revision given, how far the log is compacted, whose history this is.

    ``epoch`` changes when the history is found to be another one (a restore), so that processes drop what they
    remember; ``began`` is where it did. ``batch`` is the identity of the last transaction: with the revision it proves
    that a process knows this history and not one that no longer exists.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    revision = models.BigIntegerField()
    compacted = models.BigIntegerField()
    epoch = models.UUIDField()
    batch = models.BigIntegerField(db_default=0)
    began = models.BigIntegerField(db_default=0)
    timeline = models.TextField(
        db_collation="C", db_default=Func(function="store_timeline", output_field=models.TextField())
    )
    """PostgreSQL's timeline of the last write: on another one, a promoted standby's, the history is another one too."""
    counted = models.BigIntegerField(db_default=0)
    """The revision of which ``SpaceSize`` tells."""

    class Meta:
        db_table = "store_revision"
        constraints = (
            models.CheckConstraint(condition=Q(id=1), name="store_revision_one_row"),
            models.CheckConstraint(
                condition=Q(compacted__gte=0) & Q(revision__gte=F("compacted")), name="store_revision_order"
            ),
        )

    def __str__(self) -> str:
        return f"{self.revision} ({self.epoch})"


class ReadLease(models.Model):
    """One process' right to read one space from memory (see ``store.log.leases``); ``ending`` is never taken back.

    ``number`` and ``holder`` are random: a lease that is taken anew is another one.
    """

    number = models.BigIntegerField(primary_key=True)
    space = _identity()
    holder = models.BigIntegerField()
    ending = models.BooleanField(db_default=False)
    taken_at = models.DateTimeField(db_default=Now())
    """By the database's clock, for who clears away what nobody has given back; it decides nothing."""

    class Meta:
        db_table = "store_lease"
        indexes = (
            models.Index(fields=["space"], name="store_lease_space"),
            models.Index(fields=["holder"], name="store_lease_holder"),
        )

    def __str__(self) -> str:
        return f"{self.space} {self.holder}"


class SpaceSize(models.Model):
    """How many bytes the objects of one space took at the revision ``counted``, as they are kept; no row for none (AD8).

    What has come since the change log tells (``statements.SIZES``). A function of the owner counts on; nobody else may.
    """

    space = models.TextField(primary_key=True, db_collation="C")
    bytes = models.BigIntegerField()

    class Meta:
        db_table = "store_space"

    def __str__(self) -> str:
        return f"{self.space} {self.bytes}"
