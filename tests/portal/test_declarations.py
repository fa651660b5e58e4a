"""``tenantry apply``: what files declare is made true, and of the rest only what apply made is taken away."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from store import synchronous
from tenantry_cli.declarations.changes import Action, plan
from tenantry_cli.declarations.documents import Fields, Item, Kind, read_documents
from tenantry_cli.failures import Failure
from tenants.models import Membership, Tenant, Tier, User
from tenants.quotas import tenant_quota
from tenants.reconciler.deletion import tenants_end
from tenants.services import tier_create
from tenants.spaces import tenant_key
from tests import factories
from tests.portal.commandline import Answer, Shell
from tests.portal.conftest import House
from tests.portal.test_api import bearer, send

BOMB = "kind: Tier\nname: a\nlimit_range:\n- &a [x]\n" + "".join(
    f"- &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefghij", "bcdefghijk", strict=True)
)
"""Nine to the power of ten texts in less than a kilobyte."""

DECLARED: list[dict[str, Any]] = [
    {"kind": "Member", "tenant": "orca", "email": "Olaf@orca.test", "role": "owner"},
    {"kind": "Member", "tenant": "orca", "email": "finn@orca.test", "role": "viewer"},
    {
        "kind": "Tenant",
        "name": "orca",
        "display_name": "Orca ",
        "quota": {"pods": 30, "requests.cpu": 1.5},
        "policies": {"registries": ["ghcr.io/orca"], "service_types": None},
    },
    {
        "kind": "Tier",
        "name": "tiny",
        "display_name": "Tiny",
        "quota": {"pods": 3},
        "limit_range": [{"type": "Container", "max": {"cpu": 1}}],
    },
]


@pytest.fixture
def apply(
    live_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    operator: User,
) -> Callable[..., Answer]:
    """Apply documents as an operator's pipeline."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shell = Shell(live_server.url, monkeypatch, capsys).sign_in(operator, "operate")
    for name in ("olaf", "finn", "gerd"):
        factories.user(f"{name}@orca.test")

    def run(documents: list[dict[str, Any]], *arguments: str, typed: str | io.StringIO = "") -> Answer:
        file = tmp_path / "declared.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        return shell.run("apply", "-f", str(file), *arguments, typed=typed)

    return run


def test_what_is_declared_comes_true_in_whichever_order(apply: Callable[..., Answer]) -> None:
    shuffled = random.sample(DECLARED, len(DECLARED))
    shown = apply(shuffled, "--dry-run")
    assert shown.status == 0, shown.errors
    assert [line for line in shown.output.splitlines() if line[0] != " "] == [
        "+ Tier tiny",
        "+ Tenant orca",
        "+ Member orca/olaf@orca.test",
        "+ Member orca/finn@orca.test",
    ]
    assert not Tenant.objects.filter(name="orca").exists(), "a dry run changes nothing"
    made = apply(shuffled)
    assert (made.status, made.output) == (0, shown.output), made.errors
    orca = Tenant.objects.get(name="orca")
    assert (orca.display_name, orca.policies) == ("Orca", {"service_types": None, "registries": ["ghcr.io/orca"]})
    assert tenant_quota("orca").hard == {"pods": "30", "requests.cpu": "1.5"}
    assert Tier.objects.get(name="tiny").quota == {"pods": "3"}
    again = apply(DECLARED)
    assert (again.output, again.errors) == ("", "0 changed, 4 as declared.\n")


