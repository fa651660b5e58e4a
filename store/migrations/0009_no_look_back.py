"""Who knows nothing of the history looks for nothing in it.

A batch that is sent again finds itself behind what its sender knew, which is mostly a few events. Django's side knows
nothing, and sends nothing again, for its transaction has ended with its connection: it looked through the whole log, while
every writer waited for the lock that it held.
"""

from importlib import import_module
from typing import ClassVar

from django.db import migrations

TIMELINES = import_module("store.migrations.0007_timelines")
_with = TIMELINES._with  # noqa: SLF001 - the text is changed once more

WRITE = _with(
    TIMELINES.WRITE,
    (
        "either order and as late as they like, one of them writes.\n    IF known_revision < counter.revision\n",
        "either order and as late as they like, one of them writes. Who knows nothing sends nothing again.\n"
        "    IF known_epoch IS NOT NULL AND known_revision < counter.revision\n",
    ),
)


class Migration(migrations.Migration):
    """The function, in place of the one that was."""

    dependencies: ClassVar = [("store", "0008_cheaper_writes")]
    operations: ClassVar = [migrations.RunSQL(WRITE, TIMELINES.WRITE)]
