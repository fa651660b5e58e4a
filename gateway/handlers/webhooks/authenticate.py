"""TokenReview: whose a token is, for a cluster where its tenant has a namespace (GW17, D9).

A token of the portal rests on the credential's row, as at the product's own API server: revocation, expiry, the membership, the
account and the workspace end it. One that was made for this cluster alone counts here and nowhere else, so that a cluster which
has seen it has gained nothing. Those of service accounts of the tenants' spaces are taken at the clusters that
``--webhook-service-accounts`` names, made for the audience of clusters alone. A suspension does not make anybody unknown: whoever
is locked out is told so, and why, by ``authorize``.
"""

from __future__ import annotations

from typing import Any, Final

from access.authentication.base import Credentials, Refused
from gateway.http.messages import Request
from gateway.process.runtime import Runtime
from kube.authentication.identity import AUTHENTICATED, Principal
from kube.authentication.portaltokens import AUDIENCE, cluster_audience
from kube.authentication.serviceaccounttokens import unverified_audiences, unverified_issuer
from kube.requests.logicalclusters import space_of
from kube.webhooks.isolation import PERSON
from kube.webhooks.reviews import read_token_review, token_answer, token_refusal

_UNKNOWN: Final = "the token is none that this cluster is asked with"


async def answer(runtime: Runtime, request: Request, cluster: str, body: Any) -> dict[str, Any]:
    """The review with its status. Raises ``BadRequest``."""
    review = read_token_review(body)
    ours = (cluster_audience(cluster), AUDIENCE)
    takes = [audience for audience in ours if not review.audiences or audience in review.audiences]
    if not takes:
        return token_refusal(f"tokens are for {' or '.join(ours)}, which are not among the server's --api-audiences")
    token = Credentials(authorization=f"Bearer {review.token}").bearer
    if token is None:
        return token_refusal(_UNKNOWN)
    said = unverified_audiences(token)
    audience = next((each for each in takes if each in said), takes[-1])
    try:
        principal = await _bearer_of(runtime, cluster, token, audience, now=request.now)
    except Refused as refusal:
        return token_refusal(str(refusal))
    if principal is None or principal.tenant is None or not runtime.authentication.counts(principal):
        return token_refusal(_UNKNOWN)
    space, placements = space_of(principal.tenant), await runtime.cluster_namespaces.of(principal.tenant, cluster)
    if principal.namespace:
        placement = placements.get(principal.namespace)
        found = placement is not None and placement.space == space
    else:
        found = any(placement.space == space for placement in placements.values())
    if not found:
        return token_refusal("the token is for nothing on this cluster")
    # No logical cluster is at home on a cluster: an account is told from its namesakes there by the name of its own.
    there = principal.seen_from("")
    user = there.user_info()
    user["username"] = f"{PERSON}{there.name}"
    user["groups"] = [group for group in there.groups if group != AUTHENTICATED]
    return token_answer(user, [audience])


async def _bearer_of(runtime: Runtime, cluster: str, token: str, audience: str, *, now: float) -> Principal | None:
    issuer = unverified_issuer(token)
    if cluster in runtime.options.webhook_service_accounts and issuer in runtime.options.service_account_issuers:
        return await runtime.accounts.principal(token, audiences=(audience,), now=now)
    shown = Credentials(authorization=f"Bearer {token}")
    return await runtime.people.authenticate(shown, now=now, audience=audience)
