"""What each role may do with each table, and which rows the role of tenants' requests sees.

Three roles: whoever owns the tables (``MIGRATION_DATABASE_URL``) and migrates; the running product (``DATABASE_URL``),
which owns nothing and sees every row; and ``tenantry_scoped``, which the product becomes while it answers a tenant's
person (``portal.database.scopes``), and for which row-level security stands before every table with a tenant.
A table that is not named here can be used by nobody but its owner.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.migrations.loader import MigrationLoader
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict

from portal.database.base import SCOPED_ROLE
from portal.database.undisturbed import undisturbed

_ALL: Final = "SELECT, INSERT, UPDATE, DELETE"
_READ: Final = "SELECT"

_TENANTS: Final = "(SELECT tenantry_tenants())::text[]"
_USER: Final = "(SELECT tenantry_user())"


@dataclass(frozen=True, slots=True)
class Right:
    """A table's: verbs of the product, verbs of tenants' requests, and the rows that those see and leave behind.

    Without ``rows`` the table is nobody's in particular. ``added`` says which rows may be inserted when that is more.
    """

    product: str
    scoped: str = ""
    rows: str = ""
    added: str = ""


def _of(column: str) -> str:
    return f"{column} = ANY ({_TENANTS})"


def _of_space(column: str = "space") -> str:
    """Rows of the tenants' spaces and of the workspaces below them."""
    return f"{column} LIKE 'root:%' AND split_part({column}, ':', 2) = ANY ({_TENANTS})"


def _known_by(table: str, column: str) -> str:
    """People whom a row names that is visible itself."""
    return f"id IN (SELECT {column} FROM {table})"  # noqa: S608 # names of this module


_OF_WORKSPACE: Final = "workspace_id IN (SELECT id FROM workspaces)"  # which sees its own tenants' alone
_STORED: Final = f"({_of_space()}) OR (space = 'root' AND \"group\" = '' AND resource = 'tenants' AND {_of('name')})"
_LEASED: Final = f"({_of_space()}) OR space = 'root'"  # every lease that may be in the way of a write to ``_STORED``

_COUNTER: Final = "SELECT, UPDATE (revision, batch, epoch, compacted, began, timeline)"  # ``counted`` is the owner's

