//! Trainings that are stopped, by a key, a full disk or a kill, again and again: they end with the bits
//! of one that was not.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use program::{command, folder, json, printed, run, said};

/// A run, and how often runs like it are to be killed.
struct Plan {
    epochs: usize,
    /// Kills per run: an instant is drawn uniformly from the run's length for each.
    kills_per_run: usize,
    at_random: usize,
    /// Kills that wait, from their instant on, for the next checkpoint write.
    in_writes: usize,
}

/// Kills that found a training alive.
#[derive(Default)]
struct Killed {
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

/// Waits until a file is being written that is newer than `old`; false when the training is over.
fn reaches_a_write(child: &mut Child, checkpoint: &Path, old: Option<&PathBuf>) -> bool {
    while unfinished(checkpoint).is_none_or(|path| Some(&path) == old) {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
    }
    true
}

/// Kills one training again and again, then compares what it ends with.
///
/// It may be over before its last instants come, on a machine that has grown faster meanwhile:
/// those are not counted, and the caller begins another run.
fn kill_and_compare(
    folder: &Path,
    plan: &Plan,
    whole: &[u8],
    length: Duration,
    seed: u64,
) -> Killed {
    let mut draws = Draws(seed);
    let mut instants: Vec<f64> =
        (0..plan.kills_per_run).map(|_| draws.uniform() * length.as_secs_f64()).collect();
    instants.sort_by(f64::total_cmp);
    let out = format!("run-{seed}");
    // To go on in from the beginning.
    fs::create_dir(folder.join(&out)).unwrap();
    let checkpoint = folder.join(&out).join("checkpoint");
    let mut killed = Killed::default();
    let mut clock = 0.0;
    for (nth, instant) in instants.into_iter().enumerate() {
        let start = Instant::now();
        // A leftover of the last kill is swept up by the first checkpoint: wait for a newer one.
        let old = unfinished(&checkpoint);
        let mut child = command(folder, &arguments(plan, &out)).spawn().unwrap();
        std::thread::sleep(Duration::from_secs_f64((instant - clock).max(0.0)));
        let in_write = nth % 4 == 1;
        let alive = !in_write || reaches_a_write(&mut child, &checkpoint, old.as_ref());
        if !alive || child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        clock += start.elapsed().as_secs_f64();
        // A write may end between the look and the kill.
        if in_write && unfinished(&checkpoint).is_some() {
            killed.in_writes += 1;
        } else {
            killed.at_random += 1;
        }
    }
    let summary = json(folder, &format!("{} --json", arguments(plan, &out)));
    assert_eq!(summary["epochs"], plan.epochs);
    let Killed { at_random, in_writes } = killed;
    assert!(weights(folder, &out) == whole, "{at_random} kills at random, {in_writes} in writes");
    killed
}

#[expect(clippy::print_stderr, reason = "says what was done, with --nocapture")]
fn check(plan: &Plan) {
    let temp = folder(&[]);
    printed(temp.path(), "generate graph");
    let start = Instant::now();
    fs::create_dir(temp.path().join("whole")).unwrap();
    printed(temp.path(), &arguments(plan, "whole"));
    let length = start.elapsed();
    let whole = weights(temp.path(), "whole");
    let mut total = Killed::default();
    for seed in 0.. {
        let killed = kill_and_compare(temp.path(), plan, &whole, length, seed);
        total.at_random += killed.at_random;
        total.in_writes += killed.in_writes;
        let Killed { at_random, in_writes } = total;
        let runs = seed + 1;
        eprintln!(
            "{runs} runs of {length:.1?}: {at_random} kills at random, {in_writes} in writes"
        );
        if at_random >= plan.at_random && in_writes >= plan.in_writes {
            break;
        }
        assert!(runs < 20, "the kills hardly ever meet a training");
    }
}

#[test]
fn killed_a_few_times_a_training_ends_with_the_same_bits() {
    check(&Plan { epochs: 4, kills_per_run: 6, at_random: 3, in_writes: 2 });
}

#[test]
#[ignore = "kills runs of a minute for a quarter of an hour"]
fn killed_a_hundred_times_a_training_ends_with_the_same_bits() {
    check(&Plan { epochs: 240, kills_per_run: 20, at_random: 80, in_writes: 20 });
}

/// A small graph with planted structure, called `graph`.
fn with_graph() -> tempfile::TempDir {
    let temp = folder(&[]);
    printed(temp.path(), "generate graph --entities 200 --relations 4 --types 8 --mean-degree 15");
    temp
}

/// Waits until the training in a folder has written a checkpoint.
fn wait_for_checkpoint(run: &Path) {
    let manifest = run.join("checkpoint/manifest.json");
    for _ in 0..6000 {
        if manifest.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no checkpoint after a minute");
}

#[test]
#[cfg(unix)]
fn ctrl_c_saves_and_another_training_is_kept_out() {
    let temp = with_graph();
    let train = "train graph --dim 32 --batch 50 --epochs 2000 --patience 2000 --out run";
    let mut child = command(temp.path(), train).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_checkpoint(&temp.path().join("run"));
    let refused = run(temp.path(), &format!("{train} --resume"));
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(
        said(&refused),
        "error: run: another training is at work in this folder\n\n\
         Wait until it is done, or choose another folder by --out.\n"
    );
    let output = run(temp.path(), "evaluate run");
    assert!(output.status.success());
    assert!(said(&output).starts_with("note: the training is not over; these are the weights of"));
    let kill = format!("-INT {}", child.id());
    let killed = std::process::Command::new("kill").args(kill.split(' ')).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut text).unwrap();
    assert!(
        text.ends_with("saved; the same command with --resume goes on\ninterrupted\n"),
        "{text}"
    );
}

#[test]
#[cfg(unix)]
fn a_full_disk_loses_nothing() {
    let temp = with_graph();
    let train = "train graph --dim 16 --batch 20 --epochs 20 --patience 20";
    printed(temp.path(), &format!("{train} --out whole"));
    let mut child = command(temp.path(), &format!("{train} --out run")).spawn().unwrap();
    wait_for_checkpoint(&temp.path().join("run"));
    child.kill().unwrap();
    child.wait().unwrap();
    let manifest = temp.path().join("run/checkpoint/manifest.json");
    let before = fs::read(&manifest).unwrap();
    // Files larger than 38 kB cannot be written, as if the disk were full; a state takes 40 kB.
    let program = env!("CARGO_BIN_EXE_fullrank");
    let output = std::process::Command::new("bash")
        .arg("-c")
        .arg(format!("trap '' XFSZ; ulimit -f 38; exec {program} {train} --out run --resume"))
        .current_dir(temp.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let told = said(&output);
    assert!(told.contains(".safetensors: cannot be written: File too large"), "{told}");
    assert!(told.contains("What was saved before stands: go on by --resume."), "{told}");
    assert_eq!(fs::read(&manifest).unwrap(), before);
    printed(temp.path(), &format!("{train} --out run --resume"));
    assert_eq!(
        fs::read(temp.path().join("run/model.safetensors")).unwrap(),
        fs::read(temp.path().join("whole/model.safetensors")).unwrap()
    );
}

#[test]
#[cfg(unix)]
fn a_run_killed_while_it_is_made_can_be_made_again() {
    let temp = with_graph();
    let train = "train graph --dim 8 --batch 200 --epochs 3 --learning-rate 0.01 --out run --force";
    // Instants over what a start takes: before, inside and after the folder is made.
    for milliseconds in [1, 3, 5, 8, 12, 20, 30] {
        let mut child = command(temp.path(), train).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    printed(temp.path(), train);
    printed(temp.path(), "evaluate run");
}
