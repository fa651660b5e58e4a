"""What is stored about tenants, and cannot be wrong: the constraints are in the database."""

from tenants.models.clusters import Cluster, CredentialKind, Network, PodSecurity, Tier
from tenants.models.people import Membership, Role, Tenant, TenantState, User
from tenants.models.workspaces import Desired, Lock, Operation, OperationState, Phase, Status, Workspace

__all__ = [
    "Cluster",
    "CredentialKind",
    "Desired",
    "Lock",
    "Membership",
    "Network",
    "Operation",
    "OperationState",
    "Phase",
    "PodSecurity",
    "Role",
    "Status",
    "Tenant",
    "TenantState",
    "Tier",
    "User",
    "Workspace",
]
