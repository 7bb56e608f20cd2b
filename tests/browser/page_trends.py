"""Which changes the results page calls clear: its own modules, in Node, on given publications."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from blendstream.agents.gateway.read.epoch_series import series_piece
from blendstream.streams.wire.estimates_document import EstimatesDocument

__all__ = ["Pair", "changes_of_queries", "clear_changes", "in_node"]

PAGE = Path(__file__).parents[2] / "agents/gateway/pages/results"

#: Epoch, the epoch that it is compared with, and whether each is read by itself.
Pair = tuple[int, int, bool]

_COMPARE = """
const found = given.map(({ queries, records, pairs }) => {
  const [ofQueries, ofRecords] = [queries, records].map((told) => {
    const series = new Series("either");
    told.forEach((epoch) => series.add(epoch));
    return series;
  });
  return pairs.map(([now, then, own]) => [...changesOfQueries(
    ofQueries, ofRecords, ofQueries.at(now), ofQueries.at(then), [ofQueries.at(then)], own)]);
});
"""


def in_node(program: str, given: object) -> Any:
    """What `program` leaves in `found`; it has `given` and all that the modules export."""
    with TemporaryDirectory() as folder:
        # Under a name by which every Node takes them for modules, as browsers do.
        for name in ("published", "trends"):
            (Path(folder) / f"{name}.mjs").write_text((PAGE / f"{name}.js").read_text())
        text = (
            'import { readFileSync } from "node:fs";\n'
            'import { Series } from "./published.mjs";\n'
            'import { chance, changesOfQueries, small } from "./trends.mjs";\n'
            "const given = JSON.parse(readFileSync(0));\n"
            f"{program}\nconsole.log(JSON.stringify(found));\n"
        )
        (Path(folder) / "program.mjs").write_text(text)
        ended = subprocess.run(
            ["node", "program.mjs"],
            input=json.dumps(given), capture_output=True, text=True, check=False, cwd=folder,
        )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def changes_of_queries(
    runs: Sequence[tuple[Sequence[EstimatesDocument], Sequence[Pair]]],
) -> list[list[dict[str, Mapping[str, Any]]]]:
    """Of each run and each of its pairs: how every query changed (`kind`, and `by` how much)."""
    given = [
        {
            **{
                table: [json.loads(series_piece(each.to_bytes(), table)) for each in documents]
                for table in ("queries", "records")
            },
            "pairs": pairs,
        }
        for documents, pairs in runs
    ]
    return [[dict(pair) for pair in run] for run in in_node(_COMPARE, given)]


def clear_changes(
    now: EstimatesDocument, then: EstimatesDocument, estimate: str = "blend"
) -> dict[str, float | None]:
    """By how much each query changed that both list, None where that may be chance."""
    pair = now.epoch, then.epoch, estimate == "blend"
    ((found,),) = changes_of_queries([((now, then), (pair,))])
    return {
        query: change["by"] if change["kind"] in ("up", "down") else None
        for query, change in found.items()
        if change["kind"] in ("up", "down", "none")
    }
