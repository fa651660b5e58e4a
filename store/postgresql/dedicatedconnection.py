"""The connections of the engine.

psycopg's cursors and pools cost a process several times what PostgreSQL itself needs to say where the counter stands,
so the statements of the engine go to libpq without them. Whoever gives up waiting, or is cancelled, costs the
connection, at once: a database that hangs holds nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from psycopg import AsyncConnection, Error, OperationalError, errors, pq, sql
from psycopg.pq.abc import PGconn, PGresult

from store.postgresql.arrays import Parameter, dumped, oid_of
from store.postgresql.connections import AWAY, PATIENCE_SECONDS, SESSION, connection_settings
from store.postgresql.timelines import TIMELINE, admit
from store.types import Unavailable

TEXT, BINARY = pq.Format.TEXT, pq.Format.BINARY
_DONE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class DedicatedConnection:
    """One connection, opened when it is needed, that takes one question at a time.

    It begins with ``SESSION`` and the statements of ``session``. With a ``channel`` it listens there: ``heard`` gets the
    payloads, and ``lost`` is called when the line goes dead.
    """

    def __init__(
        self,
        conninfo: str,
        application: str,
        *,
        session: str = "",
        channel: str = "",
        heard: Callable[[bytes], None] = lambda _: None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._conninfo = conninfo
        self._channel = channel
        self._heard = heard
        self._lost = lost
        self._settings = connection_settings(application)
        self._session = SESSION + session
        self._connection: AsyncConnection[tuple[object, ...]] | None = None
        self._socket = -1
        self._prepared: dict[str, bytes] = {}
        self._waiter: asyncio.Future[PGresult] | None = None
        self._last: PGresult | None = None

    @property
    def connected(self) -> bool:
        """Whether the line is open, as far as anybody knows."""
        return self._connection is not None

    async def ready(self) -> None:
        """Be connected; what fails from here on may have reached the database."""
        if self._connection is None:
            await self._connect()

    async def ask(self, statement: str, parameters: Sequence[Parameter] = (), *, form: pq.Format = TEXT) -> PGresult:
        """The result, as text or in the binary form, of a statement of ``store.postgresql.statements``; raises ``psycopg.Error``.

        After an error of the connection, and when the caller is cancelled, the connection is closed; what was
        under way may still happen.
        """
        try:
            connection = self._connection or await self._connect()
            name = self._prepared.get(statement)
            if name is None:
                name = await self._prepare(connection.pgconn, statement, parameters)
            connection.pgconn.send_query_prepared(name, dumped(parameters), [BINARY] * len(parameters), form)
            return await self._result(connection.pgconn)
        except BaseException as error:
            if not isinstance(error, Error) or isinstance(error, OperationalError):
                self.close()
            raise

    async def ask_within(
        self, seconds: float, statement: str, parameters: Sequence[Parameter] = (), *, form: pq.Format = TEXT
    ) -> PGresult:
        """``ask`` on a connection that is open, which is given up with a ``TimeoutError`` when there is no answer in time.

        It takes a timer alone; ``asyncio.timeout`` costs as much as the question.
        """
        timer = asyncio.get_running_loop().call_later(seconds, self.give_up)
        try:
            return await self.ask(statement, parameters, form=form)
        finally:
            timer.cancel()

    def close(self) -> None:
        """Hang up; the next question opens the connection anew."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._prepared.clear()
        self._last = None
        loop = asyncio.get_running_loop()
        # libpq no longer tells the number once the line is dead.
        loop.remove_reader(self._socket)
        loop.remove_writer(self._socket)
        connection.pgconn.finish()

    def give_up(self) -> None:
        """Hang up, and let whoever waits for an answer have a ``TimeoutError``."""
        waiter = self._waiter
        self.close()
        if waiter is not None and not waiter.done():
            waiter.set_exception(TimeoutError())

    async def _connect(self) -> AsyncConnection[tuple[object, ...]]:
        connection = await AsyncConnection.connect(self._conninfo, **self._settings)
        try:
            await connection.execute(self._session, prepare=False)
            row = await (await connection.execute(TIMELINE)).fetchone()
            admit(self._conninfo, str(row[0]) if row else "")
            if self._channel:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        except BaseException:
            await connection.close()
            raise
        self._connection, self._socket = connection, connection.pgconn.socket
        asyncio.get_running_loop().add_reader(self._socket, self._readable)
        return connection

    async def _prepare(self, pgconn: PGconn, statement: str, parameters: Sequence[Parameter]) -> bytes:
        name = b"statement-%d" % len(self._prepared)
        parts = statement.split("%s")
        text = parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], 1))
        pgconn.send_prepare(name, text.encode(), [oid_of(value) for value in parameters])
        await self._result(pgconn)
        self._prepared[statement] = name
        return name

    async def _result(self, pgconn: PGconn) -> PGresult:
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        if pgconn.flush():
            loop.add_writer(self._socket, self._writable)
        try:
            result: PGresult = await waiter
        finally:
            self._waiter = None
        if result.status not in _DONE:
            raise errors.error_from_result(result)
        return result

    def _writable(self) -> None:
        if self._connection is None:
            return
        pgconn = self._connection.pgconn
        try:
            if not pgconn.flush():
                asyncio.get_running_loop().remove_writer(self._socket)
        except OperationalError as error:
            self._fail(error)

    def _readable(self) -> None:
        if self._connection is None:
            return
        pgconn, waiter = self._connection.pgconn, self._waiter
        try:
            pgconn.consume_input()
            while self._channel and (notification := pgconn.notifies()) is not None:
                self._heard(notification.extra)
            while waiter is not None and not waiter.done() and not pgconn.is_busy():
                result = pgconn.get_result()
                if result is not None:
                    self._last = result
                elif self._last is not None:
                    waiter.set_result(self._last)
                    self._last = None
                else:
                    raise OperationalError("the connection ended")
        except OperationalError as error:
            self._fail(error)

    def _fail(self, error: OperationalError) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.close()
        self._lost()


class ConnectionPool:
    """Several connections for questions that may be repeated."""

    def __init__(self, conninfo: str, application: str, size: int) -> None:
        self._pool = [DedicatedConnection(conninfo, application) for _ in range(size)]
        self._free = list(self._pool)
        self._room = asyncio.Semaphore(size)

    async def ask(
        self, statement: str, parameters: Sequence[Parameter] = (), *, patience: float = PATIENCE_SECONDS
    ) -> PGresult:
        """The result in the binary form, asked for again on new connections if need be.

        Raises ``Unavailable`` after ``patience`` seconds, whether the database is away or does not answer.
        """
        failure: BaseException | None = None
        try:
            async with asyncio.timeout(patience), self._room:
                connection = self._free.pop()
                try:
                    delay = 0.01
                    while True:
                        try:
                            return await connection.ask(statement, parameters, form=BINARY)
                        except AWAY as error:
                            failure = error
                        await asyncio.sleep(delay)
                        delay = min(delay * 2, 0.25)
                finally:
                    self._free.append(connection)
        except TimeoutError as error:
            raise Unavailable("the database cannot be reached") from failure or error

    def close(self) -> None:
        """Close every connection, without waiting for what is asked on it."""
        for connection in self._pool:
            connection.close()
