"""Names, addresses and changes of attachments (page 001 "Attachments", D5.9, D8.7)."""

import pytest

from ploti_server.domain.attachments import (
    Attached,
    Attachments,
    content_type_of,
    document_address,
    document_name,
    filename_of,
    have_changed,
    in_wire_order,
)

WEB, LOCAL = "https://gis.example.org/permits/list.csv", "/srv/county/list.csv"


def attached(file, sha256="a", filename="f.pdf"):
    return Attached(file, filename, "application/pdf", 1, sha256, f"ds/attachments/{sha256}/1-1")


@pytest.mark.parametrize(
    ("source", "cell", "address"),
    [
        (WEB, "https://other.example.org/a.pdf", "https://other.example.org/a.pdf"),
        (LOCAL, "HTTP://other.example.org/a.pdf", "HTTP://other.example.org/a.pdf"),
        (WEB, "/docs/a b.pdf", "https://gis.example.org/docs/a b.pdf"),
        (WEB, "docs/a.pdf?x=1", "https://gis.example.org/permits/docs/a.pdf?x=1"),
        (WEB, "ftp://other.example.org/a.pdf", None),
        (WEB, "file:///etc/passwd", None),
        (WEB, "http://[::1", None),
        (LOCAL, "docs/a.pdf", "/srv/county/docs/a.pdf"),
        (LOCAL, "a.pdf", "/srv/county/a.pdf"),
        (LOCAL, "/etc/passwd", None),
        (LOCAL, "../secret.pdf", None),
        (LOCAL, "docs/../../secret.pdf", None),
        (LOCAL, "..\\secret.pdf", None),
        (LOCAL, ".env", None),
        (LOCAL, "docs/.git/config", None),
        (LOCAL, "a\0.pdf", None),
        (LOCAL, "", None),
    ],
)
def test_a_cell_names_a_web_address_or_a_file_below_its_sources_folder(source, cell, address):
    assert document_address(source, cell) == address


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://example.org/a/Zoning%20Ordinance.pdf?version=2", "Zoning Ordinance.pdf"),
        ("https://example.org/a/..%2F..%2F.bashrc", "bashrc"),
        ("https://example.org/", "file"),
        ("https://example.org/con.pdf", "_con.pdf"),
        ("https://example.org/a%00b%0A%22.pdf", "a_b__.pdf"),
        ("/srv/docs/Überblick.PDF", "Überblick.PDF"),
        ("/srv/docs/a:b|c?.pdf", "a_b_c_.pdf"),
        ("/srv/docs/name. ", "name"),
        ("https://example.org/" + "x" * 300 + ".pdf", "x" * 116 + ".pdf"),
        ("https://example.org/a%E2%80%AEfdp.exe", "a_fdp.exe"),
    ],
)
def test_a_filename_is_safe_on_every_system(address, name):
    assert filename_of(address) == name


@pytest.mark.parametrize(
    ("name", "kind"), [("a.PDF", "application/pdf"), ("a.tif", "image/tiff"), ("a", "application/octet-stream")]
)
def test_a_files_type_is_told_by_its_name(name, kind):
    assert content_type_of(name) == kind


def test_several_rows_naming_one_document_share_one_attachment_and_those_of_rows_come_last():
    one = document_name("b" * 64)
    listed = [attached(one), attached("original"), attached(one, filename="other.pdf"), attached("source:a")]
    assert [(a.file, a.filename) for a in in_wire_order(listed)] == [
        ("original", "f.pdf"),
        ("source:a", "f.pdf"),
        (one, "f.pdf"),
    ]


@pytest.mark.parametrize(
    ("says", "now", "changed"),
    [
        ("the same", [attached("original")], False),
        ("other bytes", [attached("original", "b")], True),
        ("another name for its download", [attached("original", filename="g.pdf")], False),
        ("one more", [attached("original"), attached("source:a")], True),
        ("one less", [], True),
    ],
)
def test_an_attachment_that_changed_is_a_version(says, now, changed):
    assert have_changed(Attachments((attached("original"),)), Attachments(tuple(now))) is changed, says


def test_a_copy_that_failed_makes_no_version_by_itself():
    assert not have_changed(Attachments((attached("original"),)), Attachments(left_out={"original": "no answer"}))
