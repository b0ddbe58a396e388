//! Sign decomposition: by which polynomials are the answers of a query told from all others?
//!
//! The proof that κ + 1 dimensions are enough for signs, as code. Objects stand at places
//! 0, 1, 2, … of an order. A row has a root halfway between two neighbours of which one is an
//! answer and one is not, so its polynomial is positive at its answers and negative at all other
//! objects (Alon, Frankl and Rödl 1985). With its coefficients as the query's vector and the powers
//! of the object's place as the object's vector, H·Eᵀ has the signs of Y± and matrix rank κ + 1.
//! Rows without answers are not in the matrix: their polynomial is the constant −1.
//! Which order has a small κ is the business of `ordering` and `search`.

use std::fmt;
use std::ops::Range;

use num_bigint::BigInt;
use rayon::prelude::*;
use serde::Serialize;

use crate::matrix::AnswerMatrix;
use crate::ordering::positions;

/// A polynomial for every row of an answer matrix, in one variable: the place of the object.
#[derive(Clone, Debug)]
pub struct Decomposition {
    /// The object at each place.
    order: Vec<u32>,
    /// The place of each object.
    position: Vec<u32>,
    rows: Rows,
}

/// The polynomial of one row, but for a positive factor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Polynomial<'a> {
    /// Places after which the sign changes, ascending: the root itself lies half a place further.
    pub roots: &'a [u32],
    /// The sign after the last root, which is that of the leading coefficient.
    pub leading_sign: Sign,
}

/// On which side of zero a score is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// As it should be at objects that are no answers.
    Minus,
    /// As it should be at answers.
    Plus,
}

/// A decomposition that has the sign of Y± at every object of every row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Verified {
    /// Distinct rows.
    pub n_rows: usize,
    /// Queries that have them.
    pub n_queries: usize,
    /// Objects at which the sign of each row is right.
    pub n_objects: usize,
    /// The largest degree of a polynomial, counted from its roots: the κ of the order.
    pub degree: usize,
}

/// A decomposition whose matrices were multiplied, with the sign of Y± at every entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct VerifiedProduct {
    /// What was compared.
    #[serde(flatten)]
    pub verified: Verified,
    /// Columns of H and of E.
    pub matrix_rank: usize,
    /// The length of the largest coefficient in H.
    pub coefficient_bits: u64,
}

/// How much work it is to multiply the matrices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ProductSize {
    /// Rows of H.
    pub n_rows: usize,
    /// Rows of E.
    pub n_objects: usize,
    /// Columns of both.
    pub matrix_rank: usize,
    /// Products of two large integers; coefficients above the degree of a row cost none.
    pub multiply_adds: u64,
}

/// The first place at which a decomposition has not the sign of Y±.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
#[error("row {row}: expected {expected} at object {object}, found another sign")]
pub struct Mismatch {
    /// The row of the matrix.
    pub row: usize,
    /// The first such object along the order.
    pub object: u32,
    /// The sign that Y± has there.
    pub expected: Sign,
}

/// The roots of all rows, one after the other.
#[derive(Clone, Debug, Default)]
struct Rows {
    /// Where each row ends in `roots`.
    ends: Vec<usize>,
    roots: Vec<u32>,
    leading_signs: Vec<Sign>,
}

/// Rows whose roots are found at a time. Long rows come first, so that few of them are much work.
const CHUNK: usize = 256;

impl Decomposition {
    /// The polynomials of all rows; `order` has each object once.
    ///
    /// # Panics
    /// If `order` is no order of all objects.
    pub fn of(matrix: &AnswerMatrix, order: &[u32]) -> Self {
        assert_eq!(order.len(), matrix.n_columns(), "an order has every object");
        let position = positions(order);
        let chunks: Vec<Rows> = (0..matrix.n_rows().div_ceil(CHUNK))
            .into_par_iter()
            .map(|chunk| {
                let end = matrix.n_rows().min((chunk + 1) * CHUNK);
                Rows::of(matrix, chunk * CHUNK..end, &position)
            })
            .collect();
        let mut rows = Rows::default();
        chunks.into_iter().for_each(|chunk| rows.append(chunk));
        Self { order: order.to_vec(), position, rows }
    }

    /// The largest degree of a polynomial.
    pub fn degree(&self) -> usize {
        (0..self.n_rows()).map(|row| self.row(row).degree()).max().unwrap_or(0)
    }

    /// The number of polynomials, one for each distinct row.
    pub fn n_rows(&self) -> usize {
        self.rows.ends.len()
    }

