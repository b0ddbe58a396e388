"""Are the charts of our pages drawn in a browser? Run by ./check, which needs chromium for it.

Makes a small graph, trains on it, compares two runs, and opens the pages of all in headless Chromium. The
program is the one that the tests have built.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BROWSER = [
    "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr",
]


def program() -> Path:
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return Path(json.loads(found.stdout)["target_directory"]) / "debug" / "fullrank"


def fullrank(*arguments: object) -> None:
    subprocess.run([program(), *map(str, arguments)], check=True, capture_output=True, text=True)


def faults_of(page: Path, profile: Path) -> list[str]:
    """What is wrong with a page once its script has run."""
    command = [*BROWSER, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    opened = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    faults = [line for line in opened.stderr.splitlines() if "Uncaught" in line]
    figures = re.findall(r'<figure id="(chart-\d+)">(.*?)</figure>', opened.stdout, re.DOTALL)
    if not figures:
        faults.append("there is no chart")
    faults += [f"{name} was not drawn" for name, inner in figures if "<svg" not in inner]
    return faults


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        graph, run, bounds = folder / "graph", folder / "run", folder / "bounds.html"
        softmax, mixture, compared = folder / "softmax", folder / "mixture", folder / "compared.html"
        fullrank("generate", graph, "--entities", 200, "--relations", 4, "--mean-degree", 8)
        fullrank("inspect", graph, "--effort", "low", "--dim", 8, "--html", bounds)
        fullrank("train", graph, "--dim", 8, "--epochs", 2, "--out", run)
        for output, out in (("softmax", softmax), ("mixture", mixture)):
            fullrank("train", graph, "--dim", 8, "--epochs", 2, "--output", output, "--seeds", 2, "--out", out)
        fullrank("compare", softmax, mixture, "--resamples", 100, "--html", compared)
        broken = 0
        for page in (run / "report.html", bounds, compared):
            for fault in faults_of(page, folder / "profile"):
                print(f"{page.name}: {fault}", file=sys.stderr)
                broken += 1
    return min(broken, 1)


if __name__ == "__main__":
    sys.exit(main())
