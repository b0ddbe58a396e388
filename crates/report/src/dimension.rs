//! Bounds as they are shown: how large must the dimension be, and what is a given one good for?
//!
//! In JSON, as tables and in sentences.

use fullrank_bounds::{
    Analysis, Argument, Certificate, Decomposition, Effort, Feasible, Mismatch, ModelBounds,
    Outcomes, Range, Side, SignRank, Verified, VerifiedProduct, crowded_share, facts_per_entity,
};
use fullrank_engine::advice::advised_output;
use fullrank_engine::settings::Choice;
use fullrank_graph::Graph;
use serde::Serialize;

use crate::numbers::{count, counted};

/// The bounds of one side of a graph.
#[derive(Debug, Serialize)]
pub struct SideReport {
    /// What was found.
    #[serde(flatten)]
    pub analysis: Analysis,
    needs: Needs,
    /// What the lower end of the sign rank rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_rank_witness: Option<Witness>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// That the signs were decomposed, if that was asked for.
    pub decomposition: Option<Verification>,
}

#[derive(Debug, Serialize)]
struct Needs {
    rankings: Range,
    signs: Range,
    distributions: Range,
}

/// A part of the matrix whose sign rank is known to be large, by names.
#[derive(Debug, Serialize)]
struct Witness {
    #[serde(flatten)]
    argument: Argument,
    rows: Vec<WitnessRow>,
    columns: Vec<String>,
}

#[derive(Debug, Serialize)]
struct WitnessRow {
    subject: String,
    relation: String,
    inverse: bool,
}

/// That the signs of the graph were decomposed, and the factors looked at.
#[derive(Debug, Serialize)]
pub struct Verification {
    by_roots: Verified,
    /// Nothing for graphs that are too large for it.
    by_product: Option<VerifiedProduct>,
}

impl SideReport {
    fn of(graph: &Graph, analysis: Analysis, verifies: bool) -> Result<Self, Mismatch> {
        let certificate = analysis.sign_rank.as_ref().and_then(|found| found.certificates.first());
        Ok(Self {
            needs: Needs {
                rankings: analysis.rankings(),
                signs: analysis.signs(),
                distributions: analysis.distributions(),
            },
            sign_rank_witness: certificate.map(|it| Witness::of(graph, &analysis, it)),
            decomposition: verifies.then(|| Verification::of(&analysis)).transpose()?,
            analysis,
        })
    }
}

impl Witness {
    fn of(graph: &Graph, analysis: &Analysis, certificate: &Certificate) -> Self {
        let n_relations = graph.relations().len() as u32;
        let row = |row: &u32| {
            let query = graph.answers().query(analysis.matrix.query(*row as usize));
            WitnessRow {
                subject: graph.entities().name(query.subject.0).to_owned(),
                relation: graph.relations().name(query.relation.0 % n_relations).to_owned(),
                inverse: query.relation.0 >= n_relations,
            }
        };
        let name = |column: &u32| graph.entities().name(*column).to_owned();
        Self {
            argument: certificate.argument.clone(),
            rows: certificate.rows.iter().map(row).collect(),
            columns: certificate.columns.iter().map(name).collect(),
        }
    }
}

impl Verification {
    fn of(analysis: &Analysis) -> Result<Self, Mismatch> {
        let matrix = &analysis.matrix;
        let decomposition = Decomposition::of(matrix, analysis.order());
        let by_roots = decomposition.verify(matrix)?;
        let is_small = decomposition.product_size().is_small();
        let by_product = is_small.then(|| decomposition.verify_by_product(matrix)).transpose()?;
        Ok(Self { by_roots, by_product })
    }

    /// What was looked at, in a sentence.
    pub fn to_sentence(&self) -> String {
        let Verified { n_queries, n_rows, n_objects, degree } = self.by_roots;
        let mut text = format!(
            "{} ({} of them distinct), each a polynomial of degree {} at most, have the right sign at \
             all of {}, by their roots",
            counted(n_queries, "row"),
            count(n_rows),
            count(degree),
            counted(n_objects, "object"),
        );
        if let Some(product) = &self.by_product {
            let digits = product.coefficient_bits;
            text += &format!(
                " and as a product H·Eᵀ of matrix rank {} in whole numbers of up to {digits} bits",
                count(product.matrix_rank),
            );
        }
        text + "."
    }
}

/// Both sides of a graph: with inverse relations, and without. `step` is called after each of
/// [`both_sides_steps`] steps.
///
/// # Errors
/// When a decomposition does not give the signs of the graph, which cannot be.
pub fn both_sides(
    graph: &Graph,
    effort: Option<Effort>,
    verifies: bool,
    step: &(dyn Fn() + Sync),
) -> Result<[SideReport; 2], Mismatch> {
    let of = |side| Analysis::of(graph, side, effort, &mut || step());
    // A search has long stretches for one thread, so the two are made side by side.
    let (both, forward) = rayon::join(|| of(Side::Both), || of(Side::Forward));
    let side = |analysis| SideReport::of(graph, analysis, verifies);
    Ok([side(both)?, side(forward)?])
}

