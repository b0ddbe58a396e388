#!/usr/bin/env python3
"""Loading a graph, and the paper's order of its entities, with pandas and scipy: the other side of `bench load`
and of `inspect --effort low`.

    python3 -m venv peer && peer/bin/pip install numpy pandas scipy zstandard
    peer/bin/python benches/peer/python_graph.py DATA

Loading is what fullrank does: read and parse train, valid and test, number the names, drop repeated triples, and
sort in both directions. The order: of the queries (inverses included) with more answers than 99.9 % have, the graph
of objects that are answers together, by reverse Cuthill-McKee. Then the blocks that the answers of a query lie in.
Prints one JSON object: medians of seconds, and the most blocks of a query.
"""
import argparse
import io
import json
import pathlib
import statistics
import time

import numpy
import pandas
import scipy.sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    loads = [timed(load, args.data) for _ in range(args.repeats)]
    triples, entities, relations = loads[0][1]
    orders = [timed(most_blocks, triples, entities, relations) for _ in range(3)]
    print(json.dumps({
        "load_seconds": statistics.median(seconds for seconds, _ in loads),
        "triples": len(triples),
        "order_seconds": statistics.median(seconds for seconds, _ in orders),
        "blocks": orders[0][1],
    }))


def timed(work, *inputs):
    start = time.perf_counter()
    found = work(*inputs)
    return time.perf_counter() - start, found


def load(folder):
    tables = [table(folder, split) for split in ("train", "valid", "test")]
    names = pandas.concat(tables, ignore_index=True)
    objects, entities = pandas.factorize(pandas.concat([names[0], names[2]]))
    relations, relation_names = pandas.factorize(names[1])
    triples = numpy.stack([objects[: len(names)], relations, objects[len(names) :]], axis=1)
    triples = numpy.unique(triples, axis=0)
    # By object as well; it is kept as long as the triples are.
    numpy.lexsort((triples[:, 0], triples[:, 1], triples[:, 2]))
    return triples, len(entities), len(relation_names)


def table(folder, split):
    path = next(folder.glob(f"{split}*"))
    content = path.read_bytes()
    if path.suffix == ".zst":
        import zstandard

        content = zstandard.ZstdDecompressor().stream_reader(content).read()
    return pandas.read_csv(io.BytesIO(content), sep="\t", header=None, dtype=str, keep_default_na=False, quoting=3)


def most_blocks(triples, entities, relations):
    subjects, kinds, objects = triples.T
    queries = numpy.concatenate([subjects * 2 * relations + kinds, objects * 2 * relations + kinds + relations])
    _, rows = numpy.unique(queries, return_inverse=True)
    columns = numpy.concatenate([objects, subjects])
    answers = scipy.sparse.csr_matrix((numpy.ones(len(rows), numpy.float32), (rows, columns)), (rows.max() + 1, entities))
    degrees = numpy.diff(answers.indptr)
    many = answers[degrees > numpy.percentile(degrees, 99.9)]
    order = reverse_cuthill_mckee((many.T @ many).tocsr(), symmetric_mode=True)
    place = numpy.empty(entities, numpy.int64)
    place[order] = numpy.arange(entities)
    places = numpy.sort(place[answers.indices] + numpy.repeat(numpy.arange(len(degrees)), degrees) * (entities + 1))
    starts = numpy.concatenate([[True], numpy.diff(places) > 1])
    return int(numpy.bincount(places // (entities + 1), starts).max())


if __name__ == "__main__":
    main()
