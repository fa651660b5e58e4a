"""URLs of the portal."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from portal.api.docs import docs, schema
from portal.views import (
    access,
    audit,
    health,
    identity,
    oidc,
    overview,
    people,
    platform,
    policies,
    sessions,
    tenants,
    workspaces,
)

handler400 = "portal.http.errors.bad_request"
handler403 = "portal.http.errors.permission_denied"
handler404 = "portal.http.errors.not_found"
handler500 = "portal.http.errors.server_error"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("requests/", overview.requests, name="requests"),
    path("search/", overview.search, name="search"),
    path("login/", sessions.login, name="login"),
    path("logout/", sessions.logout, name="logout"),
    path("oidc/authenticate/", oidc.OidcLogin.as_view(), name="oidc_authentication_init"),
    path("oidc/callback/", oidc.OidcCallback.as_view(), name="oidc_authentication_callback"),
    path("workspaces/", workspaces.workspaces, name="workspaces"),
    path("workspaces/new/", workspaces.workspace_new, name="workspace-new"),
    path("workspaces/<uuid:pk>/", workspaces.workspace, name="workspace"),
    path("workspaces/<uuid:pk>/progress/", workspaces.workspace_progress, name="workspace-progress"),
    path("workspaces/<uuid:pk>/quota/", workspaces.workspace_quota, name="workspace-quota"),
    path("workspaces/<uuid:pk>/activity/", workspaces.workspace_activity, name="workspace-activity"),
    path("workspaces/<uuid:pk>/kubeconfig/", workspaces.workspace_kubeconfig, name="workspace-kubeconfig"),
    path("workspaces/<uuid:pk>/suspend/", workspaces.workspace_suspend, name="workspace-suspend"),
    path("workspaces/<uuid:pk>/resume/", workspaces.workspace_resume, name="workspace-resume"),
    path("workspaces/<uuid:pk>/delete/", workspaces.workspace_delete, name="workspace-delete"),
    path("workspaces/<uuid:pk>/tier/", workspaces.workspace_tier, name="workspace-tier"),
    path(
        "workspaces/<uuid:pk>/credentials/<str:credential>/revoke/", workspaces.credential_end, name="credential-revoke"
    ),
    path("tenants/", tenants.tenants, name="tenants"),
    path("tenants/new/", tenants.tenant_new, name="tenant-new"),
    path("tenants/<str:name>/", tenants.tenant, name="tenant"),
    path("tenants/<str:name>/activity/", tenants.tenant_activity, name="tenant-activity"),
    path("tenants/<str:name>/requests/", tenants.tenant_requests, name="tenant-requests"),
    path("tenants/<str:name>/suspend/", tenants.tenant_suspend, name="tenant-suspend"),
    path("tenants/<str:name>/resume/", tenants.tenant_resume, name="tenant-resume"),
    path("tenants/<str:name>/delete/", tenants.tenant_delete, name="tenant-delete"),
    path("tenants/<str:name>/members/", tenants.members, name="members"),
    path("tenants/<str:name>/members/add/", tenants.member_add, name="member-add"),
    path("tenants/<str:name>/members/<uuid:user_id>/role/", tenants.member_role, name="member-role"),
    path("tenants/<str:name>/members/<uuid:user_id>/remove/", tenants.member_remove, name="member-remove"),
    path("tenants/<str:name>/policies/", policies.policies, name="policies"),
    path("tenants/<str:name>/policies/<str:policy>/end/", policies.policy_end, name="policy-end"),
    path("tokens/", people.tokens, name="tokens"),
    path("tokens/new/", people.token_new, name="token-new"),
    path("tokens/<uuid:pk>/revoke/", people.token_end, name="token-revoke"),
    path("audit/", audit.audit, name="audit"),
    path("audit/requests/", audit.audit_requests, name="audit-requests"),
    path("audit/requests/<str:key>/", audit.audit_request, name="audit-request"),
    path("audit/export/", audit.audit_export, name="audit-export"),
    path("audit/<uuid:pk>/", audit.audit_entry, name="audit-entry"),
    path("explain/", access.explain, name="explain"),
    path("identity/", identity.identity, name="identity"),
    path("who-can/", access.whocan, name="who-can"),
    path("what-if/", access.whatif, name="what-if"),
    path("tiers/", platform.tiers, name="tiers"),
    path("tiers/new/", platform.tier_new, name="tier-new"),
    path("tiers/<slug:name>/", platform.tier, name="tier"),
    path("tiers/<slug:name>/delete/", platform.tier_delete, name="tier-delete"),
    path("clusters/", platform.clusters, name="clusters"),
    path("clusters/new/", platform.cluster_new, name="cluster-new"),
    path("clusters/<slug:name>/", platform.cluster, name="cluster"),
    path("clusters/<slug:name>/check/", platform.cluster_check, name="cluster-check"),
    path("clusters/<slug:name>/delete/", platform.cluster_delete, name="cluster-delete"),
    path("users/", people.users, name="users"),
    path("users/new/", people.user_new, name="user-new"),
    path("users/<uuid:pk>/status/", people.user_status, name="user-status"),
    path("profile/", people.profile, name="profile"),
    path("profile/appearance/", people.appearance, name="appearance"),
    path("profile/password/", people.password, name="password"),
    path("api/v1/", include("portal.api.urls")),
    path("api/schema/", schema, name="api-schema"),
    path("api/docs/", docs, name="api-docs"),
    path("admin/login/", RedirectView.as_view(pattern_name="login", query_string=True)),
    path("admin/", admin.site.urls),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
]
