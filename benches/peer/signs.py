"""Sign-reconstruction figures by scikit-learn, for the test in crates/engine/src/evaluate/signs.rs.

Builds the same graph and scores as the test, writes out all pairs, and asks scikit-learn for the
figures that fullrank counts without writing them out. Needs: pip install scikit-learn
"""

import numpy
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    precision_recall_curve,
    roc_auc_score,
)

N = 30
SPLITS = [
    [(i, (7 * i + 1) % N) for i in range(N)],
    [(i, (11 * i + 5) % N) for i in range(0, N, 3)],
    [(i, (13 * i + 8) % N) for i in range(0, N, 2)],
]


def answers(split, query):
    given, inverse = query
    pairs = SPLITS[split]
    return {a for a, b in pairs if b == given} if inverse else {b for a, b in pairs if a == given}


def pairs(split):
    """Labels and scores of every query of the split with every object."""
    queries = {(s, False) for s, _ in SPLITS[split]} | {(o, True) for _, o in SPLITS[split]}
    labels, scores = [], []
    for query in sorted(queries):
        before = set().union(*(answers(other, query) for other in range(split)))
        for o in set(range(N)) - before:
            mixed = query[0] * 31 + query[1] * 17 + o * 7
            labels.append(o in answers(split, query))
            scores.append(-(mixed * mixed % 101) / 8)
    return numpy.array(labels), numpy.array(scores)


labels, scores = pairs(1)
precision, recall, thresholds = precision_recall_curve(labels, scores)
f1 = 2 * precision * recall / numpy.maximum(precision + recall, 1e-300)
# Of several equal ones the highest, as fullrank does.
threshold = thresholds[numpy.flatnonzero(f1[:-1] == f1[:-1].max())[-1]]
labels, scores = pairs(2)
print("auroc", repr(roc_auc_score(labels, scores)))
print("average_precision", repr(average_precision_score(labels, scores)))
print("f1", repr(f1_score(labels, scores >= threshold)))
print("threshold", threshold, "positives", labels.sum(), "negatives", (~labels).sum())
