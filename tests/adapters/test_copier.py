"""Copies of files beside a source: from disk and from web addresses that strangers chose (D5.9, D14.4)."""

import threading

import pytest
from tests.adapters.receiver import Receiver, drip

from ploti_server.adapters.copier import FileCopier
from ploti_server.ports import CopyFailed

CONTENT = b"%PDF-1.7 a permit"


def answer(status="200 OK", body=CONTENT, **headers):
    lines = [f"HTTP/1.1 {status}", f"content-length: {headers.pop('length', len(body))}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.fixture
def target(tmp_path):
    return tmp_path / "copy"


def failure(copier, address, target):
    with pytest.raises(CopyFailed) as failed:
        copier.copy(address, target, None)
    return str(failed.value)


class TestDisk:
    def test_a_file_is_copied(self, tmp_path, target):
        (tmp_path / "a.pdf").write_bytes(CONTENT)
        validator = FileCopier().copy(str(tmp_path / "a.pdf"), target, None)
        assert target.read_bytes() == CONTENT
        target.unlink()
        assert FileCopier().copy(str(tmp_path / "a.pdf"), target, validator) == validator
        assert not target.exists()
        (tmp_path / "a.pdf").write_bytes(CONTENT[::-1])
        assert FileCopier().copy(str(tmp_path / "a.pdf"), target, validator) != validator
        assert target.read_bytes() == CONTENT[::-1]

    @pytest.mark.parametrize(
        ("name", "why"), [("none.pdf", "No such file"), (".", "it is no file"), ("big.pdf", "more than 16 bytes")]
    )
    def test_what_cannot_be_copied_says_why(self, tmp_path, target, name, why):
        (tmp_path / "big.pdf").write_bytes(CONTENT)
        assert why in failure(FileCopier(bytes_most=16), str(tmp_path / name), target)

    def test_a_file_that_is_still_written_is_no_copy(self, tmp_path, target):
        done, begun = threading.Event(), threading.Event()

        def write():
            with (tmp_path / "scan.pdf").open("wb", buffering=0) as file:
                file.truncate(64_000_000)
                while not done.wait(0.001):
                    file.seek(0, 2)
                    file.write(b"x")
                    begun.set()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert begun.wait(30)
            assert "written while it was copied" in failure(FileCopier(), str(tmp_path / "scan.pdf"), target)
        finally:
            done.set()
            writer.join()


class TestWeb:
    def test_a_file_is_copied_and_its_validator_given(self, target):
        with Receiver(answer(etag='"v1"', last_modified="x")).running() as receiver:
            validator = FileCopier(True).copy(f"http://127.0.0.1:{receiver.port}/a b.pdf?x=1#p", target, None)
        assert (validator, target.read_bytes()) == ('"v1"', CONTENT)
        assert receiver.requests[0].startswith(b"GET /a%20b.pdf?x=1 HTTP/1.1\r\n")

    @pytest.mark.parametrize(
        ("validator", "header"),
        [('"v1"', b'if-none-match: "v1"'), ("Sun, 01 Nov 2026 00:00:00 GMT", b"if-modified-since: Sun, 01 Nov")],
    )
    def test_a_file_that_is_still_the_same_is_left_unwritten(self, target, validator, header):
        with Receiver(answer("304 Not Modified", b"")).running() as receiver:
            again = FileCopier(True).copy(f"http://127.0.0.1:{receiver.port}/a.pdf", target, validator)
        assert (again, target.exists()) == (validator, False)
        assert header in receiver.requests[0]

    def test_a_redirect_is_followed_to_a_checked_address(self, target):
        with Receiver(answer()).running() as second:
            to = f"http://127.0.0.1:{second.port}/b.pdf"
            with Receiver(answer("302 Found", b"", location=to)).running() as first:
                FileCopier(True).copy(f"http://127.0.0.1:{first.port}/a.pdf", target, None)
        assert target.read_bytes() == CONTENT

    @pytest.mark.parametrize(
        ("given", "why"),
        [
            (answer("404 Not Found"), "the answer is 404"),
            (answer("304 Not Modified", b""), "the answer is 304"),
            (answer(length=99), "bytes early"),
            (answer(body=b"x" * 33), "more than 32 bytes"),
            (answer(content_encoding="gzip"), "packed"),
            (answer("302 Found", b"", location="/again"), "redirected more than 5 times"),
            (answer("302 Found", b"", location="http://10.0.0.1/x"), "not public"),
            (answer("302 Found", b"", location="file:///etc/passwd"), "has to begin with https://"),
            (b"nonsense\r\n\r\n", "not HTTP"),
        ],
    )
    def test_what_cannot_be_copied_says_why(self, target, given, why):
        with Receiver(given).running() as receiver:
            assert why in failure(FileCopier(True, bytes_most=32), f"http://127.0.0.1:{receiver.port}/a.pdf", target)

    def test_a_server_that_only_drips_is_given_up(self, target):
        with Receiver(drip(answer(), 0.05)).running() as receiver:
            why = failure(FileCopier(True, seconds=0.3), f"http://127.0.0.1:{receiver.port}/a.pdf", target)
        assert "within 0.3 seconds" in why

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "[::1]"])
    def test_no_address_inside_is_called(self, target, host):
        assert failure(FileCopier(), f"http://{host}/latest", target)
