//! A training that is killed, again and again, ends with the bits of one that was not.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use program::{command, folder, json, printed};

/// How a run is killed: at instants drawn uniformly from its length, and inside checkpoint writes.
struct Plan {
    epochs: usize,
    at_random: usize,
    in_writes: usize,
}

/// Numbers that look random and repeat: splitmix64 (Steele, Lea and Flood 2014).
struct Draws(u64);

impl Draws {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn arguments(plan: &Plan, out: &str) -> String {
    let epochs = plan.epochs;
    format!(
        "train graph --out {out} --resume --encoder complex --output mixture --components 2 \
         --dim 64 --batch 200 --epochs {epochs} --patience {epochs} --schedule plateau \
         --learning-rate 0.003 --checkpoint-every 7"
    )
}

fn weights(folder: &Path, out: &str) -> Vec<u8> {
    fs::read(folder.join(out).join("model.safetensors")).unwrap()
}

/// A file in the folder that is being written.
fn unfinished(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| path.extension().is_some_and(|extension| extension == "unfinished"))
}

/// Kills one training as planned and compares what it ends with.
fn kill_and_compare(folder: &Path, plan: &Plan, whole: &[u8], length: Duration, seed: u64) {
    let mut draws = Draws(seed);
    let mut instants: Vec<f64> =
        (0..plan.at_random).map(|_| draws.uniform() * length.as_secs_f64()).collect();
    instants.sort_by(f64::total_cmp);
    let out = format!("run-{seed}");
    let (mut clock, mut killed, mut in_writes) = (0.0, 0, 0);
    for instant in instants {
        let start = Instant::now();
        let mut child = command(folder, &arguments(plan, &out)).spawn().unwrap();
        std::thread::sleep(Duration::from_secs_f64((instant - clock).max(0.0)));
        child.kill().unwrap();
        child.wait().unwrap();
        clock += start.elapsed().as_secs_f64();
        killed += 1;
    }
    let checkpoint = folder.join(&out).join("checkpoint");
    // Several tries, for a write may end between the look and the kill.
    for _ in 0..20 * plan.in_writes {
        if in_writes == plan.in_writes {
            break;
        }
        let mut child = command(folder, &arguments(plan, &out)).spawn().unwrap();
        // A leftover of the last kill is swept up by the first checkpoint: wait for a newer one.
        let old = unfinished(&checkpoint);
        while unfinished(&checkpoint).is_none_or(|path| Some(path) == old) {
            if child.try_wait().unwrap().is_some() {
                panic!("the training was over after {killed} kills and {in_writes} in writes");
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        in_writes += usize::from(unfinished(&checkpoint).is_some());
    }
    assert_eq!(in_writes, plan.in_writes);
    let summary = json(folder, &format!("{} --json", arguments(plan, &out)));
    assert_eq!(summary["epochs"], plan.epochs);
    assert!(weights(folder, &out) == whole, "after {killed} kills and {in_writes} in writes");
}

#[expect(clippy::print_stderr, reason = "says what was done, with --nocapture")]
fn check(plan: &Plan, runs: u64) {
    let temp = folder(&[]);
    printed(temp.path(), "generate graph");
    let start = Instant::now();
    printed(temp.path(), &arguments(plan, "whole"));
    let length = start.elapsed();
    let whole = weights(temp.path(), "whole");
    for seed in 0..runs {
        kill_and_compare(temp.path(), plan, &whole, length, seed);
    }
    let Plan { at_random, in_writes, .. } = plan;
    eprintln!(
        "{runs} runs of {length:.1?}: {at_random} kills at random, {in_writes} in writes, each"
    );
}

#[test]
fn killed_a_few_times_a_training_ends_with_the_same_bits() {
    check(&Plan { epochs: 4, at_random: 3, in_writes: 2 }, 1);
}

#[test]
#[ignore = "kills runs of a minute for a quarter of an hour"]
fn killed_a_hundred_times_a_training_ends_with_the_same_bits() {
    check(&Plan { epochs: 120, at_random: 16, in_writes: 4 }, 5);
}
