"""`ploti feeds datasets ...`: datasets and their versions."""

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, Literal

from cyclopts import App

from ploti.cli.connect import connect
from ploti.cli.lists import TABLE, Columns, Cursor, Output, PageSize, show_list
from ploti.cli.show import AsJson, byte_size, local_time, moment, number, present, show_facts, show_table
from ploti.contract.resources import (
    Dataset,
    RecordTrace,
    Schema,
    Version,
    VersionFiles,
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
    limit: PageSize = None,
    cursor: Cursor = None,
    out: Output = TABLE,
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
    show_list(answer, "datasets", _DATASETS, out)


def _current(name: str) -> Callable[[Dataset], Any]:
    """Show a member of a dataset's current version."""

    def shown(dataset: Dataset) -> Any:
        current: Mapping[str, Any] | None = dataset["current"]
        return None if current is None else current[name]

    return shown


_DATASETS: Final[Columns] = {
    "ID": itemgetter("id"),
    "TITLE": itemgetter("title"),
    "PLACE": lambda dataset: dataset["place"]["id"],
    "TOPIC": itemgetter("topic"),
    "STATUS": itemgetter("status"),
    "VERSION": lambda dataset: number(_current("version")(dataset)),
    "ROWS": _current("rowCount"),
    "RELEASED": lambda dataset: moment(_current("publishedAt")(dataset)),
}


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
            "version": current and number(current["version"]),
            "schema": current and current["schemaVersion"],
            "rows": current and current["rowCount"],
            "released": current and moment(current["publishedAt"]),
            "last checked": moment(answer["refresh"]["lastCheckedAt"]),
            "next check by": moment(answer["refresh"]["nextCheckBy"]),
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
    limit: PageSize = None,
    cursor: Cursor = None,
    out: Output = TABLE,
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
    """
    with connect() as client:
        answer = client.feeds.datasets.versions.list(dataset, after=after, order=order, limit=limit, cursor=cursor)
    show_list(answer, "versions", _VERSIONS, out)


_VERSIONS: Final[Columns] = {
    "VERSION": lambda version: number(version["version"]),
    "AFTER": lambda version: number(version["previousVersion"]),
    "SCHEMA": itemgetter("schemaVersion"),
    "ROWS": itemgetter("rowCount"),
    "CHANGES": lambda version: "reload" if version["resyncRequired"] else version["counts"],
    "RELEASED": lambda version: moment(version["publishedAt"]),
}


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
            "version": number(answer["version"]),
            "after": number(answer["previousVersion"]),
            "schema": answer["schemaVersion"],
            "rows": answer["rowCount"],
            "changes": "reload" if answer["resyncRequired"] else answer["counts"],
            "ids replaced": answer["recordIdsChanged"],
            "released": moment(answer["publishedAt"]),
            "read at": moment(answer["fetchedAt"]),
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
