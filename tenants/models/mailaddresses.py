"""E-mail addresses that people are known by: which are one, and which are taken for another (GW14)."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import models

MAX_ADDRESS: Final = 254

_MADE_ASCII: Final = re.compile("([\u0130\u212a])")
"""The letters of which ``lower`` makes some of ASCII."""


def address_key(email: str) -> str:
    """The same for every spelling of one address, and no other's: accounts are looked up, and attempts counted, by it."""
    parts = _MADE_ASCII.split(email.strip())
    return "".join(part if _MADE_ASCII.fullmatch(part) else part.lower() for part in parts)


def check_address(email: str) -> None:
    """Raise ``ValidationError`` for what is no address, is too long, or could be taken for another one.

    A domain beyond ASCII is written as mail servers read it, and no letter is one of ASCII in another case or form: to
    what compares with less care they would be one address. In ASCII (``xn--…``) every domain has a spelling.
    """
    validate_email(email)
    if len(email) > MAX_ADDRESS:
        raise ValidationError(f"At most {MAX_ADDRESS} characters.")
    domain = email.rpartition("@")[2].lower()
    if not email.isascii() and (any(map(_ascii_elsewhere, email)) or _as_mailed(domain) != domain):
        raise ValidationError(
            "This address could be taken for another one. Write it in ASCII, a domain of other letters as xn--…"
        )


def address_taken_for(email: str) -> str:
    """Which other address one that is no more taken from anybody (``check_address``) is taken for; empty for none."""
    try:
        check_address(email)
    except ValidationError:
        local, _, domain = email.rpartition("@")
        letters = f"{local}@{_as_mailed(domain.lower()) or domain}"
        other = "".join(_ascii_elsewhere(each) or each for each in letters).lower()
        return other if other != address_key(email) else ""
    return ""


def _ascii_elsewhere(letter: str) -> str:
    """What of ASCII a letter beyond it is in another case or form; empty where it is none."""
    forms = (unicodedata.normalize("NFKC", letter), letter.casefold(), letter.upper(), letter.lower())
    of_ascii = ("".join(each for each in form if each.isascii()) for form in forms if not letter.isascii())
    return next(filter(None, of_ascii), "")


def _as_mailed(domain: str) -> str:
    try:
        return domain.encode("idna").decode("idna").lower()
    except UnicodeError:
        return ""


class SameAddress(models.Lookup):
    """``email__same``: the one address, whatever the case of its letters, and no other whatever the database's locale."""

    lookup_name = "same"

    def get_prep_lookup(self) -> str:
        """What is looked for, once for the index and the comparison."""
        return address_key(self.rhs)

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[str | int, ...]]:
        """By the index of uniqueness, whose ``LOWER`` may make ASCII of other letters; "C" leaves those alone."""
        left, lefts = self.process_lhs(compiler, connection)
        right, rights = self.process_rhs(compiler, connection)
        sql = f'(LOWER({left}) = LOWER({right}) AND LOWER({left} COLLATE "C") = {right})'
        return sql, (*lefts, *rights, *lefts, *rights)
