//! Settings: what can be set, who owns it, and what does it need to mean something?
//!
//! Every setting is written once, in the table of the part that owns it: name, meaning, type, default
//! and range. Config files, the command line and checked configs are made from these tables.
//! What parts there are, and which of them were chosen, is the business of `config`.

mod fault;
mod shared;
mod value;

use toml::Value;

pub use fault::{Fault, Origin};
pub use shared::{AnswerWeight, Init, ModelConfig, OptimizerKind, Schedule, TrainingConfig};
pub(crate) use shared::{ScoreFacts, With};
pub use value::Choice;
pub(crate) use value::{Range, Setting, choices};

/// What a table of settings says of one of them.
#[derive(Debug, Clone, Copy)]
pub struct SettingInfo {
    /// The same in TOML and in every program.
    pub name: &'static str,
    /// What it does, in a sentence or two.
    pub meaning: &'static str,
    /// The allowed values.
    pub expected: fn() -> String,
    /// What it is when it is not given.
    pub default: fn() -> String,
    /// Whether naming it is enough to set it.
    pub is_switch: bool,
    /// What it needs to mean something, besides a part that has it.
    pub needs: Option<&'static str>,
}

/// Settings with one owner, when which owner it is no longer matters.
pub(crate) trait Group {
    /// Sets one of them; nothing if it is none of these.
    fn set(&mut self, name: &str, value: &Value) -> Option<Result<(), NotAllowed>>;
    /// All of them, in the order of their table; no value for those that are not set.
    fn values(&self) -> Vec<(&'static str, Option<Value>)>;
    /// What one of them lacks to mean something; nothing if it does, or is none of these.
    fn unmet(&self, name: &str, with: &With) -> Option<Unmet>;
}

/// Settings with one owner.
pub(crate) trait Settings: Group + Default {
    /// Their table.
    fn infos() -> Vec<SettingInfo>;
}

/// A value that is not in the range of its setting.
#[derive(Debug)]
pub(crate) struct NotAllowed {
    pub(crate) expected: String,
}

/// When a setting means something, where it does not always.
pub(crate) struct Needs<S> {
    /// What it needs, for people: `layers`.
    pub(crate) text: &'static str,
    /// The settings that decide, whose values are shown if they decide against it.
    pub(crate) deciding: &'static [&'static str],
    pub(crate) are_met: fn(&S, &With) -> bool,
}

/// What a setting lacks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unmet {
    pub(crate) text: &'static str,
    pub(crate) deciding: &'static [&'static str],
}

impl<S> Needs<S> {
    pub(crate) fn unmet(&self, own: &S, with: &With) -> Option<Unmet> {
        let Self { text, deciding, are_met } = *self;
        (!are_met(own, with)).then_some(Unmet { text, deciding })
    }
}

/// A setting that does not go with the others, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) name: &'static str,
    pub(crate) what: String,
}

impl Refusal {
    pub(crate) fn new(name: &'static str, what: impl Into<String>) -> Self {
        Self { name, what: what.into() }
    }
}

/// A value as a person writes it: without the quotes and brackets of TOML.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // With an exponent where there would be many zeros.
        Value::Float(number) => format!("{number:?}"),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Makes a struct of settings from their table.
///
/// A line is `name: type = default, range;`, with `, needs CONDITION` before the semicolon for one
/// that only means something sometimes. Lines `+ field: Type;` at the end add the settings of another
/// struct, so that parts can share some.
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $group:ident {
            $(
                $(#[doc = $doc:literal])*
                $name:ident: $ty:ty = $default:expr, $range:expr $(, needs $needs:expr)?;
            )*
            $(+ $field:ident: $other:ty;)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq)]
        $visibility struct $group {
            $($(#[doc = $doc])* $visibility $name: $ty,)*
            $(pub(crate) $field: $other,)*
        }

        impl Default for $group {
            fn default() -> Self {
                Self { $($name: $default,)* $($field: <$other>::default(),)* }
            }
        }

        #[allow(
            unused_variables,
            clippy::allow_attributes,
            reason = "tables without conditions, or without settings, have no use for all arguments"
        )]
        impl $crate::settings::Group for $group {
            fn set(
                &mut self,
                name: &str,
                value: &toml::Value,
            ) -> Option<Result<(), $crate::settings::NotAllowed>> {
                $(if name == stringify!($name) {
                    return Some(match <$ty as $crate::settings::Setting>::from_value(value, $range) {
                        Some(value) => {
                            self.$name = value;
                            Ok(())
                        }
                        None => Err($crate::settings::NotAllowed {
                            expected: <$ty as $crate::settings::Setting>::expected($range),
                        }),
                    });
                })*
                $(if let Some(done) = self.$field.set(name, value) {
                    return Some(done);
                })*
                None
            }

            fn values(&self) -> Vec<(&'static str, Option<toml::Value>)> {
                let own = vec![$((
                    stringify!($name),
                    $crate::settings::Setting::to_value(&self.$name),
                ),)*];
                let others: Vec<Vec<_>> = vec![$(self.$field.values(),)*];
                [own].into_iter().chain(others).flatten().collect()
            }

            fn unmet(
                &self,
                name: &str,
                with: &$crate::settings::With,
            ) -> Option<$crate::settings::Unmet> {
                $($(if name == stringify!($name) {
                    return $crate::settings::Needs::unmet(&$needs, self, with);
                })?)*
                $(if let Some(unmet) = self.$field.unmet(name, with) {
                    return Some(unmet);
                })*
                None
            }
        }

        impl $crate::settings::Settings for $group {
            fn infos() -> Vec<$crate::settings::SettingInfo> {
                let own = vec![$($crate::settings::SettingInfo {
                    name: stringify!($name),
                    meaning: concat!($($doc, "\n"),*),
                    expected: || <$ty as $crate::settings::Setting>::expected($range),
                    default: || {
                        let default: $ty = $default;
                        let value = $crate::settings::Setting::to_value(&default);
                        value.map_or_else(|| "none".into(), |value| $crate::settings::plain(&value))
                    },
                    is_switch: <$ty as $crate::settings::Setting>::IS_SWITCH,
                    needs: None$(.or(Some($needs.text)))?,
                },)*];
                let others: Vec<Vec<_>> =
                    vec![$(<$other as $crate::settings::Settings>::infos(),)*];
                [own].into_iter().chain(others).flatten().collect()
            }
        }
    };
}
pub(crate) use settings;
