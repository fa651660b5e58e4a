"""Requests: asked, talked about, decided once, carried out by the service that does it otherwise too (GW25)."""

from tenants.services.requests.asking import RequestDraft, request_comment, request_create, request_withdraw
from tenants.services.requests.deciding import request_approve, request_deny, requests_expire

__all__ = [
    "RequestDraft",
    "request_approve",
    "request_comment",
    "request_create",
    "request_deny",
    "request_withdraw",
    "requests_expire",
]
