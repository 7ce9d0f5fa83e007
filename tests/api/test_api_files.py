"""Delivery of files by signed links (D8.6): no key, ranges, CORS, one hour, never cached."""

import pytest


@pytest.fixture
def link(served):
    """The link to a file of 1000 bytes or so, and its bytes."""
    served.version("ds_orange", 1)
    served.subscribe(places=["fl-county-orange"])
    file = served.get("/v1/feeds/datasets/ds_orange/versions/1").json()["files"]["snapshot"][0]
    whole = served.client.get(file["url"])
    assert len(whole.content) == file["sizeBytes"]
    return file["url"], whole.content, whole.headers


def test_link_delivers_without_a_key_and_is_never_stored(link):
    _, _, headers = link
    assert headers["cache-control"] == "no-store"
    assert headers["access-control-allow-origin"] == "*"
    assert headers["accept-ranges"] == "bytes"
    assert headers["content-type"] == "application/vnd.apache.parquet"
    assert 'filename="part-0000.parquet"' in headers["content-disposition"]


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("Bytes=5-9", 5, 10),
        ("bytes=100-", 100, None),
        ("bytes=-7", -7, None),
        ("bytes=0-999999", 0, None),
    ],
)
def test_range_is_delivered(served, link, wanted, start, end):
    url, content, _ = link
    answer = served.client.get(url, headers={"Range": wanted})
    assert answer.status_code == 206
    assert answer.content == content[start:end]
    first = start % len(content)
    assert answer.headers["content-range"] == f"bytes {first}-{first + len(answer.content) - 1}/{len(content)}"
    assert answer.headers["content-length"] == str(len(answer.content))


@pytest.mark.parametrize("wanted", ["bytes=9-5", "bytes=a-b", "bytes=-", "rows=0-5", "bytes=0-1,5-6", "bytes=٣-"])
def test_range_that_is_not_understood_gives_the_whole_file(served, link, wanted):
    url, content, _ = link
    answer = served.client.get(url, headers={"Range": wanted.encode()})
    assert (answer.status_code, answer.content) == (200, content)


@pytest.mark.parametrize("wanted", ["bytes={size}-", "bytes=999999-", "bytes=-0"])
def test_range_outside_the_file_is_not_satisfiable(served, link, wanted):
    url, content, _ = link
    answer = served.client.get(url, headers={"Range": wanted.format(size=len(content))})
    assert (answer.status_code, answer.json()["error"]["code"]) == (416, "range_not_satisfiable")
    assert answer.headers["content-range"] == f"bytes */{len(content)}"


def test_if_range_of_the_same_bytes_gives_the_range_and_of_others_the_whole(served, link):
    url, content, headers = link
    same = served.client.get(url, headers={"Range": "bytes=0-4", "If-Range": headers["etag"]})
    other = served.client.get(url, headers={"Range": "bytes=0-4", "If-Range": '"other"'})
    assert (same.status_code, other.status_code) == (206, 200)
    assert other.content == content


def test_head_tells_what_get_would_send(served, link):
    url, content, headers = link
    answer = served.client.head(url)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(content))
    assert answer.headers["etag"] == headers["etag"]
    ranged = served.client.head(url, headers={"Range": "bytes=0-4"})
    assert (ranged.status_code, ranged.headers["content-length"]) == (206, "5")


def test_page_of_any_origin_may_ask_for_ranges(served, link):
    answer = served.client.options(link[0], headers={"Origin": "https://x.example"})
    assert answer.status_code == 204
    assert "Range" in answer.headers["access-control-allow-headers"]
    assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url[:-1] + ("0" if url[-1] != "0" else "1"),
        lambda url: url.partition("?")[0],
        lambda url: url.replace("snapshot/part-0000.parquet?", "schema.json?"),
        lambda url: url.replace("filename=part", "filename=other"),
        lambda url: url.replace("expires=1", "expires=2"),
        lambda url: url + "&more=1",
        lambda url: url.replace("/versions/1/1/", "/versions//1/1/"),
        lambda url: url.replace("parquet?", "parque%74?"),
    ],
)
def test_altered_link_is_not_allowed(served, link, change):
    answer = served.client.get(change(link[0]))
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_allowed")


def test_link_lives_for_an_hour_judged_when_the_download_starts(served, link):
    served.clock.advance(minutes=59, seconds=59)
    assert served.client.get(link[0]).status_code == 200
    served.clock.advance(seconds=1)
    assert served.client.get(link[0]).status_code == 403
    assert served.client.head(link[0]).status_code == 403


def test_file_that_is_gone_is_not_found(served, link):
    served.ports.files.remove("ds_orange/versions/1/1/snapshot/part-0000.parquet")
    answer = served.client.get(link[0])
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_method_that_changes_is_refused(served, link):
    answer = served.client.put(link[0], content=b"x")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
