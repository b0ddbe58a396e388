#!/usr/bin/env python3
"""Filtered ranks of a split, and the ten best answers to one query, of a DistMult with a softmax in PyTorch.

    fullrank export RUN --out tables --format npy
    peer/bin/python benches/peer/torch_rank.py DATA tables --threads 2

DATA is the folder the run was trained on, as plain or zstd-compressed TSV. A block of queries is scored
against all entities, other known answers are masked, and places are counted: the way of PyKEEN and LibKGE,
without their overhead. Needs torch, numpy, and zstandard for compressed files.
Prints one JSON object: seconds for all ranks, MRR, and seconds of one query.
"""
import argparse
import collections
import json
import pathlib
import statistics
import time

import numpy
import torch

BLOCK = 256


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("tables", type=pathlib.Path, help="what `fullrank export --format npy` has written")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--queries", type=int, default=200, help="asked one by one")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    entity, relation = (torch.from_numpy(numpy.load(find(args.tables, name))) for name in ("entity", "relation"))
    triples = {split: load(args.data, split, args.tables) for split in ("train", "valid", "test")}
    inverse = len(relation) // 2
    known = collections.defaultdict(list)
    for s, r, o in (triple for split in triples.values() for triple in split):
        known[s, r].append(o)
        known[o, r + inverse].append(s)
    asked = [(s, r, o) for s, r, o in triples["test"]] + [(o, r + inverse, s) for s, r, o in triples["test"]]

    seconds = []
    for _ in range(args.repeats):
        start = time.perf_counter()
        mrr = rank(entity, relation, asked, known)
        seconds.append(time.perf_counter() - start)
    alone = [time_query(entity, relation, *query[:2], known) for query in asked[: args.queries]]
    print(json.dumps({
        "system": f"torch {torch.__version__}",
        "n_ranks": len(asked),
        "seconds": round(statistics.median(seconds), 4),
        "mrr": round(mrr, 4),
        "p50_seconds": round(statistics.median(alone), 6),
    }))


def rank(entity, relation, asked, known):
    """The mean reciprocal of realistic ranks."""
    total = 0.0
    for start in range(0, len(asked), BLOCK):
        block = asked[start : start + BLOCK]
        subject, relations, answer = (torch.tensor(column) for column in zip(*block))
        scores = (entity[subject] * relation[relations]) @ entity.T
        own = scores.gather(1, answer[:, None])
        for row, (s, r, o) in enumerate(block):
            scores[row, [other for other in known[s, r] if other != o]] = -torch.inf
        above, beside = (scores > own).sum(1), (scores == own).sum(1) - 1
        total += (1 / (1 + above + beside / 2)).sum().item()
    return total / len(asked)


def time_query(entity, relation, s, r, known):
    start = time.perf_counter()
    scores = torch.log_softmax((entity[s] * relation[r]) @ entity.T, 0)
    scores[known[s, r]] = -torch.inf
    torch.topk(scores, 10)
    return time.perf_counter() - start


def find(tables, name):
    return next(path for path in tables.glob("*.npy") if path.stem.split(".")[-1] == name)


def load(data, split, tables):
    """Triples as numbers of rows in the tables."""
    path = next(data.glob(f"{split}.t*"))
    raw = path.read_bytes()
    if path.suffix == ".zst":
        import zstandard

        raw = zstandard.ZstdDecompressor().stream_reader(raw).read()
    ids = [
        {name: row for row, name in enumerate((tables / f"{kind}.tsv").read_text().splitlines())}
        for kind in ("entities", "relations")
    ]
    lines = (line.split("\t") for line in raw.decode().splitlines())
    return [(ids[0][s], ids[1][r], ids[0][o]) for s, r, o in lines]


if __name__ == "__main__":
    main()
