"""`python -m bench.service_jobs [--folder DIR]`: a manifest of 2,000 datasets, downloads, webhooks beside their limits.

Each is the CPU of the process that serves or sends, beside a program that does only what nobody can do without. Prints
JSON lines, then each goal (docs/performance.md).
"""

import argparse
import hashlib
import hmac
import json
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from bench.jobs import publisher
from bench.measure import judge, provenance
from bench.service import SERVERS, cpu_of
from bench.service_load import Connection
from bench.service_peers import PART
from bench.service_world import fill_for_webhooks, fill_many, fill_part
from bench.serving import serving

DATASETS, DELIVERIES, PART_MIB = 2_000, 2_000, 64
MANIFESTS, DOWNLOADS = 20, 20
MANIFEST_MS, MANIFEST_AIM_MS = 60.0, 25.0
DOWNLOAD, WEBHOOKS = 4.0, 40.0
"""Goals: CPU of the server for a manifest, and in times the limit for a download and a delivery."""


def main() -> None:
    """Measure the three jobs."""
    parser = argparse.ArgumentParser(prog="python -m bench.service_jobs")
    parser.add_argument(
        "--folder", type=Path, help="keeps the filled stores for the next run; a temporary one by default"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch)
        manifest = _told(manifest_cost(folder / "many"))
        download = _told(download_cost(folder / "part"))
        webhooks = _told(webhook_cost(Path(scratch) / "webhooks"))
    own = manifest["server_cpu_ms"]
    judge("manifest of 2,000 datasets, CPU of the server in ms", {"aim": MANIFEST_AIM_MS}, own, MANIFEST_MS)
    for job, told, most in (("download of a part", download, DOWNLOAD), ("webhook delivery", webhooks, WEBHOOKS)):
        judge(f"{job}, CPU in times the limit", {}, told["times_the_limit"], most)


def _told(figures: dict) -> dict:
    print(json.dumps({**figures, **provenance()}), flush=True)
    return figures


def manifest_cost(home: Path, datasets: int = DATASETS) -> dict[str, object]:
    """Ask for the same manifest again and again; the limit signs as many links and writes as much JSON."""
    if not (home / "access.json").exists():
        fill_many(home, datasets)
    access = json.loads((home / "access.json").read_text())
    path = f"/v1/feeds/subscriptions/{access['subscription']}/manifest"
    with serving(home) as (port, process):
        connection = Connection(port)
        status, body = connection.get(path, access["key"])
        content = json.loads(body)
        if status != 200 or len(content["datasets"]) != datasets:
            raise RuntimeError(f"the server answered {status} {body[:200]!r}")
        before = cpu_of(process)
        for _ in range(MANIFESTS):
            connection.get(path, access["key"])
        cost = (cpu_of(process) - before) / MANIFESTS * 1000
    limit = _links_and_json(content)
    told = {"server_cpu_ms": round(cost, 1), "limit_cpu_ms": round(limit, 1), "bytes": len(body)}
    return {"job": "manifest", "datasets": datasets, **told, "times_the_limit": round(cost / limit, 1)}


def _links_and_json(content: dict) -> float:
    """Give the milliseconds of CPU for an HMAC of each link and the JSON of a manifest."""
    files = [dataset["files"] for dataset in content["datasets"]]
    kinds = ("snapshot", "changes", "backfill", "idMap")
    found = [
        link for each in files for link in (each["schema"], each["manifest"], *(x for k in kinds for x in each[k]))
    ]
    links = [link["url"].encode() for link in found]
    secret = b"s" * 32
    before = time.process_time()
    for _ in range(MANIFESTS):
        for link in links:
            hmac.new(secret, link, hashlib.sha256).hexdigest()
        msgspec.json.encode(content)
    return (time.process_time() - before) / MANIFESTS * 1000


def download_cost(home: Path) -> dict[str, object]:
    """Download a large part by its link, from the service and from a server that only calls sendfile."""
    if not (home / "files" / PART).exists():
        fill_part(home, PART_MIB << 20)
    ports = publisher(str(home))
    from ploti_server.app import build_signer

    expires = datetime.now(UTC) + timedelta(hours=1)
    link = build_signer(ports).sign(PART, "part-0000.parquet", "application/vnd.apache.parquet", expires)
    ports.store.close()
    cost = {}
    for name in ("ploti-server", "sendfile"):
        with serving(home, SERVERS[name]) as (port, process):
            connection = Connection(port)
            if connection.download(link) != PART_MIB << 20:
                raise RuntimeError(f"{name} did not send the part")
            before = cpu_of(process)
            for _ in range(DOWNLOADS):
                connection.download(link)
            cost[name] = (cpu_of(process) - before) / DOWNLOADS * 1000
    own, limit = cost["ploti-server"], cost["sendfile"]
    told = {"server_cpu_ms": round(own, 1), "limit_cpu_ms": round(limit, 1)}
    return {"job": "download", "mib": PART_MIB, **told, "times_the_limit": round(own / limit, 2)}


def webhook_cost(home: Path) -> dict[str, object]:
    """Send what is due to a receiver on this machine; the limit posts as many bodies over one plain socket."""
    with serving(home, SERVERS["sink"]) as (port, _):
        waiting = fill_for_webhooks(home, f"http://127.0.0.1:{port}/", DELIVERIES)
        own, sent = _delivered(home)
        if sent != waiting:
            raise RuntimeError(f"{sent} of {waiting} deliveries were sent")
        limit = _posted(port)
    told = {"cpu_us": round(own * 1e6, 1), "limit_cpu_us": round(limit * 1e6, 1)}
    return {"job": "webhooks", "deliveries": sent, **told, "times_the_limit": round(own / limit, 1)}


def _delivered(home: Path) -> tuple[float, int]:
    """Give the CPU seconds of a delivery, and how many were made."""
    from ploti_server.pipeline.deliver import deliver_due

    ports = publisher(str(home), webhooks_allow_loopback="true")
    before = time.process_time()
    attempts = deliver_due(ports, "bench")
    used = time.process_time() - before
    with ports.store.read() as records:
        left = records.deliveries.backlog(ports.clock.now()).waiting
    ports.store.close()
    return used / attempts, attempts - left


def _posted(port: int) -> float:
    """Give the CPU seconds of a POST over a plain socket that is kept open."""
    connection = Connection(port)
    body = b'{"id":"evt_000000000001","data":{}}' * 10
    before = time.process_time()
    for _ in range(DELIVERIES):
        connection.post(body)
    return (time.process_time() - before) / DELIVERIES


if __name__ == "__main__":
    sys.exit(main())
