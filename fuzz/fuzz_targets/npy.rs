#![no_main]

#[path = "../../crates/graph/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hostile::read_any_array(bytes));
