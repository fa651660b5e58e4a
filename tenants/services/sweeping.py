"""What the workers' sweeps have in common: of many things each is done by itself (GW15)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from django.core.exceptions import ObjectDoesNotExist
from django.db import OperationalError

from kube.requests.status import NotFound

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def apart(what: str) -> Iterator[None]:
    """What goes wrong with one must not end the sweep for all; without a database there is nothing to go on with.

    Of what somebody has deleted since it was found there is nothing left to be done.
    """
    try:
        yield
    except OperationalError:
        raise
    except (NotFound, ObjectDoesNotExist) as error:
        logger.info("%s is not needed any more: %s", what, error)
    except Exception as error:
        logger.error("%s failed with %s", what, type(error).__name__, exc_info=error)  # noqa: TRY400
