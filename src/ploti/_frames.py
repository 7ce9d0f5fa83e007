"""A version's Parquet parts as a table of the library that the caller works with, where that is installed."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from ploti.errors import FixRequest

As = Literal["arrow", "pandas", "polars", "duckdb"]
_PACKAGES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "arrow": ("arrow", ("pyarrow",)),
    "pandas": ("pandas", ("pandas", "pyarrow")),
    "polars": ("polars", ("polars",)),
    "duckdb": ("sync", ("duckdb",)),
}
"""For each form the extra that brings it, and the packages it needs."""


def require(as_: str) -> None:
    """Raise FixRequest for a form that is not known, or whose packages are not installed."""
    if as_ not in _PACKAGES:
        raise FixRequest(f"{as_!r} is none of {', '.join(_PACKAGES)}.", code="invalid_input", field="as_")
    extra, packages = _PACKAGES[as_]
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        told = f'Reading as {as_} needs {" and ".join(missing)}: pip install "ploti[{extra}]"'
        raise FixRequest(told, code="invalid_input", field="as_")


def table(paths: Sequence[Path], as_: As) -> Any:
    """Read parts of one schema whole into memory; the files may go afterwards."""
    readers: dict[As, Callable[[Sequence[Path]], Any]] = {
        "arrow": _arrow,
        "pandas": _pandas,
        "polars": _polars,
        "duckdb": _duckdb,
    }
    return readers[as_](paths)


def _arrow(paths: Sequence[Path]) -> Any:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    tables = []
    for path in paths:
        with ParquetFile(path) as part:
            tables.append(part.read())
    return pa.concat_tables(tables, promote_options="default")


def _pandas(paths: Sequence[Path]) -> Any:
    """Read with types that hold a null beside whole numbers, so that none becomes a float."""
    import pandas as pd  # type: ignore[import-untyped]  # pandas has no types of its own
    import pyarrow as pa

    kept = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}
    return _arrow(paths).to_pandas(types_mapper=kept.get)


def _polars(paths: Sequence[Path]) -> Any:
    import polars as pl

    return pl.concat(pl.read_parquet(path, glob=False, hive_partitioning=False) for path in paths)


def _duckdb(paths: Sequence[Path]) -> Any:
    """Read into a table of a database in memory, which lives as long as the relation."""
    import duckdb

    db = duckdb.connect()
    names = [str(path) for path in paths]
    db.execute("CREATE TABLE version AS FROM read_parquet($paths, hive_partitioning = false)", {"paths": names})
    return db.table("version")
