"""`ploti places` and `ploti topics`."""

from operator import itemgetter
from typing import Annotated

from cyclopts import App, Parameter

from ploti.cli.connect import connect
from ploti.cli.lists import TABLE, Output, show_list
from ploti.contract.resources import PlaceKind

places = App(name="places", help="Places in your coverage.")
topics = App(name="topics", help="Topics that datasets are filed under.")


@places.default
@places.command(name="list")
def list_places(
    *,
    state: str | None = None,
    kind: PlaceKind | None = None,
    deliverable: Annotated[bool, Parameter(negative="")] = False,
    out: Output = TABLE,
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
    columns = {
        "ID": itemgetter("id"),
        "NAME": itemgetter("name"),
        "KIND": itemgetter("kind"),
        "DATASETS": itemgetter("datasetCount"),
    }
    show_list(answer, "places", columns, out)


@topics.default
@topics.command(name="list")
def list_topics(*, out: Output = TABLE) -> None:
    """List the topics that datasets are filed under."""
    with connect() as client:
        answer = client.topics.list()
    show_list(answer, "topics", {"ID": itemgetter("id"), "NAME": itemgetter("name")}, out)
