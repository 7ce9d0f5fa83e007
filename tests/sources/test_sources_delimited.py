"""CSV and its kin: content, encodings, ragged rows, quotes (D2.4, D5.7, D14.1, D14.2; F007, F008, F017, F022, F026)."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.states import StateUnreadable
from ploti_server.sources import open_state
from ploti_server.sources.delimited import LONG_ROW, SHORT_ROW

DATASET = Dataset("ds_t", "T", SourceSpec("file", "t"))


@pytest.fixture
def opened(tmp_path):
    def open_bytes(content, name="state", dataset=DATASET):
        path = tmp_path / "raw"
        path.write_bytes(content)
        return open_state(path, name, dataset)

    return open_bytes


def rows_of(raw):
    """Give header names, rows by number, rejects and the number of missing rows."""
    names = [column.name for column in raw.columns]
    rows, rejects, missing = {}, [], 0
    for batch in raw.batches():
        texts = [batch.column(column.id).text.to_pylist() for column in raw.columns]
        for i, number in enumerate(batch.numbers.tolist()):
            assert number not in rows
            rows[number] = [text[i] for text in texts]
        rejects += batch.rejects
        missing += batch.missing
    return names, [rows[number] for number in sorted(rows)], rejects, missing


TABLE = ["a", "b"], [["1", "x"], ["2", "é"]]


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,x\n2,é\n".encode(),
        "a,b\n1,x\n2,é".encode(),
        "a,b\r\n1,x\r\n2,é\r\n".encode(),
        "a,b\r1,x\r2,é\r".encode(),
        "\ufeffa,b\n1,x\n2,é\n".encode(),
        "a;b\n1;x\n2;é\n".encode(),
        "a\tb\n1\tx\n2\té\n".encode(),
        "a|b\n1|x\n2|é\n".encode(),
        "a,b\n1,x\n2,é\n".encode("cp1252"),
        "\ufeffa,b\n1,x\n2,é\n".encode("utf-16-le"),
        "\ufeffa\tb\r\n1\tx\r\n2\té\r\n".encode("utf-16-be"),
        "\ufeffa,b\n1,x\n2,é\n".encode("utf-32-le"),
        "\ufeffa,b\n1,x\n2,é\n".encode("utf-32-be"),
        "sep=;\na;b\n1;x\n2;é\n".encode(),
        "sep=,,\r\na,b\r\n1,x\r\n2,é\r\n".encode(),
        '"a","b"\n"1","x"\n"2","é"\n'.encode(),
        "\n\na,b\n\n1,x\n\n2,é\n\n".encode(),
        gzip.compress("a,b\n1,x\n2,é\n".encode(), mtime=0),
        gzip.compress(gzip.compress("a,b\n1,x\n2,é\n".encode(), mtime=0), mtime=0),
        "a,b\n1,x,\n2,é,,\n".encode(),
    ],
)
def test_one_table_in_many_spellings(opened, content):
    assert rows_of(opened(content)) == (*TABLE, [], 0)


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"a\nx\n", "utf-8"),
        (b"a\n\xe9\n", "cp1252"),
        ("\ufeffa\nx\n".encode("utf-16-le"), "utf-16-le"),
        (b"a\n\x81\x93\n", "cp1252"),
        ("a\né\nü\n".encode() + b"\xe9\n", "utf-8+cp1252"),
        ("a\né\n".encode() + b"\xe9\xfc\n", "cp1252"),
    ],
)
def test_the_encoding_is_told(opened, content, encoding):
    raw = opened(content)
    assert raw.encoding == encoding
    assert len(rows_of(raw)[1]) == content.count(b"\n") - 1


@pytest.mark.parametrize("before", [0, (1 << 20) - 4, (1 << 20) - 3, (1 << 20) - 2])
def test_a_stray_byte_spoils_no_other_row(opened, before):
    raw = opened(b"n\xc3\xa4me\n" + b"x" * before + b"\n\xc3\xa9\xe2\x82\xac\n\xe9\x80\n")
    names, rows, _, _ = rows_of(raw)
    assert (names, [text for (text,) in rows][-2:]) == (["näme"], ["é€", "é€"])


def test_values_stay_text_as_written(opened):
    texts = ["00123", "12E12", "0047583311587E590003", "123456789012345678901", "1.0", "1.00", "Infinity", "NA", "null"]
    _, rows, _, _ = rows_of(opened(("id\n" + "\n".join(texts) + "\n").encode()))
    assert [text for (text,) in rows] == texts


def test_quoted_line_breaks_delimiters_and_quotes(opened):
    content = b'a,b\n"x\ny","1,2"\n"say ""hi""",z\n6" pipe,ok\n'
    assert rows_of(opened(content))[1] == [["x\ny", "1,2"], ['say "hi"', "z"], ['6" pipe', "ok"]]


