"""The SDK's page: its code runs as it stands, its tables name every error code and every public exception."""

import inspect
import re
from pathlib import Path

import pytest

import ploti
from ploti._resources import Datasets, Deliveries, Places, Subscriptions, Topics, Versions, Webhooks
from ploti.errors import ERROR_KINDS
from ploti.testing.feed import parquet

TEXT = (Path(__file__).parents[2] / "docs" / "sdk.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def fake(fake):
    """The fake with rows that can be read."""
    part = parquet({"number": "string"}, [{"number": "P-1"}])
    for version in (1, 2):
        fake.rebuild("ds_orange_permits", version, {"snapshot/part-0000.parquet": part})
    return fake


def test_the_pages_code_runs(fake, run_python):
    assert len(BLOCKS) >= 5
    with fake.serve() as url:
        for block in BLOCKS:
            run_python(block, PLOTI_API_KEY=fake.api_key, PLOTI_API_URL=url)


@pytest.mark.parametrize("code", sorted(ERROR_KINDS))
def test_each_error_code_stands_beside_its_exception(code):
    kind = ERROR_KINDS[code].__name__
    assert re.search(rf"^\| `{kind}` \|[^|]*`{code}`", TEXT, re.MULTILINE)


def test_each_public_exception_is_there():
    for name in ploti.__all__:
        found = getattr(ploti, name) if name not in {"feeds", "places", "topics", "webhooks"} else None
        if inspect.isclass(found) and issubclass(found, ploti.PlotiError):
            assert f"`{name}`" in TEXT or f"ploti.{name}" in TEXT


@pytest.mark.parametrize(
    ("prefix", "resource"),
    [
        ("places", Places),
        ("topics", Topics),
        ("feeds.datasets", Datasets),
        ("feeds.datasets.versions", Versions),
        ("feeds.subscriptions", Subscriptions),
        ("webhooks", Webhooks),
        ("webhooks.deliveries", Deliveries),
    ],
)
def test_each_call_is_listed_with_its_arguments(prefix, resource):
    for name, call in inspect.getmembers(resource, inspect.isfunction):
        if not name.startswith("_"):
            arguments = ", ".join(list(inspect.signature(call).parameters)[1:])
            assert f"`{prefix}.{name}({arguments})`" in TEXT
