"""`ploti feeds attachments ...`: the files that are delivered with a dataset."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

import ploti
from ploti.cli.connect import connect
from ploti.cli.progress import watching
from ploti.cli.show import AsJson, byte_size, present, printable, show_table

if TYPE_CHECKING:
    from ploti.contract.resources import AttachmentLink
    from ploti.sync.attachments import AttachmentsReport

app = App(name="attachments", help="Files delivered with a dataset, like its documents.")


@app.command(name="list")
def list_attachments(dataset: str, /, *, version: int | None = None, json: AsJson = False) -> None:
    """List the attachments of a version, the current one unless named; with --json also the links to them.

    Parameters
    ----------
    dataset
        Id of the dataset.
    version
        Number of the version.
    """
    with connect() as client:
        _, listed = _listed(client, dataset, version)
    present({"attachments": listed}, json, _show)


@app.command
def download(dataset: str, /, *files: str, to: Path, version: int | None = None, json: AsJson = False) -> int:
    """Download attachments into a folder: all of a version, or those named.

    Files get safe names of their own; attachments.json tells which is which.
    What is there already is not downloaded again. Files of yours stay untouched.
    Exit code 1 where one could not be had.

    Parameters
    ----------
    dataset
        Id of the dataset.
    files
        Names like source:zoning-ordinance, original or document:<sha256>.
    to
        The folder; one for each dataset.
    version
        Number of the version; the current one unless given.
    """
    from ploti.sync.attachments import save_attachments

    with connect() as client, watching(json) as progress:
        number, listed = _listed(client, dataset, version)
        known = {one["file"]: one for one in listed}
        for name in files:
            if name not in known:
                message = f"Version {number} of {dataset} has no attachment {name!r}: list them."
                raise ploti.NotFound(message, code="not_found", field="file")
        wanted = [known[name] for name in dict.fromkeys(files)] if files else listed
        report = save_attachments(client, dataset, number, wanted, to, progress=progress, whole=not files)
    present(attachments_wire(report), json, lambda told: print(attachments_line(told)))
    return 0 if report.problem is None else 1


def attachments_wire(report: "AttachmentsReport") -> dict[str, Any]:
    """Give what became of a folder as JSON."""
    return {
        "datasetId": report.dataset_id,
        "version": report.version,
        "files": report.files,
        "fetched": report.fetched,
        "removed": report.removed,
        "problem": report.problem,
    }


def attachments_line(report: dict[str, Any]) -> str:
    """Tell what became of a folder in a line."""
    told = f"{report['datasetId']}: {report['files']} attachments of version {report['version']}"
    told += f", {report['fetched']} fetched, {report['removed']} removed"
    return printable(told if report["problem"] is None else f"{told}; not all: {report['problem']}")


def _listed(client: ploti.Client, dataset: str, version: int | None) -> tuple[int, "list[AttachmentLink]"]:
    number = version
    if number is None:
        current = client.feeds.datasets.get(dataset)["current"]
        if current is None:
            raise ploti.Reload(f"{dataset} has no released version yet: try again later.", code="no_version")
        number = current["version"]
    return number, client.feeds.datasets.versions.get(dataset, number)["files"]["attachments"]


def _show(answer: dict[str, Any]) -> None:
    rows = [
        (one["file"], one["filename"], one["contentType"], byte_size(one["sizeBytes"])) for one in answer["attachments"]
    ]
    show_table(("FILE", "NAME", "TYPE", "SIZE"), rows)
