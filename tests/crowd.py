"""Many tenants at once, as rows beside the services, which would take hours: for what must not cost more among them.

Each has a person, a workspace that is ready, its operation, a credential, an hour of use and a notification. The hashes
of its events are fillers: the pages read them like any other, only a check of these chains would fail.
"""

from __future__ import annotations

from typing import Any, Final

_NEW: Final = "generate_series(%(there)s + 1, %(tenants)s) AS n"
_TABLES: Final = (
    "users, tenants, memberships, workspaces, operations, credentials, usage_hours, notifications, audit_logs,"
    " audit_chains, api_requests"
)
_ROWS: Final = (
    "INSERT INTO users (id, email, name, password_hash, status, is_superuser, is_staff, is_auditor, issuer, subject,"
    " created_at, session_epoch, password_given, notices_off)"
    " SELECT md5('user' || n)::uuid, 'user-' || n || '@crowd.test', 'Person ' || n, '!', 'active', false, false, false,"
    f" '', '', now(), 0, false, '[]' FROM {_NEW}",
    "INSERT INTO tenants (name, display_name, state, suspended_reason, suspended_by, policies, managed_by, created_at)"
    f" SELECT 'crowd-' || n, 'Tenant ' || n, 'active', '', '', '{{}}', '', now() - n * interval '1 minute' FROM {_NEW}",
    "INSERT INTO memberships (tenant_id, user_id, role, managed_by, break_glass, raised_role, created_at)"
    f" SELECT 'crowd-' || n, md5('user' || n)::uuid, 'owner', '', false, '', now() FROM {_NEW}",
    "INSERT INTO workspaces (id, tenant_id, user_id, name, cluster_id, tier, k8s_namespace, k8s_sa_name, status, phase,"
    " generation, observed_generation, namespace_uid, service_accounts, idempotency_key, suspended_reason,"
    " suspended_by, suspended_with_tenant, stopped, accounts_spent, saved_bindings, saved_accounts, renewed_accounts,"
    " receipt, created_at, ready_at, checked_at)"
    " SELECT md5('space' || n)::uuid, 'crowd-' || n, md5('user' || n)::uuid, 'main', (SELECT id FROM clusters LIMIT 1),"
    " (SELECT name FROM tiers ORDER BY position, name LIMIT 1), 'tenant-' || substr(md5('space' || n), 1, 12),"
    " 'sa-tenant-admin', 'active', 'ready', 1, 1, '', '{}', '', '', '', false, false, false, '[]', '[]', '[]', '[]',"
    f" now() - n * interval '1 minute', now(), now() FROM {_NEW}",
    "INSERT INTO operations (id, workspace_id, desired, generation, state, step, steps_done, attempts, not_before,"
    " fence, error, requested_by, created_at, finished_at)"
    " SELECT md5('wish' || n)::uuid, md5('space' || n)::uuid, 'ready', 1, 'done', '', '[]', 1, now(), 1, '', '',"
    f" now() - n * interval '1 minute', now() FROM {_NEW}",
    "INSERT INTO credentials (id, jti, role, anchor, user_agent, issued_at, expires_at, revoked_by, issued_to_id,"
    " workspace_id, anchor_uid, confirm_attempts, kind, tenant_id)"
    " SELECT md5('key' || n)::uuid, md5('key' || n)::uuid, 'editor', '', '', now(), now() + interval '1 hour', '',"
    f" md5('user' || n)::uuid, md5('space' || n)::uuid, '', 0, 'token', 'crowd-' || n FROM {_NEW}",
    "INSERT INTO usage_hours (tenant, namespace, hour, requests, refused, credentials, objects_stored, objects_placed,"
    " bytes_stored, streams, used, hard)"
    " SELECT 'crowd-' || n, '', date_trunc('hour', now()) - interval '1 hour', 10, 1, 1, 10, 0, 1000, 0,"
    f" '{{\"pods\": 1}}', '{{\"pods\": 10}}' FROM {_NEW}",
    "INSERT INTO notifications (id, kind, text, created_at, user_id, tenant_id)"
    " SELECT md5('told' || n)::uuid, 'workspace.ready', 'ready', now(), md5('user' || n)::uuid, 'crowd-' || n"
    f" FROM {_NEW}",
)
_EVENTS: Final = (
    "INSERT INTO audit_logs (id, chain, sequence, created_at, action, outcome, actor, user_id, workspace_id, target,"
    " user_agent, request_id, detail, previous_hash, hash)"
    " SELECT gen_random_uuid(), 'crowd-' || 1 + n %% %(tenants)s, %(last)s + n, now() - n * interval '1 second',"
    " 'workspace.create', 'success', 'user-' || n %% 100, NULL, NULL, 'workspace-' || n %% 1000, 'crowd', '', '{}',"
    " md5(n::text) || md5(n::text), md5(n::text) || md5(n::text) FROM generate_series(1, %(events)s) AS n",
    "INSERT INTO audit_chains (chain, sequence, hash) SELECT chain, max(sequence), '' FROM audit_logs"
    " WHERE chain LIKE 'crowd-%%' GROUP BY chain"
    " ON CONFLICT (chain) DO UPDATE SET sequence = greatest(audit_chains.sequence, excluded.sequence)",
    "INSERT INTO api_requests (id, created_at, tenant, space, actor, credential, verb, path, code, allowed, step,"
    " reason, latency, count, user_agent, request_id)"
    " SELECT gen_random_uuid(), now(), 'crowd-' || 1 + n %% %(tenants)s, '', 'user-' || n %% 100, '', 'get',"
    " '/api/v1/pods', 200, true, 'rbac', '', 1000, 1, 'crowd', '' FROM generate_series(1, %(events)s) AS n",
)


def gather(cursor: Any, tenants: int, events: int) -> None:
    """Make it so many, and so many events and requests of theirs; ``cursor`` is of whoever owns the tables.

    There have to be a cluster and a tier.
    """
    # Nobody but the owner can write such rows, and past the triggers.
    cursor.execute("SET session_replication_role = replica")
    cursor.execute("SELECT count(*) FROM tenants WHERE name LIKE 'crowd-%'")
    there = cursor.fetchone()[0]
    cursor.execute("SELECT count(*), coalesce(max(sequence), 0) FROM audit_logs WHERE chain LIKE 'crowd-%'")
    written, last = cursor.fetchone()
    for statement in _ROWS:
        cursor.execute(statement, {"there": there, "tenants": tenants})
    cursor.execute("SELECT api_requests_partition(now())")
    for statement in _EVENTS:
        cursor.execute(statement, {"tenants": tenants, "last": last, "events": max(events - written, 0)})
    cursor.execute("SET session_replication_role = origin")
    cursor.execute(f"VACUUM ANALYZE {_TABLES}")
