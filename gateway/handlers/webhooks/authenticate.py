"""TokenReview: who a token of the portal belongs to, for a cluster where its tenant has a namespace (GW17, D9).

The answer rests on the credential's row, as at the product's own API server: revocation, expiry, the membership, the account
and the workspace end it. A suspension does not make anybody unknown: whoever is locked out is told so, and why, by
``authorize``.
"""

from __future__ import annotations

from typing import Any, Final

from access.authentication.base import Credentials, Refused
from gateway.http.messages import Request
from gateway.process.runtime import Runtime
from kube.authentication.identity import AUTHENTICATED
from kube.authentication.portaltokens import AUDIENCE
from kube.requests.logicalclusters import space_of
from kube.webhooks.isolation import PERSON
from kube.webhooks.reviews import read_token_review, token_answer, token_refusal

_UNKNOWN: Final = "the token is none that this cluster is asked with"


async def answer(runtime: Runtime, request: Request, cluster: str, body: Any) -> dict[str, Any]:
    """The review with its status. Raises ``BadRequest``."""
    review = read_token_review(body)
    if review.audiences and AUDIENCE not in review.audiences:
        return token_refusal(f"the token is for {AUDIENCE}, which is not among the server's --api-audiences")
    try:
        principal = await runtime.people.authenticate(
            Credentials(authorization=f"Bearer {review.token}"), now=request.now
        )
    except Refused as refusal:
        return token_refusal(str(refusal))
    if principal is None or principal.tenant is None or not runtime.authentication.counts(principal):
        return token_refusal(_UNKNOWN)
    placements = [
        placement
        for placement in (await runtime.cluster_namespaces.on(cluster)).values()
        if placement.space == space_of(principal.tenant)
    ]
    if not placements or (
        principal.namespace and principal.namespace not in {placement.namespace for placement in placements}
    ):
        return token_refusal("the token is for nothing on this cluster")
    user = principal.user_info()
    user["username"] = f"{PERSON}{principal.name}"
    user["groups"] = [group for group in principal.groups if group != AUTHENTICATED]
    return token_answer(user, [AUDIENCE])
