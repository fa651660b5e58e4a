"""Django's PostgreSQL, on connections that know whose rows they may see (``portal.database.scopes``)."""

from __future__ import annotations

from typing import Any

from django.db.backends.postgresql import base
from psycopg.pq import TransactionStatus

from portal.database import scopes
from portal.database.scopes import Scope
from store.postgresql.timelines import TIMELINE, admit

SCOPED_ROLE = "tenantry_scoped"
"""The role that statements of tenants' requests run as: row-level security leaves it what its person may see."""

_SCOPE = "SELECT set_config('role', %s, false), set_config('tenantry.user', %s, false), set_config('tenantry.tenant', %s, false)"
_UNKNOWN = Scope(tenant="?")
"""What a rolled back transaction leaves: its changes of role went with it."""


class DatabaseWrapper(base.DatabaseWrapper):
    """Brings the scope to the server before the first statement that it concerns; a connection begins without one."""

    _told: Scope | None = None
    _between = False

    def connect(self) -> None:
        """A new connection sees everything."""
        self._told = None
        super().connect()

    def get_new_connection(self, conn_params: Any) -> Any:
        """To no primary that another one has superseded."""
        connection = super().get_new_connection(conn_params)
        try:
            (timeline,) = connection.execute(TIMELINE).fetchone()
            connection.rollback()
            admit(" ".join(str(conn_params.get(name)) for name in ("host", "port", "dbname")), timeline)
        except BaseException:
            connection.close()
            raise
        return connection

    def ensure_connection(self) -> None:
        """Every cursor comes through here, the store's own too."""
        super().ensure_connection()
        scope = scopes.current()
        if scope != self._told and not self._between:
            self._tell(scope)

    def set_autocommit(self, *args: Any, **kwargs: Any) -> None:
        """Asks for the connection too, but a statement would now begin a transaction."""
        self._between = True
        try:
            super().set_autocommit(*args, **kwargs)
        finally:
            self._between = False

    def _tell(self, scope: Scope | None) -> None:
        connection: Any = self.connection
        if connection.info.transaction_status == TransactionStatus.INERROR:
            return  # nothing but a rollback is possible, after which this is asked again
        user, tenant = (str(scope.user or ""), scope.tenant) if scope is not None else ("", "")
        self._told = _UNKNOWN
        with self.wrap_database_errors, connection.cursor() as cursor:
            cursor.execute(_SCOPE, ["none" if scope is None else SCOPED_ROLE, user, tenant])
        self._told = scope

    def _commit(self) -> None:
        told, self._told = self._told, _UNKNOWN
        super()._commit()  # type: ignore[misc] # the stubs know none of the three
        self._told = told

    def _rollback(self) -> None:
        self._told = _UNKNOWN
        super()._rollback()  # type: ignore[misc]

    def _savepoint_rollback(self, sid: str) -> None:
        super()._savepoint_rollback(sid)  # type: ignore[misc]
        self._told = _UNKNOWN
