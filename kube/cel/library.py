"""Kubernetes' own CEL functions: lists, sets, quantities, addresses, networks, URLs and semantic versions.

See https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries. Values of own
types are maps of one key (``{"quantity": "1500000000"}``, in billionths): equal values are equal maps.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from cel_expr_python import cel

from kube.cel import regexes, texts
from kube.cel.constructions import escape_key
from kube.cel.formats import FORMATS, named, validated
from kube.cel.uris import is_request_uri
from kube.cel.zones import ZONED
from kube.quota.quantities import UNITS_MAX, InvalidQuantity, Quantity, parse_quantity

_T: Final = cel.Type
_LIST: Final = _T.List(_T.DYN)
_OWN: Final = _T.Map(_T.STRING, _T.STRING)
_NUMBER: Final = "0|[1-9][0-9]{0,19}"
_SEMVER: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?", re.ASCII
)
_VERSION_MAX: Final = 2**64 - 1
RANGE_MAX: Final = 10_000
_SCALARS: Final = (bool, int, float, str, bytes)

Own = dict[str, str]


def functions() -> Any:
    """The extension that holds them all, for one environment."""
    return cel.CelExtension("kubernetes", [_declared(name, overloads) for name, overloads in _FUNCTIONS.items()])


def _declared(name: str, overloads: list[tuple[bool, list[Any], Any, Callable[..., Any]]]) -> Any:
    made = []
    for index, (member, parameters, result, call) in enumerate(overloads):
        made.append(
            cel.Overload(
                f"kubernetes_{name}_{index}", return_type=result, parameters=parameters, is_member=member, impl=call
            )
        )
    return cel.FunctionDecl(name, made)


# Lists and sets.


def _same(a: Any, b: Any) -> bool:
    # CEL's equality: true is no 1, as it would be in Python; numbers of different types may be equal.
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(value, b[key]) for key, value in a.items())
    return bool(a == b)


def _ordered(items: list[Any]) -> list[Any]:
    if items and not (all(type(item) is type(items[0]) for item in items) and isinstance(items[0], _SCALARS)):
        raise ValueError("the items of the list cannot be compared")
    return items


def _is_sorted(items: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(_ordered(items)))


def _sorted_by_key(pairs: list[Any]) -> list[Any]:
    _ordered([pair["key"] for pair in pairs])
    return [pair["value"] for pair in sorted(pairs, key=lambda pair: pair["key"])]


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise ValueError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise ValueError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(items):
        raise ValueError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _distinct(items: list[Any]) -> list[Any]:
    _bounded(items, items)
    kept: list[Any] = []
    for item in items:
        if _index(kept, item) < 0:
            kept.append(item)
    return kept


def _flatten(items: list[Any], depth: int) -> list[Any]:
    if depth < 0:
        raise ValueError("level must be non-negative")
    if depth == 0:
        return items
    flat: list[Any] = []
    for item in items:
        flat += _flatten(item, depth - 1) if isinstance(item, list) else [item]
    return flat


def _range(size: int) -> list[int]:
    if not 0 <= size <= RANGE_MAX:
        raise ValueError(f"the range is larger than {RANGE_MAX}")
    return list(range(size))


def _sum(items: list[Any]) -> Any:
    if any(isinstance(item, bool) or not isinstance(item, int | float) for item in items):
        raise ValueError("the items of the list cannot be added")
    return sum(items)


def _extreme(choose: Callable[[list[Any]], Any], name: str) -> Callable[[list[Any]], Any]:
    def chosen(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return choose(_ordered(items))

    return chosen


def _index(items: list[Any], item: Any) -> int:
    return next((index for index, other in enumerate(items) if _same(other, item)), -1)


def _last_index(items: list[Any], item: Any) -> int:
    return next((index for index in range(len(items) - 1, -1, -1) if _same(items[index], item)), -1)


def _contains(items: list[Any], wanted: list[Any]) -> bool:
    _bounded(items, wanted)
    return all(_index(items, item) >= 0 for item in wanted)


def _equivalent(a: list[Any], b: list[Any]) -> bool:
    return _contains(a, b) and _contains(b, a)


def _intersects(a: list[Any], b: list[Any]) -> bool:
    _bounded(a, b)
    return any(_index(a, item) >= 0 for item in b)


def _bounded(a: list[Any], b: list[Any]) -> None:
    # Members are compared each with each, for maps have no hash: the product is the work.
    if len(a) * len(b) > 100_000:
        raise ValueError("the sets are too large to be compared")


# Pairs of an index or key and its value, for loops over two variables (``kube.cel.macros``).


def _pairs(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [{"key": key, "value": member} for key, member in value.items()]
    if isinstance(value, list):
        return [{"key": index, "value": member} for index, member in enumerate(value)]
    raise ValueError("no such overload")


def _mapped(pairs: list[Any]) -> dict[Any, Any]:
    return {pair["key"]: pair["value"] for pair in pairs}


def _format(name: str) -> Callable[[], Own]:
    return lambda: {"format": name}


def _merged(entries: list[Any]) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for entry in entries:
        for key, value in entry.items():
            if key in result:
                raise ValueError(f"insert failed: key {key} already exists")
            result[key] = value
    return result


# Quantities.


def _quantity(text: str) -> Own:
    return _exact(parse_quantity(text))


def _exact(quantity: Quantity) -> Own:
    return {"quantity": str(quantity.nanos)}


def _amount(value: Own) -> Quantity:
    return Quantity(int(value["quantity"]))


def _is_integer(quantity: Quantity) -> bool:
    return not quantity.nanos % 10**9 and abs(quantity.nanos) < UNITS_MAX.nanos


def _integer(quantity: Quantity) -> int:
    if not _is_integer(quantity):
        raise ValueError("cannot convert value to integer")
    return quantity.value()


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except InvalidQuantity:
        return False
    return True


def _operand(value: Any) -> Quantity:
    return parse_quantity(str(value)) if isinstance(value, int) else _amount(value)


# Addresses, networks, URLs.


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        raise ValueError("IPv4-mapped IPv6 addresses and zones are not allowed")
    return address


def _network(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    address, slash, bits = text.partition("/")
    if not slash or not bits.isascii() or not bits.isdigit():
        raise ValueError("network must be <address>/<prefix>")
    _address(address)
    return ipaddress.ip_interface(text)


def _is(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def judged(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return judged


def _url(text: str) -> Own:
    if not is_request_uri(text):
        raise ValueError("no URL")
    return {"url": text}


def _contains_ip(network: Own, address: Any) -> bool:
    found = _address(address if isinstance(address, str) else address["ip"])
    return found in _network(network["cidr"]).network


def _contains_cidr(network: Own, other: Any) -> bool:
    outer, inner = _network(network["cidr"]), _network(other if isinstance(other, str) else other["cidr"])
    if outer.version != inner.version:
        return False
    return inner.ip in outer.network and inner.network.prefixlen >= outer.network.prefixlen


def _host(value: Own) -> str:
    return urlsplit(value["url"]).netloc.rpartition("@")[2]


def _hostname(value: Own) -> str:
    # Go's url.Hostname: without the port, and without the brackets of an IPv6 address.
    host = _host(value)
    return host[1 : host.index("]")] if host.startswith("[") else host.partition(":")[0]


# Versions, and what several types have in common.


def _semver(text: str) -> Own:
    found = _SEMVER.fullmatch(text)
    before, behind = ("", "") if found is None else (found[4] or "0", found[5] or "0")
    if found is None or not all([*before.split("."), *behind.split(".")]):
        raise ValueError("no semantic version")
    numbers = [*found.groups()[:3], *(part for part in before.split(".") if part.isdigit())]
    if any(len(number) > 20 or int(number) > _VERSION_MAX or str(int(number)) != number for number in numbers):
        raise ValueError("no semantic version")
    return {"semver": text}


def _loose_semver(text: str, loose: bool) -> Own:
    """With ``loose``, a leading ``v``, parts left out and zeros before numbers are put right first."""
    if not loose:
        return _semver(text)
    core, mark, rest = re.match(r"([^-+]*)([-+]?)(.*)", text.removeprefix("v"), re.DOTALL).groups()  # type: ignore[union-attr]
    parts = core.split(".")
    if len(parts) < 3 and mark:
        raise ValueError("short versions cannot have what comes after the numbers")
    parts = [part.lstrip("0") or "0" if part else part for part in parts] + ["0"] * (3 - len(parts))
    return _semver(".".join(parts) + mark + rest)


def _version_key(text: str) -> tuple[Any, ...]:
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise ValueError("no semantic version")
    # Semantic versioning, rule 11: numbers before words, both in their own order; what has something behind the numbers
    # comes before what has nothing. What follows a ``+`` never counts.
    before = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in found[4].split(".")) if found[4] else ()
    return (int(found[1]), int(found[2]), int(found[3]), not before, before)


def _compare(a: Own, b: Own) -> int:
    if "quantity" in a and "quantity" in b:
        left, right = _amount(a), _amount(b)
        return (left > right) - (left < right)
    if "semver" in a and "semver" in b:
        older, newer = _version_key(a["semver"]), _version_key(b["semver"])
        return (older > newer) - (older < newer)
    raise ValueError("no such overload")


def _part(value: Own, name: str, index: int) -> int:
    if name not in value:
        raise ValueError("no such overload")
    return int(_version_key(value[name])[index])


def _text(value: Own) -> str:
    return str(_amount(value)) if "quantity" in value else next(iter(value.values()))


def _m(parameters: list[Any], result: Any, call: Callable[..., Any]) -> tuple[bool, list[Any], Any, Callable[..., Any]]:
    return (True, parameters, result, call)


def _f(parameters: list[Any], result: Any, call: Callable[..., Any]) -> tuple[bool, list[Any], Any, Callable[..., Any]]:
    return (False, parameters, result, call)


_S: Final = _T.STRING
_FUNCTIONS: Final[dict[str, list[tuple[bool, list[Any], Any, Callable[..., Any]]]]] = {
    **{f"format.{name}": [_f([], _OWN, _format(name))] for name in FORMATS},
    "jsonpatch.escapeKey": [_f([_S], _S, escape_key)],
    "format.named__": [_f([_S], _T.List(_OWN), named)],
    "validated__": [_m([_OWN, _S], _T.List(_T.List(_S)), validated)],
    "pairs__": [_m([_T.DYN], _LIST, _pairs)],
    "mapped__": [_m([_LIST], _T.Map(_T.DYN, _T.DYN), _mapped)],
    "merged__": [_m([_LIST], _T.Map(_T.DYN, _T.DYN), _merged)],
    "matches__": [_m([_S, _S], _T.BOOL, texts.OWN["matches"]), _f([_S, _S], _T.BOOL, texts.OWN["matches"])],
    "contains__": [_m([_S, _S], _T.BOOL, texts.contains)],
    "split__": [_m([_S, _S], _T.List(_S), texts.split), _m([_S, _S, _T.INT], _T.List(_S), texts.split)],
    **{f"{name}__": [_m([_T.TIMESTAMP, _S], _T.INT, call)] for name, call in ZONED.items()},
    "find": [_m([_S, _S], _S, regexes.find)],
    "findAll": [
        _m([_S, _S], _T.List(_S), regexes.find_all),
        _m([_S, _S, _T.INT], _T.List(_S), regexes.find_all),
    ],
    "sorted__": [_m([_LIST], _LIST, _sorted_by_key)],
    "sort": [_m([_LIST], _LIST, lambda items: sorted(_ordered(items)))],
    "reverse": [_m([_LIST], _LIST, lambda items: items[::-1])],
    "slice": [_m([_LIST, _T.INT, _T.INT], _LIST, _slice)],
    "distinct": [_m([_LIST], _LIST, _distinct)],
    "flatten": [
        _m([_LIST], _LIST, lambda items: _flatten(items, 1)),
        _m([_LIST, _T.INT], _LIST, _flatten),
    ],
    "lists.range": [_f([_T.INT], _LIST, _range)],
    "isSorted": [_m([_LIST], _T.BOOL, _is_sorted)],
    "sum": [_m([_LIST], _T.DYN, _sum)],
    "min": [_m([_LIST], _T.DYN, _extreme(min, "min"))],
    "max": [_m([_LIST], _T.DYN, _extreme(max, "max"))],
    "indexOf": [_m([_LIST, _T.DYN], _T.INT, _index)],
    "indexOf__": [
        _m([_S, _S], _T.INT, texts.index_of),
        _m([_S, _S, _T.INT], _T.INT, texts.index_of),
        _m([_LIST, _T.DYN], _T.INT, _index),
    ],
    "lastIndexOf": [_m([_LIST, _T.DYN], _T.INT, _last_index)],
    "lastIndexOf__": [
        _m([_S, _S], _T.INT, texts.last_index_of),
        _m([_S, _S, _T.INT], _T.INT, texts.last_index_of),
        _m([_LIST, _T.DYN], _T.INT, _last_index),
    ],
    "sets.contains": [_f([_LIST, _LIST], _T.BOOL, _contains)],
    "sets.equivalent": [_f([_LIST, _LIST], _T.BOOL, _equivalent)],
    "sets.intersects": [_f([_LIST, _LIST], _T.BOOL, _intersects)],
    "quantity": [_f([_S], _OWN, _quantity)],
    "isQuantity": [_f([_S], _T.BOOL, _is_quantity)],
    "sign": [_f([_OWN], _T.INT, lambda a: (_amount(a) > Quantity(0)) - (_amount(a) < Quantity(0)))],
    "isInteger": [_m([_OWN], _T.BOOL, lambda a: _is_integer(_amount(a)))],
    "asInteger": [_m([_OWN], _T.INT, lambda a: _integer(_amount(a)))],
    "asApproximateFloat": [_m([_OWN], _T.DOUBLE, lambda a: _amount(a).nanos / 1e9)],
    "add": [_m([_OWN, _T.DYN], _OWN, lambda a, b: _exact(_amount(a) + _operand(b)))],
    "sub": [_m([_OWN, _T.DYN], _OWN, lambda a, b: _exact(_amount(a) - _operand(b)))],
    "compareTo": [_m([_OWN, _OWN], _T.INT, _compare)],
    "isLessThan": [_m([_OWN, _OWN], _T.BOOL, lambda a, b: _compare(a, b) < 0)],
    "isGreaterThan": [_m([_OWN, _OWN], _T.BOOL, lambda a, b: _compare(a, b) > 0)],
    "ip": [
        _f([_S], _OWN, lambda text: {"ip": str(_address(text))}),
        _m([_OWN], _OWN, lambda a: {"ip": str(_network(a["cidr"]).ip)}),
    ],
    "isIP": [_f([_S], _T.BOOL, _is(_address))],
    "ip.isCanonical": [_f([_S], _T.BOOL, lambda text: str(_address(text)) == text)],
    "family": [_m([_OWN], _T.INT, lambda a: _address(a["ip"]).version)],
    "isUnspecified": [_m([_OWN], _T.BOOL, lambda a: _address(a["ip"]).is_unspecified)],
    "isLoopback": [_m([_OWN], _T.BOOL, lambda a: _address(a["ip"]).is_loopback)],
    "isLinkLocalUnicast": [_m([_OWN], _T.BOOL, lambda a: _address(a["ip"]).is_link_local)],
    "isLinkLocalMulticast": [
        _m(
            [_OWN],
            _T.BOOL,
            lambda a: _address(a["ip"]) in ipaddress.ip_network("224.0.0.0/24" if "." in a["ip"] else "ff02::/16"),
        )
    ],
    "isGlobalUnicast": [_m([_OWN], _T.BOOL, lambda a: _is_global_unicast(_address(a["ip"])))],
    "cidr": [_f([_S], _OWN, lambda text: {"cidr": str(_network(text))})],
    "isCIDR": [_f([_S], _T.BOOL, _is(_network))],
    "containsIP": [_m([_OWN, _T.DYN], _T.BOOL, _contains_ip)],
    "containsCIDR": [_m([_OWN, _T.DYN], _T.BOOL, _contains_cidr)],
    "masked": [_m([_OWN], _OWN, lambda a: {"cidr": str(_network(a["cidr"]).network)})],
    "prefixLength": [_m([_OWN], _T.INT, lambda a: _network(a["cidr"]).network.prefixlen)],
    "url": [_f([_S], _OWN, _url)],
    "isURL": [_f([_S], _T.BOOL, _is(_url))],
    "getScheme": [_m([_OWN], _S, lambda a: urlsplit(a["url"]).scheme)],
    "getHost": [_m([_OWN], _S, _host)],
    "getHostname": [_m([_OWN], _S, _hostname)],
    "getPort": [_m([_OWN], _S, lambda a: str(urlsplit(a["url"]).port or ""))],
    "getEscapedPath": [_m([_OWN], _S, lambda a: urlsplit(a["url"]).path)],
    "getQuery": [
        _m([_OWN], _T.Map(_S, _T.List(_S)), lambda a: parse_qs(urlsplit(a["url"]).query, keep_blank_values=True))
    ],
    "semver": [_f([_S], _OWN, _semver), _f([_S, _T.BOOL], _OWN, _loose_semver)],
    "isSemver": [
        _f([_S], _T.BOOL, _is(_semver)),
        _f([_S, _T.BOOL], _T.BOOL, lambda text, loose: _is(lambda given: _loose_semver(given, loose))(text)),
    ],
    "major": [_m([_OWN], _T.INT, lambda a: _part(a, "semver", 0))],
    "minor": [_m([_OWN], _T.INT, lambda a: _part(a, "semver", 1))],
    "patch": [_m([_OWN], _T.INT, lambda a: _part(a, "semver", 2))],
    "string": [_f([_OWN], _S, _text)],
}
"""Name → overloads: whether it is a member, its parameters, its result and what it does."""

NAMES: Final = frozenset(_FUNCTIONS)
"""All of them: each call takes some microseconds."""


def _is_global_unicast(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and str(address) != "255.255.255.255"