@pytest.mark.parametrize(
    ("declared", "written"),
    [
        ("iso8859-2", "iso8859-2"), ("shift_jis", "shift_jis"), ("gb18030", "gb18030"), ("cp437", "cp437"),
        ("utf-16-le", "utf-16-le"), ("utf-8", "utf-8"), ("utf-8", "utf-8-sig"), ("cp437", "utf-8-sig"),
        ("shift_jis", "utf-16"),
    ],
)  # fmt: skip
def test_a_declared_encoding_is_read_and_a_mark_is_believed_before_it(opened, declared, written):
    text = {"iso8859-2": "Łódź", "shift_jis": "東京ソ表", "gb18030": "北京"}.get(declared, "é")
    dataset = Dataset("ds_x", "X", SourceSpec("file", "x", encoding=declared))
    for content in (f'a,b\n1,"x,{text}"\n', json.dumps([{"a": 1, "b": f"x,{text}"}], ensure_ascii=False)):
        assert [row[1] for row in rows_of(opened(content.encode(written), dataset=dataset))[1]] == [f"x,{text}"]


@pytest.mark.parametrize(("declared", "content"), [("utf-8", b"a,b\n1,\xe9\n"), ("shift_jis", b"a,b\n1,\xff\xff\n")])
def test_bytes_that_are_not_the_declared_encoding_are_refused(opened, declared, content):
    with pytest.raises(StateUnreadable, match=r"not the .* text that the catalog declares: correct `source.encoding`"):
        opened(content, dataset=Dataset("ds_x", "X", SourceSpec("file", "x", encoding=declared)))


def test_header_names(opened):
    raw = opened(b'a,b,a,,"Column\nwith break",\n1,2,3,4,5,6\n')
    assert [column.name for column in raw.columns] == ["a", "b", "a", "", "Column\nwith break", ""]
    assert len({column.id for column in raw.columns}) == 6
    assert rows_of(raw)[1] == [["1", "2", "3", "4", "5", "6"]]


def test_short_rows_are_filled_and_listed_long_rows_are_missing(opened):
    _, rows, rejects, missing = rows_of(opened(b"a,b,c\n1,2,3\n4\n5,6,7,8\n9,10,11\n"))
    assert rows == [["1", "2", "3"], ["4", None, None], ["9", "10", "11"]]
    assert [(reject.row, reject.reason, reject.value) for reject in rejects] == [
        (2, SHORT_ROW, "4"),
        (3, LONG_ROW, "5,6,7,8"),
    ]
    assert missing == 1


def test_rows_longer_than_a_block(opened):
    lines = [b"1,2\n", b"3\n", b'"' + b"x\n" * (3 << 20) + b'",4\n', b"5,6,7\n", b"8,9\n"]
    _, rows, rejects, missing = rows_of(opened(b"a,b\n" + b"".join(lines)))
    assert [row[0][:1] for row in rows] == ["1", "3", "x", "8"]
    assert [reject.row for reject in rejects] == [2, 4]
    assert missing == 1


