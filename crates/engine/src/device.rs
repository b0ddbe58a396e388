//! Devices: on what does a model live?

/// Where tensors are kept and computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Device {
    /// The processor, with all threads of the current rayon pool.
    #[default]
    Cpu,
}

impl Device {
    /// The same for burn.
    pub(crate) fn burn(self) -> burn::tensor::Device {
        match self {
            Self::Cpu => burn::tensor::Device::flex(),
        }
    }
}
