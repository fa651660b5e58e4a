"""CEL rules and the objects that they are tried on: one table for the library and for the comparison with a real server."""

from __future__ import annotations

import json
from typing import Any

from tests.kube.customkinds import crd

TEXT = {"type": "string", "maxLength": 100}
NUMBER = {"type": "integer"}
SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": NUMBER,
        "m": NUMBER,
        "ratio": {"type": "number"},
        "s": TEXT,
        "b": {"type": "boolean"},
        "names": {"type": "array", "maxItems": 20, "items": TEXT},
        "nums": {"type": "array", "maxItems": 20, "items": NUMBER},
        "map": {"type": "object", "maxProperties": 20, "additionalProperties": NUMBER},
        "ios": {"x-kubernetes-int-or-string": True},
        "at": {"type": "string", "format": "date-time"},
        "until": {"type": "string", "format": "date-time"},
        "ttl": {"type": "string", "format": "duration"},
        "raw": {"type": "string", "format": "byte"},
        "foo-bar": NUMBER,
        "namespace": TEXT,
        "obj": {"type": "object", "properties": {"x": NUMBER, "y": TEXT}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "ports": {
            "type": "array",
            "maxItems": 10,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": TEXT, "port": NUMBER}},
        },
        "nul": {**TEXT, "nullable": True},
    },
}

Where = tuple[str, ...]
N, NAMES, PORTS = ("properties", "n"), ("properties", "names"), ("properties", "ports")


def ruled(rule: dict[str, Any], where: Where = (), kind: str = "Ruled") -> dict[str, Any]:
    """A CRD with a rule somewhere in its spec."""
    # Through JSON, so that no two places share a schema.
    spec = node = json.loads(json.dumps(SPEC))
    for name in where:
        node = node[name]
    node["x-kubernetes-validations"] = [rule]
    return crd(spec, kind)


REFUSED: list[tuple[dict[str, Any], Where, str]] = [
    ({"rule": "self.nope > 1"}, (), "<input>:1:5: undefined field 'nope'"),
    ({"rule": "self.n > 'a'"}, (), "found no matching overload for '_>_' applied to '(int, string)'"),
    ({"rule": "self.n"}, (), "cel expression must evaluate to a bool"),
    ({"rule": "self.m > 1 ? 'a' : 'b'"}, (), "cel expression must evaluate to a bool"),
    ({"rule": "1 +"}, (), "Syntax error"),
    ({"rule": "foo(self.n)"}, (), "undeclared reference to 'foo'"),
    ({"rule": "previous == 1"}, (), "undeclared reference to 'previous'"),
    ({"rule": ""}, (), "rule is not specified"),
    ({"rule": "self.n > 1\n && true"}, (), "message must be specified if rule contains line breaks"),
    ({"rule": "self.n > 1", "message": "a\nb"}, (), "must not contain line breaks"),
    ({"rule": "self.n > 1", "reason": "Bad"}, (), 'Unsupported value: "Bad"'),
    ({"rule": "self.n > 1", "fieldPath": ".nope"}, (), "must be a valid path"),
    ({"rule": "self.n > 1", "messageExpression": "self.nope"}, (), "messageExpression compilation failed"),
    ({"rule": "self.n > 1", "messageExpression": "self.n"}, (), "messageExpression must evaluate to a string"),
    ({"rule": "self.n > 1", "messageExpression": " "}, (), "messageExpression must be non-empty"),
    ({"rule": "self == oldSelf"}, (*NAMES, "items"), "oldSelf cannot be used on the uncorrelatable portion"),
    ({"rule": "self.n > 1", "optionalOldSelf": True}, (), "may not be set if oldSelf is not used in rule"),
    ({"rule": "self.names.all(x, x > 1)"}, (), "found no matching overload for '_>_' applied to '(string, int)'"),
    ({"rule": "self.map.all(k, self.map[k] > 'a')"}, (), "applied to '(int, string)'"),
    ({"rule": "self.s.foo > 1"}, (), "type 'string' does not support field selection"),
    ({"rule": "self.n.all(x, true)"}, (), "cannot be range of a comprehension"),
    ({"rule": "self.n && true"}, (), "expected type 'bool' but found 'int'"),
    ({"rule": "!self.n"}, (), "found no matching overload for '!_' applied to '(int)'"),
    ({"rule": "self.n + 1.0 > 2.0"}, (), "applied to '(int, double)'"),
    ({"rule": "self.b > 1"}, (), "applied to '(bool, int)'"),
    ({"rule": "has(self.nope)"}, (), "undefined field 'nope'"),
    ({"rule": "self.?nope.hasValue()"}, (), "undefined field 'nope'"),
    ({"rule": "self.free.x == 1"}, (), "undefined field 'x'"),
    ({"rule": "self.metadata.name == 'a'"}, (), "undefined field 'metadata'"),
    ({"rule": "self.nums.sum() > 'a'"}, (), "applied to '(int, string)'"),
    ({"rule": "self.nul == null"}, (), "applied to '(string, null)'"),
    ({"rule": "self.s.matches('[')"}, (), "invalid matches argument"),
    ({"rule": "self.size() > 'a'"}, NAMES, "applied to '(int, string)'"),
]
"""Rules that no CRD may hold, and what is said about them."""

