"""What requests are to admission policies and webhooks: their objects, namespaces, parameters and rights (TS15)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import orjson

from access.admission.base import Attributes
from access.authorization.chain import AuthorizationChain
from kube.admissionpolicies.matching import CONFIGURING, GROUP, Asked, Body, Form, Matcher, NoNamespace
from kube.admissionpolicies.policies import ParamKind
from kube.authentication.identity import Principal, account_groups
from kube.cel.authorizer import Answer, Hearing, Question
from kube.kinds.resources import Catalog, Resource, parse_api_version
from kube.objects import conversion
from kube.requests.labelselectors import from_object
from kube.requests.logicalclusters import ROOT
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import NotFound
from store.interface import Store
from store.types import Key, Range

_NAMESPACES: Final = ("", "namespaces")

T = TypeVar("T")


class UnusableParameters(Exception):
    """A binding's parameters cannot be found; the message is kube-apiserver's."""


def concerns(attributes: Attributes) -> bool:
    """Whether a request can be anybody's: those of the system space are, but for what configures the asking itself."""
    if attributes.info.cluster != ROOT:
        return False
    return attributes.resource.group != GROUP or attributes.resource.plural not in CONFIGURING


def form_of(matcher: Matcher, asked: Asked) -> Form | None:
    """The form in which a request is about what a matcher is for. Raises ``NotFound`` for a namespace that is not there."""
    try:
        return matcher.form_of(asked)
    except NoNamespace:
        raise NotFound(f'namespaces "{asked.namespace}" not found', kind="namespaces", name=asked.namespace) from None


