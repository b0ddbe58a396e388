mod refusals;

use std::path::Path;

use super::*;

fn raw(text: &str) -> RawConfig {
    let mut raw = RawConfig::default();
    raw.add_file(Path::new("my.toml"), text).unwrap();
    raw
}

/// A setting as the command line gives it.
fn option(raw: &mut RawConfig, name: &str, text: &str) {
    raw.add(name, &format!("--{}", name.replace('_', "-")), text);
}

fn faults(raw: &RawConfig) -> String {
    raw.check().unwrap_err().to_string()
}

#[test]
fn nothing_given_is_the_default() {
    assert_eq!(RawConfig::default().check().unwrap(), Config::default());
}

#[test]
fn options_go_over_the_file() {
    let mut raw = raw("dim = 10\nencoder = \"complex\"\noutput = \"mixture\"");
    option(&mut raw, "dim", "64");
    option(&mut raw, "learning_rate", "1e-2");
    option(&mut raw, "components", "2");
    let config = raw.check().unwrap();
    assert_eq!((config.dim(), config.training().learning_rate), (64, 0.01));
    assert_eq!(config.value("components"), Some(Value::Integer(2)));
    assert_eq!(config.encoder(), EncoderKind::ComplEx);
}

#[test]
fn a_setting_is_called_what_its_user_knows_it_by() {
    let told = |result: Result<Config, Error>| result.unwrap_err().to_string();
    let what = "expected a whole number from 1 to 100000, found `0`";
    assert_eq!(told(Config::parse("dim = 0")), format!("config: `dim`: {what}"));
    let mut raw = RawConfig::default();
    raw.set("dim", 0);
    assert_eq!(told(raw.check()), format!("`dim`: {what}"));
    raw.add("dim", "--dim", "0");
    assert_eq!(told(raw.check()), format!("--dim: {what}"));
    assert_eq!(told(Config::default().with_setting("dim", 0)), format!("`dim`: {what}"));
}

#[test]
fn one_setting_of_a_config_can_be_changed() {
    let config = Config::parse("output = \"mixture\"\nencoder = \"complex\"").unwrap();
    let changed = config.with_setting("components", 1).unwrap();
    assert_eq!(changed.value("components"), Some(Value::Integer(1)));
    // With a single component there is no entropy to reward.
    assert_eq!(
        (config.value("entropy_weight").is_some(), changed.value("entropy_weight")),
        (true, None)
    );
    let told = |name, value: i64| config.with_setting(name, value).unwrap_err().to_string();
    assert_eq!(told("heads", 2), "`heads`: means nothing in this config");
    assert_eq!(
        told("dim", 9),
        "`dim`: complex splits it in two halves; expected an even one, found 9"
    );
}

#[test]
fn all_faults_are_reported_at_once() {
    let mut raw = raw("encoder = \"complx\"\ndim = 0\nepoch = 3\ndropout = 1.0\nbias = 1");
    option(&mut raw, "batch", "many");
    option(&mut raw, "learning_rate", "-1");
    assert_eq!(
        faults(&raw),
        "my.toml: `epoch`: there is no such setting; did you mean `epochs`?\n\
         my.toml: `encoder`: expected one of distmult, complex, rescal, cp, simple, tucker, \
         conve, hyper, transformer, ensemble, compgcn, rgcn, transe, \
         rotate, concatmlp, found `complx`\n\
         my.toml: `dim`: expected a whole number from 1 to 100000, found `0`\n\
         my.toml: `bias`: expected true or false, found `1`\n\
         my.toml: `dropout`: expected a number from 0 to below 1, found `1.0`\n\
         --batch: expected a whole number from 1 to 1000000, found `many`\n\
         --learning-rate: expected a number above 0, and 1e30 at most, found `-1`"
    );
}