RIGHTS: Final[Mapping[str, Right]] = {
    "audit_logs": Right("SELECT, INSERT", "SELECT, INSERT", rows=f"{_of('chain')} OR user_id = {_USER}", added="true"),
    "audit_chains": Right(_READ, _READ, rows=_of("chain")),
    "api_requests": Right("SELECT, INSERT", _READ, rows=_of("tenant")),
    "store_object": Right(_ALL, _ALL, rows=_STORED),
    "store_space": Right(_READ, _READ, rows=_of_space()),  # a function of the owner writes it
    "store_event": Right("SELECT, INSERT", "SELECT, INSERT", rows=_STORED),
    "store_revision": Right(_COUNTER, _COUNTER),
    "store_lease": Right(_ALL, _READ, rows=_LEASED),
    "tenants": Right(_ALL, "SELECT, UPDATE", rows=_of("name")),
    "memberships": Right(_ALL, _ALL, rows=_of("tenant_id")),
    "invitations": Right(_ALL, "SELECT, INSERT, UPDATE", rows=_of("tenant_id")),
    "access_requests": Right(
        _ALL,
        "SELECT, INSERT, UPDATE",
        rows=f"asked_by_id = {_USER} OR {_of('tenant_id')}",
    ),
    "request_comments": Right(_ALL, "SELECT, INSERT", rows="request_id IN (SELECT id FROM access_requests)"),
    # Whoever does something may note it; who is to hear of it is the worker's to find.
    "notices": Right(_ALL, "SELECT, INSERT", rows=_of("tenant_id"), added="true"),
    "notifications": Right(_ALL, "SELECT, UPDATE", rows=f"user_id = {_USER}"),
    "announcements": Right(
        _ALL,
        _READ,
        rows="audience = 'everybody' OR id IN (SELECT announcement_id FROM announcement_tenants) OR id IN (SELECT"
        " announcement_id FROM announcement_tiers WHERE tier_id IN (SELECT tier FROM workspaces))",
    ),
    "announcement_tenants": Right(_ALL, _READ, rows=_of("tenant_id")),
    "announcement_tiers": Right(_ALL, _READ),
    "announcement_dismissals": Right(_ALL, "SELECT, INSERT", rows=f"user_id = {_USER}"),
    "webhooks": Right(_ALL, "SELECT, INSERT, DELETE", rows=_of("tenant_id")),
    "deliveries": Right(_ALL, "SELECT, DELETE", rows="webhook_id IN (SELECT id FROM webhooks)"),
    "workspaces": Right(_ALL, "SELECT, INSERT, UPDATE", rows=_of("tenant_id")),
    "operations": Right(_ALL, "SELECT, INSERT, UPDATE", rows=_OF_WORKSPACE),
    "stream_counts": Right(_ALL, _READ, rows=_of("tenant")),
    "usage_hours": Right(_ALL, _READ, rows=_of("tenant")),
    "usage_prices": Right(_ALL, _READ),
    "past_prices": Right(_ALL, _READ),
    "pod_connections": Right(_ALL, "SELECT, UPDATE", rows=_of("tenant")),
    "recordings": Right(_ALL, _READ, rows=_OF_WORKSPACE),
    "recording_chunks": Right("SELECT, INSERT, DELETE", _READ, rows="recording_id IN (SELECT id FROM recordings)"),
    "locks": Right(_ALL, _ALL, rows=_of_space()),
    "freezes": Right(_ALL, "SELECT, DELETE", rows=_of("tenant_id")),
    "offboardings": Right(_ALL, _READ, rows=_of("tenant_id")),
    "tiers": Right(_ALL, _READ),
    "clusters": Right(_ALL, _READ),
    "cluster_probes": Right(_ALL),
    "users": Right(
        _ALL,
        "SELECT, UPDATE",
        rows=f"id = {_USER} OR {_known_by('memberships', 'user_id')} OR {_known_by('workspaces', 'user_id')}"
        f" OR {_known_by('credentials', 'issued_to_id')} OR {_known_by('access_requests', 'asked_by_id')}",
    ),
    "users_groups": Right(_ALL, _READ, rows=f"user_id = {_USER}"),
    "users_user_permissions": Right(_ALL, _READ, rows=f"user_id = {_USER}"),
    "credentials": Right(_ALL, "SELECT, INSERT, UPDATE", rows=_of("tenant_id")),
    "personal_access_tokens": Right(
        _ALL, _ALL, rows=f"user_id = {_USER} AND (tenant_id IS NULL OR {_of('tenant_id')})"
    ),
    "logins": Right(_ALL, "SELECT, UPDATE", rows=f"user_id = {_USER}"),
    "portal_sessions": Right(_ALL, _ALL, rows=f"user_id = {_USER}"),
    "second_factors": Right(_ALL, _ALL, rows=f"user_id = {_USER}"),
    "recovery_codes": Right(_ALL, _ALL, rows=f"user_id = {_USER}"),
    "passkeys": Right(_ALL, _ALL, rows=f"user_id = {_USER}"),
    "password_resets": Right(_ALL, "SELECT, UPDATE", rows=f"user_id = {_USER}"),
    "webhook_credentials": Right(_ALL),
    "postponements": Right(_ALL),
    "auth_group": Right(_ALL, _READ),
    "auth_group_permissions": Right(_ALL, _READ),
    "auth_permission": Right(_ALL, _READ),
    "django_content_type": Right(_ALL, _READ),
    "django_admin_log": Right(_ALL),
    "django_session": Right(_ALL, _ALL),  # found by the key that the browser sends
    "django_migrations": Right(_READ, _READ),
}

