"""The pages of workspaces: created, watched, suspended, deleted."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from portal.pages.labels import resource_name
from portal.pages.meters import limits_of, meters_of
from tenants.models import Cluster, CredentialKind, Workspace
from tenants.services.tiers import DEFAULTS
from tests import factories
from tests.portal.conftest import House, signed_in


def test_new_workspace_is_created_and_its_page_shows_progress(acme: House) -> None:
    """GW6, GW14."""
    client = signed_in(acme.owner)
    response = client.post("/workspaces/new/", {"name": "payments", "tenant": "acme", "tier": "basic"})
    assert response.status_code == 302
    body = client.get(response.headers["Location"]).content.decode()
    assert "Provisioning" in body
    assert 'hx-trigger="every 1s"' in body


def open_form(client: Any) -> dict[str, str]:
    """What a new form for a workspace sends when nobody types a name."""
    [once] = re.findall(r'name="once" value="([^"]+)"', client.get("/workspaces/new/").content.decode())
    return {"once": once, "name": "", "tenant": "acme", "tier": "basic"}


def test_each_form_without_a_name_makes_a_workspace_and_sent_twice_one(acme: House) -> None:
    """GW6: the name that is made up for an empty one is a new one."""
    factories.tier("wide", workspaces_per_user=5)
    client, mine = signed_in(acme.owner), Workspace.objects.filter(user=acme.owner)
    first, second = open_form(client), open_form(client)
    pages = [client.post("/workspaces/new/", said).headers["Location"] for said in (first, first, second)]
    assert pages[0] == pages[1] != pages[2]
    assert mine.count() == 2
    assert mine.values("name").distinct().count() == 2
    gone_back = client.post("/workspaces/new/", {**second, "tier": "wide"})
    assert gone_back.status_code == 302, "other words in the same form are no second press"
    assert mine.count() == 3


def test_a_name_that_one_has_with_another_tier_is_told_in_the_form(acme: House) -> None:
    factories.tier("wide", workspaces_per_user=5)
    client = signed_in(acme.owner)
    assert client.post("/workspaces/new/", {**open_form(client), "name": "payments"}).status_code == 302
    refused = client.post("/workspaces/new/", {**open_form(client), "name": "payments", "tier": "wide"})
    assert refused.status_code == 422
    assert "Your workspace payments has the tier basic; choose another name." in refused.content.decode()


def test_new_workspace_over_the_limit_says_so_in_the_form(acme: House) -> None:
    factories.tier("tiny", workspaces_per_user=0)
    response = signed_in(acme.owner).post("/workspaces/new/", {"name": "a", "tenant": "acme", "tier": "tiny"})
    assert response.status_code == 422
    assert "allows 0 workspaces per user" in response.content.decode()


def test_new_workspace_in_another_tenant_is_no_choice(acme: House, globex: House) -> None:
    response = signed_in(acme.owner).post("/workspaces/new/", {"name": "a", "tenant": "globex", "tier": "basic"})
    assert response.status_code == 422


def test_what_is_wrong_with_the_tier_is_tied_to_its_choices(acme: House) -> None:
    response = signed_in(acme.owner).post("/workspaces/new/", {"name": "a", "tenant": "acme", "tier": "nonsense"})
    body = response.content.decode()
    [named] = re.findall(r'<fieldset[^>]* aria-describedby="([^"]+)"', body)
    assert re.search(rf'id="{named}"[^>]*>.*nonsense is not one of', body)


def test_a_credentials_id_is_copied_whole(acme: House) -> None:
    """GW8: what is asked about, or revoked, by script or by an operator."""
    jti = factories.credential(acme.workspace, acme.owner).jti
    client = signed_in(acme.owner)
    for path in (f"/workspaces/{acme.workspace.pk}/", "/credentials/"):
        assert f'data-copy-text="{jti}"' in client.get(path).content.decode(), path


def test_finished_progress_fetches_the_rest_of_the_page_once_and_reloads_nothing(acme: House) -> None:
    """A reload would abort the way to wherever the person has just clicked."""
    client, page = signed_in(acme.viewer), reverse("workspace", args=[acme.workspace.pk])
    response = client.get(reverse("workspace-progress", args=[acme.workspace.pk]))
    assert not {"HX-Refresh", "HX-Redirect", "HX-Location"} & set(response.headers)
    assert f'hx-get="{page}" hx-trigger="load" hx-target="#main" hx-select="#main"' in response.content.decode()
    rest = client.get(page, headers={"HX-Request": "true", "HX-Target": "main"}).content.decode()
    assert 'id="main"' in rest
    assert 'id="progress"' not in rest


def test_failed_operation_is_told_in_words(acme: House) -> None:
    made = factories.workspace(
        acme.tenant, acme.editor, "broken", phase="provisioning", ready_at=None, observed_generation=0
    )
    made.operations.update(state="failed", error="The cluster fra-1 refuses the credential.")
    body = signed_in(acme.editor).get(reverse("workspace", args=[made.pk])).content.decode()
    assert "The cluster fra-1 refuses the credential." in body


def test_suspend_by_operator_closes_and_leaves_a_receipt(acme: House, operator: factories.User) -> None:
    """GW5."""
    client = signed_in(operator)
    path = reverse("workspace-suspend", args=[acme.workspace.pk])
    assert client.post(path, {"reason": "mining"}).status_code == 302
    body = client.get(reverse("workspace", args=[acme.workspace.pk])).content.decode()
    assert "mining" in body
    assert "Suspending" in body
    assert "Receipt of the suspension" in body


def test_what_is_suspended_can_be_pressed_again_and_stopped(acme: House, operator: factories.User) -> None:
    """GW5: the button stays, wakes what waits, and may go further."""
    client = signed_in(operator)
    path = reverse("workspace-suspend", args=[acme.workspace.pk])
    asked = client.get(path).content.decode()
    assert "and stop everything" in asked
    assert "Pods run on" in asked
    client.post(path, {"reason": "mining"})
    acme.workspace.refresh_from_db()
    assert not acme.workspace.stopped
    acme.workspace.operations.update(state="failed", not_before=timezone.now() + timedelta(minutes=5))
    assert "Suspend again" in client.get(reverse("workspace", args=[acme.workspace.pk])).content.decode()
    client.post(path, {"reason": "mining"})
    assert acme.workspace.operations.get(desired="suspended").not_before <= timezone.now()
    client.post(path, {"reason": "mining", "stop": "on"})
    acme.workspace.refresh_from_db()
    assert acme.workspace.stopped


def test_what_is_being_deleted_is_listed_and_can_be_suspended(acme: House, operator: factories.User) -> None:
    """GW5: until its cluster shows that it is gone."""
    signed_in(acme.owner).post(reverse("workspace-delete", args=[acme.workspace.pk]), {"name": acme.workspace.name})
    client = signed_in(operator)
    page = reverse("workspace", args=[acme.workspace.pk])
    assert page in client.get(reverse("workspaces")).content.decode()
    body = client.get(page).content.decode()
    assert "Receipt of the deletion" in body
    assert "Suspend again" in body
    client.post(reverse("workspace-suspend", args=[acme.workspace.pk]), {"reason": "mining"})
    acme.workspace.refresh_from_db()
    assert (acme.workspace.status, acme.workspace.suspended_reason) == ("deleted", "mining")


def test_suspend_by_owner_is_refused(acme: House) -> None:
    """GW5: admins of the platform only."""
    response = signed_in(acme.owner).post(reverse("workspace-suspend", args=[acme.workspace.pk]), {"reason": "x"})
    assert "Only operators may do this." in response.content.decode()
    acme.workspace.refresh_from_db()
    assert acme.workspace.status == "active"


def test_delete_needs_the_name_typed(acme: House) -> None:
    client = signed_in(acme.editor)
    path = reverse("workspace-delete", args=[acme.workspace.pk])
    assert client.post(path, {"name": "something"}).status_code == 422
    acme.workspace.refresh_from_db()
    assert acme.workspace.status == "active"
    assert client.post(path, {"name": "acme-web"}).status_code == 302
    acme.workspace.refresh_from_db()
    assert acme.workspace.status == "deleted"


def test_dialog_and_page_are_the_same_form(acme: House) -> None:
    client = signed_in(acme.editor)
    path = reverse("workspace-delete", args=[acme.workspace.pk])
    page = client.get(path).content.decode()
    dialog = client.get(path, headers={"HX-Request": "true", "HX-Target": "dialog"}).content.decode()
    assert "<!DOCTYPE html>" in page
    assert "<!DOCTYPE html>" not in dialog
    assert "hx-post" in dialog
    done = client.post(path, {"name": "acme-web"}, headers={"HX-Request": "true", "HX-Target": "dialog"})
    assert done.headers["HX-Redirect"] == reverse("workspace", args=[acme.workspace.pk])


@pytest.mark.parametrize(
    ("resource", "amount", "shown"),
    [
        ("requests.cpu", "3500m", "3.5"),
        ("count/configmaps", "1k", "1,000"),
        ("limits.memory", "5368709120", "5 GiB"),
        ("requests.storage", "1536Mi", "1.5 GiB"),
        ("pods", "0", "0"),
        ("pods", "many", "many"),
    ],
)
def test_amounts_are_shown_as_people_write_them(resource: str, amount: str, shown: str) -> None:
    assert meters_of({resource: amount}, None)[0].hard == shown


def test_quota_that_cannot_be_read_still_shows_the_limits(acme: House) -> None:
    body = signed_in(acme.viewer).get(reverse("workspace-quota", args=[acme.workspace.pk])).content.decode()
    assert "8 GiB" in body
    assert "cannot be read from the cluster" in body


@pytest.mark.parametrize("preset", DEFAULTS, ids=lambda preset: preset["name"])
def test_every_limit_of_a_tier_has_words_of_its_own(preset: dict[str, Any]) -> None:
    words = [resource_name(resource) for resource in preset["quota"]]
    assert len(set(words)) == len(words)
    assert not [text for text in words if "." in text or "/" in text or text[0].islower()]


def test_a_limit_of_nothing_is_not_used_up_by_nothing() -> None:
    """A load balancer that a tier does not give is no alarm; one that is there all the same is."""
    hard = {"services.loadbalancers": "0"}
    (unused,) = meters_of(hard, {"services.loadbalancers": "0"})
    (used,) = meters_of(hard, {"services.loadbalancers": "1"})
    assert (unused.percent, unused.level) == (0, "")
    assert (used.percent, used.level) == (100, "full")


def test_whoever_may_not_make_a_workspace_reads_why(acme: House) -> None:
    viewer = signed_in(acme.viewer)
    assert "Viewers make no workspaces" in viewer.get("/workspaces/new/").content.decode()
    acme.tenant.state, acme.tenant.suspended_reason, acme.tenant.suspended_at = "suspended", "Not paid", timezone.now()
    acme.tenant.save()
    body = signed_in(acme.owner).get("/workspaces/new/").content.decode()
    assert "acme is suspended" in body and "Not paid" in body
    stranger = factories.user()
    assert "You are in no tenant yet" in signed_in(stranger).get("/workspaces/new/").content.decode()


def test_anything_is_found_by_a_part_of_its_name(acme: House, globex: House, operator: Any) -> None:
    client = signed_in(operator)
    assert "acme-web" in client.get("/workspaces/?q=me-we").content.decode()
    assert "globex-web" not in client.get("/workspaces/?q=me-we").content.decode()
    assert "acme-web" in client.get("/search/?q=me-we").content.decode()
    assert "/tenants/globex/" in client.get("/tenants/?q=lobe").content.decode()
    assert acme.viewer.email in client.get(f"/users/?q={acme.viewer.email[2:]}").content.decode()


def test_the_way_that_is_recommended_is_marked(acme: House) -> None:
    """GW3: the first of those that the cluster's operator chose, and no other."""
    Cluster.objects.update(credential_kinds=["exec", "gateway"])
    page = signed_in(acme.viewer).get(f"/workspaces/{acme.workspace.pk}/").content.decode()
    marked = page.index("(recommended)")
    assert page.index(str(CredentialKind.EXEC.label)) < marked < page.index(str(CredentialKind.GATEWAY.label))
    assert page.count("(recommended)") == 1