def test_many_rows_come_in_batches_and_can_be_read_again(opened):
    raw = opened(b"a,b\n" + b"".join(b"%d,x\n" % i if i % 1000 else b"%d\n" % i for i in range(50_000)))
    for _ in range(2):
        batches = list(raw.batches())
        assert max(len(batch.numbers) for batch in batches) <= 20_000
        numbers = sorted(number for batch in batches for number in batch.numbers.tolist())
        assert numbers == list(range(1, 50_001))
        values = {
            n: v for b in batches for n, v in zip(b.numbers.tolist(), b.column("a").text.to_pylist(), strict=True)
        }
        assert all(values[n] == str(n - 1) for n in numbers)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no bytes"),
        (b"\n \n", "white space"),
        (b"<!DOCTYPE html><html><body>Error 500</body></html>", "web page"),
        (b"<html>\n<head>", "web page"),
        (b'<OGRVRTDataSource><OGRVRTLayer name="x"/></OGRVRTDataSource>', "virtual file"),
        (b'<?xml version="1.0"?><kml/>', "XML"),
        (b"PK\x03\x04rest", "zip"),
        (b"%PDF-1.7", "PDF"),
        (b"PAR1xxxx", "Parquet"),
        (b"SQLite format 3\x00", "GeoPackage"),
        (b"\x03\x79\x01\x01" + b"\0" * 60, "not text"),
        (b"\x00\x01\x02\x03" * 100, "not text"),
        ("a,b\n1,é\n".encode("utf-16-le"), "declare `source.encoding`, as utf-16-le"),
        ("a,b\n1,é\n".encode("utf-16-be"), "declare `source.encoding`, as utf-16-be"),
        ("a,b\n1,é\n".encode("utf-32-le"), "not text"),
        (gzip.compress(b"a,b\n1,2\n" * 5000, mtime=0)[:-8], "gzip"),
        (gzip.compress(b"a,b\n" + bytes(range(32, 127)) * 5000, mtime=0)[:200], "gzip"),
        (b"\x1f\x8bgarbage", "gzip"),
        (gzip.compress(b"", mtime=0), "nothing"),
        (b'a,b\n1,"2\n3,4\n5,6\n', "quote"),
        (b'a,b,c\n1,2,"3\n4,5,6\n', "quote"),
        (b'a,b,c\n1,"abc,2\n3,"def",4\n', "quote"),
        (b'a,b\n"x"y,1\n1,"2\n3"z\n5,6\n', "quote"),
        ("\ufeffa,b\n".encode("utf-16-le") + b"\x00\xd8x", "UTF-16"),
        ('\ufeffa,b,c\n1,"2\n3,"x",4\n5,"z\n'.encode("utf-16-le"), "quote"),
        (b"\xef\xbb\xbfa,b\n\xc3\xa9,\xff\n", "UTF-8"),
        (b",,,\nPermits of 2024,,,\nid,a,b,c\n1,2,3,4\n", "title"),
        (b"Too many requests", "one line"),
        (b"null\n", "one line"),
        (b"# a comment\na,b\n1,2\n", ""),
    ],
)
def test_what_is_no_table_is_refused_with_a_reason(opened, content, reason):
    if not reason:
        assert rows_of(opened(content))[3] == 2
        return
    with pytest.raises(StateUnreadable, match=reason):
        rows_of(opened(content))


def test_a_gzip_bomb_is_refused(opened):
    with pytest.raises(StateUnreadable, match="unpacks"):
        opened(gzip.compress(b"a,b\n" + b"0,0\n" * (40 << 20), mtime=0))


def test_a_source_of_another_kind_is_refused(opened):
    with pytest.raises(StateUnreadable, match="arcgis"):
        opened(b"a\n1\n", dataset=Dataset("ds_t", "T", SourceSpec("arcgis", "t")))


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=6)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(CELL, min_size=2, max_size=2), max_size=6))
def test_every_quoted_table_comes_back(tmp_path_factory, rows):
    quoted = ["".join(('"', cell.replace('"', '""'), '"')) for row in rows for cell in row]
    lines = [f"{quoted[i]},{quoted[i + 1]}\n" for i in range(0, len(quoted), 2)]
    path = tmp_path_factory.mktemp("csv") / "raw"
    path.write_bytes(("first,second\n" + "".join(lines)).encode())
    _, got, rejects, missing = rows_of(open_state(path, None, DATASET))
    assert got == [[cell or None for cell in row] for row in rows]
    assert (rejects, missing) == ([], 0)
