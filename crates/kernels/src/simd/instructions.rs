//! Instruction sets: which of those that loops are compiled for does this machine have?

/// What loops are compiled for, besides the baseline of the target; the narrowest first.
#[cfg(any(target_arch = "x86_64", test))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Instructions {
    /// The scalar twin of everything below.
    #[cfg(test)]
    Baseline,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 and these two.
    Avx512,
}

/// Whether the machine has AVX2 with FMA.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn has_avx2() -> bool {
    use std::arch::is_x86_feature_detected;
    is_allowed(Instructions::Avx2)
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
}

/// Whether the machine has the parts of AVX-512 that loops are compiled for.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn has_avx512() -> bool {
    use std::arch::is_x86_feature_detected;
    is_allowed(Instructions::Avx512)
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && has_avx2()
}

#[cfg(all(target_arch = "x86_64", not(test)))]
#[inline(always)]
fn is_allowed(_: Instructions) -> bool {
    true
}

#[cfg(all(target_arch = "x86_64", test))]
use limits::is_allowed;
#[cfg(test)]
pub(crate) use limits::{on_each, with_each};

/// What tests take away from a machine, so that every loop runs as it would on lesser ones.
#[cfg(test)]
mod limits {
    use std::cell::Cell;

    use super::Instructions::{self, Avx2, Avx512, Baseline};

    thread_local! {
        static LIMIT: Cell<Instructions> = const { Cell::new(Avx512) };
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn is_allowed(instructions: Instructions) -> bool {
        instructions <= LIMIT.get()
    }

    /// What `run` gives on this thread with the baseline, with AVX2, and with AVX-512, each as far as
    /// the machine has it.
    pub(crate) fn with_each<T>(run: impl Fn() -> T) -> [T; 3] {
        [Baseline, Avx2, Avx512].map(|limit| {
            LIMIT.set(limit);
            let guard = Guard(limit);
            let result = run();
            drop(guard);
            LIMIT.set(Avx512);
            result
        })
    }

    /// Runs a check on this thread with every instruction set.
    pub(crate) fn on_each(check: impl Fn()) {
        with_each(check);
    }

    /// Says which instruction set a check failed with.
    struct Guard(Instructions);

    impl Drop for Guard {
        #[expect(clippy::print_stderr, reason = "what a failed test reports beside its message")]
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("with instructions up to {:?}", self.0);
            }
        }
    }
}
