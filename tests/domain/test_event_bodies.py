"""An event's stored body is what is sent of it, but for the public address in its links (D7.7, I12)."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ploti_server.domain.events import LoggedEvent, data_of, sent_body, stored_body, wire_event

NOW = datetime(2026, 3, 1, 12, 30, 15, 123000, tzinfo=UTC)
TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["\x01/v1", '"version":"/v1', "/v1/feeds/x"]
)
DATA = st.dictionaries(TEXTS.filter(lambda name: name != "links"), TEXTS | st.integers(0, 9) | st.lists(TEXTS))
LINKS = st.dictionaries(st.sampled_from(["version", "schema"]), TEXTS.map(lambda text: f"/{text}"))


@given(data=DATA, links=st.none() | LINKS, base=st.sampled_from(["http://127.0.0.1:1", 'https://f.example.org/a b"é']))
def test_what_is_sent_is_the_events_json_and_its_data_comes_back(data, links, base):
    data = data if links is None else data | {"links": links}
    event = LoggedEvent("sub_1", 7, "feed.dataset.updated", "ds_a", NOW, data)
    stored = stored_body(event)
    assert sent_body(stored, base) == msgspec.json.encode(wire_event(event, base))
    assert data_of(stored) == data


@pytest.mark.parametrize("several", [1, 3])
def test_bodies_joined_are_sent_at_once(several):
    event = LoggedEvent("sub_1", 7, "feed.dataset.updated", "ds_a", NOW, {"links": {"version": "/v1/x"}})
    joined = ",".join([stored_body(event)] * several)
    assert msgspec.json.decode(b"[%s]" % sent_body(joined, "http://x")) == [wire_event(event, "http://x")] * several