def test_the_rights_on_offer_are_those_that_are_given(acme: House) -> None:
    """GW3: an editor's own workspace offers no more than an editor gets; the first choice works."""
    offered = {
        name: [role for role in ("admin", "editor", "viewer") if f'value="{role}"' in page]
        for name, page in (
            (name, signed_in(getattr(acme, name)).get(f"/workspaces/{acme.workspace.pk}/kubeconfig/").content.decode())
            for name in ("owner", "editor", "viewer")
        )
    }
    assert offered == {
        "owner": ["admin", "editor", "viewer"],
        "editor": ["editor", "viewer"],
        "viewer": ["viewer"],
    }


def test_a_tenants_page_leads_to_one_file_for_all_its_workspaces(acme: House, globex: House) -> None:
    """GW3: a GET only asks; what no cluster gives is said in the form."""
    client = signed_in(acme.viewer)
    path = reverse("tenant-kubeconfig", args=["acme"])
    assert path in client.get(reverse("tenant", args=["acme"])).content.decode()
    assert "Issue kubeconfig" in client.get(path).content.decode()
    assert client.post(path, {"kind": "gateway"}).status_code == 422
    assert signed_in(globex.owner).post(path, {"kind": "gateway"}).status_code == 404


def test_what_is_not_used_is_folded_and_a_new_workspace_has_one_empty_state() -> None:
    """GW14: thirty empty meters say nothing; what every namespace is born with is no use of it."""
    hard = {"pods": "30", "count/configmaps": "200", "count/serviceaccounts": "20", "services": "x"}
    unknown, new = limits_of(hard, None), limits_of(hard, {"count/configmaps": "1", "count/serviceaccounts": "2"})
    assert [(len(each.used), len(each.folded), each.is_new) for each in (unknown, new)] == [(0, 4, False), (0, 4, True)]
    assert new.summary == "All 4 limits"
    busy = limits_of(hard, {"pods": "1", "count/configmaps": "1", "services": "0"})
    assert [meter.resource for meter in busy.used] == ["pods", "count/configmaps"]
    assert busy.summary == "2 more limits of which nothing is used"
