"""`ploti feeds datasets ...`: datasets and their versions."""

from collections.abc import Iterator
from typing import Literal

from cyclopts import App

from ploti.cli.connect import connect
from ploti.cli.show import (
    AsJson,
    byte_size,
    counts_text,
    local_time,
    present,
    show_facts,
    show_more,
    show_table,
)
from ploti.contract.resources import (
    Dataset,
    DatasetPage,
    RecordTrace,
    Schema,
    Version,
    VersionFiles,
    VersionPage,
)

app = App(name="datasets", help="Datasets and their versions.")
versions = App(name="versions", help="Released versions of a dataset.")
app.command(versions)
app.command("ploti.cli.look:head_of", name="head", help="Show the first rows of a dataset.")
app.command("ploti.cli.look:export_to", name="export", help="Write a dataset into one file.")
versions.command("ploti.cli.look:diff_versions", name="diff", help="Show what differs between two versions.")


@app.command(name="list")
def list_datasets(
    *,
    place: str | None = None,
    topic: str | None = None,
    subscription: str | None = None,
    updated_since: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    json: AsJson = False,
) -> None:
    """List datasets, a page at a time.

    Parameters
    ----------
    place
        Only datasets in this place, like fl-county-orange.
    topic
        Only datasets of this topic.
    subscription
        Only datasets that this subscription delivers.
    updated_since
        Only datasets released at or after this time, like 2026-10-18T06:00:00Z.
    limit
        Datasets a page, at most 200.
    cursor
        Where to go on, as the page before said.
    """
    with connect() as client:
        answer = client.feeds.datasets.list(
            place=place,
            topic=topic,
            subscription=subscription,
            updated_since=updated_since,
            limit=limit,
            cursor=cursor,
        )
    present(answer, json, _show_datasets)


def _show_datasets(answer: DatasetPage) -> None:
    columns = ("ID", "TITLE", "PLACE", "TOPIC", "STATUS", "VERSION", "ROWS", "RELEASED")
    show_table(columns, [_dataset_row(dataset) for dataset in answer["datasets"]])
    show_more(answer["nextCursor"])


def _dataset_row(dataset: Dataset) -> tuple[object, ...]:
    current = dataset["current"]
    start = (dataset["id"], dataset["title"], dataset["place"]["id"], dataset["topic"], dataset["status"])
    if current is None:
        return (*start, None, None, None)
    return (*start, str(current["version"]), current["rowCount"], local_time(current["publishedAt"]))


@app.command(name="get")
def get_dataset(dataset: str, /, *, json: AsJson = False) -> None:
    """Show one dataset.

    Parameters
    ----------
    dataset
        Id of the dataset.
    """
    with connect() as client:
        answer = client.feeds.datasets.get(dataset)
    present(answer, json, _show_dataset)


def _show_dataset(answer: Dataset) -> None:
    current, geometry, license_ = answer["current"], answer["geometry"], answer["license"]
    show_facts(
        {
            "id": answer["id"],
            "title": answer["title"],
            "description": answer["description"],
            "place": answer["place"]["name"],
            "topic": answer["topic"],
            "publisher": answer["source"]["publisher"],
            "source": answer["source"]["url"],
            "licence": license_ and license_["id"],
            "key": answer["keyColumns"],
            "geometry": geometry and geometry["type"],
            "status": answer["status"],
            "version": current and str(current["version"]),
            "schema": current and current["schemaVersion"],
            "rows": current and current["rowCount"],
            "released": current and local_time(current["publishedAt"]),
            "last checked": local_time(answer["refresh"]["lastCheckedAt"]),
            "next check by": local_time(answer["refresh"]["nextCheckBy"]),
        }
    )


@app.command(name="schema")
def dataset_schema(dataset: str, /, *, version: int | None = None, json: AsJson = False) -> None:
    """Show a dataset's columns.

    Parameters
    ----------
    dataset
        Id of the dataset.
    version
        As of this version instead of the current one.
    """
    with connect() as client:
        answer = client.feeds.datasets.schema(dataset, version)
    present(answer, json, _show_schema)


