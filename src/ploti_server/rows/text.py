"""The one rule for text over Arrow arrays: equal to `clean_text` of the contract for every value (D2.5)."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from ploti.contract.values import WHITE_SPACE, clean_text
from ploti_server.rows.raw import Array

pc: Any = pyarrow.compute
"""Arrow's functions, of which the type stubs know too few forms."""

_ODD: Final = r"[\x00\r\x{300}-\x{10FFFF}]"
"""What trimming alone does not settle: U+0000, CR, and characters that NFC may change (none below U+0300)."""
_NFC_BYTE: Final = 0xCC
"""First byte of U+0300 in UTF-8; every later character begins with this byte or a higher one."""


def clean(text: Array) -> Array:
    """Give the delivered form of every text: NFC, no U+0000, trimmed, LF line ends, null where nothing is left."""
    data, starts, ends = bytes_of(text)
    if len(data) == 0:
        return pa.nulls(len(text), pa.string())
    if _edges_may_be_white(data, starts, ends):
        text = pc.utf8_trim(text, characters=WHITE_SPACE)
    if data.max() >= _NFC_BYTE or data.min() == 0 or (data == 13).any():
        text = _clean_odd(text)
    if pc.any(pc.equal(pc.binary_length(text), 0)).as_py():
        text = pc.if_else(pc.equal(pc.binary_length(text), 0), pa.scalar(None, pa.string()), text)
    return text


def bytes_of(text: Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Give the bytes of a string array, and start and end of each value in them."""
    buffers: list[Any] = text.buffers()
    _, offset_buffer, data_buffer = buffers
    if offset_buffer is None or data_buffer is None or len(text) == 0:
        empty = np.zeros(len(text), dtype=np.int32)
        return np.zeros(0, dtype=np.uint8), empty, empty
    offsets = np.frombuffer(offset_buffer, dtype=np.int32, count=len(text) + 1, offset=4 * text.offset)
    data = np.frombuffer(data_buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]
    moved = offsets - offsets[0]
    return data, moved[:-1], moved[1:]


def _edges_may_be_white(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]
) -> bool:
    """Tell whether a value may begin or end with white space, from its outer bytes."""
    filled = starts < ends
    first, last = data[starts[filled]], data[ends[filled] - 1]
    return bool((first <= 32).any() or (last <= 32).any() or (first >= 0xC2).any() or (last >= 0x80).any())


def _clean_odd(text: Array) -> Array:
    """Clean the values that hold something odd one by one."""
    odd = pc.fill_null(pc.match_substring_regex(text, _ODD), False)
    if not pc.any(odd).as_py():
        return text
    found: list[Any] = text.filter(odd).to_pylist()
    cleaned = [clean_text(value) for value in found]
    replaced: Array = pc.replace_with_mask(text, odd, pa.array(cleaned, pa.string()))
    return replaced