    /// The polynomial of a row of the matrix.
    pub fn row(&self, row: usize) -> Polynomial<'_> {
        let start = if row == 0 { 0 } else { self.rows.ends[row - 1] };
        Polynomial {
            roots: &self.rows.roots[start..self.rows.ends[row]],
            leading_sign: self.rows.leading_signs[row],
        }
    }

    /// The object at each place.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Compares the sign of every polynomial at every object with the matrix, from roots alone.
    ///
    /// It takes time for each answer, not for each object: a row is right at all objects if it is
    /// positive at its answers and at no more objects than it has answers.
    ///
    /// # Errors
    /// The first row that is not right, and where.
    ///
    /// # Panics
    /// If the matrix is of another shape.
    pub fn verify(&self, matrix: &AnswerMatrix) -> Result<Verified, Mismatch> {
        self.assert_shape(matrix);
        let is_wrong = |row: &usize| !self.is_right(*row, matrix.row(*row));
        match (0..self.n_rows()).into_par_iter().find_first(is_wrong) {
            Some(row) => Err(self.first_mismatch(row, matrix.row(row))),
            None => Ok(self.verified(matrix)),
        }
    }

    /// How much work [`Decomposition::verify_by_product`] is.
    pub fn product_size(&self) -> ProductSize {
        // A polynomial has one coefficient more than roots.
        let coefficients = self.rows.roots.len() + self.n_rows();
        ProductSize {
            n_rows: self.n_rows(),
            n_objects: self.order.len(),
            matrix_rank: self.degree() + 1,
            multiply_adds: coefficients as u64 * self.order.len() as u64,
        }
    }

    /// Compares the sign of every entry of H·Eᵀ with the matrix, in exact integers.
    ///
    /// For small graphs only, as [`ProductSize::is_small`] tells.
    ///
    /// # Errors
    /// The first entry that has the wrong sign.
    ///
    /// # Panics
    /// If the matrix is of another shape.
    pub fn verify_by_product(&self, matrix: &AnswerMatrix) -> Result<VerifiedProduct, Mismatch> {
        self.assert_shape(matrix);
        let matrix_rank = self.degree() + 1;
        let h: Vec<Vec<BigInt>> =
            (0..self.n_rows()).into_par_iter().map(|row| self.coefficients(row)).collect();
        let wrong_row = |place: usize| {
            // A row of E is made when it is needed: all of them together may be large.
            let powers = powers(self.coordinate(place as u32), matrix_rank);
            let is_wrong = |row: &usize| {
                sign_of(&dot(&h[*row], &powers)) != Some(self.expected(place, matrix.row(*row)))
            };
            (0..h.len()).find(is_wrong).map(|row| (row, place))
        };
        if let Some((row, place)) =
            (0..self.order.len()).into_par_iter().filter_map(wrong_row).min()
        {
            return Err(self.mismatch(row, place, matrix.row(row)));
        }
        let coefficient_bits = h.iter().flatten().map(BigInt::bits).max().unwrap_or(0);
        Ok(VerifiedProduct { verified: self.verified(matrix), matrix_rank, coefficient_bits })
    }

    fn assert_shape(&self, matrix: &AnswerMatrix) {
        let shapes = [(self.n_rows(), self.order.len()), (matrix.n_rows(), matrix.n_columns())];
        assert_eq!(shapes[0], shapes[1], "a decomposition of another matrix");
    }

    fn verified(&self, matrix: &AnswerMatrix) -> Verified {
        Verified {
            n_rows: self.n_rows(),
            n_queries: (0..self.n_rows()).map(|row| matrix.n_queries(row)).sum(),
            n_objects: self.order.len(),
            degree: self.degree(),
        }
    }

    /// Whether a polynomial is positive at these answers and negative elsewhere.
    fn is_right(&self, row: usize, answers: &[u32]) -> bool {
        let polynomial = self.row(row);
        let n_positive: usize =
            polynomial.positive_places(self.order.len()).map(|places| places.len()).sum();
        let is_positive =
            |object: &u32| polynomial.sign_at(self.position[*object as usize]) == Sign::Plus;
        n_positive == answers.len() && answers.iter().all(is_positive)
    }

    /// Where a row that is not right goes wrong first.
    fn first_mismatch(&self, row: usize, answers: &[u32]) -> Mismatch {
        let is_wrong =
            |place: &usize| self.row(row).sign_at(*place as u32) != self.expected(*place, answers);
        let place = (0..self.order.len()).find(is_wrong);
        self.mismatch(row, place.expect("answers ascend, none of them comes twice"), answers)
    }

    fn mismatch(&self, row: usize, place: usize, answers: &[u32]) -> Mismatch {
        Mismatch { row, object: self.order[place], expected: self.expected(place, answers) }
    }

    /// The sign of Y± at a place.
    fn expected(&self, place: usize, answers: &[u32]) -> Sign {
        match answers.binary_search(&self.order[place]) {
            Ok(_) => Sign::Plus,
            Err(_) => Sign::Minus,
        }
    }

    /// An even number, so that roots are odd ones; zero is in the middle, which keeps powers small.
    fn coordinate(&self, place: u32) -> i64 {
        2 * (i64::from(place) - self.order.len() as i64 / 2)
    }

    /// A row of H, the constant coefficient first: ± the product of x − root over all roots.
    fn coefficients(&self, row: usize) -> Vec<BigInt> {
        let Polynomial { roots, leading_sign } = self.row(row);
        let mut coefficients = vec![match leading_sign {
            Sign::Plus => BigInt::from(1),
            Sign::Minus => BigInt::from(-1),
        }];
        for root in roots {
            let root = self.coordinate(*root) + 1;
            coefficients.insert(0, BigInt::ZERO);
            for power in 1..coefficients.len() {
                let subtracted = &coefficients[power] * root;
                coefficients[power - 1] -= subtracted;
            }
        }
        coefficients
    }
}

