#!/usr/bin/env python3
"""What a user waits for, in one run: fullrank, and PyTorch, pandas and scipy beside it where they do the same.

    cargo build --release
    python3 -m venv peer && peer/bin/pip install torch==2.13.0 numpy pandas scipy zstandard
    peer/bin/python benches/suite.py DATA/FB15k-237 --runs runs/suite

Trains a softmax and a mixture half way first, unless --runs has them already. Then, one after the other:
kernels beside the machine's peak, training steps, filtered ranks of the test split, single queries, loading,
and inspecting. Prints tables and ratios. Nothing else should run on the machine. With --sizes, only training
steps, of other sizes.
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
    "mixture": ["--config", ROOT / "configs/fb15k-237-distmult-mixture4-quick.toml"],
}
# One at a time is other than E = 14,541, d = 200, B = 1,000, K = 4 and 4 answers.
SIZES = [
    ("entities", "2034"),
    ("entities", "40943"),
    ("dim", "64"),
    ("dim", "500"),
    ("batch", "250"),
    ("components", "0"),
    ("components", "1"),
    ("components", "8"),
    ("answers", "1"),
    ("answers", "32"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, help="FB15k-237: a folder with train, valid and test")
    parser.add_argument("--fullrank", type=pathlib.Path, default=ROOT / "target/release/fullrank")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/suite"), help="where run folders go")
    parser.add_argument("--rounds", default="2", help="of each training step, in turn")
    parser.add_argument("--sizes", action="store_true", help="training steps of many sizes instead")
    args = parser.parse_args()
    if args.sizes:
        return sizes(args)
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
    load_and_inspect(args)


def sizes(args):
    """fullrank's step with --exact beside PyTorch's compiled one, medians of rounds of 7."""
    print("| | fullrank, s | PyTorch compiled, s | times | fullrank, MB | PyTorch, MB |\n|---|---|---|---|---|---|")
    fullrank = [args.fullrank, "bench", "step", "--exact", "--json"]
    torch = [sys.executable, PEER / "torch_step.py", "--gather", "--compile"]
    for name, value in SIZES:
        steps = [[step(command, name, value) for command in (fullrank, torch)] for _ in range(int(args.rounds))]
        own, peer = (statistics.median(round[system]["seconds"] for round in steps) for system in (0, 1))
        own_mb, peer_mb = (max(round[system]["peak_mb"] for round in steps) for system in (0, 1))
        print(f"| {name} {int(value):,} | {own:.3f} | {peer:.3f} | {peer / own:.1f} | {own_mb:,.0f} | {peer_mb:,.0f} |", flush=True)


def step(command, name, value):
    return json.loads(subprocess.run([*command, f"--{name}", value], check=True, capture_output=True, text=True).stdout)


def load_and_inspect(args):
    peer = subprocess.run([sys.executable, PEER / "python_graph.py", args.data], check=True, capture_output=True)
    peer = json.loads(peer.stdout)
    load = json.loads(answer(args, "bench", "load", args.data, "--repeats", "7", "--json"))["seconds"]
    order, inspect = (
        statistics.median(timed(lambda: answer(args, "inspect", args.data, "--effort", effort)) for _ in range(3))
        for effort in ("low", "normal")
    )
    # A command loads the graph as well.
    ordered = peer["load_seconds"] + peer["order_seconds"]
    print(f"{'':36} {'fullrank, s':>12} {'Python, s':>10} {'times':>6}")
    print(f"{'load':36} {load:12.3f} {peer['load_seconds']:10.3f} {peer['load_seconds'] / load:6.1f}")
    print(f"{'inspect --effort low, all of it':36} {order:12.3f} {ordered:10.3f} {ordered / order:6.1f}")
    print(f"{'inspect, all of it':36} {inspect:12.3f}")


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
