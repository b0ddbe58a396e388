//! Aligned buffers: how do rows of floats start with a cache line, so that a vector that is read does
//! not cross one?

/// Floats that start with a cache line.
#[derive(Debug, Default)]
pub(crate) struct AlignedBuf(Vec<CacheLine>);

/// Floats of a cache line.
const FLOATS: usize = 16;

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct CacheLine([f32; FLOATS]);

impl AlignedBuf {
    /// The first `len` floats; what stands there is of an earlier use.
    pub(crate) fn first(&mut self, len: usize) -> &mut [f32] {
        let n_lines = len.div_ceil(FLOATS);
        if self.0.len() < n_lines {
            self.0.resize(n_lines, CacheLine([0.0; FLOATS]));
        }
        // SAFETY: a line is sixteen floats and nothing else, so lines are floats without gaps.
        let all = unsafe {
            std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast::<f32>(), FLOATS * self.0.len())
        };
        &mut all[..len]
    }
}
