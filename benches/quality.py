#!/usr/bin/env python3
"""How long until a mixture is as good as some mark: fullrank's way, and the usual way in PyTorch.

    cargo build --release
    python3 -m venv peer && peer/bin/pip install torch==2.13.0
    peer/bin/python benches/quality.py DATA/FB15k-237 --runs runs/quality --out docs/quality.svg

Trains a DistMult with a mixture of 4 softmaxes with fullrank: with one item per query, which costs the seconds it
takes, and twice with one item per triple, as in PyTorch, with the same settings and with the paper's. Each of these
costs as many PyTorch steps as it makes updates; a step, compiled, is measured before and after the first training.
Their own seconds do not count, so they train side by side. A training that --runs has already is not made again.
Between two epochs, quality is taken to grow evenly. Prints when each reaches a number of marks, of validation MRR with
test answers filtered too, as LibKGE has it, and of fullrank's own, in which they compete, and draws the first. Nothing
else should run on the machine until "a PyTorch step" is printed.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
OWN = ["--config", ROOT / "configs/fb15k-237-distmult-mixture4-quick.toml"]
PER_TRIPLE = ["--answers-per-item", "1", "--batch", "1000"]
# One item per triple, by the name of its folder and of its curve.
PEERS = {
    "same": ("PyTorch, same settings", [*OWN, *PER_TRIPLE]),
    # But for Adam at 1e-3, ten times the paper's rate, which would need many more updates.
    "paper": ("PyTorch, paper's settings", ["--output", "mixture", "--components", "4", *PER_TRIPLE, "--epochs", "6"]),
}
MEASURES = {
    "mrr_filtered_with_test": "validation MRR, test answers filtered too",
    "mrr": "validation MRR",
}
DRAWN = "mrr_filtered_with_test"
MARKS = [0.24, 0.25, 0.26, 0.27, 0.28, 0.29, 0.30, 0.31, 0.32]
COLOURS = ["#1f6feb", "#d1242f", "#9a6700"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, help="FB15k-237: a folder with train, valid and test")
    parser.add_argument("--fullrank", type=pathlib.Path, default=ROOT / "target/release/fullrank")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/quality"), help="where run folders go")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("quality.svg"))
    args = parser.parse_args()
    steps = [torch_step()]
    own = args.runs / "own"
    # What was interrupted would tell the time of its last part.
    if own.exists() and not is_over(own):
        sys.exit(f"{own}: expected a finished run; remove it to train anew")
    if not own.exists():
        subprocess.run(command(args, own, OWN, threads=2), check=True)
    steps.append(torch_step())
    train_peers(args)
    step = statistics.mean(steps)
    print(f"a PyTorch step, compiled: {steps[0]:.3f} s before and {steps[1]:.3f} s after the first training")
    for measure, name in MEASURES.items():
        curves = {"fullrank": curve(own, measure, lambda epoch: epoch["seconds"] + epoch["valid_seconds"])}
        for folder, (peer, _) in PEERS.items():
            curves[peer] = curve(args.runs / folder, measure, lambda epoch: epoch["new_updates"] * step)
        print_marks(name, curves)
        if measure == DRAWN:
            args.out.write_text(picture(curves))
    for folder in ["own", *PEERS]:
        print(f"{folder}: test MRR {test_mrr(args, args.runs / folder):.4f} in the end")


def train_peers(args):
    trainings = []
    for folder, (_, options) in PEERS.items():
        folder = args.runs / folder
        if not is_over(folder):
            resume = ["--resume"] if folder.exists() else []
            trainings.append(subprocess.Popen(command(args, folder, options, threads=1) + resume))
    # All of them, before any failure is told.
    if any([training.wait() for training in trainings]):
        sys.exit(1)


def is_over(folder):
    return (folder / "model.safetensors").exists() and not (folder / "checkpoint").exists()


def command(args, folder, options, threads):
    return [args.fullrank, "train", args.data, *options, "--threads", str(threads), "--out", folder]


def test_mrr(args, folder):
    evaluate = [args.fullrank, "evaluate", folder, "--json"]
    return json.loads(subprocess.run(evaluate, check=True, capture_output=True).stdout)["mrr"]


def torch_step():
    step = [sys.executable, ROOT / "benches/peer/torch_step.py", "--components", "4", "--answers", "1"]
    step += ["--gather", "--compile", "--threads", "2"]
    step += ["--steps", "21"]
    return json.loads(subprocess.run(step, check=True, capture_output=True, text=True).stdout)["seconds"]


def curve(folder, measure, seconds_of):
    """(seconds so far, updates so far, quality) after each epoch; an untrained model knows nothing."""
    points = [(0.0, 0, 0.0)]
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        epoch = json.loads(line)
        seconds, updates, _ = points[-1]
        epoch["new_updates"] = epoch["updates"] - updates
        points.append((seconds + seconds_of(epoch), epoch["updates"], epoch["valid"][measure]))
    return points


def reached(points, mark):
    for (second, update, before), (next_second, next_update, after) in zip(points, points[1:]):
        if after >= mark:
            part = (mark - before) / (after - before)
            return second + part * (next_second - second), update + part * (next_update - update)
    return None


def print_marks(measure, curves):
    print(f"\n| {measure} |" + "".join(f" {name}, s | updates |" for name in curves) + " times | times |")
    print("|---" * (3 + 2 * len(curves)) + "|")
    for mark in MARKS:
        own, *peers = [reached(points, mark) for points in curves.values()]
        cells = [f" {at[0]:,.0f} | {at[1]:,.0f} |" if at else " never | |" for at in [own, *peers]]
        times = [f" {at[0] / own[0]:.1f} |" if own and at else " |" for at in peers]
        print(f"| {mark:.2f} |" + "".join(cells + times))
    print()


def picture(curves):
    """Quality over minutes."""
    width, height, left, top = 560, 260, 50, 30
    last = max(points[-1][0] for points in curves.values())
    lowest, highest = 0.20, 0.34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 80} {height + 100}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width + 80}" height="{height + 100}" fill="#fff"/>',
        f'<text x="{left}" y="{top - 12}" font-weight="600">validation MRR, test answers filtered too</text>',
    ]

    def x(seconds):
        return left + width * seconds / last

    def y(mrr):
        return top + height * (highest - mrr) / (highest - lowest)

    for step in range(8):
        mrr = lowest + 0.02 * step
        at = y(mrr)
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{mrr:.2f}</text>')
    apart = next(minutes for minutes in (1, 2, 5, 10, 20, 50, 100) if last / 60 / minutes <= 10)
    for minutes in range(0, int(last / 60) + 1, apart):
        at = x(60 * minutes)
        parts.append(f'<text x="{at:.1f}" y="{top + height + 18}" text-anchor="middle">{minutes}</text>')
    for number, ((name, points), colour) in enumerate(zip(curves.items(), COLOURS)):
        shown = [(x(seconds), y(mrr)) for seconds, _, mrr in points if mrr >= lowest]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in shown)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in shown]
        at = left + number * 180
        parts.append(f'<rect x="{at}" y="{top + height + 36}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{at + 18}" y="{top + height + 46}">{name}</text>')
    caption = "minutes, 2 threads; DistMult with a mixture of 4, d = 200, FB15k-237; a dot is an epoch"
    parts.append(f'<text x="{left}" y="{top + height + 66}" fill="#555">{caption}</text>')
    return "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    main()
