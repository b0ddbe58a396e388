//! Values of settings: of which types are they, and which of them are allowed?

use toml::Value;

/// The largest number that is no fraction: far above any that trains, and so far below the largest of f32
/// that sums over a batch are finite.
const LARGEST: f64 = 1e30;

/// Values of a setting that are allowed, besides being of its type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Range {
    Any,
    /// Of whole numbers.
    AtLeast(u32),
    /// Both ends included; the upper one keeps products of sizes in 64 bits.
    Between(u32, u32),
    /// Of a list: so many numbers at most, and the ends between which each of them is.
    Each(usize, u32, u32),
    /// 0 ≤ x ≤ [`LARGEST`].
    NotNegative,
    /// 0 < x ≤ [`LARGEST`].
    Positive,
    /// 0 ≤ x < 1.
    Fraction,
}

impl Range {
    fn contains(self, x: f64) -> bool {
        x.is_finite()
            && match self {
                Self::Any => true,
                Self::AtLeast(least) => x >= f64::from(least),
                Self::Between(least, most) | Self::Each(_, least, most) => {
                    (f64::from(least)..=f64::from(most)).contains(&x)
                }
                Self::NotNegative => (0.0..=LARGEST).contains(&x),
                Self::Positive => x > 0.0 && x <= LARGEST,
                Self::Fraction => (0.0..1.0).contains(&x),
            }
    }

    fn describe(self, kind: &str) -> String {
        match self {
            Self::Any => kind.into(),
            Self::AtLeast(least) => format!("{kind} of at least {least}"),
            Self::Between(least, most) => format!("{kind} from {least} to {most}"),
            Self::Each(n, least, most) => format!("1 to {n} {kind}s from {least} to {most}"),
            Self::NotNegative => format!("{kind} from 0 to {LARGEST:e}"),
            Self::Positive => format!("{kind} above 0, and {LARGEST:e} at most"),
            Self::Fraction => format!("{kind} from 0 to below 1"),
        }
    }
}

/// A type that a setting can have.
pub(crate) trait Setting: Sized {
    /// Whether naming it is enough to set it.
    const IS_SWITCH: bool = false;
    fn from_value(value: &Value, range: Range) -> Option<Self>;
    /// Nothing for "not set".
    fn to_value(&self) -> Option<Value>;
    fn expected(range: Range) -> String;
}

macro_rules! whole_numbers {
    ($($ty:ty),*) => {$(
        impl Setting for $ty {
            fn from_value(value: &Value, range: Range) -> Option<Self> {
                let number = value.as_integer()?;
                range.contains(number as f64).then(|| number.try_into().ok())?
            }
            fn to_value(&self) -> Option<Value> {
                // Larger ones cannot come from TOML.
                Some(Value::Integer(*self as i64))
            }
            fn expected(range: Range) -> String {
                range.describe("a whole number")
            }
        }
    )*};
}
whole_numbers!(usize, u64);

impl Setting for f64 {
    fn from_value(value: &Value, range: Range) -> Option<Self> {
        let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))?;
        range.contains(number).then_some(number)
    }
    fn to_value(&self) -> Option<Value> {
        Some(Value::Float(*self))
    }
    fn expected(range: Range) -> String {
        range.describe("a number")
    }
}

/// A list; a single number is a list of one.
impl Setting for Vec<usize> {
    fn from_value(value: &Value, range: Range) -> Option<Self> {
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let fits = match range {
            Range::Each(most, ..) => (1..=most).contains(&values.len()),
            _ => true,
        };
        let values = values.iter().map(|value| usize::from_value(value, range)).collect();
        if fits { values } else { None }
    }
    fn to_value(&self) -> Option<Value> {
        Some(Value::Array(self.iter().filter_map(Setting::to_value).collect()))
    }
    fn expected(range: Range) -> String {
        range.describe("whole number")
    }
}

impl Setting for bool {
    const IS_SWITCH: bool = true;
    fn from_value(value: &Value, _: Range) -> Option<Self> {
        value.as_bool()
    }
    fn to_value(&self) -> Option<Value> {
        Some(Value::Boolean(*self))
    }
    fn expected(_: Range) -> String {
        "true or false".into()
    }
}

impl<T: Setting> Setting for Option<T> {
    fn from_value(value: &Value, range: Range) -> Option<Self> {
        T::from_value(value, range).map(Some)
    }
    fn to_value(&self) -> Option<Value> {
        self.as_ref().and_then(T::to_value)
    }
    fn expected(range: Range) -> String {
        T::expected(range)
    }
}

/// A setting with a few named values.
pub trait Choice: Copy + PartialEq + 'static {
    /// All of them.
    const ALL: &'static [Self];
    /// As in configs and on the command line.
    fn name(self) -> &'static str;
}

impl<T: Choice> Setting for T {
    fn from_value(value: &Value, _: Range) -> Option<Self> {
        let name = value.as_str()?;
        T::ALL.iter().copied().find(|choice| choice.name() == name)
    }
    fn to_value(&self) -> Option<Value> {
        Some(Value::String(self.name().into()))
    }
    fn expected(_: Range) -> String {
        let names: Vec<&str> = T::ALL.iter().map(|choice| choice.name()).collect();
        format!("one of {}", names.join(", "))
    }
}

/// Enums of named values.
macro_rules! choices {
    ($($(#[$doc:meta])* $visibility:vis $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visibility enum $name {
            $($(#[$value_doc])* $value,)*
        }

        impl $crate::settings::Choice for $name {
            const ALL: &'static [Self] = &[$(Self::$value),*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }
        }
    )*};
}
pub(crate) use choices;