/// How many steps [`both_sides`] has.
pub fn both_sides_steps(effort: Option<Effort>) -> usize {
    2 * Analysis::steps(effort)
}

/// Columns of [`bounds_rows`].
pub const BOUNDS_HEADER: [&str; 3] = ["", "without inverse", "with inverse"];

/// Which dimensions are needed, and which are enough, a row for each kind of outcome.
pub fn bounds_rows(both: &SideReport, forward: &SideReport) -> Vec<Vec<String>> {
    let sides = [&forward.analysis, &both.analysis];
    let [forward_most, both_most] = sides.map(|side| count(side.counts.max_answers));
    let exactly = |dim| Range { needed: Some(dim), enough: dim };
    let at_most = |enough| Range { needed: None, enough };
    let any = sides.map(|side| side.counts.universality);
    let rows = [
        ("every ranking, any graph of this size", any.map(|any| exactly(any.rankings))),
        ("every set of answers, any graph of this size", any.map(|any| exactly(any.signs))),
        ("every distribution, any graph of this size", any.map(|any| exactly(any.distributions))),
        (
            &format!("all sets of at most c = {forward_most} or {both_most} answers: 2c + 1"),
            sides.map(|side| at_most(side.counts.worst_case)),
        ),
        (
            "this graph: sets of answers, by the paper's order: 2b + 1",
            sides.map(|side| at_most(side.rcm.dimension)),
        ),
        ("this graph: sets of answers", sides.map(Analysis::signs)),
        ("this graph: answers before all others", sides.map(Analysis::rankings)),
        ("this graph: distributions", sides.map(Analysis::distributions)),
    ];
    let cell = |range: Range| match range.needed {
        None => format!("≤ {}", count(range.enough)),
        Some(needed) if needed == range.enough => count(needed),
        Some(needed) => format!("{} – {}", count(needed), count(range.enough)),
    };
    rows.into_iter()
        .map(|(what, [forward, both])| vec![what.to_owned(), cell(forward), cell(both)])
        .collect()
}

/// What the bounds with inverse relations rest on, in sentences.
pub fn reasons(report: &SideReport) -> Vec<String> {
    let analysis = &report.analysis;
    let mut sentences = vec![];
    if let Some(best) = &analysis.best {
        sentences.push(format!(
            "The answers of a query lie in at most {}, {} in the paper's order; no order has fewer \
             than {}.",
            counted(best.blocks.blocks_max, "block"),
            count(analysis.rcm.blocks_max),
            count(best.blocks_max_at_least),
        ));
    }
    if let Some(sign_rank) = &analysis.sign_rank {
        sentences.push(sign_rank_sentence(sign_rank));
    }
    if let Some(rank) = analysis.matrix_rank.as_ref().map(|rank| &rank.found) {
        let primes: Vec<String> = rank.primes.iter().map(|prime| count(*prime as usize)).collect();
        sentences.push(match rank.exact {
            true => format!(
                "The matrix rank of Y is {}, modulo {}; the row of all ones is {}in its row space.",
                count(rank.rank),
                primes.join(" and "),
                if rank.has_all_ones == Some(true) { "" } else { "not " },
            ),
            false => format!(
                "The matrix rank of Y lies between {} and {}: the budget ended before the \
                 elimination did.",
                count(rank.rank),
                count(rank.at_most),
            ),
        });
    }
    sentences.extend(report.decomposition.as_ref().map(Verification::to_sentence));
    sentences
}

fn sign_rank_sentence(sign_rank: &SignRank) -> String {
    let SignRank { lower, upper, upper_by, certificates, .. } = sign_rank;
    let by = match *upper_by {
        "order" => "by the order of the objects",
        "matrix_rank" => "by the matrix rank",
        _ => "by the number of entities",
    };
    let mut text = format!("The sign rank of Y is at most {} {by}", count(*upper));
    if let Some(Certificate { argument, rows, columns, .. }) = certificates.first() {
        let part = format!("{} by {} of its entries", count(rows.len()), count(columns.len()));
        let why = match argument {
            Argument::Patterns { lines } => format!("by counting patterns on {lines}s of"),
            Argument::Shattered { lines } => format!("by a shattered set of {lines}s in"),
            Argument::Spectral { .. } => "by the spectral norm of".to_owned(),
        };
        text += &format!(", and at least {} {why} {part}", count(*lower));
    }
    text + "."
}

/// What a dimension is good for.
#[derive(Debug, Serialize)]
pub struct AtDim {
    /// The dimension.
    pub dim: usize,
    /// Training facts of queries with so many answers n that 2n + 1 > d.
    crowded_share: f64,
    /// Training facts per entity, by which the output layer is advised.
    facts_per_entity: f64,
    /// How much of everything it can give.
    pub feasible: Feasible,
    /// What the literature knows of single models.
    pub models: ModelBounds,
    advised_output: &'static str,
    reason: String,
    /// In three sentences.
    pub advice: [String; 3],
}