#[test]
fn settings_that_would_do_nothing_are_refused() {
    let mut raw = raw("relation_dim = 3\nmessage_layers = 2");
    option(&mut raw, "bases", "3");
    option(&mut raw, "gate_dim", "3");
    assert_eq!(
        faults(&raw),
        "my.toml: `relation_dim`: only means something with encoder = \"tucker\" or \
         \"hyper\"; found encoder = \"distmult\"\n\
         my.toml: `message_layers`: only means something with encoder = \"compgcn\" or \"rgcn\"; \
         found encoder = \"distmult\"\n\
         --bases: only means something with encoder = \"rgcn\"; found encoder = \"distmult\"\n\
         --gate-dim: only means something with output = \"mixtape\"; found output = \"softmax\""
    );
}

#[test]
fn all_that_decides_whether_a_setting_means_something_is_found() {
    for (text, found) in [
        ("entropy_weight = 0.1", "output = \"softmax\""),
        (
            "entropy_weight = 0.1\noutput = \"mixture\"\ncomponents = 1",
            "output = \"mixture\" and components = 1 and no gate",
        ),
        (
            "entropy_weight = 0.1\noutput = \"mixture\"\ngate = \"uniform\"",
            "output = \"mixture\" and components = 4 and gate = \"uniform\"",
        ),
        (
            "activation = \"relu\"\noutput = \"mixture\"\ncomponents = 1\nlayers = 0",
            "output = \"mixture\" and layers = 0",
        ),
        ("margin = 2\noutput = \"sigmoid\"", "output = \"sigmoid\" and score = \"dot\""),
        ("adversarial = 1\noutput = \"sigmoid\"", "output = \"sigmoid\" and no negatives"),
        ("hidden = 3\nencoder = \"transe\"", "score = \"l1\""),
        (
            "sparse_below = 0.1\nexact = true",
            "output = \"softmax\" and score = \"dot\" and no negatives and smoothing = 0.0 and exact = true",
        ),
    ] {
        let told = faults(&raw(text));
        assert!(told.ends_with(&format!("; found {found}")) && !told.contains('\n'), "{told}");
    }
}

#[test]
fn whatever_a_setting_needs_names_deciding_settings_that_exist() {
    let mut found = 0;
    let mut check = |config: Config| {
        // A value of every setting that decides, with which others mean nothing.
        let undecided = [
            ("layers", Value::Integer(0)),
            ("components", Value::Integer(1)),
            ("smoothing", Value::Float(0.1)),
            ("exact", Value::Boolean(true)),
        ];
        let mut configs = vec![config.clone()];
        for (name, value) in undecided {
            let mut other = config.clone();
            if other.set(name, &value).is_some() {
                configs.push(other);
            }
        }
        for config in configs {
            for group in config.groups() {
                for (name, _) in group.values() {
                    let Some(unmet) = group.unmet(name, &config.with()) else { continue };
                    found += 1;
                    assert!(!unmet.text.is_empty() && !unmet.deciding.is_empty(), "{name}");
                    for deciding in unmet.deciding {
                        let is_known = all_settings().iter().any(|info| info.name == *deciding);
                        assert!(is_known && *deciding != name, "{name} needs {deciding}");
                    }
                }
            }
        }
    };
    for encoder in EncoderKind::ALL {
        for score in ScoreKind::ALL {
            for output in OutputKind::ALL {
                check(Config::of(*encoder, Some(*score), *output));
            }
        }
    }
    assert!(found > 0);
}

#[test]
fn settings_of_another_encoder_are_refused() {
    assert_eq!(
        faults(&raw("channels = 8\nheads = 2\nmembers = 2\nconvolutions = 2")),
        "my.toml: `convolutions`: only means something with encoder = \"conve\"; \
         found encoder = \"distmult\"\n\
         my.toml: `channels`: only means something with encoder = \"conve\" or \"hyper\"; \
         found encoder = \"distmult\"\n\
         my.toml: `heads`: only means something with encoder = \"transformer\"; \
         found encoder = \"distmult\"\n\
         my.toml: `members`: only means something with encoder = \"ensemble\"; \
         found encoder = \"distmult\""
    );
    for encoder in ["conve", "hyper"] {
        assert_eq!(
            faults(&raw(&format!("encoder = \"{encoder}\"\ndropout = 0.1"))),
            format!(
                "my.toml: `dropout`: only means something with another encoder than \"conve\" or \
                 \"hyper\"; found encoder = \"{encoder}\""
            )
        );
    }
    // An encoder that could not be read is the only fault.
    assert!(!faults(&raw("encoder = \"conv\"\nchannels = 8\ndropout = 0")).contains('\n'));
}

