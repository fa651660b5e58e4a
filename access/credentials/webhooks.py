"""What registered clusters show to the product's webhooks: issued once, kept as a SHA-256 digest (GW17, GW9)."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q
from django.views.decorators.debug import sensitive_variables

from access.authentication.clusterwebhooks import PREFIX, digest_of
from access.models import WebhookCredential
from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import Conflict, NotFound
from tenants.clusters.changes import cluster_changed
from tenants.models import Cluster
from tenants.rights import require_operator

OVERLAP: Final = timedelta(days=1)
"""How long the credential before goes on after a rotation, unless it is said otherwise."""


@sensitive_variables()
@transaction.atomic
def webhook_credential_rotate(*, actor: Actor, cluster: str, overlap: timedelta = OVERLAP, now: datetime) -> str:
    """A new credential of a cluster, which nobody can show a second time; the older ones end after ``overlap``.

    Operators only. Raises ``NotFound``, and ``Conflict`` for the product's own API server, which needs no webhooks.
    """
    require_operator(actor)
    found = Cluster.objects.select_for_update(no_key=True).filter(name=cluster).first()
    if found is None:
        raise NotFound(f'clusters "{cluster}" not found', kind="clusters", name=cluster)
    if found.kind != Cluster.Kind.EXTERNAL:
        raise Conflict("The product's own API server asks no webhooks.", kind="clusters", name=cluster)
    ends = now + overlap
    older = WebhookCredential.objects.filter(Q(expires_at=None) | Q(expires_at__gt=ends), cluster=found)
    older.update(expires_at=ends)
    WebhookCredential.objects.filter(cluster=found, expires_at__lte=now).delete()
    text = PREFIX + secrets.token_urlsafe(32)
    WebhookCredential.objects.create(cluster=found, digest=digest_of(text), created_at=now)
    actor.record(
        Action.WEBHOOK_CREDENTIAL_ISSUED, chain=SYSTEM_CHAIN, target=f"clusters/{cluster}", detail={"older_end": ends}
    )
    cluster_changed(cluster)
    return text
