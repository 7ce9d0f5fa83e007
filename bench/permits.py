"""Makes two states of a table of permits: 20 columns, 1 % added, 2 % changed, 0.5 % removed, points or polygons."""

import csv
from pathlib import Path

import numpy as np

COLUMNS = (
    "permit_number", "address", "parcel", "permit_type", "work_type", "status", "applied", "issued", "finaled",
    "valuation", "fee", "business", "description", "district", "inspector_area", "units", "stories", "residential",
    "x", "y",
)  # fmt: skip
WORDS = [
    "repair",
    "replace",
    "roof",
    "water",
    "heater",
    "panel",
    "solar",
    "fence",
    "pool",
    "addition",
    "remodel",
    "kitchen",
    "bath",
    "driveway",
    "slab",
    "shed",
    "sign",
    "tenant",
    "finish",
    "interior",
    "demolition",
    "garage",
    "porch",
    "window",
    "door",
    "siding",
    "gas",
    "line",
    "sewer",
    "electrical",
    "mechanical",
]
STREETS = [
    "Oak",
    "Pine",
    "Maple",
    "Cedar",
    "Main",
    "Lake",
    "Hill",
    "Park",
    "River",
    "Church",
    "Orange",
    "Palm",
    "Bay",
    "Ridge",
    "Walnut",
]


def write_states(folder: Path, rows: int, *, polygons: bool, seed: int = 20261130) -> tuple[Path, Path]:
    """Write `old.csv` and `new.csv`, the new one in another row order; the same seed gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    old, new = folder / "old.csv", folder / "new.csv"
    if new.exists():
        return old, new
    rng = np.random.default_rng(seed)
    added, changed, removed = rows // 100, rows // 50, rows // 200
    changed_rows = set(rng.choice(rows, changed, replace=False).tolist())
    unchanged = np.setdiff1d(np.arange(rows), sorted(changed_rows))
    removed_rows = set(rng.choice(unchanged, removed, replace=False).tolist())
    _write(old, (_row(n, seed, polygons) for n in range(rows)), polygons)
    kept = np.setdiff1d(np.arange(rows + added), sorted(removed_rows))
    order = kept[rng.permutation(len(kept))]
    _write(new, (_edited(_row(int(n), seed, polygons), int(n) in changed_rows) for n in order), polygons)
    return old, new


def _write(path: Path, rows, polygons: bool) -> None:
    header = (*COLUMNS[:18], "shape") if polygons else COLUMNS
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    partial.rename(path)


def _edited(row: list, changed: bool) -> list:
    return [*row[:5], "finaled", *row[6:9], f"{float(row[9]) + 100:.2f}", *row[10:]] if changed else row


def _row(n: int, seed: int, polygons: bool) -> list:
    mixed = (n * 2654435761 + seed) & 0xFFFFFFFF
    pick = lambda words, shift: words[(mixed >> shift) % len(words)]  # noqa: E731
    month_day = f"{1 + (mixed >> 3) % 12:02d}-{1 + (mixed >> 7) % 28:02d}"
    day = lambda shift: f"20{10 + (mixed >> shift) % 16:02d}-{month_day}"  # noqa: E731
    x, y = -81.7 + (mixed % 100003) / 1e5, 28.1 + (mixed % 99991) / 1.25e5
    row = [
        f"B{n:09d}", f"{100 + mixed % 9900} {pick(STREETS, 4)} {pick(STREETS, 9)} St",
        f"{mixed % 30:02d}-{n % 7919:05d}",
        pick(WORDS, 2), pick(WORDS, 5), "issued" if mixed & 1 else "applied", day(1), day(5),
        day(9) if mixed % 3 else "", f"{mixed % 900000 / 7:.2f}", f"{mixed % 9000 / 8:.2f}",
        f"{pick(STREETS, 6)} {pick(WORDS, 8)} LLC" if mixed % 4 else "",
        " ".join(WORDS[(mixed >> k) % len(WORDS)] for k in range(12)),
        str(mixed % 7), f"A{mixed % 40}", str(mixed % 12), str(1 + mixed % 4), "true" if mixed & 2 else "false",
    ]  # fmt: skip
    return [*row, _polygon(x, y, mixed)] if polygons else [*row, f"{x:.6f}", f"{y:.6f}"]


def _polygon(x: float, y: float, mixed: int) -> str:
    corners = 8 + mixed % 33
    angles = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    ring = [f"{x + 0.0004 * np.cos(a):.7f} {y + 0.0004 * np.sin(a):.7f}" for a in angles]
    return f"POLYGON (({', '.join([*ring, ring[0]])}))"