#[test]
fn a_value_of_the_wrong_type_is_shown_as_it_stands() {
    assert_eq!(
        faults(&raw("bias = \"true\"\ndim = [32]")),
        "my.toml: `dim`: expected a whole number from 1 to 100000, found `[32]`\n\
         my.toml: `bias`: expected true or false, found `\"true\"`"
    );
}

#[test]
fn numbers_that_would_not_be_finite_in_training_are_refused() {
    let mut too_large = raw("output = \"margin\"\nnegatives = 5\nmargin = 1e39\nclip = 1e31");
    option(&mut too_large, "n3", "inf");
    assert_eq!(
        faults(&too_large),
        "my.toml: `margin`: expected a number from 0 to 1e30, found `1e39`\n\
         my.toml: `clip`: expected a number above 0, and 1e30 at most, found `1e31`\n\
         --n3: expected a number from 0 to 1e30, found `inf`"
    );
    assert!(raw("output = \"margin\"\nnegatives = 5\nmargin = 1e30\nn3 = 0").check().is_ok());
}

#[test]
fn what_could_not_be_read_contradicts_nothing() {
    assert_eq!(
        faults(&raw("output = \"margin\"\nnegatives = 0")),
        "my.toml: `negatives`: expected a whole number from 1 to 1000000000, found `0`"
    );
}

#[test]
fn a_list_is_given_with_or_without_brackets() {
    let hidden = |text: &str| {
        let mut raw = raw("score = \"mlp\"");
        option(&mut raw, "hidden", text);
        raw
    };
    let list = |values: &[i64]| Value::Array(values.iter().copied().map(Value::Integer).collect());
    for (text, expected) in [
        ("512,256", &[512, 256][..]),
        ("[7, 6, 5, 4]", &[7, 6, 5, 4]),
        ("[128]", &[128]),
        ("128", &[128]),
    ] {
        assert_eq!(hidden(text).check().unwrap().value("hidden"), Some(list(expected)), "{text}");
    }
    for text in ["0", "3,0", "1,2,3,4,5", "3,many", "3,0.5"] {
        assert_eq!(
            faults(&hidden(text)),
            format!("--hidden: expected 1 to 4 whole numbers from 1 to 100000, found `{text}`")
        );
    }
    assert!(faults(&raw("score = \"mlp\"\nhidden = []")).ends_with("to 100000, found `[]`"));
    assert_eq!(
        faults(&raw("hidden = [3]")),
        "my.toml: `hidden`: only means something with score = \"mlp\"; found score = \"dot\""
    );
    // A choice that could not be read is the only fault.
    assert!(!faults(&raw("score = \"mpl\"\nhidden = [3]")).contains('\n'));
    let config = hidden("30,20").check().unwrap();
    assert!(config.to_toml().contains("hidden = [30, 20]\n"), "{}", config.to_toml());
    assert!(config.changes().contains(&("hidden", "30,20".into())));
}

#[test]
fn sigmoids_of_distances_have_a_margin() {
    let shift = |text: &str| {
        let config = raw(text).check().unwrap();
        config.output.shift(&config.with())
    };
    assert_eq!(shift("output = \"sigmoid\"\nencoder = \"rotate\"\nmargin = 9"), 9.0);
    assert_eq!(shift("output = \"sigmoid\""), 0.0);
    assert_eq!(shift("output = \"margin\"\nnegatives = 5\nmargin = 9"), 0.0);
}

