"""From asking for a workspace to using it: seconds from init to ready, kubeconfigs per second, suspension.

The floor beside them is a plain read from the portal in the same run.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from tests.story.product import Product, eventually

PEOPLE = 4
"""Few enough for the sign-in page, which slows down whoever comes too often."""


def main() -> None:
    """Start the product, let one person after the other ask for a workspace, and print the times."""
    with tempfile.TemporaryDirectory(prefix="tenantry-bench-") as folder:
        Path(folder).chmod(0o711)
        product = Product(Path(folder) / "data")
        print(f"  first start of the product: {product.start():.1f} s")
        try:
            _measure(product)
            product.stop()
            print(f"  second start of the product: {product.start():.1f} s")
        finally:
            product.stop()


def _measure(product: Product) -> None:
    people = []
    for number in range(PEOPLE):
        email = f"user-{number}@bench.test"
        product.add_person(email, "correct horse battery", f"bench-{number}")
        people.append(product.sign_in(email, "correct horse battery"))
    ready, workspaces = [], []
    for person in people:
        begun = time.perf_counter()
        answer = person.post("/api/v1/workspaces/init", json={"tier": "basic"})
        assert answer.status_code == 201, answer.text
        ready.append(time.perf_counter() - begun)
        workspaces.append(answer.json()["id"])
    print(f"  init to ready: p50 {statistics.median(ready):.2f} s, max {max(ready):.2f} s, {PEOPLE} workspaces")

    begun = time.perf_counter()
    for person in people * 2:
        assert person.get("/api/v1/tiers/").status_code == 200
    floor = PEOPLE * 2 / (time.perf_counter() - begun)
    begun = time.perf_counter()
    for person, workspace in list(zip(people, workspaces, strict=True)) * 2:
        answer = person.post(f"/api/v1/workspaces/{workspace}/credentials")
        assert answer.status_code in (200, 201), answer.text
    rate = PEOPLE * 2 / (time.perf_counter() - begun)
    print(f"  kubeconfigs, one after the other: {rate:.1f}/s; a plain read of the portal: {floor:.1f}/s")

    operator = product.sign_in(product.facts["operator_email"], product.facts["operator_password"])
    config = people[0].kubeconfig(workspaces[0])
    begun = time.perf_counter()
    answer = operator.post(f"/api/v1/workspaces/{workspaces[0]}/suspend", json={"reason": "benchmark"})
    answered = (time.perf_counter() - begun) * 1000
    assert answer.status_code in (200, 202), answer.text
    refused = product.kubectl("get", "configmaps", kubeconfig=config, check=False)
    assert "refused" not in refused
    assert "No resources" not in refused, refused
    eventually(lambda: operator.get(f"/api/v1/workspaces/{workspaces[0]}/").json()["status"] == "suspended")
    proved = (time.perf_counter() - begun) * 1000
    print(f"  suspension: answered, and refused from then on, after {answered:.0f} ms; proved after {proved:.0f} ms")


if __name__ == "__main__":
    main()
