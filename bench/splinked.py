"""The peer: Splink on the same left-over rows, with the settings that its documentation recommends per type of column.

Texts are folded to lower case without punctuation first, as Splink asks for; a column with many values gets term
frequencies; points are compared by kilometres, other shapes by their centres; candidates share a value that is held by
at most 50 rows of a side, or a cell of about 100 m. Pairs at 0.85 or more match best first, one to one, as ours do.
"""

import re
from typing import Any

import pandas as pd
import shapely

LEAST = 0.85
HELD_AT_MOST = 50
SEED = 1


def link(old: list[dict[str, Any]], new: list[dict[str, Any]], types: dict[str, str]) -> dict[int, tuple[int, float]]:
    """Give places of new rows, with the match weight, by places of old ones, the most probable first."""
    from splink import DuckDBAPI, Linker, SettingsCreator, block_on

    columns = useful([*old, *new], types)
    frames = [frame(rows, columns) for rows in (old, new)]
    points = "geometry" in columns
    rules = [block_on(f"{name}_rare") for name in columns if name != "geometry"]
    rules += [block_on("cell_here"), block_on("cell_beside")] if points else []
    settings = SettingsCreator(
        link_type="link_only",
        comparisons=[_comparison(name, type_, frames) for name, type_ in columns.items()],
        blocking_rules_to_generate_predictions=rules,
        retain_matching_columns=False,
    )
    api = DuckDBAPI()
    tables = [
        api.register(frame, dataset_display_name=name) for frame, name in zip(frames, ("old", "new"), strict=True)
    ]
    linker = Linker(tables, settings, log_level="ERROR")
    kinds = sorted((name for name in columns if name != "geometry"), key=lambda name: -frames[0][name].nunique())
    strict = [block_on(*pair) for pair in (kinds[0:2], kinds[1:3], kinds[2:4]) if len(pair) == 2]
    linker.training.estimate_probability_two_random_records_match(strict, recall=0.6)
    linker.training.estimate_u_using_random_sampling(max_pairs=2e6, seed=SEED)
    for name in kinds[:3]:
        linker.training.estimate_parameters_using_expectation_maximisation(
            block_on(f"{name}_rare"), record_sample_proportion=1.0
        )
    found = linker.inference.predict(threshold_match_probability=LEAST).as_pandas_dataframe()
    return _one_to_one(found)


def useful(rows: list[dict[str, Any]], types: dict[str, str]) -> dict[str, str]:
    """Give the columns with more than one value."""
    return {name: type_ for name, type_ in types.items() if len({row[name] for row in rows}) > 1}


def frame(rows: list[dict[str, Any]], columns: dict[str, str]) -> pd.DataFrame:
    """Give rows as peers want them: texts folded, rare values and cells to block by beside them."""
    made: dict[str, list[Any]] = {"unique_id": list(range(len(rows)))}
    for name, type_ in columns.items():
        values = [row[name] for row in rows]
        if name == "geometry":
            made |= _centres(values)
            continue
        texts = [None if v is None else _folded(v) if type_ in ("string", "json") else str(v) for v in values]
        held = pd.Series(texts).value_counts()
        made[name] = texts
        made[f"{name}_rare"] = [t if t is not None and held[t] <= HELD_AT_MOST else None for t in texts]
    return pd.DataFrame(made).convert_dtypes()


def _folded(text: str) -> str | None:
    return " ".join(re.sub(r"[^\w]+", " ", text.lower()).split()) or None


def _centres(shapes: list[bytes | None]) -> dict[str, list[Any]]:
    centres = [None if shape is None else shapely.centroid(shapely.from_wkb(shape)) for shape in shapes]
    return {
        "lat": [c and c.y for c in centres],
        "lon": [c and c.x for c in centres],
        "cell_here": [c and f"{c.x:.3f} {c.y:.3f}" for c in centres],
        "cell_beside": [c and f"{c.x + 0.0005:.3f} {c.y + 0.0005:.3f}" for c in centres],
    }


def _comparison(name: str, type_: str, frames: list[pd.DataFrame]) -> Any:
    import splink.comparison_library as cl

    if type_ == "geometry":
        return cl.DistanceInKMAtThresholds("lat", "lon", [0.005, 0.05, 0.2, 1])
    if type_ == "date":
        return cl.AbsoluteDateDifferenceAtThresholds(
            name, input_is_string=True, metrics=["day", "day", "year"], thresholds=[7, 45, 1]
        )
    if type_ in ("string", "json") and frames[0][name].nunique() > 2:
        many = frames[0][name].nunique() > 20
        return cl.JaroWinklerAtThresholds(name, [0.92, 0.8]).configure(term_frequency_adjustments=many)
    return cl.ExactMatch(name).configure(term_frequency_adjustments=frames[0][name].nunique() > 20)


def _one_to_one(found: pd.DataFrame) -> dict[int, tuple[int, float]]:
    ordered = found.sort_values(["match_probability", "unique_id_l", "unique_id_r"], ascending=[False, True, True])
    matched: dict[int, tuple[int, float]] = {}
    taken: set[int] = set()
    sides = ordered[["source_dataset_l", "unique_id_l", "unique_id_r", "match_weight"]]
    for dataset, left, right, weight in sides.itertuples(index=False):
        old, new = (int(left), int(right)) if dataset == "old" else (int(right), int(left))
        if old not in matched and new not in taken:
            matched[old] = (new, float(weight))
            taken.add(new)
    return matched