def _show_schema(answer: Schema) -> None:
    show_facts(
        {"dataset": answer["datasetId"], "schema": answer["schemaVersion"], "key": answer["keyColumns"]},
    )
    rows = [
        (column["name"], column["type"], column["nullable"], column.get("sourceName"), column.get("description"))
        for column in answer["columns"]
    ]
    print()
    show_table(("COLUMN", "TYPE", "NULLABLE", "SOURCE NAME", "DESCRIPTION"), rows)


@app.command(name="record")
def dataset_record(dataset: str, record_id: str, /, *, json: AsJson = False) -> None:
    """Show what became of a record id.

    Parameters
    ----------
    dataset
        Id of the dataset.
    record_id
        An id that a record of it carried at some time, like rec_....
    """
    with connect() as client:
        answer = client.feeds.datasets.record(dataset, record_id)
    present(answer, json, _show_record)


def _show_record(answer: RecordTrace) -> None:
    show_facts(
        {
            "dataset": answer["datasetId"],
            "record": answer["recordId"],
            "status": answer["status"],
            "first version": str(answer["firstVersion"]),
            "last version": str(answer["lastVersion"]),
            "replaced by": answer["replacedBy"],
            "id now": answer["currentId"],
        }
    )


@versions.command(name="list")
def list_versions(
    dataset: str,
    /,
    *,
    after: int | None = None,
    order: Literal["asc", "desc"] | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    json: AsJson = False,
) -> None:
    """List a dataset's released versions, a page at a time.

    Parameters
    ----------
    dataset
        Id of the dataset.
    after
        Only versions with a higher number.
    order
        Oldest first, or newest first.
    limit
        Versions a page.
    cursor
        Where to go on, as the page before said.
    """
    with connect() as client:
        answer = client.feeds.datasets.versions.list(dataset, after=after, order=order, limit=limit, cursor=cursor)
    present(answer, json, _show_versions)


def _show_versions(answer: VersionPage) -> None:
    rows = [
        (
            str(version["version"]),
            version["previousVersion"] and str(version["previousVersion"]),
            version["schemaVersion"],
            version["rowCount"],
            "reload" if version["resyncRequired"] else counts_text(version["counts"]),
            local_time(version["publishedAt"]),
        )
        for version in answer["versions"]
    ]
    show_table(("VERSION", "AFTER", "SCHEMA", "ROWS", "CHANGES", "RELEASED"), rows)
    show_more(answer["nextCursor"])


@versions.command(name="get")
def get_version(dataset: str, version: int, /, *, json: AsJson = False) -> None:
    """Show a version and its files; with --json also the links to them.

    Parameters
    ----------
    dataset
        Id of the dataset.
    version
        Number of the version.
    """
    with connect() as client:
        answer = client.feeds.datasets.versions.get(dataset, version)
    present(answer, json, _show_version)


def _show_version(answer: Version) -> None:
    show_facts(
        {
            "dataset": answer["datasetId"],
            "version": str(answer["version"]),
            "after": answer["previousVersion"] and str(answer["previousVersion"]),
            "schema": answer["schemaVersion"],
            "rows": answer["rowCount"],
            "changes": "reload" if answer["resyncRequired"] else counts_text(answer["counts"]),
            "ids replaced": answer["recordIdsChanged"],
            "released": local_time(answer["publishedAt"]),
            "read at": local_time(answer["fetchedAt"]),
            "source": answer["sourceUrl"],
        }
    )
    print()
    show_table(("FILE", "SIZE", "SHA256"), _file_rows(answer["files"]))
    print(f"\nLinks until {local_time(answer['files']['expiresAt'])}: add --json to see them.")


def _file_rows(files: VersionFiles) -> Iterator[tuple[object, ...]]:
    parts = [*files["snapshot"], *files["changes"], *files["backfill"], *files["idMap"]]
    for file in [*parts, files["schema"], files["manifest"]]:
        yield file["path"], byte_size(file["sizeBytes"]), file["sha256"]
    for attached in files["attachments"]:
        name = f"{attached['file']} ({attached['filename']})"
        yield name, byte_size(attached["sizeBytes"]), attached["sha256"]
