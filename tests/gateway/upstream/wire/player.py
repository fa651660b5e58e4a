"""Plays a conversation again, with the door between: the client's side by bytes, and the cluster's."""

from __future__ import annotations

import json

from tests.gateway.upstream.door import Client
from tests.gateway.upstream.rawcluster import Behave, Visit
from tests.gateway.upstream.wire.conversation import CLIENT, CLUSTER, Conversation, headers_of

AGREED = (b"upgrade", b"connection", b"sec-websocket-accept", b"sec-websocket-protocol", b"x-stream-protocol-version")
_ASKED = (
    b"upgrade",
    b"sec-websocket-key",
    b"sec-websocket-version",
    b"sec-websocket-protocol",
    b"x-stream-protocol-version",
)


def cluster_of(conversation: Conversation) -> Behave:
    """The cluster: it says what it said once it has heard all that it had heard before."""

    async def behave(visit: Visit) -> None:
        line, headers, _ = await visit.request()
        asked = headers_of(conversation.request)
        assert line == conversation.request.split(b"\r\n")[0]
        assert {name: headers.get(name) for name in _ASKED} == {name: asked.get(name) for name in _ASKED}
        assert headers[b"authorization"] == b"Bearer workspace"
        await visit.say(conversation.answer + b"\r\n\r\n")
        for turn in conversation.after_heads():
            if turn.said is None:
                if turn.side == CLIENT:
                    assert await visit.reader.read() == b""
                return
            if turn.side == CLUSTER:
                await visit.say(turn.said)
            else:
                assert await visit.reader.readexactly(len(turn.said)) == turn.said

    return behave


async def speak(conversation: Conversation, client: Client) -> None:
    """The client, to its end: it is told what it was told."""
    client.writer.write(conversation.request + b"\r\n\r\n")
    line, headers = await client.head()
    assert line == conversation.answer.split(b"\r\n")[0]
    if not conversation.switched:
        said = b"".join(turn.said or b"" for turn in conversation.after_heads() if turn.side == CLUSTER)
        assert json.loads(await client.reader.readexactly(len(said))) == json.loads(said)
        return
    told = headers_of(conversation.answer)
    assert {name: headers.get(name, b"").lower() for name in AGREED} == {
        name: told.get(name, b"").lower() for name in AGREED
    }
    for turn in conversation.after_heads():
        if turn.said is None:
            if turn.side == CLUSTER:
                assert await client.reader.read() == b""
            client.close()
            return
        if turn.side == CLUSTER:
            assert await client.reader.readexactly(len(turn.said)) == turn.said
        else:
            client.writer.write(turn.said)
