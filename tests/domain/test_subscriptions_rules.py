"""What a subscription may name, and what a key opens (page 000, D8.8, D10.3, D1.5)."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ploti.contract.errors import ERROR_STATUS
from ploti_server.domain.access import Access, Refused, access_of, refusal_of, refusal_of_key
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.subscriptions import (
    Selection,
    Subscription,
    check_room,
    check_selection,
    new_subscription,
    read_selection,
)
from ploti_server.domain.workspaces import ApiKey, Member, Workspace

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACCESS = Access(frozenset({"fl-county-orange"}))


def dataset(dataset_id="ds_x", place="fl-county-orange", **fields):
    return Dataset(id=dataset_id, title="X", source=SourceSpec("file", "x"), place=place, **fields)


def refused(call, *arguments):
    with pytest.raises(Refused) as found:
        call(*arguments)
    return found.value.code, found.value.field


class TestReading:
    def test_every_field_is_read_and_repeats_are_kept_once(self):
        body = {"name": " Orange ", "places": ["fl", "fl"], "topics": ["a"], "datasetIds": ["ds_x"]}
        assert read_selection(body) == Selection("Orange", ("fl",), ("a",), ("ds_x",))

    def test_fields_left_out_are_empty(self):
        assert read_selection({"places": ["fl"]}) == Selection(None, ("fl",), (), ())

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            (None, None),
            ([], None),
            ("text", None),
            ({"place": ["fl"]}, "place"),
            ({"places": "fl"}, "places"),
            ({"places": None}, "places"),
            ({"places": [1]}, "places"),
            ({"places": [["fl"]]}, "places"),
            ({"places": [""]}, "places"),
            ({"places": ["a\nb"]}, "places"),
            ({"topics": [None]}, "topics"),
            ({"datasetIds": {}}, "datasetIds"),
            ({"datasetIds": ["d" * 201]}, "datasetIds"),
            ({"name": ""}, "name"),
            ({"name": "  "}, "name"),
            ({"name": None}, "name"),
            ({"name": 5}, "name"),
            ({"name": "a\0b"}, "name"),
            ({"name": "\ud800"}, "name"),
            ({"name": "x" * 201}, "name"),
            ({"revision": 1}, "revision"),
        ],
    )
    def test_wrong_shape_is_invalid_input_and_names_the_field(self, body, field):
        assert refused(read_selection, body) == ("invalid_input", field)

    @pytest.mark.parametrize(("field", "most"), [("places", 500), ("topics", 100), ("datasetIds", 500)])
    def test_list_takes_its_most_and_not_one_more(self, field, most):
        ids = [f"id{n}" for n in range(most + 1)]
        assert read_selection({field: ids[:-1]})
        assert refused(read_selection, {field: ids}) == ("invalid_input", field)


KNOWN = {
    one.id: one
    for one in (
        dataset(),
        dataset("ds_far", "ny-county-kings"),
        dataset("ds_withheld", deliverable=False),
        dataset("ds_retired", retired=True),
        dataset("ds_topic", topic="paid"),
        dataset("ds_nowhere", None),
    )
}


class TestChecking:
    def check(self, selection, access=ACCESS):
        check_selection(selection, {"permits"}, access, KNOWN)

    @pytest.mark.parametrize("place", ["fl-county-orange", "fl", "fl-counties", "us"])
    def test_place_in_coverage_is_taken(self, place):
        self.check(Selection(places=(place,), topics=("permits",)))

    @pytest.mark.parametrize("dataset_id", ["ds_x", "ds_nowhere"])
    def test_dataset_that_can_be_delivered_is_taken(self, dataset_id):
        self.check(Selection(dataset_ids=(dataset_id,)))

    @pytest.mark.parametrize(
        ("selection", "expected"),
        [
            (Selection(), ("invalid_input", "places")),
            (Selection(topics=("permits",)), ("invalid_input", "places")),
            (Selection(places=("fl",), topics=("other",)), ("invalid_input", "topics")),
            (Selection(places=("ny-county-kings",)), ("outside_coverage", "places")),
            (Selection(places=("fl-county-lake",)), ("outside_coverage", "places")),
            (Selection(places=("ny-counties",)), ("outside_coverage", "places")),
            (Selection(places=("nowhere",)), ("outside_coverage", "places")),
            (Selection(dataset_ids=("ds_far",)), ("not_deliverable", "datasetIds")),
            (Selection(dataset_ids=("ds_withheld",)), ("not_deliverable", "datasetIds")),
            (Selection(dataset_ids=("ds_retired",)), ("not_deliverable", "datasetIds")),
            (Selection(dataset_ids=("ds_unknown",)), ("not_deliverable", "datasetIds")),
            (Selection(places=("ny",), topics=("other",), dataset_ids=("ds_far",)), ("invalid_input", "topics")),
            (Selection(places=("ny",), dataset_ids=("ds_far",)), ("outside_coverage", "places")),
        ],
    )
    def test_refusal_is_that_of_page_000_in_its_order(self, selection, expected):
        assert refused(self.check, selection) == expected

    def test_dataset_that_the_plan_does_not_open_is_not_deliverable(self):
        access = Access(ACCESS.counties, frozenset({"permits"}))
        assert refused(self.check, Selection(dataset_ids=("ds_topic",)), access)[0] == "not_deliverable"

    def test_unknown_and_unreachable_datasets_are_refused_in_the_same_words(self):
        told = []
        for dataset_id in ("ds_far", "ds_unknown"):
            with pytest.raises(Refused) as found:
                self.check(Selection(dataset_ids=(dataset_id,)))
            told.append(found.value.message.replace(dataset_id, "ID"))
        assert told[0] == told[1]

    def test_workspace_takes_25_subscriptions(self):
        one = new_subscription("sub_1", "ws", Selection(places=("fl",)), NOW)
        check_room([one] * 24)
        assert refused(check_room, [one] * 25)[0] == "limit_reached"


def test_first_revision_is_called_after_what_it_names_unless_it_has_a_name():
    made = new_subscription("sub_1", "ws", Selection(places=("fl", "us")), NOW)
    assert made == Subscription("sub_1", "ws", "fl", ("fl", "us"), (), (), 1, NOW, NOW)
    assert new_subscription("sub_1", "ws", Selection("Mine", ("fl",)), NOW).name == "Mine"


class TestAccess:
    def test_null_topic_is_opened_only_by_a_plan_of_all_topics(self):
        plain = dataset(topic=None)
        assert Access(ACCESS.counties, None).delivers(plain)
        assert not Access(ACCESS.counties, frozenset({"permits"})).delivers(plain)

    def test_access_resolves_the_workspaces_coverage(self):
        workspace = Workspace("ws", "w", ("fl-counties", "ny-county-kings"), None, NOW)
        access = access_of(workspace, ("permits",))
        assert len(access.counties) == 68
        assert access.topics == {"permits"}

    @pytest.mark.parametrize(
        ("found", "code"),
        [
            (None, "not_found"),
            (dataset(place="ny", deliverable=False), "outside_coverage"),
            (dataset(deliverable=False), "not_deliverable"),
            (dataset(retired=True), "not_deliverable"),
            (dataset(topic="paid"), "not_deliverable"),
            (dataset(topic="permits"), None),
        ],
    )
    def test_dataset_is_refused_as_unknown_then_outside_then_not_deliverable(self, found, code):
        given = refusal_of("ds_x", found, Access(ACCESS.counties, frozenset({"permits"})))
        assert (given and given.code) == code

    def test_only_codes_of_the_contract_can_be_refused_with(self):
        assert ERROR_STATUS[Refused("busy", "wait").code] == 409
        with pytest.raises(ValueError, match="no error code"):
            Refused("teapot", "no")


class TestKeys:
    KEY = ApiKey("key_1", "ws", "ann", "admin", ("feeds",), "h", NOW)
    ANN = Member("ws", "ann", "admin")

    def test_key_of_a_present_member_opens(self):
        assert refusal_of_key(self.KEY, self.ANN) is None

    @pytest.mark.parametrize(
        ("key", "member"),
        [(None, None), (replace(KEY, revoked_at=NOW), ANN), (KEY, replace(ANN, left_at=NOW)), (KEY, None)],
    )
    def test_unknown_or_revoked_key_or_one_of_a_member_who_left_is_unauthenticated(self, key, member):
        assert refusal_of_key(key, member).code == "unauthenticated"
