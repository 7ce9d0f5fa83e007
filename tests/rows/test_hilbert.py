"""Hilbert keys against the textbook walk, and what makes them useful: neighbours stay together (D5.4)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ploti_server.rows.hilbert import ORDER, hilbert_keys


def textbook(x, y, bits):
    """Walk one level at a time, turning the quarter that comes next."""
    key, size = 0, 1 << bits
    half = size >> 1
    while half:
        right, up = int(bool(x & half)), int(bool(y & half))
        key += half * half * ((3 * right) ^ up)
        if not up:
            if right:
                x, y = size - 1 - x, size - 1 - y
            x, y = y, x
        half >>= 1
    return key


def cell(lon, lat):
    scale = 1 << ORDER
    return tuple(min(int(value * scale), scale - 1) for value in ((lon + 180) / 360, (lat + 90) / 180))


@given(st.floats(-180, 180), st.floats(-90, 90))
def test_a_key_is_the_distance_along_the_textbook_curve(lon, lat):
    key = int(hilbert_keys(np.array([lon]), np.array([lat]))[0])
    assert key == textbook(*cell(lon, lat), ORDER + 1)
    assert 0 <= key < 2**62


@pytest.mark.parametrize(
    ("lon", "lat", "key"),
    [
        (-180.0, -90.0, 0),
        (180.0, -90.0, 1537228672809129301),
        (-180.0, 90.0, 4611686018427387903),
        (180.0, 90.0, 3074457345618258602),
        (0.0, 0.0, 2305843009213693952),
        (-81.38, 28.54, 3971956916833932392),
        (-98.49, 29.42, 4098463818233273750),
    ],
)
def test_keys_never_move_between_machines_and_releases(lon, lat, key):
    assert hilbert_keys(np.array([lon]), np.array([lat])).tolist() == [key]


def test_cells_in_key_order_are_neighbours():
    lon, lat = np.meshgrid(np.arange(64) * 360 / 64 - 179, np.arange(64) * 180 / 64 - 89)
    order = np.argsort(hilbert_keys(lon.ravel(), lat.ravel()))
    steps = np.abs(np.diff(lon.ravel()[order])) / (360 / 64) + np.abs(np.diff(lat.ravel()[order])) / (180 / 64)
    assert np.allclose(steps, 1)


def test_no_positions_give_no_keys():
    assert hilbert_keys(np.array([]), np.array([])).dtype == np.int64
