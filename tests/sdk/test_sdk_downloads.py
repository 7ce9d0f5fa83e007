"""Signed links: whole, in part, cut, expired, and never with the API key."""

import pytest

import ploti
from ploti._signing import authorization

PERMITS = "ds_orange_permits"
CONTENT = b"two" * 1000


@pytest.fixture
def url(client):
    return client.feeds.datasets.versions.get(PERMITS, 2)["files"]["snapshot"][0]["url"]


def read(client, url, start=0, if_range=None):
    with client.http.stream(url, start, if_range) as download:
        return download.start, download.total, download.etag, b"".join(download.chunks)


def test_a_link_gives_the_whole_file(client, url):
    start, total, etag, content = read(client, url)
    assert (start, total, content) == (0, 3000, CONTENT)
    assert etag


def test_a_download_goes_on_where_it_stopped(client, url):
    etag = read(client, url)[2]
    assert read(client, url, 1000, etag) == (1000, 3000, etag, CONTENT[1000:])


def test_a_file_that_is_another_one_by_now_comes_whole(client, url):
    start, total, _, content = read(client, url, 1000, '"another"')
    assert (start, total, content) == (0, 3000, CONTENT)


def test_the_key_never_goes_with_a_link(client, fake, url):
    fake.requests.clear()
    read(client, url)
    assert "authorization" not in fake.requests[0].headers
    assert fake.requests[0].headers["accept-encoding"] == "identity"


def test_a_cut_download_is_no_answer_after_the_bytes_that_came(client, fake, url):
    fake.cut_next_download(1200)
    came = []
    with pytest.raises(ploti.NoAnswer), client.http.stream(url) as download:
        came.extend(download.chunks)
    assert b"".join(came) == CONTENT[:1200]
    assert read(client, url)[3] == CONTENT


def test_an_expired_link_asks_for_a_fresh_one(client, fake, url):
    fake.expire_links()
    with pytest.raises(ploti.LinkExpired):
        read(client, url)
    fresh = client.feeds.datasets.versions.links(PERMITS, 2, files=["snapshot/part-0000.parquet"])
    assert read(client, fresh["files"][0]["url"])[3] == CONTENT


@pytest.mark.parametrize("change", [lambda u: u[:-1], lambda u: u + "&x=1", lambda u: u.replace("/2/", "/1/")])
def test_a_changed_link_is_worthless(client, url, change):
    with pytest.raises(ploti.LinkExpired):
        read(client, change(url))


def test_a_start_behind_the_end_is_told(client, url):
    with pytest.raises(ploti.FixRequest, match="range_not_satisfiable"):
        read(client, url, 3000)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_trouble_of_the_store_is_for_later(client, fake, url, status):
    fake.fail_next("^/files/", status, headers={"retry-after": "3"}, body=b"<Error/>")
    with pytest.raises(ploti.RetryLater) as raised:
        read(client, url)
    assert raised.value.retry_after == 3.0


def test_another_range_than_asked_for_is_refused(client, fake, url):
    fake.fail_next("^/files/", 206, headers={"content-range": "bytes 0-2/3000"}, body=b"two")
    with pytest.raises(ploti.BadAnswer):
        read(client, url, 1000)


def test_a_refused_link_never_shows_its_signature(client, fake, url):
    fake.refuse_next_link()
    with pytest.raises(ploti.LinkExpired) as raised:
        read(client, url)
    assert "signature" not in str(raised.value)


def test_a_rebuilt_version_has_other_links(client, fake, url):
    fake.keep(PERMITS, 2, "rebuilding")
    with pytest.raises(ploti.LinkExpired):
        read(client, url)
    with pytest.raises(ploti.Reload):
        client.feeds.datasets.versions.get(PERMITS, 2)
    fake.rebuild(PERMITS, 2, {"snapshot/part-0000.parquet": b"again"})
    with pytest.raises(ploti.LinkExpired):
        read(client, url)
    fresh = client.feeds.datasets.versions.get(PERMITS, 2)["files"]["snapshot"][0]["url"]
    assert read(client, fresh)[3] == b"again"


@pytest.mark.parametrize(
    ("url", "carries"),
    [
        ("https://api.example.org/v1/topics", True),
        ("https://api.example.org:443/v1", True),
        ("https://API.example.org/v1", True),
        ("http://api.example.org/v1", False),
        ("https://api.example.org:8443/v1", False),
        ("https://api.example.org.evil.test/v1", False),
        ("https://api.example.org@evil.test/v1", False),
        ("https://evil.test/https://api.example.org", False),
    ],
)
def test_the_key_goes_to_the_apis_origin_alone(url, carries):
    """Security check 50."""
    assert bool(authorization("k", "https://api.example.org", url)) == carries