FUNCTIONS: Final = (
    "audit_chain_head(text)",
    "api_requests_partition(timestamptz)",
    "api_requests_forget(timestamptz, bigint)",
    "store_log_extend(bigint, bigint)",
    "store_log_compact(bigint, bigint, timestamptz, bigint)",
    "store_space_count_on()",
    "tenantry_user()",
    "tenantry_tenants()",
)
"""Those that run with the owner's rights, and those that say who asks."""

_SCOPED_FUNCTIONS: Final = (
    "audit_chain_head(text)",
    "store_space_count_on()",
    "tenantry_user()",
    "tenantry_tenants()",
)

# The database itself knows whose member somebody is: a membership that ends is out with the next statement.
_WHO = """
CREATE OR REPLACE FUNCTION tenantry_user() RETURNS uuid LANGUAGE sql STABLE
AS $$ SELECT nullif(current_setting('tenantry.user', true), '')::uuid $$;
CREATE OR REPLACE FUNCTION tenantry_tenants() RETURNS text[] LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
  SELECT coalesce(array_agg(tenant_id), '{}') FROM memberships
  WHERE user_id = tenantry_user() AND coalesce(expires_at > statement_timestamp(), true)
    AND coalesce(nullif(current_setting('tenantry.tenant', true), ''), tenant_id) = tenant_id
$$;
"""


@contextmanager
def as_owner(alias: str = DEFAULT_DB_ALIAS) -> Iterator[None]:
    """Let Django's connection be that of whoever owns the tables; begin it outside of transactions."""
    connection = connections[alias]
    kept = {key: connection.settings_dict[key] for key in settings.DATABASE_OWNER}
    if kept == settings.DATABASE_OWNER:
        yield  # it is already, and may hold locks
        return
    connection.close()
    connection.settings_dict.update(settings.DATABASE_OWNER)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(kept)


def rights_apply(alias: str = DEFAULT_DB_ALIAS) -> None:
    """Make roles, rights and policies of the database what they are here; call it as the owner.

    What is as it should be already is found by its fingerprint and costs one query. Where a later release has migrated, its
    rights stand: they hold all of these, and its processes may still run while one goes back. Raises
    ``ImproperlyConfigured`` when the owner may not make a role that is missing.
    """
    login = conninfo_to_dict(settings.DATABASE_URL)
    product = str(login.get("user") or "")
    text = hashlib.sha256(repr((product, sorted(RIGHTS.items()), FUNCTIONS, _WHO, _VERSION)).encode()).hexdigest()
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        there = {name for (name,) in cursor.fetchall()}
        if "memberships" not in there:
            return  # half migrated, and nobody's but the owner's
        mark = f"{text} {len(there & set(RIGHTS))}"
        cursor.execute("SELECT obj_description(to_regclass('django_migrations')), session_user")
        described, owner = cursor.fetchone()
        if described == mark or _is_ahead(connection):
            return
        roles = [SCOPED_ROLE] if product in {"", owner} else [product, SCOPED_ROLE]
        _make_roles(cursor, owner, product, str(login.get("password") or ""))

    def grant() -> None:
        with connection.cursor() as cursor:
            for statement in _statements(roles, there):
                cursor.execute(statement)
            if "django_migrations" in there:
                cursor.execute(sql.SQL("COMMENT ON TABLE django_migrations IS {}").format(mark))

    # Processes of the release before hold these tables, and others, in any order.
    undisturbed(grant, alias=alias)


def _is_ahead(connection: Any) -> bool:
    """Whether the database has later migrations than there are here, or those of one more application."""
    loader = MigrationLoader(connection)
    last: dict[str, str] = {}
    for app, name in loader.disk_migrations:
        last[app] = max(name, last.get(app, ""))
    return any(name > last.get(app, "") for app, name in loader.applied_migrations)


_VERSION: Final = 1
"""Of ``_statements``, which the fingerprint does not cover."""


