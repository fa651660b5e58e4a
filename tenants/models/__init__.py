"""What is stored about tenants, and cannot be wrong: the constraints are in the database."""

from tenants.models.accounts import Passkey, PasswordReset, PortalSession, RecoveryCode, SecondFactor
from tenants.models.announcements import Announcement, Audience, Severity
from tenants.models.clusters import (
    Approval,
    Cluster,
    ClusterProbe,
    CredentialKind,
    Network,
    PodSecurity,
    RecordingMode,
    Tier,
)
from tenants.models.freezes import Freeze
from tenants.models.notices import Delivery, DeliveryState, Notice, NoticeKind, Notification, Webhook
from tenants.models.offboardings import Offboarding
from tenants.models.people import Invitation, Membership, Role, Tenant, TenantState, User
from tenants.models.postponements import Postponement
from tenants.models.recordings import Recording, RecordingChunk
from tenants.models.requests import AccessRequest, RequestComment, RequestKind, RequestState
from tenants.models.streams import LIVING, PodConnection, StreamCount
from tenants.models.usage import PastPrice, UsageHour, UsagePrice
from tenants.models.workspaces import Desired, Lock, Operation, OperationState, Phase, Status, Workspace

__all__ = [
    "LIVING",
    "AccessRequest",
    "Announcement",
    "Approval",
    "Audience",
    "Cluster",
    "ClusterProbe",
    "CredentialKind",
    "Delivery",
    "DeliveryState",
    "Desired",
    "Freeze",
    "Invitation",
    "Lock",
    "Membership",
    "Network",
    "Notice",
    "NoticeKind",
    "Notification",
    "Offboarding",
    "Operation",
    "OperationState",
    "Passkey",
    "PasswordReset",
    "PastPrice",
    "Phase",
    "PodConnection",
    "PodSecurity",
    "PortalSession",
    "Postponement",
    "Recording",
    "RecordingChunk",
    "RecordingMode",
    "RecoveryCode",
    "RequestComment",
    "RequestKind",
    "RequestState",
    "Role",
    "SecondFactor",
    "Severity",
    "Status",
    "StreamCount",
    "Tenant",
    "TenantState",
    "Tier",
    "UsageHour",
    "UsagePrice",
    "User",
    "Webhook",
    "Workspace",
]
