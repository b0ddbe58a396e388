//! Buffer pools: what does one training step leave to the next?
//!
//! A pass over all objects works in hundreds of megabytes. They are kept, so that the system need not
//! hand out and clear them in every step.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers for as many passes as run at a time.
#[derive(Debug, Default)]
pub(crate) struct Pool<T>(Mutex<Vec<T>>);

impl<T: Default> Pool<T> {
    /// Calls `work` with buffers that nobody else has; what stands in them is of an earlier pass.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut buffers = lock(&self.0).pop().unwrap_or_default();
        let result = work(&mut buffers);
        lock(&self.0).push(buffers);
        result
    }
}

/// One set of buffers, and never a second one unless two passes run at a time: whoever takes it last
/// has it. A pass that never ends, as that of a loss nobody differentiates, does not hold it back.
#[derive(Debug)]
pub(crate) struct Lender<T>(Mutex<Arc<Slot<T>>>);

type Slot<T> = Mutex<Option<T>>;

/// Buffers left in a [`Lender`] by somebody who may come back for them.
#[derive(Debug)]
pub(crate) struct Loan<T>(Arc<Slot<T>>);

impl<T> Default for Lender<T> {
    fn default() -> Self {
        Self(Mutex::new(Arc::new(Mutex::new(None))))
    }
}

impl<T: Default> Lender<T> {
    /// The buffers, with what stands in them; new ones if somebody is at work in those there are.
    pub(crate) fn take(&self) -> T {
        lock(&lock(&self.0)).take().unwrap_or_default()
    }

    /// Leaves buffers, until somebody takes them.
    pub(crate) fn leave(&self, buffers: T) -> Loan<T> {
        let slot = Arc::new(Mutex::new(Some(buffers)));
        *lock(&self.0) = Arc::clone(&slot);
        Loan(slot)
    }
}

impl<T> Loan<T> {
    /// The buffers as they were left, unless somebody else has taken them since.
    pub(crate) fn take(self) -> Option<T> {
        lock(&self.0).take()
    }
}

/// Nothing panics under these locks, so a poisoned one holds no half-made change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_takes_the_buffers_last_has_them() {
        let lender = Lender::<Vec<u8>>::default();
        let first = lender.leave(vec![7]);
        let mut buffers = lender.take();
        assert_eq!(buffers, [7]);
        assert_eq!(lender.take(), [], "somebody is at work in them");
        buffers.push(8);
        let second = lender.leave(buffers);
        assert_eq!([first.take(), second.take()], [None, Some(vec![7, 8])]);
        drop(lender.leave(vec![9]));
        assert_eq!(lender.take(), [9], "they outlive who left them");
    }

    #[test]
    fn a_pool_gives_passes_within_passes_buffers_of_their_own() {
        let pool = Pool::<Vec<u8>>::default();
        pool.with(|outer| {
            outer.push(1);
            pool.with(|inner| assert!(inner.is_empty()));
        });
        let filled = pool.with(|first| pool.with(|second| [first.len(), second.len()]));
        assert_eq!(filled.iter().sum::<usize>(), 1);
    }
}