def _make_roles(cursor: Any, owner: str, product: str, password: str) -> None:
    """Roles belong to the whole server: another database's bootstrap may have made them, or make them now."""
    login = sql.SQL("LOGIN PASSWORD {}").format(password) if password else sql.SQL("LOGIN")
    wanted: list[tuple[str, sql.Composable]] = [(SCOPED_ROLE, sql.SQL("NOLOGIN"))]
    if product not in {"", owner}:
        wanted.append((product, login))
    for role, options in wanted:
        cursor.execute("SELECT FROM pg_roles WHERE rolname = %s", [role])
        if cursor.fetchone() is None:
            _attempt(cursor, sql.SQL("CREATE ROLE {} {}").format(sql.Identifier(role), options), role)
    member = product or owner
    cursor.execute("SELECT pg_has_role(%s, %s, 'MEMBER')", [member, SCOPED_ROLE])
    if not cursor.fetchone()[0]:
        grant = sql.SQL("GRANT {} TO {}").format(sql.Identifier(SCOPED_ROLE), sql.Identifier(member))
        _attempt(cursor, grant, SCOPED_ROLE)


def _attempt(cursor: Any, statement: sql.Composed, role: str) -> None:
    try:
        cursor.execute(statement)
    except Exception as error:
        if isinstance(error.__cause__, errors.DuplicateObject | errors.UniqueViolation):
            return
        if isinstance(error.__cause__, errors.InsufficientPrivilege):
            raise ImproperlyConfigured(
                f"The role of MIGRATION_DATABASE_URL may not make or grant {role}: give it CREATEROLE, or see "
                "docs/operators/operations.md for the statements that an administrator of the database runs once."
            ) from None
        raise


def _statements(roles: list[str], there: set[str]) -> Iterator[sql.Composable]:
    """Everything but the roles themselves, in order."""
    names = sql.SQL(", ").join(map(sql.Identifier, roles))
    yield sql.SQL(_WHO)
    yield sql.SQL("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    yield sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(names)
    yield sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC, {}").format(names)
    for function in FUNCTIONS:
        yield sql.SQL(f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC")
        for role in roles:
            if role != SCOPED_ROLE or function in _SCOPED_FUNCTIONS:
                yield sql.SQL(f"GRANT EXECUTE ON FUNCTION {function} TO {{}}").format(sql.Identifier(role))
    for table, right in RIGHTS.items():
        if table in there:
            yield from _of_table(table, right, roles)
    for partition in sorted(name for name in there if name.startswith("api_requests_")):
        for role in roles:
            if role != SCOPED_ROLE:
                yield sql.SQL("GRANT INSERT ON {} TO {}").format(sql.Identifier(partition), sql.Identifier(role))


def _of_table(table: str, right: Right, roles: list[str]) -> Iterator[sql.Composable]:
    name = sql.Identifier(table)
    for role in roles:
        verbs = right.scoped if role == SCOPED_ROLE else right.product
        if verbs:
            yield sql.SQL(f"GRANT {verbs} ON {{}} TO {{}}").format(name, sql.Identifier(role))
    if not right.rows:
        return
    yield sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(name)
    for policy in ("product", "scoped", "added"):
        yield sql.SQL(f"DROP POLICY IF EXISTS {policy} ON {{}}").format(name)
    rows = sql.SQL(right.rows)
    for role in roles:
        if role == SCOPED_ROLE:
            yield sql.SQL("CREATE POLICY scoped ON {} TO {} USING ({})").format(name, sql.Identifier(role), rows)
            if right.added:
                yield sql.SQL("CREATE POLICY added ON {} FOR INSERT TO {} WITH CHECK ({})").format(
                    name, sql.Identifier(role), sql.SQL(right.added)
                )
        else:
            # A constant: the planner leaves it out, and the product's statements cost what they did.
            yield sql.SQL("CREATE POLICY product ON {} TO {} USING (true)").format(name, sql.Identifier(role))
