"""Reads JSON text value by value, so that a list of any length never stands in memory whole."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from ploti_server.domain.states import StateUnreadable

_SPACE: Final = re.compile("[ \t\n\r\x1e\ufeff]*")
"""White space, and the record mark of JSON text sequences."""
_DROP_AT: Final = 1 << 20


class LongDigits(str):
    """An integer of more digits than Python reads."""

    __slots__ = ()


class JsonStream:
    """A place in a JSON text that is still being read.

    Every method raises `StateUnreadable` where the text breaks off, is no JSON, or nests deeper than Python can follow.
    The last of several members of one name counts.
    """

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._buffer = ""
        self._place = 0
        self._passed = 0
        self._ended = False
        self._plain = json.JSONDecoder(strict=False)
        self._careful = json.JSONDecoder(strict=False, parse_int=_digits)

    @property
    def read(self) -> int:
        """How many characters were passed."""
        return self._passed + self._place

    def peek(self) -> str:
        """Give the next character that is no white space, empty at the end."""
        while True:
            self._place = _SPACE.match(self._buffer, self._place).end()  # type: ignore[union-attr]  # matches always
            if self._place < len(self._buffer) or not self._more():
                return self._buffer[self._place : self._place + 1]

    def take(self, wanted: str) -> None:
        """Pass one character."""
        found = self.peek()
        if found != wanted:
            self._fail(f"{wanted!r} is missing" if found else "it breaks off")
        self._place += 1

    def value(self) -> Any:
        """Read the next value whole."""
        self.peek()
        while True:
            try:
                value, end = self._decode()
            except RecursionError as error:
                raise StateUnreadable(f"the JSON nests too deeply after {self.read:,} characters") from error
            except json.JSONDecodeError as error:
                if not self._more():
                    cut = error.pos >= len(self._buffer.rstrip()) or error.msg.startswith("Unterminated")
                    self._fail("it breaks off" if cut else error.msg)
                continue
            if end == len(self._buffer) and not self._ended and self._more():
                continue
            self._place = end
            return value

    def items(self) -> Iterator[Any]:
        """Read the elements of a list one by one."""
        self.take("[")
        if self.peek() == "]":
            self._place += 1
            return
        while True:
            yield self.value()
            if self.peek() == "]":
                self._place += 1
                return
            self.take(",")

    def members(self) -> Iterator[str]:
        """Read an object: gives each member's name, after which its value is to be read."""
        self.take("{")
        if self.peek() == "}":
            self._place += 1
            return
        while True:
            name = self.value()
            if not isinstance(name, str):
                self._fail("a member has no name")
            self.take(":")
            yield name
            if self.peek() == "}":
                self._place += 1
                return
            self.take(",")

    def _decode(self) -> tuple[Any, int]:
        try:
            return self._plain.raw_decode(self._buffer, self._place)
        except json.JSONDecodeError:
            raise
        except ValueError:
            return self._careful.raw_decode(self._buffer, self._place)

    def _more(self) -> bool:
        """Read on; a value that is not whole yet at least doubles what is held, so that long ones cost no square."""
        if self._ended:
            return False
        if self._place > _DROP_AT:
            self._passed += self._place
            self._buffer, self._place = self._buffer[self._place :], 0
        wanted = max(1, len(self._buffer) - self._place)
        parts = [self._buffer]
        while wanted > 0:
            piece = next(self._pieces, None)
            if piece is None:
                self._ended = True
                break
            parts.append(piece)
            wanted -= len(piece)
        self._buffer = "".join(parts)
        return len(parts) > 1

    def _fail(self, why: str) -> None:
        raise StateUnreadable(f"the JSON cannot be read after {self.read:,} characters: {why}")


def _digits(text: str) -> int | LongDigits:
    return int(text) if len(text) < 4000 else LongDigits(text)
