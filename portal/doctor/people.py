"""People: whose mail may be somebody else's."""

from __future__ import annotations

from collections.abc import Iterator

from portal.doctor.findings import Finding, ok, some, warning
from tenants.models import User
from tenants.models.mailaddresses import address_taken_for


def addresses() -> Iterator[Finding]:
    """No account has an address that could be taken for another one, as releases before have let in."""
    beyond_ascii = User.objects.filter(email__regex="[^ -~]").order_by("email").values_list("email", flat=True)
    found = [f"{email} (for {other})" for email in beyond_ascii if (other := address_taken_for(email))]
    if found:
        yield warning(
            "addresses",
            f"these could be taken for others, or their mail goes there: {some(found)}",
            "Press Change address on each one's page under Users, and Reset password where its mail went to somebody else.",
        )
    else:
        yield ok("addresses", "none could be taken for another")
