//! The Wilcoxon signed-rank test: could the signs of paired differences be chance?
//!
//! The sizes of the differences are ranked, and the ranks of the positive ones summed (Wilcoxon 1945).
//! Differences of zero are dropped, equal sizes share the mean of their ranks. If the signs are chance,
//! each of the 2ⁿ choices of signs is as likely as any other, so that p is exact, with ties too: the sums
//! are counted one rank after the other.
//! Whether p is small enough when many tests are made at once is told by Holm's correction.

/// Differences, none of them zero, below which the smallest p is above .05.
pub const FEWEST_PAIRS: usize = 6;

/// What the test finds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignedRank {
    /// Differences that are not zero.
    pub n_nonzero: usize,
    /// Two-sided: how likely the signs come out so unevenly by chance.
    pub p: f64,
}

impl SignedRank {
    /// Whether p would be above .05 whatever the signs: that of n differences is at least 2/2ⁿ.
    pub fn has_too_few(&self) -> bool {
        self.n_nonzero < FEWEST_PAIRS
    }
}

/// The exact two-sided test of some differences.
pub fn signed_rank(differences: &[f64]) -> SignedRank {
    let mut nonzero: Vec<f64> = differences.iter().copied().filter(|x| *x != 0.0).collect();
    nonzero.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let ranks = doubled_ranks(&nonzero);
    let total: usize = ranks.iter().sum();
    let of_positive = nonzero.iter().zip(&ranks).filter(|(x, _)| **x > 0.0);
    let positive: usize = of_positive.map(|(_, rank)| rank).sum();
    // Sums of both signs have the same distribution, so the larger one decides.
    let larger = positive.max(total - positive);
    let tail: f64 = chances(&ranks)[larger..].iter().sum();
    SignedRank { n_nonzero: nonzero.len(), p: (2.0 * tail).min(1.0) }
}

/// Twice the rank of each value by its size, for a mean of ranks may end in a half; values ascend in
/// size.
fn doubled_ranks(ascending: &[f64]) -> Vec<usize> {
    let mut ranks = Vec::with_capacity(ascending.len());
    for equal in ascending.chunk_by(|a, b| a.abs() == b.abs()) {
        let (first, last) = (ranks.len() + 1, ranks.len() + equal.len());
        ranks.extend(equal.iter().map(|_| first + last));
    }
    ranks
}

/// How likely each sum is when each rank is in it or not with the same chance.
fn chances(ranks: &[usize]) -> Vec<f64> {
    let mut chances = vec![0.0; ranks.iter().sum::<usize>() + 1];
    chances[0] = 1.0;
    let mut most = 0;
    for rank in ranks {
        most += rank;
        for sum in (0..=most).rev() {
            let with = if sum >= *rank { chances[sum - rank] } else { 0.0 };
            chances[sum] = 0.5 * (chances[sum] + with);
        }
    }
    chances
}

/// The p of several tests made at once, by Holm (1979): if those below a level are taken as found, the
/// chance that any of them is none is at most that level. In the order of the tests.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![0.0; p.len()];
    let mut largest = 0.0_f64;
    for (place, test) in order.into_iter().enumerate() {
        largest = largest.max((p.len() - place) as f64 * p[test]).min(1.0);
        adjusted[test] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition: every choice of signs, the mean of the places of equal sizes as the rank.
    fn by_enumeration(differences: &[f64]) -> f64 {
        let nonzero: Vec<f64> = differences.iter().copied().filter(|x| *x != 0.0).collect();
        let rank = |x: &f64| {
            let smaller = nonzero.iter().filter(|y| y.abs() < x.abs()).count() as f64;
            let equal = nonzero.iter().filter(|y| y.abs() == x.abs()).count() as f64;
            smaller + (equal + 1.0) / 2.0
        };
        let ranks: Vec<f64> = nonzero.iter().map(rank).collect();
        let middle = ranks.iter().sum::<f64>() / 2.0;
        let sum_of = |is_positive: &dyn Fn(usize) -> bool| -> f64 {
            (0..ranks.len()).filter(|place| is_positive(*place)).map(|place| ranks[place]).sum()
        };
        let found = sum_of(&|place| nonzero[place] > 0.0);
        let signs = 0..1_u32 << ranks.len();
        let n_signs = signs.len() as f64;
        let is_as_far = |signs: &u32| {
            (sum_of(&|i| signs >> i & 1 == 1) - middle).abs() >= (found - middle).abs()
        };
        signs.filter(is_as_far).count() as f64 / n_signs
    }

    #[test]
    fn six_of_six_are_the_fewest_below_five_percent() {
        for n in 1..=8 {
            let differences: Vec<f64> = (1..=n).map(f64::from).collect();
            let found = signed_rank(&differences);
            // One choice of signs of 2ⁿ, and its mirror image.
            assert_eq!(found.p, (2.0 / 2_f64.powi(n)).min(1.0));
            assert_eq!(found.has_too_few(), found.p > 0.05, "{n}");
        }
    }

    #[test]
    fn a_hand_worked_example() {
        // Ranks 1 to 6, negative at 1 and 2: W⁻ = 3. Sums up to 3 are made by {}, 1, 2, 3 and 1 + 2, five
        // of 64 choices; twice that.
        let found = signed_rank(&[-1.0, -2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(found, SignedRank { n_nonzero: 6, p: 10.0 / 64.0 });
    }

    #[test]
    fn zeros_are_dropped_and_ties_share_their_ranks() {
        // Without the zeros, sizes 1, 1 and 2 have ranks 1½, 1½ and 3, and W⁺ = 4½. So much or more comes of
        // the last with one of the first two, or with both: three of 8 choices, doubled.
        let found = signed_rank(&[0.0, 1.0, -1.0, 2.0, 0.0]);
        assert_eq!(found, SignedRank { n_nonzero: 3, p: 6.0 / 8.0 });
        assert_eq!(signed_rank(&[0.0, 0.0]), SignedRank { n_nonzero: 0, p: 1.0 });
        assert_eq!(signed_rank(&[]).p, 1.0);
    }

    #[test]
    fn it_is_what_enumerating_all_signs_gives() {
        // Small whole numbers, so that there are zeros and ties, from a linear congruential generator.
        let mut x = 7_u32;
        for n in 1..=12 {
            for _ in 0..20 {
                let differences: Vec<f64> = (0..n)
                    .map(|_| {
                        x = (x * 5 + 3) % 65_536;
                        f64::from(x >> 8 & 7) - 3.0
                    })
                    .collect();
                let (found, expected) = (signed_rank(&differences).p, by_enumeration(&differences));
                assert!((found - expected).abs() < 1e-12, "{differences:?}: {found}, {expected}");
            }
        }
    }

    #[test]
    fn holm_multiplies_by_the_tests_that_are_left_and_never_falls() {
        // .01·4, .02·3, .03·2 raised to what is before it, .9·1.
        let adjusted = holm(&[0.03, 0.01, 0.9, 0.02]);
        for (found, expected) in adjusted.iter().zip([0.06, 0.04, 0.9, 0.06]) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[0.7, 0.6]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }
}
