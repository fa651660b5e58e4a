"""Lists, watches and paths."""

from __future__ import annotations

from typing import Any

from tests.conformance.conversation import Conversation
from tests.conformance.script.media import MERGE, PARTIAL, TABLE
from tests.speaking import Answer


def lists(say: Conversation) -> None:
    """Selectors, chunks, revisions."""
    say.set_up()
    at = f"{say.core}/secrets"
    for number in range(5):
        say.speaker.send(
            "POST",
            at,
            {
                "metadata": {"name": f"s{number}", "labels": {"n": str(number), "even": str(number % 2 == 0)}},
                "type": "t" if number else "Opaque",
            },
        )
    first = say.say("GET", f"{at}?limit=2")
    token = first["metadata"]["continue"]
    say.say("GET", f"{at}?limit=2&continue={token}")
    say.say("GET", f"{at}?continue={token}")
    say.say("GET", f"{at}?limit=2&continue={token}&resourceVersion=5")
    say.say("GET", f"{at}?limit=2&continue={token}&resourceVersion=0")
    say.say("GET", f"{at}?limit=2&continue={token}&resourceVersionMatch=Exact&resourceVersion=5")
    queries = (
        "limit=0",
        "limit=-1",
        "limit=bad",
        "limit=5",
        "limit=500",
        "continue=bad",
        "limit=1&continue=bad",
        "resourceVersion=0",
        "resourceVersion=bad",
        "resourceVersion=-1",
        f"resourceVersion={first.revision}",
        f"resourceVersion={first.revision}&resourceVersionMatch=Exact",
        f"resourceVersion={first.revision}&resourceVersionMatch=NotOlderThan",
        "resourceVersion=99999999",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=NotOlderThan",
        "resourceVersion=5&resourceVersionMatch=Bad",
        "resourceVersion=0&limit=2",
        "sendInitialEvents=true",
        "timeoutSeconds=1",
        "timeoutSeconds=bad",
        "watch=bad&timeoutSeconds=1",
        "allowWatchBookmarks=bad",
    )
    say.hear(
        *((f"{at}?{query}", {}) for query in queries),
        *((f"{at}/s1?resourceVersion={revision}", {}) for revision in ("0", "bad", "99999999", "1")),
    )
    for selector in (
        "n=1",
        "n==1",
        "n!=1",
        "n in (1,2)",
        "n notin (1,2)",
        "n",
        "!n",
        "n>2",
        "n<2",
        "n in (1),even=False",
        "n=1,",
        ",",
        "n=",
        "=",
        "n in",
        "n in ()",
        "n in (1",
        "n>x",
        "bad key=1",
        "n=bad value",
        "a/b/c=1",
        "-a=1",
        "n=-",
        "n in (1,,2)",
        "!",
        "n=1,n=2",
        " n = 1 ",
        "x" * 64 + "=1",
        "n=" + "x" * 64,
        "n gt 1",
        "(n)",
    ):
        say.say("GET", f"{at}?labelSelector={_quoted(selector)}")
    for selector in (
        "metadata.name=s1",
        "metadata.name!=s1",
        "metadata.name==s1",
        f"metadata.namespace={say.namespace}",
        "metadata.namespace=other",
        "type=t",
        "type!=t",
        "type=",
        "metadata.name=s1,type=t",
        "bad",
        "bad=1",
        "metadata.labels.n=1",
        "spec.x=1",
        "metadata.name",
        "=",
        "metadata.name=a b",
        "metadata.name=s1,",
        "metadata.name=s1\\,x",
        "metadata.name in (s1)",
        "metadata.uid=x",
    ):
        say.say("GET", f"{at}?fieldSelector={_quoted(selector)}")
    say.say("GET", f"{at}?labelSelector=even%3DTrue&limit=2")
    for name, where in (
        ("pods", say.core),
        ("services", say.core),
        ("events", say.core),
        ("jobs", f"/apis/batch/v1/namespaces/{say.namespace}"),
        ("replicasets", f"/apis/apps/v1/namespaces/{say.namespace}"),
        ("events", f"/apis/events.k8s.io/v1/namespaces/{say.namespace}"),
    ):
        for field in (
            "status.phase=Running",
            "spec.nodeName=n",
            "spec.clusterIP=None",
            "spec.type=ClusterIP",
            "reason=x",
            "involvedObject.name=x",
            "regarding.name=x",
            "status.successful=1",
            "status.replicas=1",
            "spec.serviceAccountName=x",
            "status.podIP=",
            "status.podIPs=1",
            "spec.hostNetwork=false",
            "reportingController=x",
            "source=x",
        ):
            say.say("GET", f"{where}/{name}?fieldSelector={field}")
    say.say("GET", "/api/v1/namespaces?fieldSelector=status.phase%3DTerminating")
    say.say("GET", f"/api/v1/namespaces?fieldSelector=metadata.name%3D{say.namespace}")
    say.say("GET", "/api/v1/namespaces/eq-missing/secrets")
    say.say("GET", f"/api/v1/secrets?fieldSelector=metadata.namespace%3D{say.namespace},type%3DOpaque")
    for include in ("None", "Metadata", "Object", "Bad", ""):
        say.say("GET", f"{at}?includeObject={include}&limit=1", Accept=TABLE)
        say.say("GET", f"{at}/s1?includeObject={include}", Accept=TABLE)
    say.say("POST", f"{at}?dryRun=All", {"metadata": {"name": "dry"}}, Accept=TABLE)


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text)


