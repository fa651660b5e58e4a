"""Routes of the REST API."""

from django.urls import path

from portal.api import access, auditlogs, platform, tenants, tokens, workspaces

urlpatterns = [
    path("workspaces/init", workspaces.WorkspaceInit.as_view()),
    path("workspaces/credentials/kubeconfig", workspaces.KubeconfigDownload.as_view()),
    path("workspaces/", workspaces.WorkspaceList.as_view()),
    path("workspaces/<str:pk>/", workspaces.WorkspaceDetail.as_view(), name="api-workspace"),
    path("workspaces/<str:pk>/suspend", workspaces.WorkspaceSuspend.as_view()),
    path("workspaces/<str:pk>/resume", workspaces.WorkspaceResume.as_view()),
    path("workspaces/<str:pk>/credentials", workspaces.CredentialCreate.as_view()),
    path("workspaces/<str:pk>/credentials/", workspaces.CredentialList.as_view()),
    path("workspaces/<str:pk>/credentials/<str:jti>/revoke", workspaces.CredentialRevoke.as_view()),
    path("tenants/", tenants.TenantList.as_view()),
    path("tenants/<str:name>/", tenants.TenantDetail.as_view()),
    path("tenants/<str:name>/suspend", tenants.TenantSuspend.as_view()),
    path("tenants/<str:name>/resume", tenants.TenantResume.as_view()),
    path("tenants/<str:name>/credentials/", tenants.TenantCredentialList.as_view()),
    path("tenants/<str:name>/credentials/<str:jti>/revoke", tenants.TenantCredentialRevoke.as_view()),
    path("tenants/<str:name>/kubeconfig", tenants.TenantKubeconfig.as_view()),
    path("tenants/<str:name>/members/", tenants.MemberList.as_view()),
    path("tenants/<str:name>/members/<uuid:user_id>/", tenants.MemberDetail.as_view()),
    path("tenants/<str:name>/quota/", tenants.TenantQuota.as_view()),
    path("tenants/<str:name>/usage/", tenants.TenantUsage.as_view()),
    path("tiers/", platform.TierList.as_view()),
    path("tiers/<str:name>/", platform.TierDetail.as_view()),
    path("clusters/", platform.ClusterList.as_view()),
    path("clusters/<str:name>/", platform.ClusterDetail.as_view()),
    path("audit-logs/", auditlogs.AuditLogList.as_view()),
    path("audit-logs/export", auditlogs.AuditLogExport.as_view()),
    path("tokens/", tokens.TokenList.as_view()),
    path("tokens/<uuid:pk>/", tokens.TokenDetail.as_view()),
    path("tenants/<str:name>/policies/", access.PolicyList.as_view()),
    path("tenants/<str:name>/policies/<str:policy>/", access.PolicyDetail.as_view()),
    path("access/explain", access.Explain.as_view()),
    path("access/inspect", access.Inspect.as_view()),
    path("access/would-allow", access.SuggestedGrants.as_view()),
    path("access/who-can", access.WhoCan.as_view()),
    path("access/what-if", access.WhatIf.as_view()),
]
