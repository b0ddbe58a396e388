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


# Lists words of a chart that lie on each other, or beyond its edge.
LOOK = """<script>
for (const svg of document.querySelectorAll('figure svg')) {
  const edge = svg.getBoundingClientRect(), name = svg.parentNode.id;
  const boxes = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  const tell = what => document.body.append(Object.assign(document.createElement('i'), {className: 'fault', textContent: `${name}: ${what}`}));
  boxes.forEach(([text, a], i) => {
    if (a.left < edge.left - 1 || a.right > edge.right + 1 || a.bottom > edge.bottom + 1) tell(`"${text}" is cut off`);
    for (const [other, b] of boxes.slice(i + 1)) {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      // The height of a line is more than that of its letters.
      if (across > 1 && down > 4) tell(`"${text}" lies on "${other}"`);
    }
  });
}
</script>"""


def faults_of(page: Path, profile: Path) -> list[str]:
    """What is wrong with a page once its script has run."""
    looked = page.with_name(f"looked-{page.name}")
    looked.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{LOOK}</body>"), encoding="utf-8")
    command = [*BROWSER, f"--user-data-dir={profile}", "--dump-dom", looked.as_uri()]
    opened = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    faults = [line for line in opened.stderr.splitlines() if "Uncaught" in line]
    figures = re.findall(r'<figure id="(chart-\d+)">(.*?)</figure>', opened.stdout, re.DOTALL)
    if not figures:
        faults.append("there is no chart")
    faults += [f"{name} was not drawn" for name, inner in figures if "<svg" not in inner]
    faults += re.findall(r'<i class="fault">(.*?)</i>', opened.stdout)
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