def watching(say: Conversation) -> None:
    """Watches that end by themselves: what comes, in which form; and the parameters that are refused."""
    say.set_up()
    at = f"{say.core}/endpoints"

    def make(name: str, **labels: str) -> None:
        say.speaker.send("POST", at, {"metadata": {"name": name, "labels": labels}})

    make("a", l="1")
    start = say.speaker.send("GET", at).revision
    make("b", l="2")
    say.speaker.send("PATCH", f"{at}/a", {"metadata": {"labels": {"l": "2"}}}, MERGE)
    say.speaker.send("DELETE", f"{at}/b")
    # Resource version 0 may be answered by what is old: it must not be, or the two could differ.
    say.until(
        lambda: (
            [item["metadata"]["labels"] for item in say.speaker.send("GET", f"{at}?resourceVersion=0")["items"]]
            == [{"l": "2"}]
        )
    )
    short = "watch=1&timeoutSeconds=1"
    since = f"{at}?{short}&resourceVersion={start}"
    refused = (
        "resourceVersion=bad",
        "sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "sendInitialEvents=false",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=Exact&resourceVersion=1",
        "sendInitialEvents=true&resourceVersionMatch=Exact&allowWatchBookmarks=true",
        "labelSelector=bad+key",
        "fieldSelector=bad%3D1",
        "limit=1&continue=x",
    )
    say.hear(
        (f"{at}?{short}", {}),
        (f"{at}?{short}&resourceVersion=0", {}),
        (since, {}),
        (f"{since}&labelSelector=l%3D1", {}),
        (f"{since}&labelSelector=l%3D2", {}),
        (f"{since}&fieldSelector=metadata.name%3Db", {}),
        (since, {"Accept": TABLE}),
        (since, {"Accept": PARTIAL}),
        (f"{at}?{short}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", {}),
        (f"/api/v1/watch/namespaces/{say.namespace}/endpoints/a?timeoutSeconds=1&resourceVersion={start}", {}),
        *((f"{at}?{short}&{query}", {}) for query in refused),
    )


