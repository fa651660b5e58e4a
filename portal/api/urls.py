"""Routes of the REST API, exactly as contract.md has them."""

from django.urls import path

from portal.api import access, identity, platform, records, tenants, workspaces

urlpatterns = [
    path("workspaces/init", workspaces.Init.as_view()),
    path("workspaces/credentials/kubeconfig", workspaces.Kubeconfig.as_view()),
    path("workspaces/", workspaces.Workspaces.as_view()),
    path("workspaces/<str:pk>/", workspaces.OneWorkspace.as_view(), name="api-workspace"),
    path("workspaces/<str:pk>/suspend", workspaces.Suspend.as_view()),
    path("workspaces/<str:pk>/resume", workspaces.Resume.as_view()),
    path("workspaces/<str:pk>/credentials", workspaces.Issue.as_view()),
    path("workspaces/<str:pk>/credentials/", workspaces.Credentials.as_view()),
    path("workspaces/<str:pk>/credentials/<str:jti>/revoke", workspaces.Revoke.as_view()),
    path("tenants/", tenants.Tenants.as_view()),
    path("tenants/<str:name>/", tenants.OneTenant.as_view()),
    path("tenants/<str:name>/suspend", tenants.SuspendTenant.as_view()),
    path("tenants/<str:name>/resume", tenants.ResumeTenant.as_view()),
    path("tenants/<str:name>/members/", tenants.Members.as_view()),
    path("tenants/<str:name>/members/<uuid:user_id>/", tenants.OneMember.as_view()),
    path("tenants/<str:name>/quota/", tenants.Quota.as_view()),
    path("tenants/<str:name>/usage/", tenants.Usage.as_view()),
    path("tiers/", platform.Tiers.as_view()),
    path("tiers/<str:name>/", platform.OneTier.as_view()),
    path("clusters/", platform.Clusters.as_view()),
    path("clusters/<str:name>/", platform.OneCluster.as_view()),
    path("audit-logs/", records.AuditLogs.as_view()),
    path("audit-logs/export", records.AuditExport.as_view()),
    path("tokens/", records.Tokens.as_view()),
    path("tokens/<uuid:pk>/", records.OneToken.as_view()),
    path("tenants/<str:name>/policies/", access.Policies.as_view()),
    path("tenants/<str:name>/policies/<str:policy>/", access.OnePolicy.as_view()),
    path("access/explain", access.Explain.as_view()),
    path("access/inspect", identity.Inspect.as_view()),
    path("access/would-allow", access.WouldAllow.as_view()),
    path("access/who-can", access.WhoCan.as_view()),
    path("access/what-if", access.WhatIf.as_view()),
]
