"""Generated quantities are read and written as by a real kube-apiserver (TS15, ADM-08)."""

from __future__ import annotations

from random import Random

from kube.quota.quantities import InvalidQuantity, parse_quantity
from tests.speaking import Speaker

PODS = "/api/v1/namespaces/default/pods?dryRun=All"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims?dryRun=All"
SUFFIXES = (
    "",
    *"numkMGTPE",
    "Ki",
    "Mi",
    "Gi",
    "Ti",
    "Pi",
    "Ei",
    "e",
    "E",
    "e3",
    "E-3",
    "e+7",
    "e-11",
    "e03",
    "e25",
    "x",
)
A_POD = 100


def _text(random: Random) -> str:
    digits = random.choice((1, 1, 2, 3, 4, 9, 17, 18, 19, 20, 30))
    whole = "".join(random.choice("0001234567899") for _ in range(digits))
    part = random.choice(("", "", "", ".", ".0", ".5", ".25", ".001", ".0001", ".125", ".1234567891", ".000000000001"))
    if random.random() < 0.1:
        whole = ""
    return random.choice(("", "", "", "", "+", "-")) + whole + part + random.choice(SUFFIXES)


def _ours(text: str, *, in_list: bool) -> str | None:
    try:
        found = parse_quantity(text)
    except InvalidQuantity:
        return None
    return str(found.rounded() if in_list else found)


def test_generated_quantities_are_kept_in_the_same_words(server: Speaker) -> None:
    """Amounts of resources to a thousandth, others as they are."""
    random = Random(17)
    texts = [text for text in (_text(random) for _ in range(3000)) if not text.startswith("-")]
    texts = [text for text in [".", "+", "e3", "m", "Ki", "Gi", " 5", *texts] if _ours(text, in_list=True) is not None]
    assert len(texts) > 1000
    for start in range(0, len(texts), A_POD):
        part = texts[start : start + A_POD]
        containers = [
            {"name": f"c{number}", "image": "i", "resources": {"requests": {"ephemeral-storage": text}}}
            for number, text in enumerate(part)
        ]
        volumes = [{"name": f"v{number}", "emptyDir": {"sizeLimit": text}} for number, text in enumerate(part)]
        pod = {"metadata": {"name": "p"}, "spec": {"containers": containers, "volumes": volumes}}
        answer = server.send("POST", PODS, pod)
        assert answer.status == 201, answer.body["message"][:500]
        kept = [one["resources"]["requests"]["ephemeral-storage"] for one in answer["spec"]["containers"]]
        whole = [one["emptyDir"]["sizeLimit"] for one in answer["spec"]["volumes"] if "emptyDir" in one]
        assert [_ours(text, in_list=True) for text in part] == kept
        assert [_ours(text, in_list=False) for text in part] == whole


def test_what_is_no_quantity_is_refused_by_both(server: Speaker) -> None:
    random = Random(18)
    texts = [*(_text(random) for _ in range(1500)), "", "1..2", "1 2", "\u0661", "1_0", "0x1", "1e", "1e+", "1-3"]
    wrong = [text for text in texts if _ours(text, in_list=True) is None]
    assert len(wrong) > 100
    for text in wrong[-150:]:
        claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": text}}}}
        answer = server.send("POST", CLAIMS, {"metadata": {"name": "c"}, **claim})
        assert answer.status == 400, text