class AdmissionQuestions:
    """Gathers what policies and webhooks want to know of a request. All of it is read from memory.

    ``catalog`` gives what the system space serves.
    """

    def __init__(self, store: Store, chain: AuthorizationChain, catalog: Callable[[], Awaitable[Catalog]]) -> None:
        self._store = store
        self._chain = chain
        self._catalog = catalog

    async def asked(self, attributes: Attributes) -> Asked:
        """The request as it stands now."""
        info, resource, sent = attributes.info, attributes.resource, attributes.sent
        form = Form(info.group, info.version, resource.plural, resource.kind)
        body, old, operation = attributes.object, attributes.old, attributes.operation
        others: Sequence[Form] = ()
        if sent is None:
            others = _others(await self._catalog(), resource, form)
        else:
            form = Form(info.group, info.version, resource.plural, sent.kind)
            body, old, operation = sent.object, sent.old, sent.operation
        is_namespace = (resource.group, resource.plural) == _NAMESPACES
        namespace = attributes.name if is_namespace else attributes.namespace
        return Asked(
            operation=operation,
            form=form,
            kind_group=None if sent is None else (sent.group, sent.version),
            subresource=info.subresource,
            namespace=namespace,
            name=attributes.name,
            object=body,
            old=old,
            user_info=attributes.principal.seen_from(attributes.cluster).user_info(),
            dry_run=attributes.dry_run,
            options=attributes.options,
            labels=await self._labels(attributes, namespace, is_namespace=is_namespace),
            others=others,
            in_form=_converted,
        )

    async def namespace(self, asked: Asked) -> Body | None:
        """The Namespace that the request is in; a Namespace itself is in none."""
        if not asked.namespace or asked.is_namespace:
            return None
        stored = await self._store.get(Key(ROOT, *_NAMESPACES, "", asked.namespace), cached=True)
        return None if stored is None else orjson.loads(stored.data)

    async def _labels(self, attributes: Attributes, namespace: str, *, is_namespace: bool) -> Mapping[str, str] | None:
        if not namespace:
            return {}
        body = attributes.object if is_namespace else None
        if body is None:
            stored = await self._store.get(Key(ROOT, *_NAMESPACES, "", namespace), cached=True)
            if stored is None:
                return None
            body = orjson.loads(stored.data)
        return (body.get("metadata") or {}).get("labels") or {}

    async def params(
        self, kind: ParamKind | None, ref: Mapping[str, Any] | None, namespace: str
    ) -> Sequence[Body | None]:
        """The parameter objects that a binding names: ``None`` where a policy has none. Raises ``UnusableParameters``."""
        if kind is None:
            return (None,)
        resource, version = await self.param_resource(kind)
        if ref is None:
            return (None,)
        wanted = ref.get("namespace") or ""
        if not resource.namespaced:
            if wanted:
                raise UnusableParameters("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        elif not (wanted := wanted or namespace):
            raise UnusableParameters(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
        form = Form(resource.group, version, resource.plural, resource.kind)
        group, plural = resource.place
        found: list[Body | None] = []
        if ref.get("name"):
            stored = await self._store.get(Key(ROOT, group, plural, wanted, ref["name"]), cached=True)
            if stored is not None:
                found.append(_converted(orjson.loads(stored.data), form))
        else:
            selector = from_object(ref.get("selector") or {})
            listing = await self._store.list(Range(ROOT, group, plural, wanted or None), cached=True)
            for item in listing.items:
                body = orjson.loads(item.data)
                if selector.matches((body.get("metadata") or {}).get("labels") or {}):
                    found.append(_converted(body, form))
        if not found and ref.get("parameterNotFoundAction") == "Deny":
            raise UnusableParameters("no params found for policy binding with `Deny` parameterNotFoundAction")
        return found

    async def param_resource(self, kind: ParamKind) -> tuple[Resource, str]:
        """The resource of a kind of parameters, and its version. Raises ``UnusableParameters``."""
        group, version = parse_api_version(kind.api_version)
        resource = (await self._catalog()).by_kind(group, version, kind.kind)
        if resource is None:
            raise UnusableParameters(f"failed to find resource referenced by paramKind: '{kind}'")
        return resource, version

    async def heard(self, evaluate: Callable[[Hearing], T], attributes: Attributes) -> T:
        """What ``evaluate`` says once all that it has to know of the authorizer is answered. Raises what it raises then."""
        hearing = Hearing()
        while True:
            try:
                result = evaluate(hearing)
            except Exception:
                if not hearing.open:
                    raise
            if not hearing.open:
                return result
            for question in hearing.open:
                hearing.answers[question] = await self.answer(question, attributes)
            hearing.open.clear()

    async def answer(self, question: Question, attributes: Attributes) -> Answer:
        """What the authorizer says of the caller, or of a service account of the system space."""
        principal = attributes.principal
        if question.account:
            name = f"system:serviceaccount:{':'.join(question.account)}"
            principal = Principal(
                name=name,
                groups=account_groups(name),
                tenant=SYSTEM_TENANT,
                authenticator="admission",
                cluster=ROOT,
            )
        if question.path:
            info = replace(
                attributes.info,
                verb=question.verb,
                path=question.path,
                is_resource=False,
                group="",
                version="",
                resource="",
                subresource="",
                namespace="",
                name="",
                field_selector="",
                label_selector="",
            )
        else:
            info = replace(
                attributes.info,
                verb=question.verb,
                group=question.group,
                version="*",
                resource=question.resource,
                subresource=question.subresource,
                namespace=question.namespace,
                name=question.name,
                field_selector="",
                label_selector="",
            )
        decision = await self._chain.authorize(principal, info)
        return Answer(decision.allowed, decision.reason)


def _others(catalog: Catalog, resource: Resource, form: Form) -> list[Form]:
    """The same objects by the other versions, and groups, that they are served in."""
    return [
        other
        for each in catalog
        if each.persistent and each.storage_key == resource.storage_key and each.plural == resource.plural
        for version in each.versions
        if version.served and (other := Form(each.group, version.name, each.plural, each.kind)) != form
    ]


def _converted(body: Body, form: Form) -> Body:
    if not body.get("apiVersion") or body["apiVersion"] == form.api_version or body.get("kind") != form.kind:
        return body
    return conversion.converted(body, form.api_version)
