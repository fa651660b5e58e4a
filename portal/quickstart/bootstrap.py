"""What a new installation needs before anybody comes: made once, and left alone when it is there."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from django.conf import settings
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor

from audit.recorder import Actor
from gateway.http.certificates import prepare
from portal.database.alone import alone
from portal.database.rights import as_owner, rights_apply
from portal.quickstart import ownapiserver
from tenants.models import Tenant, User
from tenants.policies import policies_show
from tenants.quotas import missing_tenant_quotas_create
from tenants.services.tenants import tenant_create
from tenants.services.tiers import tiers_create_defaults
from tenants.spaces import system_space_create

OPERATOR_EMAIL = "operator@tenantry.test"
DEMO_TENANT = "demo"

_ACTOR = Actor(name="system:bootstrap", operator=True)


@dataclass(frozen=True, slots=True)
class Facts:
    """What whoever started the product wants to know. ``operator_password`` only when it was just made."""

    portal_url: str
    apiserver_url: str
    ca_file: str
    admin_kubeconfig: str
    operator_email: str
    operator_password: str | None


def bootstrap() -> Facts:
    """Migrate, generate certificates, and make the system space, tiers, the embedded cluster, operator, demo tenant."""
    with as_owner(), alone():
        executor = MigrationExecutor(connection)
        pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if pending:
            call_command("migrate", interactive=False, verbosity=0)
        else:
            rights_apply()
    with alone():
        return _bootstrap()


def _bootstrap() -> Facts:
    options = ownapiserver.options()
    certificates = prepare(options)
    system_space_create()
    missing_tenant_quotas_create(settings.TENANT_QUOTA)
    policies_show()
    tiers_create_defaults()
    ownapiserver.cluster_register_or_renew(options)
    email, password = _create_operator()
    return Facts(
        portal_url=settings.PORTAL_URL,
        apiserver_url=settings.APISERVER_URL,
        ca_file=str(certificates.server_ca),
        admin_kubeconfig=str(certificates.admin_kubeconfig),
        operator_email=email,
        operator_password=password,
    )


def _create_operator() -> tuple[str, str | None]:
    """The first operator, who also owns the demo tenant; the password exists only in the answer."""
    operator = User.objects.filter(is_superuser=True).order_by("created_at").first()
    if operator is not None:
        return operator.email, None
    password = secrets.token_urlsafe(15)
    with transaction.atomic():
        operator = User.objects.create_superuser(OPERATOR_EMAIL, password, name="Operator")
        if not Tenant.objects.filter(name=DEMO_TENANT).exists():
            tenant_create(actor=_ACTOR, name=DEMO_TENANT, display_name="Demo", owner=operator)
    return operator.email, password
