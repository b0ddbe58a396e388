#![no_main]

#[path = "../../crates/graph/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hostile::load_anything("x.csv", bytes));
