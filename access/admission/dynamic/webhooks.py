"""Webhooks that the operators have configured in the system space are asked about requests there (TS15)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import orjson

from access.admission.base import Attributes, NoopPlugin
from access.admission.dynamic.compiledobjects import CompiledObjects
from access.admission.dynamic.outsidechanges import Completed, change, internal
from access.admission.dynamic.questions import AdmissionQuestions, concerns, form_of
from access.httpclient import HttpClient
from access.outsidebudget import Unreachable
from kube.admissionpolicies.expressions import Evaluation, EvaluationError, met
from kube.admissionpolicies.matching import Asked, Form
from kube.admissionpolicies.webhooks import Answer, InvalidAnswer, Webhook, answer_of, review
from kube.authorization.decisions import Decision, Verdict
from kube.objects.patches import json_patch
from kube.requests.status import BadRequest, Cause, InternalError, StatusError
from store.types import Operation

Configured = CompiledObjects[tuple[Webhook, ...]]


class _Failed(Exception):
    """A webhook gave no usable answer; the message is kube-apiserver's."""


class WebhookCaller:
    """Asks webhooks, over connections that are shared and bounded."""

    def __init__(self, questions: AdmissionQuestions) -> None:
        self._questions = questions
        self._client: HttpClient | None = None

    async def close(self) -> None:
        """Give the connections back."""
        if self._client is not None:
            await self._client.close()

    async def form_of(self, webhook: Webhook, asked: Asked, attributes: Attributes) -> Form | None:
        """The form in which a webhook is to be asked, or ``None``. Raises ``NotFound`` and ``Forbidden``."""
        form = form_of(webhook.matcher, asked)
        if form is None or not webhook.conditions:
            return form
        try:
            holds = await self._questions.heard(
                lambda hearing: met(webhook.conditions, Evaluation(asked, form, hearing), fails=webhook.fails),
                attributes,
            )
        except EvaluationError as error:
            raise attributes.forbidden(str(error)) from None
        return form if holds else None

    async def ask(
        self, webhook: Webhook, asked: Asked, form: Form, attributes: Attributes, *, mutating: bool
    ) -> Answer | None:
        """The answer of a webhook, ``None`` where it gives none and need not. Raises ``StatusError``."""
        if asked.dry_run and not webhook.dry_runs:
            raise BadRequest(f'admission webhook "{webhook.name}" does not support dry run')
        try:
            answer = await self._answer(webhook, asked, form, mutating=mutating)
        except _Failed as failure:
            if not webhook.fails:
                return None
            words = f'failed calling webhook "{webhook.name}": {failure}'
            raise InternalError(
                f"Internal error occurred: {words}", causes=(Cause("", words),), rule=webhook.configuration
            ) from None
        attributes.warnings.extend(answer.warnings)
        for key, value in answer.annotations:
            attributes.notes.append(_note(mutating=mutating, text=value, annotation=f"{webhook.name}/{key}"))
        if answer.refusal is not None:
            raise answer.refusal
        return answer

    async def _answer(self, webhook: Webhook, asked: Asked, form: Form, *, mutating: bool) -> Answer:
        call = f'failed to call webhook: Post "{webhook.asked_at}"'
        if webhook.service:
            raise _Failed(f'{call}: service "{webhook.service}" not found')
        uid = str(uuid.uuid4())
        try:
            async with asyncio.timeout(webhook.timeout):
                tls = _trusting(webhook.authority) if webhook.authority else None
                sent = review(webhook, asked, form, uid)
                # Who never asks need not read which authorities the system trusts.
                if self._client is None:
                    self._client = HttpClient(timeout=30)
                answer = await self._client.request("POST", webhook.asked_at, json=sent, tls=tls)
        except TimeoutError:
            raise _Failed(f"{call}: context deadline exceeded") from None
        except Unreachable as error:
            raise _Failed(f"{call}: {error}") from None
        except ValueError:
            raise _Failed("could not get REST client: unable to load root certificates") from None
        if answer.status not in (200, 201):
            raise _Failed(f"failed to call webhook: the webhook answered with {answer.status}")
        try:
            return answer_of(webhook, answer.json(), uid, mutating=mutating)
        except (InvalidAnswer, Unreachable) as error:
            raise _Failed(f"received invalid webhook response: {error}") from None


