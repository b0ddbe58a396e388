//! The list of settings: which ones are there, and which parts own them?

use std::sync::LazyLock;

use toml::Value;

use super::{Choice, Config, EncoderKind, ModelConfig, OutputKind, ScoreKind, TrainingConfig};
use crate::settings::{Range, Setting, SettingInfo, Settings};

/// Every setting, in the order of config files and help; one that several parts own stands once.
pub fn all_settings() -> &'static [SettingInfo] {
    static ALL: LazyLock<Vec<SettingInfo>> = LazyLock::new(|| {
        let mut all = vec![choice::<EncoderKind>(
            "encoder",
            "What makes a query vector of subject and relation.",
            || EncoderKind::DistMult.name().into(),
        )];
        all.extend(ModelConfig::infos());
        all.extend(EncoderKind::ALL.iter().flat_map(|kind| kind.infos()));
        all.push(choice::<ScoreKind>(
            "score",
            "What a query vector and an object vector score; the encoder's own if not given: `l1` for \
             TransE, `modulus` for RotatE, `mlp` for ConcatMLP, `dot` for all others.",
            || "none".into(),
        ));
        all.extend(ScoreKind::ALL.iter().flat_map(|kind| kind.infos()));
        all.push(choice::<OutputKind>("output", "What turns scores into probabilities.", || {
            OutputKind::Softmax.name().into()
        }));
        all.extend(OutputKind::ALL.iter().flat_map(|kind| kind.infos()));
        all.extend(TrainingConfig::infos());
        let mut seen = Vec::new();
        all.retain(|info| {
            let is_new = !seen.contains(&info.name);
            seen.push(info.name);
            is_new
        });
        all
    });
    &ALL
}

/// Whether some model has a setting with this value.
pub(crate) fn takes(name: &str, value: &Value) -> bool {
    match name {
        "encoder" => EncoderKind::from_value(value, Range::Any).is_some(),
        "score" => ScoreKind::from_value(value, Range::Any).is_some(),
        "output" => OutputKind::from_value(value, Range::Any).is_some(),
        _ => {
            let (distmult, softmax) = (EncoderKind::DistMult, OutputKind::Softmax);
            let encoders = EncoderKind::ALL.iter().map(|kind| Config::of(*kind, None, softmax));
            let scores =
                ScoreKind::ALL.iter().map(|kind| Config::of(distmult, Some(*kind), softmax));
            let outputs = OutputKind::ALL.iter().map(|kind| Config::of(distmult, None, *kind));
            let mut configs = encoders.chain(scores).chain(outputs);
            configs.any(|mut config| matches!(config.set(name, value), Some(Ok(()))))
        }
    }
}

fn choice<T: Choice>(
    name: &'static str,
    meaning: &'static str,
    default: fn() -> String,
) -> SettingInfo {
    SettingInfo {
        name,
        meaning,
        expected: || <T as Setting>::expected(Range::Any),
        default,
        is_switch: false,
        needs: None,
    }
}

/// The parts that own a setting.
pub(super) struct Owners(Vec<OwnersByNeed>);

/// Parts of one kind that own a setting, and have the same condition for it.
struct OwnersByNeed {
    /// The setting that chooses such parts.
    choice: &'static str,
    names: Vec<&'static str>,
    /// All other parts of the kind.
    others: Vec<&'static str>,
    needs: Option<&'static str>,
}

/// Who owns a setting; nothing for a name that is none, or that chooses a part.
pub(super) fn owners(name: &str) -> Option<Owners> {
    if ["encoder", "score", "output"].contains(&name) {
        return None;
    }
    all_settings().iter().find(|info| info.name == name)?;
    let mut owners = Vec::new();
    owners.extend(by_need("encoder", name, EncoderKind::infos));
    owners.extend(by_need("score", name, ScoreKind::infos));
    owners.extend(by_need("output", name, OutputKind::infos));
    Some(Owners(owners))
}

fn by_need<T: Choice>(
    choice: &'static str,
    setting: &str,
    infos: fn(T) -> Vec<SettingInfo>,
) -> Vec<OwnersByNeed> {
    let mut all: Vec<OwnersByNeed> = Vec::new();
    for kind in T::ALL {
        let Some(info) = infos(*kind).into_iter().find(|info| info.name == setting) else {
            continue;
        };
        match all.iter_mut().find(|owners| owners.needs == info.needs) {
            Some(owners) => owners.names.push(kind.name()),
            None => {
                let (names, needs) = (vec![kind.name()], info.needs);
                all.push(OwnersByNeed { choice, names, others: Vec::new(), needs });
            }
        }
    }
    for owners in &mut all {
        let names = T::ALL.iter().map(|kind| kind.name());
        owners.others = names.filter(|name| !owners.names.contains(name)).collect();
    }
    all
}

impl Owners {
    /// The choices that decide whether there is an owner; none for a setting of every model.
    pub(super) fn choices(&self) -> Vec<&'static str> {
        let mut choices: Vec<&str> = self.0.iter().map(|owners| owners.choice).collect();
        choices.dedup();
        choices
    }

    /// One of which choices is needed, and with what else: `encoder = "conve" or "hyper"`. Where a part
    /// that has the setting was chosen but lacks something, others that would lack something, too, are
    /// not proposed.
    pub(super) fn expected(&self, chosen: &[&str]) -> String {
        let is_proposed = |owners: &&OwnersByNeed| {
            let is_chosen = owners.names.iter().any(|name| chosen.contains(name));
            chosen.is_empty() || owners.needs.is_none() || is_chosen
        };
        let parts: Vec<String> =
            self.0.iter().filter(is_proposed).map(OwnersByNeed::expected).collect();
        parts.join(", or ")
    }
}

impl OwnersByNeed {
    fn expected(&self) -> String {
        let Self { choice, names, others, needs } = self;
        // The shorter list says it.
        let choice = match names.len() <= others.len() {
            true => format!("{choice} = {}", listed(names)),
            false => format!("another {choice} than {}", listed(others)),
        };
        let comma = if names.len() > 1 { "," } else { "" };
        match needs {
            Some(needs) => format!("{choice}{comma} and {needs}"),
            None => choice,
        }
    }
}

/// `"a", "b" or "c"`.
fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}
