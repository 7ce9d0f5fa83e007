"""`ploti-server datasets profile`: what a file or a dataset suggests for its catalog entry."""

import json

from ploti_server.cli import main

LINES = """OBJECTID,Permit No,Line,Issued,Lat,Lon,Value
1,A-1,1,2026-01-01,28.5,-81.3,100
2,A-1,2,2026-01-02,28.6,-81.4,100
3,A-2,1,2026-01-02,28.7,-81.5,
4,A-2,2,2026-01-02,28.7,-81.5,5.5
"""
CATALOG = """
topics: [{id: permits, name: Permits}]
datasets:
  - {id: ds_x, title: X, place: fl, topic: permits, key: [OBJECTID], source: {kind: file, url: x.csv}}
"""


def test_a_file_and_a_dataset_suggest_keys_types_and_coordinates(tmp_path, capsys):
    def run(*arguments):
        code = main([*arguments, "--home", str(tmp_path / "home")])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    file = tmp_path / "x.csv"
    file.write_text(LINES)
    code, out = run("datasets", "profile", str(file))
    assert code == 0
    assert out.splitlines()[-4:] == [
        '# or: key: ["OBJECTID"]  # it may only count the rows of this state',
        'key: ["Permit No", "Line"]',
        'source: geometry: {x: "Lon", y: "Lat"}, crs: EPSG:4326',
        'volatile: ["OBJECTID"]',
    ]
    (tmp_path / "catalog.yaml").write_text(CATALOG)
    assert run("catalog", "apply", str(tmp_path / "catalog.yaml"))[0] == 0
    assert run("check", "ds_x")[0] == 0
    file.write_text(LINES + LINES.splitlines()[1] + "\n")
    code, out = run("datasets", "profile", "ds_x", "--json")
    told = json.loads(out)
    assert (told["rows"], told["hasShapes"], told["volatile"]) == (4, False, ["objectid"])
    assert told["keys"][1] == {"columns": ["permit_no", "line"], "doubt": None}
    assert {c["name"]: c["type"] for c in told["columns"]} == {
        "objectid": "integer",
        "permit_no": "string",
        "line": "integer",
        "issued": "date",
        "lat": "number",
        "lon": "number",
        "value": "number",
    }
    assert run("datasets", "profile", "ds_y") == (
        1,
        "ploti-server: there is no file and no dataset ds_y: see `ploti-server datasets list`\n",
    )
    file.write_text("")
    assert run("datasets", "profile", str(file))[0] == 1