class ValidatingAdmissionWebhook(NoopPlugin):
    """Kubernetes' plug-in of this name: all are asked at once, and the first in order that refuses is the answer."""

    name = "ValidatingAdmissionWebhook"
    system_only = True

    def __init__(self, configured: Configured, questions: AdmissionQuestions, caller: WebhookCaller) -> None:
        self._configured = configured
        self._questions = questions
        self._caller = caller

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``StatusError`` as a webhook says, or because one that has to answer does not."""
        webhooks = await _webhooks(self._configured, attributes)
        if not webhooks:
            return ()
        asked = await self._questions.asked(attributes)
        chosen = [
            (webhook, form)
            for webhook in webhooks
            if (form := await self._caller.form_of(webhook, asked, attributes)) is not None
        ]
        answers = await asyncio.gather(
            *(self._caller.ask(webhook, asked, form, attributes, mutating=False) for webhook, form in chosen),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return ()


class MutatingAdmissionWebhook(NoopPlugin):
    """Kubernetes' plug-in of this name: one is asked after the other, each about what those before it have made.

    After a change all plug-ins that change objects have their turn once more, and of the webhooks those that want it.
    """

    name = "MutatingAdmissionWebhook"
    system_only = True

    def __init__(
        self, configured: Configured, questions: AdmissionQuestions, caller: WebhookCaller, completed: Completed
    ) -> None:
        self._configured = configured
        self._questions = questions
        self._caller = caller
        self._completed = completed

    async def admit(self, attributes: Attributes) -> None:
        """Change the object as webhooks say. Raises ``StatusError``."""
        webhooks = await _webhooks(self._configured, attributes)
        if not webhooks:
            return
        turns = attributes.turns_of(self.name)
        turns.begin((attributes.sent or attributes).object)
        for index, webhook in enumerate(webhooks):
            mark = (webhook.configuration, webhook.name, index)
            if attributes.round and mark not in turns.again:
                continue
            asked = await self._questions.asked(attributes)
            form = await self._caller.form_of(webhook, asked, attributes)
            if form is None:
                continue
            answer = await self._caller.ask(webhook, asked, form, attributes, mutating=True)
            changed = (
                answer is not None and answer.patch and self._change(webhook, answer.patch, asked, form, attributes)
            )
            if answer is not None:
                told = {"configuration": webhook.configuration, "webhook": webhook.name, "mutated": bool(changed)}
                place = f"mutation.webhook.admission.k8s.io/round_{attributes.round}_index_{index}"
                attributes.notes.append(_note(mutating=True, text=orjson.dumps(told).decode(), annotation=place))
            if changed:
                attributes.changed = True
                turns.again |= turns.invoked
            if webhook.reinvoked:
                turns.invoked.add(mark)
        turns.end((attributes.sent or attributes).object)

    def _change(self, webhook: Webhook, patch: Any, asked: Asked, form: Form, attributes: Attributes) -> bool:
        """Whether the patch made another object of what there was."""
        by = f'admission webhook "{webhook.name}"'
        if asked.object is None:
            raise internal(f"{by} attempted to modify the object, which is not supported for this operation")
        try:
            patched = json_patch(asked.in_form(asked.object, form), patch)
        except StatusError as error:
            raise internal(error.message) from None
        return change(attributes, asked, patched, self._completed, by=by)


async def _webhooks(configured: Configured, attributes: Attributes) -> Sequence[Webhook]:
    if not concerns(attributes):
        return ()
    known = configured.known
    if known is None:
        known = await configured.all()
    return [webhook for each in known.values() for webhook in each] if known else ()


def _note(*, mutating: bool, text: str, annotation: str) -> Decision:
    """What kube-apiserver's audit has as annotation of the event."""
    name: Final = "Mutating" if mutating else "Validating"
    return Decision(Verdict.NO_OPINION, f"admission/{name}AdmissionWebhook", text, annotation)


@lru_cache(maxsize=64)
def _trusting(bundle: str) -> ssl.SSLContext:
    """TLS that trusts these certificates alone. Raises ``ValueError``."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=base64.b64decode(bundle).decode("ascii"))
    except (ssl.SSLError, binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("no certificates") from error
    return context
