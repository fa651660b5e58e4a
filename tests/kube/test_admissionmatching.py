"""Which requests a policy is about, against plain rules, and the objects that its expressions make (TS15)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from kube.admissionpolicies.matching import Asked, Form, Matcher, NoNamespace
from kube.cel.admission import OBJECT, Scope, compile_expression
from kube.cel.constructions import Constructions, as_json, check_types

RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
GROUPS = ("", "apps", "extensions")
FORMS = [
    Form(group, version, plural, plural.title())
    for group in GROUPS
    for version in ("v1", "v2")
    for plural in ("a", "b")
]
NAMESPACE = Form("", "v1", "namespaces", "Namespace")

some = st.sampled_from


def chosen(*values: str) -> st.SearchStrategy[list[str]]:
    return st.lists(some(values), min_size=1, max_size=2, unique=True)


def lists(*values: str) -> st.SearchStrategy[list[str]]:
    return st.one_of(st.just(["*"]), chosen(*values))


labels = st.dictionaries(some(("x", "y")), some(("1", "2")))
requirements = st.one_of(
    st.builds(
        lambda k, v, o: {"key": k, "operator": o, "values": v}, some("xy"), chosen("1", "2"), some(("In", "NotIn"))
    ),
    st.builds(lambda k, o: {"key": k, "operator": o}, some("xy"), some(("Exists", "DoesNotExist"))),
)
selectors = st.one_of(
    st.just({}),
    st.fixed_dictionaries({}, optional={"matchLabels": labels, "matchExpressions": st.lists(requirements, max_size=2)}),
)
rules = st.fixed_dictionaries(
    {
        "apiGroups": lists(*GROUPS),
        "apiVersions": lists("v1", "v2"),
        "operations": lists("CREATE", "UPDATE", "DELETE"),
        "resources": st.lists(
            some(("a", "b", "*", "a/*", "a/scale", "*/scale", "*/*", "namespaces")), min_size=1, max_size=2
        ),
    },
    optional={
        "scope": some(("*", "Cluster", "Namespaced")),
        "resourceNames": st.lists(some(("one", "two")), max_size=1),
    },
)
constraints = st.fixed_dictionaries(
    {},
    optional={
        "resourceRules": st.lists(rules, max_size=2),
        "excludeResourceRules": st.lists(rules, max_size=1),
        "matchPolicy": some(("Exact", "Equivalent")),
        "namespaceSelector": selectors,
        "objectSelector": selectors,
    },
)


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    form = draw(some([*FORMS, NAMESPACE]))
    name = draw(some(("one", "two")))
    namespace = name if form == NAMESPACE else draw(some(("", "default")))
    operation = draw(some(("CREATE", "UPDATE", "DELETE")))
    bodies = [{"metadata": {"labels": draw(labels)}} for _ in range(2)]
    return Asked(
        operation=operation,
        form=form,
        subresource=draw(some(("", "scale"))),
        namespace=namespace,
        name=name,
        object=None if operation == "DELETE" else bodies[0],
        old=None if operation == "CREATE" else bodies[1],
        user_info={},
        dry_run=False,
        options=dict,
        labels=draw(st.one_of(st.none(), labels)) if namespace else {},
        others=draw(st.lists(some(FORMS), max_size=2)),
    )


def selects(selector: Mapping[str, Any], found: Mapping[str, str]) -> bool:
    wanted = all(found.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    for each in selector.get("matchExpressions", ()):
        value, values = found.get(each["key"]), each.get("values")
        wanted &= {
            "In": lambda value=value, values=values: value in values,
            "NotIn": lambda value=value, values=values: value not in values,
            "Exists": lambda value=value: value is not None,
            "DoesNotExist": lambda value=value: value is None,
        }[each["operator"]]()
    return wanted


def is_in(rule: Mapping[str, Any], asked: Asked, form: Form) -> bool:
    def named(field: str, value: str) -> bool:
        return value in rule[field] or "*" in rule[field]

    whole = form.plural + ("/" + asked.subresource if asked.subresource else "")
    resources = {whole, "*/*", form.plural + "/*", "*/" + asked.subresource if asked.subresource else "*"}
    inside = bool(asked.namespace) and asked.form != NAMESPACE
    scope = rule.get("scope", "*")
    return (
        named("apiGroups", form.group)
        and named("apiVersions", form.version)
        and named("operations", asked.operation)
        and bool(resources & set(rule["resources"]))
        and scope in ("*", "Namespaced" if inside else "Cluster")
        and (not rule.get("resourceNames") or asked.name in rule["resourceNames"])
    )


def expected(source: Mapping[str, Any], asked: Asked) -> Form | type[NoNamespace] | None:
    """The form in which the request is meant, none, or that its namespace is not there."""

    def form(given: list[dict[str, Any]]) -> Form | None:
        if any(is_in(rule, asked, asked.form) for rule in given):
            return asked.form
        if source.get("matchPolicy") == "Exact":
            return None
        return next((other for rule in given for other in asked.others if is_in(rule, asked, other)), None)

    about = form(source["resourceRules"]) if source.get("resourceRules") else asked.form
    objects = [body["metadata"]["labels"] for body in (asked.object, asked.old) if body is not None]
    selector = source.get("objectSelector") or {}
    if about is None or form(source.get("excludeResourceRules", [])) is not None:
        return None
    if any(selector.values()) and not any(selects(selector, found) for found in objects):
        return None
    selector = source.get("namespaceSelector") or {}
    if not any(selector.values()) or not asked.namespace:
        return about
    if asked.labels is None:
        return NoNamespace
    return about if selects(selector, asked.labels) else None


@given(constraints, requests())
def test_a_policy_is_about_what_its_constraints_say(source: dict[str, Any], asked: Asked) -> None:
    try:
        found: Form | type[NoNamespace] | None = Matcher.read(source).form_of(asked)
    except NoNamespace:
        found = NoNamespace
    assert found == expected(source, asked)


names = st.from_regex(r"[a-z][a-zA-Z0-9_]{0,5}", fullmatch=True).filter(lambda name: name not in RESERVED)
spaces = some(("", " ", "\n", " // { a: Object{\n"))
leaves = st.one_of(st.integers(-5, 5), st.booleans(), st.text(alphabet="Object{}:',\"/ \n\\ä", max_size=8), st.just([]))
members = st.dictionaries(
    names, st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3)), max_size=3
)


def construction(value: Any, place: str, space: str) -> str:
    """The expression that makes a value."""
    if not isinstance(value, dict):
        return orjson.dumps(value).decode()
    fields = f",{space}".join(
        f"{name}{space}:{space}{construction(member, f'{place}.{name}', space)}" for name, member in value.items()
    )
    return f"{place}{{{space}{fields}{space}}}"


@given(members, spaces)
def test_an_expression_makes_the_object_that_it_shows(value: dict[str, Any], space: str) -> None:
    source = construction(value, OBJECT, space)
    compiled = compile_expression(source, Scope(constructs=True), (OBJECT,))
    made = compiled.program.eval(data={"object": None}).plain_value()
    check_types(made)
    assert as_json(made) == value


@given(st.text(alphabet="Object.JSONPatch{}[](),:?'\"/ \nabx1", max_size=60))
def test_each_place_of_what_is_compiled_leads_back_to_what_was_written(text: str) -> None:
    written = Constructions(text)
    places = [written.before(offset) for offset in range(len(written.text) + 1)]
    assert all(0 <= place <= len(text) for place in places)
    if not {"{"} & set(text):
        assert (written.text, places) == (text, list(range(len(text) + 1)))
