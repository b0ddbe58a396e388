# Each recipe is a plain command that can be typed by hand.

# Format, lints, tests and docs.
check:
    ./check

# What takes longer than a second: a training killed a hundred times, about a quarter of an hour.
test-slow:
    cargo test --release --workspace -- --ignored

# How long each part takes, on generated graphs.
bench:
    cargo bench --bench engine

# Beside PyTorch, pandas and scipy, on FB15k-237.
bench-peers DATA:
    cargo build --release
    test -d target/peer || python3 -m venv target/peer
    target/peer/bin/pip install --quiet torch==2.13.0 numpy pandas scipy zstandard
    target/peer/bin/python benches/suite.py {{DATA}}

# Fuzz one parser for a minute: tsv, csv, ntriples, turtle or npy. Needs `cargo install cargo-fuzz`.
fuzz TARGET:
    cd fuzz && cargo fuzz run {{TARGET}} --sanitizer none -- -max_total_time=60
