"""The digest of many records at once, equal to adding them one by one (D5.6)."""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ploti.contract.digest import Digest
from ploti.contract.files import RECORD_ID
from ploti.contract.values import ColumnType
from ploti_server.rows.canonical import Texts, canonical_rows, record_hashes, slices


def digest_of(batches: Iterable[pa.RecordBatch], columns: Mapping[str, ColumnType]) -> Digest:
    """Give the digest of rows with `_ploti_record_id` over their own non-volatile `columns`."""
    total = Digest()
    for batch in batches:
        for part in slices(batch):
            ids = part.column(RECORD_ID)
            total.merge(_bucket_sums(ids, record_hashes(ids, canonical_rows(part, columns))))
    return total


def _bucket_sums(ids: Texts, hashes: list[bytes]) -> Digest:
    if not hashes:
        return Digest()
    names, places = np.unique(
        pc.utf8_slice_codeunits(ids, 4, 6).to_numpy(zero_copy_only=False).astype("U2"), False, True
    )
    words = np.frombuffer(b"".join(hashes), dtype=">u4").reshape(len(hashes), 8)[:, :4].astype(np.uint64)
    order = np.argsort(places, kind="stable")
    counts = np.bincount(places)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    sums = np.add.reduceat(words[order], starts, axis=0) % (1 << 32)
    return Digest(
        {
            str(name): (int(count), int(one), int(two), int(three), int(four))
            for name, count, (one, two, three, four) in zip(names, counts, sums, strict=True)
        }
    )
