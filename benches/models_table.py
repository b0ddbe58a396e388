#!/usr/bin/env python3
"""Every encoder, score and output layer on small graphs, as the tables of results/models.md.

    cargo build --release
    python3 benches/models_table.py DATA/UMLS DATA/Kinships DATA/CoDEx-S

Trains each combination until validation stops it, into a run folder of its own below --runs, and
prints the table. A training that is over is taken as it is, and one that was stopped goes on, so an
interrupted table continues where it was. Needs nothing but Python.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Every encoder with these.
OUTPUTS = {
    "softmax": "--output softmax",
    "K = 1": "--output mixture --components 1",
    "K = 4": "--output mixture --components 4",
}
# What some encoders need to be affordable: a second hidden layer makes every pair a matrix product.
EXTRA = {"concatmlp": "--hidden 128"}
# Other scores and output layers, each with one encoder.
OTHERS = {
    "distmult, cosine": "--encoder distmult --output softmax --score cosine",
    "distmult, l2": "--encoder distmult --output softmax --score l2",
    "transe, l2": "--encoder transe --output softmax --score l2",
    "transe, margin": "--encoder transe --output margin --negatives 64 --margin 6 --adversarial 1",
    "rotate, margin": "--encoder rotate --output margin --negatives 64 --margin 6 --adversarial 1",
    "rotate, logistic": "--encoder rotate --output sigmoid --negatives 64 --margin 9 --adversarial 1",
    "distmult, sampled softmax": "--encoder distmult --output softmax --negatives 64",
    "distmult, sigmoid": "--encoder distmult --output sigmoid",
    "distmult, sigmoids K = 4": "--encoder distmult --output mixture-of-sigmoids",
    "distmult, sigsoftmax": "--encoder distmult --output sigsoftmax",
    "distmult, monotone": "--encoder distmult --output monotone",
    "distmult, mixtape K = 4": "--encoder distmult --output mixtape",
    "distmult, fourier": "--encoder distmult --output fourier",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=pathlib.Path, help="folders with train, valid and test")
    parser.add_argument("--fullrank", type=pathlib.Path, default=ROOT / "target/release/fullrank")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/models"), help="where run folders go")
    parser.add_argument("--dim", type=int, default=64, help="a multiple of 8, which all encoders can use")
    parser.add_argument("--epochs", type=int, default=200, help="at most; patience stops nearly all before")
    args = parser.parse_args()
    for graph in args.graphs:
        rows = []
        for name, options in combinations(args.fullrank):
            folder = args.runs / graph.name / name.replace(", ", "-").replace(" = ", "").replace(" ", "-")
            rows.append((name, train(args, graph, options, folder)))
        print_table(graph.name, rows)


def combinations(fullrank):
    """Names and options of all models: those that the program itself accepts."""
    listed = subprocess.run([fullrank, "models", "--json"], check=True, capture_output=True, text=True)
    for encoder in (part["name"] for part in json.loads(listed.stdout)["encoders"]):
        for output, options in OUTPUTS.items():
            yield f"{encoder}, {output}", f"--encoder {encoder} {options} {EXTRA.get(encoder, '')}"
    yield from OTHERS.items()


def train(args, graph, options, folder):
    """The result of a training, made now or before; None where the program refuses the settings."""
    result = folder.with_suffix(".json")
    if not result.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = [args.fullrank, "train", graph, "--out", folder, "--json", *options.split()]
        command += ["--dim", str(args.dim), "--epochs", str(args.epochs)]
        command += ["--resume"] if folder.exists() else []
        print(*command[1:], file=sys.stderr)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 2:
            return None
        if done.returncode != 0:
            sys.exit(done.stderr)
        result.write_text(done.stdout)
    return json.loads(result.read_text())


def print_table(graph, rows):
    print(f"\n**{graph}**\n")
    print("| | parameters | test MRR | filtered NLL | best epoch | of | updates |")
    print("|---|---|---|---|---|---|---|")
    for name, run in rows:
        if run is None:
            print(f"| {name} | refused | | | | | |")
            continue
        test = run["test"]
        nll = test["nll_filtered"]
        nll = "–" if nll is None else f"{nll:.3f}"
        print(
            f"| {name} | {run['parameters']:,} | {test['mrr']:.4f} | {nll} "
            f"| {run['best_epoch']} | {run['epochs']} | {run['updates']:,} |"
        )


if __name__ == "__main__":
    main()
