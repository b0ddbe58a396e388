#!/usr/bin/env python3
"""How time and memory of a training step grow with the number of entities, as a table and a picture.

    cargo build --release
    python3 benches/growth.py --out docs/growth.svg

Runs `fullrank bench step` on random graphs of growing size, one after the other. Needs nothing but Python.
"""
import argparse
import json
import math
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Entities of HsGene-full are the last.
SIZES = [10_000, 30_000, 100_000, 300_000, 1_000_000, 2_628_372]
LAYERS = {
    "softmax": ["--components", "0"],
    "mixture K = 4": ["--components", "4"],
    "softmax, 1,000 drawn": ["--components", "0", "--negatives", "1000"],
}
COLOURS = ["#1f6feb", "#d1242f", "#1a7f37"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fullrank", type=pathlib.Path, default=ROOT / "target/release/fullrank")
    parser.add_argument("--dim", default="64")
    parser.add_argument("--batch", default="1000")
    parser.add_argument("--steps", default="3")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("growth.svg"))
    args = parser.parse_args()
    found = {}
    print(f"d = {args.dim}, B = {args.batch}, 4 answers, all entries of the gradient; medians of {args.steps}\n")
    print("| entities | output layer | seconds a step | peak MB | forecast MB |\n|---|---|---|---|---|")
    for name, options in LAYERS.items():
        found[name] = [measure(args, entities, options) for entities in SIZES]
        for entities, step in zip(SIZES, found[name]):
            print(
                f"| {entities:,} | {name} | {step['seconds']:.3g} | {step['peak_mb']:,.0f} | {step['forecast_mb']:,.0f} |",
                flush=True,
            )
    args.out.write_text(picture(args, found))


def measure(args, entities, options):
    command = [args.fullrank, "bench", "step", "--json", "--entities", str(entities), "--dim", args.dim]
    command += ["--batch", args.batch, "--steps", args.steps, *options]
    # What is drawn is multiplied as a whole.
    command += [] if "--negatives" in options else ["--exact"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def picture(args, found):
    """Two panels on logarithmic axes: seconds and megabytes over entities."""
    width, height, left, top = 340, 260, 60, 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * (width + 90)} {height + 110}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{2 * (width + 90)}" height="{height + 110}" fill="#fff"/>',
    ]
    # Rows that were never drawn are not in memory yet: a training will have them all.
    panels = [
        ("seconds a step", lambda step: step["seconds"]),
        ("memory, MB", lambda step: max(step["peak_mb"], step["forecast_mb"])),
    ]
    for panel, (title, value_of) in enumerate(panels):
        offset = left + panel * (width + 90)
        values = [value_of(step) for steps in found.values() for step in steps]
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        first, last = math.log10(SIZES[0]), math.log10(SIZES[-1])

        def x(entities):
            return offset + width * (math.log10(entities) - first) / (last - first)

        def y(value):
            return top + height * (high - math.log10(value)) / (high - low)

        parts.append(f'<text x="{offset}" y="{top - 16}" font-weight="600">{title}</text>')
        for power in range(low, high + 1):
            at = y(10**power)
            parts.append(f'<line x1="{offset}" x2="{offset + width}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{offset - 6}" y="{at + 4:.1f}" text-anchor="end">{10**power:,g}</text>')
        for entities in SIZES:
            label = f"{entities / 1e6:.1f} M" if entities >= 1e6 else f"{entities // 1000} k"
            parts.append(f'<text x="{x(entities):.1f}" y="{top + height + 18}" text-anchor="middle">{label}</text>')
        for (name, steps), colour in zip(found.items(), COLOURS):
            points = [(x(entities), y(value_of(step))) for entities, step in zip(SIZES, steps)]
            line = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in points]
    for number, (name, colour) in enumerate(zip(found, COLOURS)):
        at = left + number * 150
        parts.append(f'<rect x="{at}" y="{top + height + 36}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{at + 18}" y="{top + height + 46}">{name}</text>')
    caption = f"entities; DistMult, d = {args.dim}, a batch of {args.batch} queries with 4 answers each"
    parts.append(f'<text x="{left}" y="{top + height + 66}" fill="#555">{caption}</text>')
    return "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    main()
