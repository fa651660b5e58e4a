"""Who lives in the house, and what they sign in with: run in a process of the product itself."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

TENANTS = {"acme": "alice@acme.test", "globex": "bob@globex.test", "initech": "carol@initech.test"}
"""Tenants, and the owner of each."""

OPERATOR = "operator"


def move_in() -> None:
    """Make the installation, its tenants and people."""
    from audit.recorder import Actor
    from portal.quickstart.bootstrap import bootstrap
    from tenants.models import Tier, User
    from tenants.services import tenant_create

    bootstrap()
    Tier.objects.filter(name="basic").update(workspaces_per_user=5)
    for name, email in TENANTS.items():
        owner = User.objects.create_user(email, "correct horse battery")
        tenant_create(actor=Actor(name="campaign", operator=True), name=name, owner=owner)


def arrive(*, cluster: str, tokens: str) -> None:
    """Register the cluster by the kubeconfig in a file, where it and its proxy are this time, and sign in."""
    from django.conf import settings

    from audit.recorder import Actor
    from portal.quickstart.ownapiserver import EMBEDDED_CLUSTER
    from tenants.models import Cluster
    from tenants.services.clusters import cluster_register

    cluster_register(
        actor=Actor(name="campaign", operator=True),
        name=EMBEDDED_CLUSTER,
        kubeconfig=Path(cluster).read_text(),
        kind=Cluster.Kind.EMBEDDED,
        client_url=settings.APISERVER_URL,
        is_default=True,
    )
    sign_in(tokens=tokens)


def sign_in(*, tokens: str) -> None:
    """A new personal access token for everybody, into a file by tenant, and one of an operator."""
    from django.utils import timezone

    from access.credentials import token_create
    from access.models import PersonalAccessToken
    from audit.recorder import Actor
    from tenants.models import User

    now, made = timezone.now(), {}
    operator = User.objects.filter(is_superuser=True).order_by("created_at")[0]
    scope = PersonalAccessToken.Scope
    for name, user in (
        (OPERATOR, operator),
        *((name, User.objects.get(email=email)) for name, email in TENANTS.items()),
    ):
        created = token_create(
            actor=Actor(name=user.email, user_id=user.id, operator=user.is_staff),
            user=user,
            name=f"of the campaign at {now:%H:%M:%S.%f}",
            scope=scope.OPERATE if user.is_staff else scope.WRITE,
            expires_at=now + timedelta(days=1),
            now=now,
        )
        made[name] = created.text
    file = Path(tokens)
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(made))
    unfinished.replace(file)