impl Polynomial<'_> {
    /// The number of roots.
    pub fn degree(&self) -> usize {
        self.roots.len()
    }

    /// The sign at a place: each root on its right turns that of the leading coefficient round.
    pub fn sign_at(&self, place: u32) -> Sign {
        let on_its_left = self.roots.partition_point(|root| *root < place);
        self.leading_sign.turned(self.degree() - on_its_left)
    }

    /// The runs of places at which it is positive.
    fn positive_places(&self, n_objects: usize) -> impl Iterator<Item = Range<usize>> {
        let start = |run: usize| if run == 0 { 0 } else { self.roots[run - 1] as usize + 1 };
        let end =
            move |run: usize| self.roots.get(run).map_or(n_objects, |root| *root as usize + 1);
        (0..=self.degree())
            .filter(|run| self.leading_sign.turned(self.degree() - run) == Sign::Plus)
            .map(move |run| start(run)..end(run))
    }
}

impl Sign {
    /// The sign after so many changes.
    fn turned(self, n_times: usize) -> Self {
        match (self, n_times % 2) {
            (sign, 0) => sign,
            (Sign::Plus, _) => Sign::Minus,
            (Sign::Minus, _) => Sign::Plus,
        }
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sign::Minus => "−",
            Sign::Plus => "+",
        })
    }
}

impl ProductSize {
    /// The most multiplications of a product that is called small. CoDEx-S has 214 million with
    /// up to 3,371 bits, which take 27 seconds on two cores.
    const SMALL: u64 = 100_000_000;

    /// Whether multiplying is a matter of seconds.
    pub fn is_small(&self) -> bool {
        self.multiply_adds <= Self::SMALL
    }
}

impl Rows {
    fn of(matrix: &AnswerMatrix, rows: Range<usize>, position: &[u32]) -> Self {
        let mut made = Self::default();
        let mut places = Vec::new();
        for row in rows {
            places.clear();
            places.extend(matrix.row(row).iter().map(|object| position[*object as usize]));
            places.sort_unstable();
            made.push(&places, position.len());
        }
        made
    }

    /// Adds the row whose answers stand at these places, ascending.
    fn push(&mut self, places: &[u32], n_objects: usize) {
        let mut leading_sign = Sign::Minus;
        for block in places.chunk_by(|a, b| a + 1 == *b) {
            let (first, last) = (block[0], block[block.len() - 1]);
            if first > 0 {
                self.roots.push(first - 1);
            }
            // Behind the last object no root is needed: the polynomial just stays positive.
            if last as usize + 1 < n_objects {
                self.roots.push(last);
            } else {
                leading_sign = Sign::Plus;
            }
        }
        self.ends.push(self.roots.len());
        self.leading_signs.push(leading_sign);
    }

    fn append(&mut self, mut other: Self) {
        let n_roots = self.roots.len();
        self.ends.extend(other.ends.iter().map(|end| n_roots + end));
        self.roots.append(&mut other.roots);
        self.leading_signs.append(&mut other.leading_signs);
    }
}

/// A row of E: 1, x, x², …
fn powers(x: i64, n_powers: usize) -> Vec<BigInt> {
    std::iter::successors(Some(BigInt::from(1)), |power| Some(power * x)).take(n_powers).collect()
}

/// One entry of H·Eᵀ; coefficients that a row does not have are zero.
fn dot(coefficients: &[BigInt], powers: &[BigInt]) -> BigInt {
    coefficients.iter().zip(powers).map(|(coefficient, power)| coefficient * power).sum()
}

/// The sign of a number that is not zero.
fn sign_of(number: &BigInt) -> Option<Sign> {
    match number.sign() {
        num_bigint::Sign::Minus => Some(Sign::Minus),
        num_bigint::Sign::NoSign => None,
        num_bigint::Sign::Plus => Some(Sign::Plus),
    }
}

#[cfg(test)]
mod tests;
