"""One thing of a sweep beside the others."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from django.db import OperationalError

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def apart(what: str) -> Iterator[None]:
    """What goes wrong with one must not end the sweep for all; without a database there is nothing to go on with."""
    try:
        yield
    except OperationalError:
        raise
    except Exception as error:
        logger.error("%s failed with %s", what, type(error).__name__, exc_info=error)  # noqa: TRY400
