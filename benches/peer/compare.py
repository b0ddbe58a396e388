#!/usr/bin/env python3
"""The same training step in fullrank and in PyTorch, side by side in one run.

    cargo build --release
    python3 -m venv peer && peer/bin/pip install torch==2.13.0
    peer/bin/python benches/peer/compare.py --components 4 --answers 4 --compile --run RUN

Runs fullrank and each way to write the step in PyTorch in turn, several rounds, so that a busy minute
of the machine hits all of them; prints the median over the rounds of each one's median step, and how
many times as long it is as fullrank's with --exact. With --run, a step of that trained model is
measured too, with --exact and without: how much of its gradient is worth multiplying depends on what
it has learned, which makes no difference to PyTorch. Other options, such as --entities and --dim, go
to PyTorch and to fullrank without --run.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def measure(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fullrank", default=HERE.parents[1] / "target/release/fullrank")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", default="2")
    parser.add_argument("--answers", default="4")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well")
    parser.add_argument("--run", help="a run folder")
    parser.add_argument("--batch", default="1000")
    args, sizes = parser.parse_known_args()

    sizes += ["--answers", args.answers, "--batch", args.batch, "--threads", args.threads]
    torch = [sys.executable, HERE / "torch_step.py", *sizes]
    fullrank = [args.fullrank, "bench", "step", "--json", "--threads", args.threads]
    systems = {"fullrank --exact": [*fullrank, *sizes[:-2], "--exact"]}
    if args.run:
        systems["the run, --exact"] = [*fullrank, "--run", args.run, "--batch", args.batch, "--exact"]
        systems["the run"] = [*fullrank, "--run", args.run, "--batch", args.batch]
    # With one answer the dense and the gathered way are the same.
    systems["torch, dense targets" if args.answers != "1" else "torch"] = torch
    if args.answers != "1":
        systems["torch, gathered"] = torch + ["--gather"]
    if args.compile:
        systems["torch, compiled"] = torch + ["--gather", "--compile"]

    found = {name: [] for name in systems}
    for _ in range(args.rounds):
        for name, command in systems.items():
            found[name].append(measure(command))
    own = statistics.median(run["seconds"] for run in found["fullrank --exact"])
    print(f"{'':22} {'seconds':>8} {'lowest':>8} {'highest':>8} {'times':>6} {'peak MB':>8}")
    for name, runs in found.items():
        seconds = [run["seconds"] for run in runs]
        median = statistics.median(seconds)
        peak = max(run["peak_mb"] for run in runs)
        print(f"{name:22} {median:8.3f} {min(seconds):8.3f} {max(seconds):8.3f} {median / own:6.2f} {peak:8.0f}")


if __name__ == "__main__":
    main()
