#!/usr/bin/env python3
"""What a user waits for, in one run: fullrank, and PyTorch beside it where it does the same.

    cargo build --release
    python3 -m venv peer && peer/bin/pip install torch==2.13.0 numpy zstandard
    peer/bin/python benches/suite.py DATA/FB15k-237 --runs runs/suite

Trains a softmax and a mixture half way first, unless --runs has them already. Then, one after the other:
kernels beside the machine's peak, training steps, filtered ranks of the test split, single queries, loading,
and inspecting. Prints tables and ratios. Nothing else should run on the machine.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEER = ROOT / "benches/peer"
HALF = {
    "softmax": ["--output", "softmax", "--epochs", "12"],
    "mixture": ["--config", ROOT / "configs/fb15k-237-distmult-mixture4.toml", "--epochs", "8"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, help="FB15k-237: a folder with train, valid and test")
    parser.add_argument("--fullrank", type=pathlib.Path, default=ROOT / "target/release/fullrank")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/suite"), help="where run folders go")
    parser.add_argument("--rounds", default="2", help="of each training step, in turn")
    args = parser.parse_args()
    for name, options in HALF.items():
        folder = args.runs / name
        call(args, "train", args.data, *options, "--out", folder, *(["--resume"] if folder.exists() else []))

    title("Kernels")
    call(args, "bench", "kernels")
    for components, run in (("0", "softmax"), ("4", "mixture")):
        title(f"A training step, {run}")
        compare = [sys.executable, PEER / "compare.py", "--fullrank", args.fullrank, "--compile"]
        subprocess.run([*compare, "--components", components, "--rounds", args.rounds, "--run", args.runs / run], check=True)
    title("Filtered ranks of the test split, and one query")
    rank(args)
    title("Loading and inspecting")
    call(args, "bench", "load", args.data, "--repeats", "7")
    seconds = statistics.median(timed(lambda: answer(args, "inspect", args.data)) for _ in range(3))
    print(f"inspect, the whole command: {seconds:.1f} s (median of 3)")


def rank(args):
    tables = args.runs / "tables"
    call(args, "export", args.runs / "softmax", "--out", tables, "--format", "npy", "--force", quiet=True)
    torch = subprocess.run([sys.executable, PEER / "torch_rank.py", args.data, tables], check=True, capture_output=True)
    torch = json.loads(torch.stdout)
    print(f"{'':24} {'seconds':>8} {'times':>6} {'one query, ms':>14} {'times':>6}")
    print(f"{'torch, DistMult softmax':24} {torch['seconds']:8.2f} {1:6.1f} {1e3 * torch['p50_seconds']:14.2f} {1:6.1f}")
    for run in HALF:
        ranks = json.loads(answer(args, "bench", "evaluate", args.runs / run, "--json"))
        query = json.loads(answer(args, "bench", "predict", args.runs / run, "--json"))
        faster = [torch["seconds"] / ranks["seconds"], torch["p50_seconds"] / query["p50_seconds"]]
        one = 1e3 * query["p50_seconds"]
        print(f"{'fullrank, ' + run:24} {ranks['seconds']:8.2f} {faster[0]:6.1f} {one:14.2f} {faster[1]:6.1f}")


def title(text):
    print(f"\n## {text}\n", flush=True)


def call(args, *options, quiet=False):
    subprocess.run([args.fullrank, *options], check=True, stdout=subprocess.DEVNULL if quiet else None)


def answer(args, *options):
    return subprocess.run([args.fullrank, *options], check=True, capture_output=True, text=True).stdout


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