def test_a_changed_declaration_changes_that_alone(apply: Callable[..., Answer]) -> None:
    apply(DECLARED)
    changed = [
        {**DECLARED[0], "role": "admin"},
        {"kind": "Member", "tenant": "orca", "email": "gerd@orca.test", "role": "owner"},
        {"kind": "Tenant", "name": "orca", "quota": {"pods": 31, "requests.cpu": "1.5"}, "display_name": "Orcas"},
        {"kind": "Tier", "name": "tiny", "description": "For a try."},
    ]
    done = apply(changed, "-o", "json")
    assert done.status == 0, done.errors
    assert [(change["action"], change["name"], change["fields"]) for change in done.json] == [
        ("change", "tiny", {"description": {"before": "", "after": "For a try."}}),
        (
            "change",
            "orca",
            {
                "display_name": {"before": "Orca", "after": "Orcas"},
                "quota.pods": {"before": "30", "after": "31"},
            },
        ),
        ("create", "gerd@orca.test", {"role": {"before": None, "after": "owner"}}),
        ("change", "olaf@orca.test", {"role": {"before": "owner", "after": "admin"}}),
    ]
    assert Tier.objects.get(name="tiny").quota == {"pods": "3"}, "what is not said stays"
    assert Tenant.objects.get(name="orca").policies["registries"] == ["ghcr.io/orca"]
    stored = synchronous.get(tenant_key("orca"))
    assert stored is not None
    assert json.loads(stored.data)["spec"] == {"displayName": "Orcas"}, "kubectl reads the same"


def test_prune_takes_what_this_declaration_made_and_nothing_else(
    apply: Callable[..., Answer], acme: House, operator: User
) -> None:
    """What people made stays, also under a name that a declaration had; so does what another declaration made."""
    repository = ("--manager", "repository", "--prune", "--yes")
    assert apply(DECLARED, *repository).status == 0
    assert apply([{"kind": "Tenant", "name": "whale"}], "--manager", "elsewhere").status == 0
    assert apply([{"kind": "Member", "tenant": "acme", "email": acme.owner.email, "role": "owner"}]).status == 0
    adopted = {"kind": "Member", "tenant": "acme", "email": acme.viewer.email, "role": "editor"}
    assert apply([*DECLARED, adopted], *repository).status == 0
    Tier.objects.filter(name="tiny").delete()
    tier_create(actor=_by(operator), name="tiny", display_name="Another", quota={"pods": "1"})

    without = [document for document in DECLARED[:3] if document.get("email") != "finn@orca.test"]
    unsure = apply(without, "--manager", "repository", "--prune")
    assert unsure.status == 1, "nobody said yes"
    assert Membership.objects.filter(user__email="finn@orca.test").exists()
    done = apply(without, *repository)
    assert (done.status, done.output) == (0, "- Member orca/finn@orca.test\n"), done.errors
    assert Tier.objects.filter(name="tiny").exists()

    empty = apply([], *repository)
    assert (empty.status, empty.output) == (0, "- Tenant orca\n"), "its members go with it"
    assert set(Tenant.objects.filter(state="active").values_list("name", flat=True)) >= {"acme", "whale"}
    assert Membership.objects.get(user=acme.viewer).role == "editor"
    assert apply([], *repository).output == "", "what is being deleted already is not deleted twice"


def test_nobody_prunes_in_another_tenant(acme: House, globex: House) -> None:
    """Declarations of the same name in two tenants know nothing of each other; a token for one tenant sees none."""
    for house in (acme, globex):
        nina = factories.user(f"nina@{house.tenant.name}.test")
        body = {"email": nina.email, "role": "viewer", "managed_by": "team"}
        assert send(bearer(house.owner), "POST", f"tenants/{house.tenant.name}/members/", body).status_code == 201
    made = send(bearer(acme.owner), "GET", "memberships/?managed_by=team").json()
    assert [(row["tenant"], row["email"]) for row in made["results"]] == [("acme", "nina@acme.test")]
    assert send(bearer(acme.owner, tenant=acme.tenant), "GET", "memberships/?managed_by=team").status_code == 403
    assert send(bearer(acme.owner), "GET", "memberships/").status_code == 400
    assert send(bearer(acme.admin), "PATCH", "tenants/acme/", {"display_name": "Mine"}).status_code == 403
    assert send(bearer(acme.owner), "PATCH", "tenants/acme/", {"display_name": "Ours"}).json()["display_name"] == "Ours"


def test_pruning_needs_the_name_of_the_declaration(apply: Callable[..., Answer]) -> None:
    refused = apply([], "--prune", "--yes")
    assert (refused.status, "--manager" in refused.errors) == (2, True)


