"""Place on a Hilbert curve over the whole world: integer steps only, so the same on every machine (D5.4)."""

from typing import Final

import numpy as np
import numpy.typing as npt

ORDER: Final = 31
"""Bits of each axis; a key has twice as many and fits a signed int64."""

_CELLS: Final = 1 << ORDER
_Cells = npt.NDArray[np.int64]


def hilbert_keys(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> _Cells:
    """Give each finite lon/lat position in degrees its distance along the curve, 0 to 2^62 - 1 (D5.4)."""
    return _distance(_cells(x, -180.0, 360.0), _cells(y, -90.0, 180.0))


def _cells(values: npt.NDArray[np.float64], low: float, width: float) -> _Cells:
    scaled = np.floor((np.asarray(values, dtype=np.float64) - low) / width * _CELLS)
    return np.clip(scaled, 0, _CELLS - 1).astype(np.int64)


def _distance(x: _Cells, y: _Cells) -> _Cells:
    """Walk down the curve four bits of each axis at a time; bit 32 is always 0, so the key stays below 2^62."""
    state = np.zeros(len(x), dtype=np.int64)
    key = np.zeros(len(x), dtype=np.int64)
    for shift in range(28, -1, -4):
        step = state | ((x >> shift) & 15) << 4 | (y >> shift) & 15
        key = key << 8 | _KEYS[step]
        state = _STATES[step]
    return key


def _walk(state: int, x: int, y: int) -> tuple[int, int]:
    """Follow four levels from a turn (bit 8: axes swapped, bit 9: both flipped); give eight key bits and the turn."""
    swapped, flipped = state >> 8 & 1, state >> 9 & 1
    key = 0
    for bit in (3, 2, 1, 0):
        right, up = x >> bit & 1, y >> bit & 1
        if swapped:
            right, up = up, right
        right, up = right ^ flipped, up ^ flipped
        key = key << 2 | (3 * right) ^ up
        if not up:
            flipped ^= right
            swapped ^= 1
    return key, swapped << 8 | flipped << 9


_STEPS: Final = [_walk(step & 0x300, step >> 4 & 15, step & 15) for step in range(1024)]
_KEYS: Final = np.array([key for key, _ in _STEPS], dtype=np.int64)
_STATES: Final = np.array([state for _, state in _STEPS], dtype=np.int64)
