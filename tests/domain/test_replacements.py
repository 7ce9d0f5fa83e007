"""Maps of named ids that the ledger allows (D4.12): an id never names two records at once."""

import pytest

from ploti_server.domain.replacements import ReplacementRefused, require_named

STANDING = {"kept": "current", "other": "current", "gone": "removed", "earlier": "replaced_by"}


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({}, "it names no id"),
        ({"nobody": None}, "no record carries nobody now"),
        ({"gone": None}, "no record carries gone now"),
        ({"earlier": None}, "no record carries earlier now"),
        ({"kept": "nobody"}, "no record ever carried nobody: leave the cell empty for a new id"),
        ({"kept": "other"}, "other is carried by a record now"),
        ({"kept": "other", "other": "kept"}, "other is carried by a record now; kept is carried by a record now"),
        ({"kept": "kept"}, "kept is carried by a record now"),
        ({"kept": "gone", "other": "gone"}, "gone is given to 2 records"),
        ({f"n{number}": None for number in range(9)}, "; and 4 more"),
    ],
)
def test_a_map_is_refused_with_what_is_wrong_in_it(named, told):
    with pytest.raises(ReplacementRefused) as refused:
        require_named(named, STANDING)
    assert str(refused.value).endswith(told)


@pytest.mark.parametrize(
    "named", [{"kept": None}, {"kept": "gone"}, {"kept": "earlier"}, {"kept": "gone", "other": None}]
)
def test_an_id_moves_to_a_new_one_or_to_one_that_no_record_carries_now(named):
    require_named(named, STANDING)