def test_what_stops_half_way_goes_on_when_applied_again(apply: Callable[..., Answer]) -> None:
    stranger = {"kind": "Member", "tenant": "orca", "email": "nobody@orca.test", "role": "viewer"}
    stopped = apply([*DECLARED, stranger])
    assert stopped.status == 7
    assert "Member orca/nobody@orca.test" in stopped.errors
    assert "4 of 5 done" in stopped.errors
    factories.user("nobody@orca.test")
    assert apply([*DECLARED, stranger]).output == "+ Member orca/nobody@orca.test\n    role: viewer\n"


def test_an_admin_declares_the_people_of_their_tenant(
    acme: House,
    live_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With their own rights: no operator is needed, and no other tenant is reached."""
    shell = Shell(live_server.url, monkeypatch, capsys).sign_in(acme.admin)
    factories.user("nina@acme.test")
    factories.tenant("globex")
    file = tmp_path / "members.yaml"
    file.write_text("{kind: Member, tenant: acme, email: nina@acme.test, role: viewer}")
    assert shell.done("apply", "-f", str(file), "--manager", "team").output.startswith("+ Member acme/nina@acme.test")
    file.write_text("{kind: Member, tenant: globex, email: nina@acme.test, role: viewer}")
    assert shell.run("apply", "-f", str(file)).status == 5
    file.write_text("{kind: Tenant, name: mine}")
    assert shell.run("apply", "-f", str(file)).status == 4


@pytest.mark.parametrize(
    ("kind", "documents", "line"),
    [
        ("tenant", [], "- Tenant orca"),
        ("tier", DECLARED[:3], "- Tier tiny"),
        ("member", [DECLARED[0], *DECLARED[2:]], "- Member orca/finn@orca.test"),
    ],
)
@pytest.mark.parametrize("meanwhile", ["a namesake", "gone"])
def test_prune_deletes_what_was_agreed_to_and_no_namesake(
    apply: Callable[..., Answer],
    operator: User,
    kind: str,
    documents: list[dict[str, Any]],
    line: str,
    meanwhile: str,
) -> None:
    """Between the question and the answer somebody deletes it by hand and makes another of the same name."""
    assert apply(DECLARED, "--manager", "repository").status == 0
    portal, finn = bearer(operator, "operate"), User.objects.get(email="finn@orca.test")

    def replace() -> None:
        path: str
        again: tuple[str, dict[str, Any]]
        if kind == "member":
            path = f"tenants/orca/members/{finn.pk}/"
            again = ("tenants/orca/members/", {"email": finn.email, "role": "viewer"})
        elif kind == "tier":
            path, again = "tiers/tiny/", ("tiers/", {"name": "tiny", "display_name": "Other", "quota": {"pods": "1"}})
        else:
            path, again = "tenants/orca/", ("tenants/", {"name": "orca"})
        assert send(portal, "DELETE", path).status_code in (202, 204)
        if kind == "tenant":
            tenants_end()
        if meanwhile == "a namesake":
            assert send(portal, "POST", *again).status_code == 201

    class Person(io.StringIO):
        def readline(self, size: int | None = -1, /) -> str:
            replace()
            return "y\n"

    stopped = apply(documents, "--manager", "repository", "--prune", typed=Person())
    assert line in stopped.output
    assert (stopped.status, "Traceback" in stopped.errors) == (6 if meanwhile == "a namesake" else 5, False), (
        stopped.errors
    )
    there = {
        "tenant": Tenant.objects.filter(name="orca", state="active"),
        "tier": Tier.objects.filter(name="tiny"),
        "member": Membership.objects.filter(user=finn),
    }[kind]
    assert there.exists() is (meanwhile == "a namesake")


def test_what_would_change_is_shown_on_lines_that_no_text_makes_or_hides(apply: Callable[..., Answer]) -> None:
    """Whoever judges a declaration by its dry run reads what the file would do, not what it says that it would."""
    text = "Orca\x1b[1A\x1b[2K\r\n\x9b2K\u202e"
    sly = [
        {"kind": "Tenant", "name": "orca\n- Tier tiny", "display_name": text},
        {"kind": "Tier", "name": "tiny", "display_name": text, "quota": {text: text}, "limit_range": [{text: text}]},
        {"kind": "Member", "tenant": f"orca{text}", "email": f"olaf{text}@orca.test", "role": text},
    ]
    shown = apply(sly, "--dry-run")
    assert shown.status == 0, shown.errors
    lines = shown.output.splitlines()
    assert [line[:8] for line in lines if line[0] != " "] == ["+ Tier t", "+ Tenant", "+ Member"]
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Tenant\nname: a\nlabel: x", "Tenant has no field label"),
        ("kind: Tenants\nname: a", "kind must be one of Tier, Tenant, Member"),
        ("kind: Tenant", "Tenant needs name"),
        ("kind: Tenant\nname: 7", "name must be a text"),
        ("kind: Tier\nname: a\nis_available: 'yes'", "is_available must be true or false"),
        ("kind: Tier\nname: a\nposition: true", "position must be a number"),
        ("kind: Member\ntenant: a\nemail: b@c.test", "Member needs role"),
        ("kind: Tenant\nname: a\nname: b", "there twice"),
        ("{kind: Tenant, name: a}\n---\n{kind: Tenant, name: a}", "Document 3: Tenant a is declared a second time"),
        ("kind: Tier\nname: a\nquota: {pods: 2026-01-01}", "JSON has not"),
        ("kind: Tier\nname: a\nlimit_range: [.nan]", "JSON has not"),
        ("- kind: Tenant", "must be a map"),
        ("kind: [", "no YAML"),
        ("? [a]\n: b", "no YAML"),
        ("kind: !!python/object:os.system {}", "no YAML"),
        ("[" * 2000, "no YAML"),
        ("a: &a [*a]", "no YAML"),
        (BOMB, "more than 100000 values"),
    ],
)
def test_what_is_not_understood_is_refused_whole(text: str, words: str) -> None:
    with pytest.raises(Failure, match=words):
        read_documents(f"{{kind: Tenant, name: first}}\n---\n{text}")


_names = st.sampled_from("abc")
_items = st.one_of(
    st.builds(Item, st.sampled_from([Kind.TIER, Kind.TENANT]), _names),
    st.builds(Item, st.just(Kind.MEMBER), _names, _names),
)
_roles = st.sampled_from(["owner", "viewer"])


@st.composite
def _things(draw: Any) -> dict[Item, Fields]:
    def fields(item: Item) -> dict[str, Any]:
        if item.kind is Kind.MEMBER:
            return {"role": draw(_roles)}
        return {"display_name": draw(_names), "quota": {"pods": draw(_names)}}

    return {item: fields(item) for item in draw(st.lists(_items, unique=True, max_size=8))}


@given(declared=_things(), there=_things(), managed=st.sets(_items), data=st.data())
def test_a_plan_leads_to_what_is_declared(
    declared: dict[Item, Fields], there: dict[Item, Fields], managed: set[Item], data: Any
) -> None:
    """It comes to the declaration, touches nothing that it may not, depends on no order, and then has nothing to do."""
    managed &= set(there)
    changes = plan(declared, {item: there.get(item) for item in declared}, managed)
    shuffled = dict(data.draw(st.permutations(list(declared.items()))))
    assert plan(shuffled, {item: there.get(item) for item in shuffled}, managed) == changes
    world = {item: dict(fields) for item, fields in there.items()}
    for change in changes:
        if change.action is Action.DELETE:
            assert change.item in managed - set(declared)
            del world[change.item]
            if change.item.kind is Kind.TENANT:
                world = {item: fields for item, fields in world.items() if item.tenant != change.item.name}
        else:
            assert (change.item in world) == (change.action is Action.CHANGE)
            world.setdefault(change.item, {}).update(change.after)
    assert all(world[item] == fields for item, fields in declared.items() if item in world)
    assert plan(declared, {item: world.get(item) for item in declared}, managed & set(world)) == [] or not (
        set(declared) <= set(world)
    )


def _by(operator: User) -> Any:
    from audit.recorder import Actor

    return Actor(name=operator.email, user_id=operator.pk, operator=True)
