//! Offset: how likely is a triple under a sigmoid, before anything is learned of it?
//!
//! Scores start near zero, where a sigmoid calls every triple as likely as not, while next to none of
//! all triples hold. So a learned number is added to all scores, which starts at the log-odds of the
//! training facts (as in Lin et al. 2017, "Focal Loss for Dense Object Detection", section 4.1).

use burn::module::Param;
use burn::tensor::Tensor;

use crate::part::{Build, Limit};
use crate::random::Weights;
use crate::settings::With;

/// What is added to every score, `[1]`.
pub(super) type Offset = Option<Param<Tensor<1>>>;

/// Whether there is one. Of distances a margin says where odds are even; beside negative samples,
/// which weigh as much as the answers, odds are even to begin with.
fn is_learned(with: &With) -> bool {
    !with.score.is_distance && with.training.negatives.is_none()
}

pub(super) fn new<S>(build: &Build<S>, weights: &Weights) -> Offset {
    let start = || Tensor::full([1], build.domain.log_odds(), &weights.device);
    is_learned(&build.with).then(|| Param::from_tensor(start()))
}

pub(super) fn n_parameters(with: &With) -> usize {
    usize::from(is_learned(with))
}

/// The largest matrix rank of a sigmoid's log-odds. The offset is a row that every query adds, as a
/// bias per object is, of which it is a part.
pub(super) fn limit(with: &With) -> Limit {
    if is_learned(with) && !with.model.bias { Limit::DimPlusOne } else { Limit::Dim }
}