#[test]
fn a_file_that_is_no_toml_is_named() {
    let error = RawConfig::default().add_file(Path::new("my.toml"), "dim 200").unwrap_err();
    assert_eq!(error.to_string(), "my.toml: not a config file");
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("line 1, column 5"));
}

#[test]
fn a_written_config_reads_back_the_same() {
    let mixture =
        "output = \"mixture\"\nencoder = \"tucker\"\nrelation_dim = 7\nclip = 2.5\nseed = 9";
    let conve = "encoder = \"conve\"\nchannels = 8\nhidden_dropout = 0.5";
    let compgcn = "encoder = \"compgcn\"\ncomposition = \"correlation\"\nmessage_layers = 2";
    let margin =
        "output = \"margin\"\nencoder = \"transe\"\nscore = \"l2\"\nnegatives = 5\nmargin = 2";
    let mlp = "encoder = \"concatmlp\"\nhidden = [64]";
    for text in ["", mixture, conve, compgcn, margin, mlp, "answers_per_item = 1\ndropout = 0"] {
        let config = raw(text).check().unwrap();
        assert_eq!(raw(&config.to_toml()).check().unwrap(), config);
    }
    let text = Config::default().to_toml();
    assert!(text.contains("learning_rate = 0.001\n") && !text.contains("components"), "{text}");
}

#[test]
fn differences_are_named_and_no_others() {
    let differences = |own: &str, asked: &str| {
        let own = raw(own).check().unwrap();
        raw(asked).differences(&own).map_err(|error| error.to_string())
    };
    let of = |own, asked| differences(own, asked).unwrap();
    assert_eq!(
        of("", "dim = 100\nclip = 1.0\nseed = 0"),
        ["dim is `200`, not `100`", "clip is not set, not `1.0`"]
    );
    // What a mixture has and a softmax has not was not asked for.
    assert_eq!(
        of("output = \"mixture\"", "output = \"softmax\""),
        ["output is `mixture`, not `softmax`"]
    );
    assert_eq!(
        of("", "output = \"mixture\"\ncomponents = 4"),
        ["output is `softmax`, not `mixture`", "components is not set, not `4`"]
    );
    assert_eq!(of("output = \"mixture\"", "components = 4\nlayers = 2"), [""; 0]);
    // However a value is written.
    assert_eq!(of("output = \"mixture\"\nentropy_weight = 0.0", "entropy_weight = 0"), [""; 0]);
    assert_eq!(of("score = \"mlp\"\nhidden = [64]", "hidden = 64"), [""; 0]);
    assert_eq!(
        differences("", "dim = 0").unwrap_err(),
        "my.toml: `dim`: expected a whole number from 1 to 100000, found `0`"
    );
}

#[test]
fn changes_are_what_is_not_at_its_default() {
    let changes = |text: &str| Config::parse(text).unwrap().changes();
    assert_eq!(changes("encoder = \"distmult\"\ndim = 200\noutput = \"softmax\""), []);
    let given =
        "encoder = \"transe\"\nscore = \"l2\"\noutput = \"margin\"\nnegatives = 5\nl2 = 1e-7";
    let expected = [
        ("encoder", "transe"),
        ("score", "l2"),
        ("output", "margin"),
        ("negatives", "5"),
        ("l2", "1e-7"),
    ];
    assert_eq!(changes(given), expected.map(|(name, value)| (name, value.to_owned())));
    // The encoder's own score need not be said.
    assert_eq!(changes("encoder = \"rotate\"\nscore = \"modulus\"").len(), 1);
}

#[test]
fn every_setting_has_a_meaning() {
    for setting in all_settings() {
        assert!(setting.meaning.trim().ends_with('.'), "{}", setting.name);
    }
}

#[test]
fn every_published_config_can_train() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let mut raw = RawConfig::default();
        raw.add_file(&path, &std::fs::read_to_string(&path).unwrap()).unwrap();
        raw.check().unwrap();
        checked += 1;
    }
    assert!(checked > 0);
}