ACCEPTED: list[tuple[dict[str, Any], Where]] = [
    ({"rule": "self.port == oldSelf.port"}, (*PORTS, "items")),
    ({"rule": "self.n > 1", "message": "", "fieldPath": ""}, ()),
    ({"rule": "self.ratio > 1"}, ()),
    ({"rule": "self.foo__dash__bar > 1 && self.__namespace__ == 'a'"}, ()),
    ({"rule": "self.namespace == 'a'"}, ()),
    ({"rule": "self.ios == 1"}, ()),
    ({"rule": "type(self.ios) == int"}, ()),
    ({"rule": "self.obj == null"}, ()),
    ({"rule": "self.exists(x, x == 'a')"}, NAMES),
    ({"rule": "oldSelf.orValue(1) < self", "optionalOldSelf": True}, N),
    ({"rule": "self.nums.max() > 1 && self.names.indexOf('a') == 0 && sets.contains(self.names, ['a'])"}, ()),
]

Spec = dict[str, Any]
FAILED = "Invalid value: failed rule: "
URLS = (
    *("https://a/b c", "https://[::1]:80/", "https://[fe80::1%25en0]/", "https://a:99999/", "https://u%20@a/"),
    *(
        "https://a<b/",
        "mailto:%zz",
        "//a b/",
        "https://[::1%25a%20b]/",
        "*",
        "https:",
        "https://a/?%zz",
        "https://u@v@a/",
        "/a#b",
    ),
)
NO_URLS = (
    *("https://exa mple.com/", "https://x/%zz", "https://a\n.example.com/", "https://a%20b/", "https://a:b/", "a/b"),
    *(
        "https://u p@a/",
        "https://a/\x7f",
        "https://a{b}/",
        "https://a#b",
        "https://[zz]/",
        "https://::1/",
        "https://a:80:80/",
        "https://[::1%25%e4]/",
        "https://[fe80::1%en0]/",
        "",
    ),
)
NO_VERSIONS = (
    "1.0.0-01",
    "1.0.0+a..b",
    "1.0.0-a.01",
    "1.0.0+",
    "18446744073709551616.0.0",
    "1.0.0-18446744073709551616",
)
OBJECTS: list[tuple[dict[str, Any], Where, Spec | None, Spec, str]] = [
    ({"rule": "self.n > 1"}, (), None, {"n": 1}, FAILED + "self.n > 1"),
    (
        {"rule": "self.names.all(i, v, i < 2 && v != 'x')"},
        (),
        None,
        {"names": ["a", "x"]},
        FAILED + "self.names.all(i, v, i < 2 && v != 'x')",
    ),
    ({"rule": "self.names.all(i, v, i < 2 && v != 'x')"}, (), None, {"names": ["a", "b"]}, ""),
    (
        {"rule": "self.map.exists(k, v, k == 'b' && v == 1)"},
        (),
        None,
        {"map": {"a": 1}},
        FAILED + "self.map.exists(k, v, k == 'b' && v == 1)",
    ),
    (
        {"rule": "self.nums.existsOne(i, v, v == i)"},
        (),
        None,
        {"nums": [0, 1]},
        FAILED + "self.nums.existsOne(i, v, v == i)",
    ),
    ({"rule": "self.nums.transformList(i, v, v * i) == [0, 2]"}, (), None, {"nums": [1, 2]}, ""),
    (
        {"rule": "self.nums.transformList(i, v, i > 0, v).size() == 2"},
        (),
        None,
        {"nums": [1, 2]},
        FAILED + "self.nums.transformList(i, v, i > 0, v).size() == 2",
    ),
    ({"rule": "self.map.transformMap(k, v, v + 1)['a'] == 2"}, (), None, {"map": {"a": 1}}, ""),
    (
        {"rule": "self.map.transformMapEntry(k, v, {v: k})[1] == 'x'"},
        (),
        None,
        {"map": {"a": 1}},
        FAILED + "self.map.transformMapEntry(k, v, {v: k})[1] == 'x'",
    ),
    (
        {"rule": "!format.named('dns1123Label').value().validate(self.s).hasValue()"},
        (),
        None,
        {"s": "A"},
        FAILED + "!format.named('dns1123Label').value().validate(self.s).hasValue()",
    ),
    ({"rule": "!format.named('none').hasValue()"}, (), None, {"s": "A"}, ""),
    (
        {"rule": "!format.uuid().validate(self.s).hasValue()"},
        (),
        None,
        {"s": "A"},
        FAILED + "!format.uuid().validate(self.s).hasValue()",
    ),
    ({"rule": "!format.dns1123Subdomain().validate(self.s).hasValue()"}, (), None, {"s": "a.b"}, ""),
    ({"rule": "self.n > 1"}, (), None, {"n": 2}, ""),
    ({"rule": "self.n > 1", "message": "too small"}, (), None, {"n": 1}, "Invalid value: too small"),
    (
        {"rule": "self.n > 1", "messageExpression": "'s is ' + self.s"},
        (),
        None,
        {"n": 1, "s": "x"},
        "Invalid value: s is x",
    ),
    (
        {"rule": "self.n > 1", "messageExpression": "'s is ' + self.s", "message": "m"},
        (),
        None,
        {"n": 1},
        "Invalid value: m",
    ),
    (
        {"rule": "self.n > 1", "reason": "FieldValueForbidden", "fieldPath": ".n", "message": "no"},
        (),
        None,
        {"n": 1},
        "Forbidden: no",
    ),
    ({"rule": "self.n > 1", "reason": "FieldValueRequired", "message": "no"}, (), None, {"n": 1}, "Required value: no"),
    ({"rule": "self.n > 1", "reason": "FieldValueDuplicate"}, (), None, {"n": 1}, "Duplicate value"),
    ({"rule": "self.n > 1", "fieldPath": ".map['a.b']"}, (), None, {"n": 1}, FAILED + "self.n > 1"),
    ({"rule": "self.n > 1"}, (), None, {}, 'Invalid value: "object": no such key: n evaluating rule: self.n > 1'),
    (
        {"rule": "self.nums[3] > 1"},
        (),
        None,
        {"nums": [1]},
        'Invalid value: "object": index out of bounds: 3 evaluating rule: self.nums[3] > 1',
    ),
    (
        {"rule": "self.n / self.m == 1"},
        (),
        None,
        {"n": 1, "m": 0},
        'Invalid value: "object": division by zero evaluating rule: self.n / self.m == 1',
    ),
    ({"rule": "self > 1"}, N, None, {"n": 1}, "Invalid value: 1: failed rule: self > 1"),
    (
        {"rule": "self.size() > 1", "message": "m"},
        (*NAMES, "items"),
        None,
        {"names": ["ab", "a"]},
        'Invalid value: "a": m',
    ),
    (
        {"rule": "self > 1"},
        ("properties", "map", "additionalProperties"),
        None,
        {"map": {"a.b": 1}},
        "Invalid value: 1: failed rule: self > 1",
    ),
    (
        {"rule": "self.at > timestamp('2020-01-01T00:00:00Z') && self.at < self.until"},
        (),
        None,
        {"at": "2021-01-01T00:00:00Z", "until": "2021-01-01T01:00:00+02:00"},
        FAILED + "self.at > timestamp('2020-01-01T00:00:00Z') && self.at < self.until",
    ),
    ({"rule": "self.ttl > duration('1h')"}, (), None, {"ttl": "2h"}, ""),
    ({"rule": "self.ttl > duration('1h')"}, (), None, {"ttl": "2m"}, FAILED + "self.ttl > duration('1h')"),
    ({"rule": "self.raw == b'abc'"}, (), None, {"raw": "YWJj"}, ""),
    ({"rule": "self.n >= oldSelf.n"}, (), None, {"n": 1}, ""),
    ({"rule": "self.n >= oldSelf.n"}, (), {"n": 2}, {"n": 1}, FAILED + "self.n >= oldSelf.n"),
    ({"rule": "self.n >= oldSelf.n"}, (), {"n": 2}, {"n": 3}, ""),
    (
        {"rule": "oldSelf.orValue(5) < self", "optionalOldSelf": True},
        N,
        None,
        {"n": 5},
        "Invalid value: 5: failed rule: oldSelf.orValue(5) < self",
    ),
    ({"rule": "oldSelf.orValue(5) < self", "optionalOldSelf": True}, N, {"n": 1}, {"n": 2}, ""),
    (
        {"rule": "self.port >= oldSelf.port"},
        (*PORTS, "items"),
        {"ports": [{"name": "a", "port": 5}, {"name": "b", "port": 1}]},
        {"ports": [{"name": "b", "port": 2}, {"name": "a", "port": 4}]},
        FAILED + "self.port >= oldSelf.port",
    ),
    ({"rule": "self > 1"}, N, {"n": 0, "m": 1}, {"n": 0, "m": 2}, ""),
    ({"rule": "self.n > 1"}, (), {"n": 0, "m": 1}, {"n": 0, "m": 2}, FAILED + "self.n > 1"),
    ({"rule": "quantity(self.s) == quantity('1Gi')"}, (), None, {"s": "1024Mi"}, ""),
    (
        {"rule": "quantity(self.s).isGreaterThan(quantity('1Gi'))"},
        (),
        None,
        {"s": "512Mi"},
        FAILED + "quantity(self.s).isGreaterThan(quantity('1Gi'))",
    ),
    (
        {
            "rule": "quantity(self.s).add(quantity('1')).compareTo(quantity('2')) == 0 && quantity(self.s).sub(1).asInteger() == 0"
        },
        (),
        None,
        {"s": "1"},
        "",
    ),
    (
        {"rule": "isIP(self.s) && ip(self.s).family() == 4 && cidr('10.0.0.0/8').containsIP(self.s)"},
        (),
        None,
        {"s": "10.1.2.3"},
        "",
    ),
    (
        {"rule": "cidr('10.0.0.0/8').containsCIDR(self.s)"},
        (),
        None,
        {"s": "11.1.0.0/16"},
        FAILED + "cidr('10.0.0.0/8').containsCIDR(self.s)",
    ),
    (
        {"rule": "cidr(self.s).masked() == cidr('10.1.0.0/16') && cidr(self.s).prefixLength() == 16"},
        (),
        None,
        {"s": "10.1.2.3/16"},
        "",
    ),
    (
        {
            "rule": "url(self.s).getHost() == 'example.com:80' && url(self.s).getPort() == '80' && url(self.s).getScheme() == 'https'"
        },
        (),
        None,
        {"s": "https://example.com:80/a?b=c"},
        "",
    ),
    ({"rule": "isURL(self.s)"}, (), None, {"s": "nope"}, FAILED + "isURL(self.s)"),
    (
        {"rule": "self.names.isSorted() && self.nums.sum() == 6 && self.nums.max() == 3 && self.nums.min() == 1"},
        (),
        None,
        {"names": ["a", "b"], "nums": [1, 2, 3]},
        "",
    ),
    (
        {"rule": "self.nums.max() == 1"},
        (),
        None,
        {"nums": []},
        'Invalid value: "object": max called on empty list evaluating rule: self.nums.max() == 1',
    ),
    ({"rule": "self.ios == 'a' || self.ios == 5"}, (), None, {"ios": 5}, ""),
    ({"rule": "self.ratio * 2.0 == 4.0"}, (), None, {"ratio": 2}, ""),
    ({"rule": "self.foo__dash__bar == 1 && self.__namespace__ == 'a'"}, (), None, {"foo-bar": 1, "namespace": "a"}, ""),
    ({"rule": "has(self.namespace) && self.namespace == 'a'"}, (), None, {"namespace": "a"}, ""),
    (
        {"rule": "semver(self.s).isGreaterThan(semver('1.2.3'))"},
        (),
        None,
        {"s": "1.2.3-rc.1"},
        FAILED + "semver(self.s).isGreaterThan(semver('1.2.3'))",
    ),
    ({"rule": "isSemver(self.s)"}, (), None, {"s": "v1.2"}, FAILED + "isSemver(self.s)"),
    (
        {"rule": "self.ports.exists_one(p, p.name == 'http')"},
        (),
        None,
        {"ports": [{"name": "a"}]},
        FAILED + "self.ports.exists_one(p, p.name == 'http')",
    ),
    ({"rule": "self.n > 1 ||\n self.m > 1", "message": "x"}, (), None, {"n": 0, "m": 0}, "Invalid value: x"),
    (
        {"rule": "self.s.lowerAscii() == 'abc' && '%s-%d'.format([self.s, self.n]) == 'ABC-1'"},
        (),
        None,
        {"s": "ABC", "n": 1},
        "",
    ),
    ({"rule": "self.s.matches('^[a-z]+$')"}, (), None, {"s": "aB"}, FAILED + "self.s.matches('^[a-z]+$')"),
    ({"rule": "self.?obj.?x.orValue(3) == 3"}, (), None, {}, ""),
    ({"rule": "!has(self.nul)"}, (), None, {"nul": None}, ""),
    ({"rule": "self.s.find('[0-9]+') == '123'"}, (), None, {"s": "abc 123"}, ""),
    ({"rule": "self.nums.sort() == [1, 2, 3] && self.nums.reverse() == [2, 1, 3]"}, (), None, {"nums": [3, 1, 2]}, ""),
    ({"rule": "self.nums.slice(1, 3) == [1, 2] && self.nums.first().value() == 3"}, (), None, {"nums": [3, 1, 2]}, ""),
    ({"rule": "self.nums.distinct() == [3, 1] && self.nums.last().value() == 1"}, (), None, {"nums": [3, 3, 1]}, ""),
    (
        {"rule": "[self.nums, [self.n]].flatten() == [1, 2, 3] && lists.range(3) == [0, 1, 2]"},
        (),
        None,
        {"nums": [1, 2], "n": 3},
        "",
    ),
    (
        {"rule": "self.ports.sortBy(p, p.port).map(p, p.name) == ['b', 'a']"},
        (),
        None,
        {"ports": [{"name": "a", "port": 2}, {"name": "b", "port": 1}]},
        "",
    ),
    ({"rule": "[[1], [2]].flatten(1) == [1, 2] && [[[1], [2]]].flatten(2) == [1, 2]"}, (), None, {}, ""),
    (
        {"rule": "semver(self.s, true).minor() == 2 && isSemver(self.s, true) && !isSemver(self.s)"},
        (),
        None,
        {"s": "v1.2"},
        "",
    ),
    (
        {"rule": "self.nums.slice(1, 5).size() == 0"},
        (),
        None,
        {"nums": [1]},
        'Invalid value: "object": cannot slice(1, 5), list is length 1 evaluating rule: self.nums.slice(1, 5).size() == 0',
    ),
    ({"rule": "self.s.find('xyz') == 'a'"}, (), None, {"s": "abc"}, FAILED + "self.s.find('xyz') == 'a'"),
    ({"rule": "self.s.find('a|ab') == 'a' && self.s.find('(?i)B+?') == 'b'"}, (), None, {"s": "abb"}, ""),
    ({"rule": "self.s.findAll('[0-9]+') == ['1', '22', '333']"}, (), None, {"s": "1 22,333"}, ""),
    ({"rule": "self.s.findAll('[0-9]+', 2) == ['1', '22']"}, (), None, {"s": "1 22,333"}, ""),
    ({"rule": "self.s.findAll('[0-9]', 0).size() == 0"}, (), None, {"s": "1 2"}, ""),
    ({"rule": "self.s.findAll('[0-9]', -1).size() == 2"}, (), None, {"s": "1 2"}, ""),
    ({"rule": "self.s.findAll('a?') == ['a', '', 'a', '', '']"}, (), None, {"s": "abcabc"}, ""),
    ({"rule": "self.s.findAll('^\\\\w+$').size() == 1"}, (), None, {"s": "ab"}, ""),
    (
        {"rule": "self.s.find('c.$') == 'x'"},
        (),
        None,
        {"s": "abcd"},
        FAILED + "self.s.find('c.$') == 'x'",
    ),
    *(
        ({"rule": rule}, (), None, {"s": text}, "" if holds else FAILED + rule)
        for rule, holds, texts in (
            (
                "quantity(self.s).isInteger() && quantity(self.s).asInteger() >= 1",
                True,
                ("1", "1k", "1Ki", "9E", "0.001k"),
            ),
            ("sign(quantity(self.s)) == 1", True, ("500m",)),
            ("quantity(self.s).isInteger()", False, ("500m", "1500m", "1E30", "10E", "0.1Gi")),
            ("isURL(self.s)", True, URLS),
            ("isURL(self.s)", False, NO_URLS),
            ("!format.uri().validate(self.s).hasValue()", True, URLS),
            ("!format.uri().validate(self.s).hasValue()", False, NO_URLS),
            ("isSemver(self.s)", True, ("1.0.0-0a+01", "1.0.0--", "18446744073709551615.0.0", "1.0.0-1.2+x.y")),
            ("isSemver(self.s)", False, NO_VERSIONS),
            ("isSemver(self.s, true)", False, NO_VERSIONS),
        )
        for text in texts
    ),
    *(
        (
            {"rule": "quantity(self.s).asInteger() >= 1"},
            (),
            None,
            {"s": text},
            'Invalid value: "object": cannot convert value to integer evaluating rule: quantity(self.s).asInteger() >= 1',
        )
        for text in ("500m", "1500m", "1E30")
    ),
]
"""Rule, its place, the object before, the object now, and what is said (nothing when it holds)."""
