"""One line of CSV for each finished run: settings, what training took, and metrics of the best epoch.

    python3 results/collect.py runs/tune/* > results/tuning.csv

Columns of settings are those in which the runs differ.
"""

import csv
import json
import sys
import tomllib
from pathlib import Path

RESULTS = [
    "best_epoch", "updates", "minutes", "parameters", "valid_mrr", "valid_nll", "test_mrr",
    "test_hits_at_1", "test_hits_at_10", "test_nll",
]


def figures(run: Path) -> dict[str, object] | None:
    """What a run came to; nothing if it is not finished."""
    result = json.loads((run / "run.json").read_text(encoding="utf-8")).get("result")
    if result is None:
        return None
    row = {
        "best_epoch": result["best"]["epoch"],
        "updates": result["updates"],
        "minutes": round(result["seconds"] / 60),
        "parameters": result["parameters"],
    }
    for split in result["splits"]:
        name, found = split["split"], split["model"]
        row[f"{name}_nll"] = rounded(found.get("nll_filtered"), 3)
        for metric in ("mrr", "hits_at_1", "hits_at_10"):
            row[f"{name}_{metric}"] = rounded(found[metric], 4)
    return row


def rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def main(runs: list[str]) -> int:
    rows = []
    for run in map(Path, runs):
        settings = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
        found = figures(run)
        if found is None:
            print(f"{run}: not finished, left out", file=sys.stderr)
        else:
            rows.append((run.name, settings, found))
    names = sorted({name for _, settings, _ in rows for name in settings})
    differing = [
        name for name in names if len({str(settings.get(name)) for _, settings, _ in rows}) > 1
    ]
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["run", *differing, *RESULTS])
    for run, settings, found in rows:
        out.writerow([run, *(settings.get(n) for n in differing), *(found.get(n) for n in RESULTS)])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
