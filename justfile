# Each recipe is a plain command that can be typed by hand.

# Format, lints, tests and docs.
check:
    ./check

# What takes longer than a second: a training killed a hundred times, about a quarter of an hour.
test-slow:
    cargo test --release --workspace -- --ignored

# How long loading takes: a generated graph of ten million triples.
bench:
    cargo run --release -- generate target/large --force --entities 1000000 --relations 20 --types 1000 --mean-degree 10
    cargo run --release -- bench load target/large

# Fuzz one parser for a minute: tsv, csv, ntriples, turtle or npy. Needs `cargo install cargo-fuzz`.
fuzz TARGET:
    cd fuzz && cargo fuzz run {{TARGET}} --sanitizer none -- -max_total_time=60