def paths(say: Conversation) -> None:
    """Discovery, unknown paths, methods that do not fit."""
    for path in (
        "/api",
        "/api/",
        "/api/v2",
        "/api/v1/nothing",
        "/api/v1/namespaces/default/nothing",
        "/api/v1/namespaces/default/nothing/x",
        "/api/v1/namespaces/default/configmaps/x/y",
        "/api/v1/namespaces/default/configmaps/x/y/z",
        "/apis/nothing",
        "/apis/apps/v2",
        "/apis/apps/v1/nothing",
        "/apis/apps/v1/namespaces/default/nothing",
        "/nothing",
        "/apis/apps/v1/deployments/x",
        "/api/v1/nodes/x/y",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/namespaces/default/namespaces",
        "/api/v1/watch/namespaces/default/configmaps/x/y/z",
        "/apis/apps",
        "/apis/batch",
        "/apis/autoscaling",
        "/apis/events.k8s.io",
        "/apis/authorization.k8s.io/v1",
        "/apis/authentication.k8s.io/v1",
        "/apis/apps/v1",
        "/apis/batch/v1",
        "/apis/autoscaling/v2",
        "/apis/autoscaling/v1",
        "/apis/policy/v1",
        "/apis/networking.k8s.io/v1",
        "/apis/rbac.authorization.k8s.io/v1",
        "/apis/coordination.k8s.io/v1",
        "/apis/discovery.k8s.io/v1",
        "/apis/events.k8s.io/v1",
        "/apis/storage.k8s.io/v1",
        "/apis/certificates.k8s.io/v1",
        "/api/v1",
        "/apis/apiextensions.k8s.io/v1",
        "/apis/scheduling.k8s.io/v1",
        "/apis/node.k8s.io/v1",
        "/version",
        "/healthz",
        "/livez",
        "/readyz",
        "/healthz/ping",
        "/livez?verbose",
        "/openapi/v9",
        "/openapi/v3/nothing",
        "/",
    ):
        say.say("GET", path)
    for method, path in (
        ("POST", "/api"),
        ("PUT", "/api/v1"),
        ("DELETE", "/apis"),
        ("POST", "/version"),
        ("PATCH", "/api/v1/namespaces"),
        ("PUT", "/api/v1/namespaces/default/configmaps"),
        ("DELETE", "/api/v1/namespaces"),
        ("POST", "/api/v1/namespaces/default/configmaps/x"),
        ("GET", "/api/v1/namespaces/default/bindings"),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("DELETE", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("HEAD", "/api/v1/namespaces/default"),
        ("OPTIONS", "/api/v1/namespaces/default"),
        ("TRACE", "/api/v1/namespaces/default"),
        ("FOO", "/api/v1/namespaces/default"),
        ("DELETE", "/api/v1/componentstatuses"),
        ("PUT", "/api/v1/namespaces/default/pods/x/binding"),
        ("PUT", "/api/v1/namespaces/default/pods/x/log"),
    ):
        say.say(method, path)


def layout(say: Conversation) -> None:
    """Answers that people read have a field a line."""
    at = "/api/v1/namespaces/default"
    agents = ("curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11)", "Mozilla/4.0", "kubectl/1.36", "libcurl")
    for path in (at, "/api/v1/namespaces", f"{at}/configmaps/missing", "/api", "/apis/apps/v1", "/version", "/"):
        for agent in agents:
            say.note(path, _lines, User_Agent=agent)
    for path in ("/openapi/v2", "/openapi/v3/api/v1", "/openid/v1/jwks", "/.well-known/openid-configuration"):
        say.note(path, _lines, User_Agent=agents[0])
    for pretty in ("", "=", "=1", "=t", "=TRUE", "=yes", "=0", "=false", "=2"):
        for agent in ("curl/8.5.0", "kubectl/1.36"):
            say.note(f"{at}?pretty{pretty}", _lines, User_Agent=agent)
    for accept in ("application/json;pretty=1", "application/json;pretty=0", "application/yaml", TABLE):
        say.note(f"{at}?pretty=1", _lines, Accept=accept)
        say.note(at, _lines, Accept=accept)
    maps = f"{at}/configmaps"
    made, bad = {"metadata": {"name": "eq-layout"}}, {"metadata": {"name": "Not a name"}}
    for agent in ("curl/8.5.0", "kubectl/1.36"):
        for query in ("dryRun=All", "dryRun=All&pretty=1", "dryRun=All&pretty=false"):
            for body in (made, bad):
                say.part("POST", f"{maps}?{query}", body, _lines, User_Agent=agent)
            say.part("DELETE", f"{maps}/missing?{query}", None, _lines, User_Agent=agent)
        for query in ("", "&pretty=1"):
            watched = f"/api/v1/namespaces?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Ddefault{query}"
            say.note(watched, _lines, User_Agent=agent)


def _lines(answer: Answer) -> bool:
    return answer.content.startswith(b'{\n  "')


def quantities(say: Conversation) -> None:
    """How amounts are kept, and what is none."""
    say.set_up()
    texts = (
        *(
            "1000m",
            "0.5",
            "100u",
            "1n",
            "1001u",
            "+5",
            "5.",
            ".5",
            "00012",
            "0.000",
            ".",
            "m",
            "Gi",
            "1E3",
            "1e+3",
            "1e03",
        ),
        *("1e-10", "1e0", "0.5e3", "12e-3", "1536Mi", "1.5Gi", "1.1Ki", "0.0005Ki", "1024Ki", "1e19", "1e100"),
        *("9223372036854775808", "9223372036854775808Ki", "16Ei", 7, 1.5, "-0", "-0.000", "-0Ki"),
    )
    containers = [
        {"name": f"c{number}", "image": "i", "resources": {"requests": {"ephemeral-storage": text}}}
        for number, text in enumerate(texts)
    ]
    volumes = [{"name": f"v{number}", "emptyDir": {"sizeLimit": text}} for number, text in enumerate(texts)]
    at = f"{say.core}/pods?dryRun=All"
    say.part("POST", at, {"metadata": {"name": "p"}, "spec": {"containers": containers, "volumes": volumes}}, _amounts)
    beyond = {"name": "v", "emptyDir": {"sizeLimit": "1000E"}}
    containers = [{"name": "c", "image": "i"}]
    one = {"metadata": {"name": "p"}, "spec": {"containers": containers, "volumes": [beyond]}}
    say.part("POST", f"{at}&case=beyond", one, _amounts)
    for text in (
        *("-1", "-1n", "-0.0001", "-1001u", "-1.5Ki", "-0.0005Ki", "-1000m", "-1e3", "-1E", "-00012", "-.5", "-5."),
        *("-9223372036854775808", "-9223372036854775809", "-9223372036854775808Ki", "-1e19"),
    ):
        amounts = {"requests": {"ephemeral-storage": text}}
        volumes = [{"name": "v", "emptyDir": {"sizeLimit": text}}]
        spec = {"containers": [{**containers[0], "resources": amounts}], "volumes": volumes}
        say.say("POST", at, {"metadata": {"name": "p"}, "spec": spec})
    for text in (
        "",
        " ",
        "1x",
        "1ki",
        "1K",
        "1mm",
        "1e",
        "1e+",
        "1-3",
        "1..2",
        "1 2",
        "e-11",
        "Ei",
        "-1",
    ):
        resources = {"requests": {"storage": text}}
        claim = {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}
        say.say("POST", f"{say.core}/persistentvolumeclaims?dryRun=All", claim)


def amounts(say: Conversation) -> None:
    """Amounts that are added up and compared: each is what it is, however it is written and however large."""
    say.set_up()
    at = f"{say.core}/resourcequotas"
    hard = {
        "requests.memory": "1.5Gi",
        "pods": "1e1",
        "requests.cpu": "0.5",
        "count/secrets": "0012",
        "limits.memory": "1e3",
        "requests.storage": "0.5Ki",
        "limits.cpu": "1000m",
        "requests.ephemeral-storage": "9223372036854775808",
    }
    say.part("POST", f"{at}?dryRun=All", {"metadata": {"name": "h"}, "spec": {"hard": hard}}, _hard)
    for number, wrong in enumerate(
        ({"pods": "1.5"}, {"pods": "-1"}, {"requests.cpu": "-1n"}, {"count/secrets": "500m"}, {"pods": "1n"})
    ):
        body = {"metadata": {"name": "h"}, "spec": {"hard": wrong}}
        say.part("POST", f"{at}?dryRun=All&wrong={number}", body, _hard)

    def pod(*asked: dict[str, str], **limits: str) -> dict[str, Any]:
        containers = [
            {"name": f"c{number}", "image": "i", "resources": {"requests": each, "limits": limits}}
            for number, each in enumerate(asked)
        ]
        return {"metadata": {"name": "p"}, "spec": {"automountServiceAccountToken": False, "containers": containers}}

    for number, (asked, limit) in enumerate(
        (("1.0001", "1"), ("1000m", "1"), ("1000.1m", "1001m"), ("1e3m", "1"), ("0.9999", "1"), ("1u", "1n"))
    ):
        body = pod({"cpu": asked}, cpu=limit)
        say.part("POST", f"{say.core}/pods?dryRun=All&of={number}", body, _asked)
    for number, (asked, limit) in enumerate((("1Gi", "1024Mi"), ("1Gi", "1G"), ("8E", "8Ei"), ("1.5Ki", "1536"))):
        body = pod({"memory": asked}, memory=limit)
        say.part("POST", f"{say.core}/pods?dryRun=All&memory={number}", body, _asked)
    large = {"requests.memory": "9E", "requests.cpu": "9223372036854775807"}
    say.speaker.send("POST", at, {"metadata": {"name": "q"}, "spec": {"hard": large}})
    say.until(lambda: "used" in say.speaker.send("GET", f"{at}/q").body.get("status", {}))
    small, huge = {"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "8E"}
    say.until(lambda: say.speaker.send("POST", f"{say.core}/pods?dryRun=All", pod(small)).status == 201)
    for body in (pod(huge, huge), pod({**small, "cpu": "9223372036854775807"}, small), pod(huge, small, small)):
        say.verdict("POST", f"{say.core}/pods?dryRun=All", body)


def _hard(answer: Answer) -> Any:
    if answer.status != 201:
        return answer.body
    return answer["spec"]["hard"]


def _asked(answer: Answer) -> Any:
    if answer.status != 201:
        return answer.body
    return answer["spec"]["containers"][0]["resources"]


def _amounts(answer: Answer) -> Any:
    """The amounts of a pod, without what else stands in it."""
    if answer.status != 201:
        return answer.body
    spec = answer["spec"]
    asked = [container["resources"].get("requests", {}) for container in spec["containers"]]
    sizes = [volume["emptyDir"].get("sizeLimit") for volume in spec["volumes"] if "emptyDir" in volume]
    return {
        "requests": [each.get("ephemeral-storage") for each in asked],
        "sizes": sizes,
    }


def networks(say: Conversation) -> None:
    """Addresses with prefix lengths: leading zeros, bits beyond the prefix, mapped addresses."""
    say.set_up()
    networking = f"/apis/networking.k8s.io/v1/namespaces/{say.namespace}/networkpolicies?dryRun=All"
    for text in (
        *("10.0.0.0/8", "010.0.0.0/8", "10.0.0.00/8", "10.0.0.0/08", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/255.0.0.0"),
        *("::/0", "2001:db8::/032", "::ffff:1.2.3.4/96", "1.2.3.4", "1.2.3/8", "/8", "1.2.3.04/32", "10.0.0.0/+8"),
    ):
        block = {"from": [{"ipBlock": {"cidr": text}}]}
        say.say("POST", networking, {"metadata": {"name": "n"}, "spec": {"podSelector": {}, "ingress": [block]}})
        balanced = {"type": "LoadBalancer", "ports": [{"port": 1}], "loadBalancerSourceRanges": [text]}
        answer = say.speaker.send(
            "POST", f"{say.core}/services?dryRun=All", {"metadata": {"name": "n"}, "spec": balanced}
        )
        if answer.status != 201:
            say.say("POST", f"{say.core}/services?dryRun=All", {"metadata": {"name": "n"}, "spec": balanced})
        ip = text.partition("/")[0]
        outside = {"ports": [{"port": 1}], "externalIPs": [ip]}
        say.verdict("POST", f"{say.core}/services?dryRun=All", {"metadata": {"name": "n"}, "spec": outside})
        spared = {"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [text]}}]}
        say.verdict("POST", networking, {"metadata": {"name": "n"}, "spec": {"podSelector": {}, "ingress": [spared]}})
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{say.namespace}/endpointslices?dryRun=All"
        for family in ("IPv4", "IPv6"):
            listed = {"addressType": family, "endpoints": [{"addresses": [ip]}]}
            say.verdict("POST", slices, {"metadata": {"name": "n"}, **listed})
        pod = {
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "i"}],
            "dnsConfig": {"nameservers": [ip]},
            "hostAliases": [{"ip": ip, "hostnames": ["a"]}],
        }
        say.verdict("POST", f"{say.core}/pods?dryRun=All", {"metadata": {"name": "n"}, "spec": pod})
        subset = {"addresses": [{"ip": text.partition("/")[0]}], "ports": [{"port": 1}]}
        say.say("POST", f"{say.core}/endpoints?dryRun=All", {"metadata": {"name": "n"}, "subsets": [subset]})