impl AtDim {
    /// Of a graph whose bounds are known.
    pub fn of(graph: &Graph, analysis: &Analysis, dim: usize) -> Self {
        let (output, reason) = advised_output(graph, dim);
        let feasible = Feasible::of(graph.entities().len(), dim);
        let advice = [
            feasible_sentence(&feasible),
            needs_sentence(analysis, dim),
            format!("A {} is advised: {reason}.", output.name()),
        ];
        Self {
            dim,
            crowded_share: crowded_share(graph, dim),
            facts_per_entity: facts_per_entity(graph),
            feasible,
            models: ModelBounds::of(graph, analysis.order()),
            advised_output: output.name(),
            reason,
            advice,
        }
    }

    /// What is feasible of what there is.
    pub fn feasible_rows(&self) -> Vec<Vec<String>> {
        let row = |what: &str, outcomes: &Outcomes| {
            let powers = [outcomes.log10_feasible, outcomes.log10_all].map(power_of_ten);
            [what.to_owned()].into_iter().chain(powers).collect()
        };
        vec![
            row("rankings of all entities", &self.feasible.rankings),
            row("sets of answers", &self.feasible.labellings),
        ]
    }

    /// What the literature knows of single models.
    pub fn model_rows(&self) -> Vec<Vec<String>> {
        let ModelBounds {
            complex_universality,
            tucker_universality,
            distance_signs,
            bilinear_sufficient,
            ..
        } = &self.models;
        [
            ("RESCAL and ComplEx, enough for this graph (Wang et al. 2017)", bilinear_sufficient),
            ("ComplEx, enough for any graph of this size", complex_universality),
            ("TuckER, enough for any graph of this size", tucker_universality),
            ("models of distance, needed for any set of answers", distance_signs),
        ]
        .map(|(what, dim)| vec![what.to_owned(), count(*dim)])
        .to_vec()
    }
}

/// A number by its logarithm, in digits as long as these can be read.
fn power_of_ten(log10: f64) -> String {
    match log10 {
        ..6.0 => count(10_f64.powf(log10).round() as usize),
        _ => format!("10^{}", count(log10.round() as usize)),
    }
}

fn feasible_sentence(feasible: &Feasible) -> String {
    let Outcomes { log10_feasible, log10_all } = feasible.rankings;
    let (entities, d) = (counted(feasible.n_objects, "entity"), count(feasible.dim));
    if feasible.dim + 1 >= feasible.n_objects {
        return format!("A linear output layer of d = {d} can give every ranking of {entities}.");
    }
    format!(
        "Of the {} rankings of {entities}, a linear output layer of d = {d} can give {}, and of their \
         {} sets {}.",
        power_of_ten(log10_all),
        power_of_ten(log10_feasible),
        power_of_ten(feasible.labellings.log10_all),
        power_of_ten(feasible.labellings.log10_feasible),
    )
}

fn needs_sentence(analysis: &Analysis, dim: usize) -> String {
    let d = count(dim);
    let Range { needed, enough } = analysis.signs();
    let sets = match needed {
        Some(needed) if needed < enough => {
            format!("need {} to {} dimensions", count(needed), count(enough))
        }
        Some(needed) => format!("need {}", counted(needed, "dimension")),
        None => format!("need at most {}", counted(enough, "dimension")),
    };
    let verdict = if dim >= enough {
        format!("so {d} are enough")
    } else if needed.is_some_and(|needed| dim < needed) {
        format!("so {d} are too few")
    } else {
        format!("so {d} may be too few")
    };
    let distributions = analysis.distributions();
    let exactly = if distributions.needed == Some(distributions.enough) { "" } else { "at most " };
    let times = distributions.enough as f64 / dim as f64;
    let ratio = match times {
        ..=1.0 => "within reach".to_owned(),
        ..10.0 => format!("{times:.1} times as many"),
        _ => format!("{} times as many", count(times.round() as usize)),
    };
    format!(
        "With inverse relations, the sets of answers of this graph {sets}, {verdict}; to give every \
         answer its probability takes {exactly}{}, {ratio}.",
        count(distributions.enough),
    )
}

/// How many queries have how many answers, exactly.
pub fn degree_points(graph: &Graph, side: Side) -> Vec<[f64; 2]> {
    let answers = graph.answers();
    let n_queries = match side {
        Side::Forward => answers.n_forward_queries(),
        Side::Both => answers.n_queries(),
    };
    let mut counts = std::collections::BTreeMap::<usize, usize>::new();
    for degree in answers.degrees().take(n_queries) {
        *counts.entry(degree).or_default() += 1;
    }
    counts.into_iter().map(|(degree, queries)| [degree as f64, queries as f64]).collect()
}
