"""What the store promises about notices and about finding back what was told, over the fake, SQLite and PostgreSQL."""

from dataclasses import replace

from tests.adapters.store_rows import HOUR, NOW, event, numbers

from ploti_server.domain.checks import Check, CheckStatus
from ploti_server.domain.notices import Notice

NOTICE = Notice(0, NOW, {"text": "größe ☂", "version": None, "rows": [1, 2.5]}, 2)


def test_due_notices_are_claimed_once_and_oldest_first(store):
    with store.write() as records:
        added = [records.notices.add(replace(NOTICE, due_at=due)) for due in (NOW, NOW + HOUR, NOW - HOUR, NOW)]
        assert len({notice.id for notice in added}) == 4
    with store.write() as records:
        assert records.notices.claim(NOW, NOW + 2 * HOUR, 2) == (added[0], added[2])
        assert records.notices.claim(NOW, NOW + 2 * HOUR, 2) == (added[3],)
        assert records.notices.claim(NOW, NOW + 2 * HOUR, 2) == ()
        assert [one.id for one in records.notices.claim(NOW + 3 * HOUR, NOW + 4 * HOUR, 9)] == [n.id for n in added]


def test_a_notice_is_put_again_or_removed(store):
    with store.write() as records:
        first, second = (records.notices.add(NOTICE) for _ in range(2))
        records.notices.put(replace(first, tries=3))
        records.notices.remove(second.id)
        records.notices.put(second)
        assert records.notices.claim(NOW, NOW + HOUR, 9) == (replace(first, tries=3),)
        records.notices.remove(first.id)


def test_the_newest_events_about_a_dataset_come_in_order(filled):
    with filled.write() as records:
        for name in ("ds_a", "ds_b", "ds_a", "ds_a"):
            records.events.append("sub_1", [replace(event(), dataset_id=name)], NOW)
        assert numbers(records.events.about("sub_1", "ds_a", 2)) == [3, 4]
        assert numbers(records.events.about("sub_1", "ds_b", 2)) == [2]
        assert records.events.about("sub_9", "ds_b", 2) == ()


def test_the_check_before_a_check_is_of_the_same_dataset(filled):
    with filled.write() as records:
        added = [records.checks.add(Check(0, name, CheckStatus.DONE, NOW, NOW)) for name in ("ds_a", "ds_b", "ds_a")]
        assert records.checks.last_of("ds_a") == added[2]
        assert records.checks.last_of("ds_a", before=added[2].id) == added[0]
        assert records.checks.last_of("ds_a", before=added[0].id) is None
