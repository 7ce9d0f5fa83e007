"""`ploti places` and `ploti topics`."""

from cyclopts import App

from ploti.cli.connect import connect
from ploti.cli.show import AsJson, present, show_table
from ploti.contract.resources import PlaceKind, PlaceList, TopicList

places = App(name="places", help="Places in your coverage.")
topics = App(name="topics", help="Topics that datasets are filed under.")


@places.default
@places.command(name="list")
def list_places(
    *, state: str | None = None, kind: PlaceKind | None = None, deliverable: bool = False, json: AsJson = False
) -> None:
    """List the places in your coverage with the number of datasets in each.

    Parameters
    ----------
    state
        Only places of this state, like fl.
    kind
        Only places of this kind.
    deliverable
        Count only datasets that are delivered.
    """
    with connect() as client:
        answer = client.places.list(state=state, kind=kind, deliverable=deliverable or None)
    present(answer, json, _show_places)


def _show_places(answer: PlaceList) -> None:
    rows = [(place["id"], place["name"], place["kind"], place["datasetCount"]) for place in answer["places"]]
    show_table(("ID", "NAME", "KIND", "DATASETS"), rows)


@topics.default
@topics.command(name="list")
def list_topics(*, json: AsJson = False) -> None:
    """List the topics that datasets are filed under."""
    with connect() as client:
        answer = client.topics.list()
    present(answer, json, _show_topics)


def _show_topics(answer: TopicList) -> None:
    show_table(("ID", "NAME"), [(topic["id"], topic["name"]) for topic in answer["topics"]])
