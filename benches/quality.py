#!/usr/bin/env python3
"""How long until a mixture is as good as some mark: fullrank's way, and the usual way in PyTorch.

    cargo build --release
    python3 -m venv peer && peer/bin/pip install torch==2.13.0
    peer/bin/python benches/quality.py DATA/FB15k-237 --runs runs/quality --out docs/quality.svg

Trains a DistMult with a mixture of 4 softmaxes with fullrank, unless --runs has it already: with one item per
query, and with one item per triple, as in PyTorch. The first costs the seconds it takes. The second costs as many
PyTorch steps as it makes updates; a step, compiled, is measured before and after the first. For the MRR on test after each epoch, the
first is trained once more, which gives the same bits. Between two epochs, quality is taken to grow evenly. Prints
when each reaches a number of marks, and draws both. Nothing else should run on the machine.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs/fb15k-237-distmult-mixture4-quick.toml"
# Adam at 1e-3, ten times the paper's rate, which would need many more updates.
PER_TRIPLE = "--output mixture --components 4 --answers-per-item 1 --batch 1000 --epochs 8".split()
MARKS = {"valid": [0.24, 0.25, 0.26, 0.27, 0.28], "test": [0.27, 0.28, 0.29, 0.30, 0.31]}
COLOURS = {"fullrank": "#1f6feb", "PyTorch, compiled": "#d1242f"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, help="FB15k-237: a folder with train, valid and test")
    parser.add_argument("--fullrank", type=pathlib.Path, default=ROOT / "target/release/fullrank")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/quality"), help="where run folders go")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("quality.svg"))
    args = parser.parse_args()
    steps = [torch_step()]
    train(args, "own", ["--config", CONFIG])
    steps.append(torch_step())
    own = with_test(read_epochs(args.runs / "own"), watch(args, "own-watched", ["--config", CONFIG]))
    found = watch(args, "per-triple", PER_TRIPLE)
    per_triple = with_test(read_epochs(args.runs / "per-triple"), found)
    step = statistics.mean(steps)
    print(f"a PyTorch step, compiled: {steps[0]:.3f} s before and {steps[1]:.3f} s after the first training")
    curves = {
        "fullrank": curve(own, lambda epoch: epoch["seconds"] + epoch["valid_seconds"]),
        "PyTorch, compiled": curve(per_triple, lambda epoch: epoch["new_updates"] * step),
    }
    print("\n| MRR | fullrank, s | updates | PyTorch, s | updates | times |\n|---|---|---|---|---|---|")
    for split, marks in MARKS.items():
        for mark in marks:
            row(split, mark, curves)
    args.out.write_text(picture(curves))


def train(args, name, options):
    """Undisturbed; what was interrupted would tell the time of its last part."""
    folder = args.runs / name
    if not folder.exists():
        subprocess.run(command(args, folder, options), check=True)
    elif not (folder / "model.safetensors").exists():
        sys.exit(f"{folder}: expected a finished run; remove it to train anew")


def watch(args, name, options):
    """The MRR on test after each epoch, by epoch; a run answers with the best one so far."""
    found_path = args.runs / f"{name}-test.json"
    found = json.loads(found_path.read_text()) if found_path.exists() else {}
    folder = args.runs / name
    training = subprocess.Popen(command(args, folder, options) + (["--resume"] if folder.exists() else []))
    seen, is_over = len(read_epochs(folder)), False
    while not is_over:
        time.sleep(1)
        is_over = training.poll() is not None
        if len(read_epochs(folder)) > seen:
            time.sleep(3)  # the line stands a little earlier than the checkpoint
            seen = len(read_epochs(folder))
            evaluate = [args.fullrank, "evaluate", folder, "--json"]
            report = json.loads(subprocess.run(evaluate, check=True, capture_output=True).stdout)
            found[str(report["epoch"])] = report["mrr"]
            found_path.write_text(json.dumps(found))
    if training.returncode != 0:
        sys.exit(training.returncode)
    return found


def command(args, folder, options):
    return [args.fullrank, "train", args.data, *options, "--threads", "2", "--out", folder]


def with_test(epochs, found):
    """Each epoch with its updates and its MRR; that on test is known of epochs that were the best so far."""
    for epoch, before in zip(epochs, [{"updates": 0}, *epochs]):
        epoch["new_updates"] = epoch["updates"] - before["updates"]
        epoch["mrr"] = {"valid": epoch["valid"]["mrr"], "test": found.get(str(epoch["epoch"]))}
    return epochs


def read_epochs(folder):
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def torch_step():
    step = [sys.executable, ROOT / "benches/peer/torch_step.py", "--components", "4", "--answers", "1"]
    step += ["--gather", "--compile", "--threads", "2"]
    step += ["--steps", "21"]
    return json.loads(subprocess.run(step, check=True, capture_output=True, text=True).stdout)["seconds"]


def curve(epochs, seconds_of):
    """(seconds so far, updates so far, MRR by split) after each epoch; an untrained model knows nothing."""
    points = [(0.0, 0, {"valid": 0.0, "test": 0.0})]
    for epoch in epochs:
        points.append((points[-1][0] + seconds_of(epoch), epoch["updates"], epoch["mrr"]))
    return points


def reached(points, split, mark):
    points = [(second, update, mrr[split]) for second, update, mrr in points if mrr[split] is not None]
    for (second, update, before), (next_second, next_update, after) in zip(points, points[1:]):
        if after >= mark:
            part = (mark - before) / (after - before)
            return second + part * (next_second - second), update + part * (next_update - update)
    return None


def row(split, mark, curves):
    found = [reached(points, split, mark) for points in curves.values()]
    cells = [f"{at[0]:,.0f} | {at[1]:,.0f}" if at else "never | never" for at in found]
    times = f"{found[1][0] / found[0][0]:.1f}" if all(found) else ""
    print(f"| {split} {mark:.2f} | {cells[0]} | {cells[1]} | {times} |")


def picture(curves):
    """Validation MRR over minutes."""
    width, height, left, top = 560, 260, 50, 30
    last = max(points[-1][0] for points in curves.values())
    lowest, highest = 0.18, 0.30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 80} {height + 100}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width + 80}" height="{height + 100}" fill="#fff"/>',
        f'<text x="{left}" y="{top - 12}" font-weight="600">validation MRR</text>',
    ]

    def x(seconds):
        return left + width * seconds / last

    def y(mrr):
        return top + height * (highest - mrr) / (highest - lowest)

    for step in range(7):
        mrr = lowest + 0.02 * step
        at = y(mrr)
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{mrr:.2f}</text>')
    apart = next(minutes for minutes in (1, 2, 5, 10, 20, 50, 100) if last / 60 / minutes <= 10)
    for minutes in range(0, int(last / 60) + 1, apart):
        at = x(60 * minutes)
        parts.append(f'<text x="{at:.1f}" y="{top + height + 18}" text-anchor="middle">{minutes}</text>')
    for number, ((name, points), colour) in enumerate(zip(curves.items(), COLOURS.values())):
        shown = [(x(seconds), y(mrr["valid"])) for seconds, _, mrr in points if mrr["valid"] >= lowest]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in shown)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in shown]
        at = left + number * 150
        parts.append(f'<rect x="{at}" y="{top + height + 36}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{at + 18}" y="{top + height + 46}">{name}</text>')
    caption = "minutes, 2 threads; DistMult with a mixture of 4, d = 200, FB15k-237; a dot is an epoch"
    parts.append(f'<text x="{left}" y="{top + height + 66}" fill="#555">{caption}</text>')
    return "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    main()
