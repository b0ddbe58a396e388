use super::*;

fn raw(text: &str) -> RawConfig {
    let mut raw = RawConfig::default();
    raw.add_file(Path::new("my.toml"), text).unwrap();
    raw
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
    raw.add_option("dim", "64");
    raw.add_option("learning_rate", "1e-2");
    raw.add_option("components", "2");
    let config = raw.check().unwrap();
    assert_eq!((config.dim, config.components, config.learning_rate), (64, 2, 0.01));
    assert_eq!(config.encoder, EncoderKind::ComplEx);
}

#[test]
fn all_faults_are_reported_at_once() {
    let mut raw = raw("encoder = \"complx\"\ndim = 0\nepoch = 3\ndropout = 1.0\nbias = 1");
    raw.add_option("batch", "many");
    raw.add_option("learning_rate", "-1");
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
    raw.add_option("bases", "3");
    raw.add_option("components", "3");
    assert_eq!(
        faults(&raw),
        "my.toml: `relation_dim`: only means something with encoder = \"tucker\" or \
         \"hyper\"; found encoder = \"distmult\"\n\
         my.toml: `message_layers`: only means something with encoder = \"compgcn\" or \"rgcn\"; \
         found encoder = \"distmult\"\n\
         --bases: only means something with encoder = \"rgcn\"; found encoder = \"distmult\"\n\
         --components: only means something with output = \"mixture\", \"mixture-of-sigmoids\" or \
         \"mixtape\"; found output = \"softmax\""
    );
}

#[test]
fn all_that_decides_whether_a_setting_means_something_is_found() {
    for (text, found) in [
        ("entropy_weight = 0.1", "output = \"softmax\""),
        (
            "entropy_weight = 0.1\noutput = \"mixture\"\ncomponents = 1",
            "output = \"mixture\" and components = 1",
        ),
        (
            "activation = \"relu\"\noutput = \"mixture\"\ncomponents = 1\nlayers = 0",
            "output = \"mixture\" and layers = 0",
        ),
        ("margin = 2\noutput = \"sigmoid\"", "score = \"dot\" and output = \"sigmoid\""),
        ("adversarial = 1\noutput = \"sigmoid\"", "output = \"sigmoid\" and no negatives"),
        ("hidden = 3\nencoder = \"transe\"", "encoder = \"transe\" and score = \"l1\""),
    ] {
        let told = faults(&raw(text));
        assert!(told.ends_with(&format!("; found {found}")) && !told.contains('\n'), "{told}");
    }
    // Every one of them says what decides.
    for only in ONLY_WITH {
        assert!(SETTINGS.iter().any(|setting| only.depends_on(setting.name)), "{}", only.name);
    }
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
                "my.toml: `dropout`: only means something with encoders without dropout of their \
                 own; found encoder = \"{encoder}\""
            )
        );
    }
    // An encoder that could not be read is the only fault.
    assert!(!faults(&raw("encoder = \"conv\"\nchannels = 8\ndropout = 0")).contains('\n'));
}

#[test]
fn a_dim_that_an_encoder_cannot_use_is_refused() {
    for (text, expected) in [
        (
            "encoder = \"conve\"\ndim = 100",
            "conve makes it an image of 8 rows; expected a multiple of 8 from 24, found 100",
        ),
        (
            "encoder = \"conve\"\ndim = 24\nconvolutions = 2",
            "conve makes it an image of 8 rows; expected a multiple of 8 from 40, found 24",
        ),
        ("encoder = \"hyper\"\ndim = 9", "filters of hyper see 9 values; expected more, found 9"),
        (
            "encoder = \"transformer\"\ndim = 10",
            "the 4 heads of the transformer share it; expected a multiple of 4, found 10",
        ),
        (
            "encoder = \"ensemble\"\ndim = 10\nmembers = 3",
            "the 3 members of the ensemble share it; expected a multiple of 3, found 10",
        ),
    ] {
        assert_eq!(faults(&raw(text)), format!("`dim`: {expected}"));
    }
    assert_eq!(
        faults(&raw("encoder = \"conve\"\nbatch = 1")),
        "`batch`: batch normalisation needs several items; expected at least 2 for conve, found 1"
    );
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
    too_large.add_option("n3", "inf");
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
fn contradictions_are_refused() {
    assert_eq!(
        faults(&raw("encoder = \"simple\"\ndim = 5")),
        "`dim`: simple splits it in two halves; expected an even one, found 5"
    );
    assert!(faults(&raw("output = \"mixture\"\nlayers = 0")).starts_with(
        "`layers`: without a projection all components are equal and the mixture is a plain softmax"
    ));
    assert_eq!(
        faults(&raw("output = \"mixture\"\nsmoothing = 0.1")),
        "my.toml: `smoothing`: only means something with output = \"softmax\"; \
         found output = \"mixture\""
    );
    assert_eq!(
        faults(&raw("output = \"sigmoid\"\nanswers_per_item = 16\nanswer_weight = \"share\"")),
        "`answers_per_item`: a sigmoid learns that whatever is no answer of its item is wrong, so an \
         item needs all answers of its query; expected none, found 16\n\
         `answer_weight`: a sigmoid learns whether each triple holds, and a part of a weight would \
         say that it holds in part; expected `one`, found `share`"
    );
    assert!(faults(&raw("output = \"mixture-of-sigmoids\"\nlayers = 0")).contains("plain sigmoid"));
    // One component without a projection is a softmax, which is allowed.
    assert!(raw("output = \"mixture\"\nlayers = 0\ncomponents = 1").check().is_ok());
}

#[test]
fn scores_that_an_encoder_is_not_made_for_are_refused_with_the_reason() {
    for score in ["dot", "cosine", "modulus"] {
        assert_eq!(
            faults(&raw(&format!("encoder = \"transe\"\nscore = \"{score}\""))),
            format!(
                "`score`: transe needs its own: its query vector, subject plus relation, is a \
                 point that answers are to be near; expected l1 or l2, found {score}"
            )
        );
    }
    assert_eq!(
        faults(&raw("encoder = \"rotate\"\nscore = \"l2\"")),
        "`score`: rotate needs its own: its query vector, the subject turned, is a complex point \
         that answers are to be near; expected modulus, found l2"
    );
    assert_eq!(
        faults(&raw("score = \"modulus\"\ndim = 5")),
        "`dim`: modulus splits it in two halves; expected an even one, found 5"
    );
    let own = |text: &str| raw(text).check().unwrap().score();
    assert_eq!(own(""), ScoreKind::Dot);
    assert_eq!(own("encoder = \"transe\""), ScoreKind::L1);
    assert_eq!(own("encoder = \"rotate\""), ScoreKind::Modulus);
    for score in ["dot", "cosine", "l1", "l2", "modulus"] {
        for output in ["softmax", "mixture"] {
            let text = format!("encoder = \"complex\"\nscore = \"{score}\"\noutput = \"{output}\"");
            assert!(raw(&text).check().is_ok(), "{text}");
        }
    }
}

#[test]
fn an_mlp_needs_no_mixture_and_concatmlp_no_other_score() {
    assert_eq!(raw("encoder = \"concatmlp\"").check().unwrap().score(), ScoreKind::Mlp);
    for text in [
        "encoder = \"concatmlp\"\noutput = \"sigmoid\"\nn3 = 0.1",
        "encoder = \"concatmlp\"\noutput = \"margin\"\nnegatives = 5",
        "encoder = \"conve\"\nscore = \"mlp\"\nnegatives = 5\nbias = true",
    ] {
        assert!(raw(text).check().is_ok(), "{text}");
    }
    for output in ["mixture", "mixture-of-sigmoids"] {
        assert_eq!(
            faults(&raw(&format!("score = \"mlp\"\noutput = \"{output}\""))),
            format!(
                "`output`: an MLP is not linear in the object vector, so there is no bottleneck for \
                 a mixture to break; expected softmax, sigmoid or margin with score = \"mlp\", \
                 found {output}"
            )
        );
    }
    assert_eq!(
        faults(&raw("score = \"mlp\"\nsmoothing = 0.1")),
        "`smoothing`: goes by the mean of all object vectors, and the score of a mean is not the \
         mean of scores; expected 0 with score = \"mlp\", found 0.1"
    );
    assert_eq!(
        faults(&raw("encoder = \"concatmlp\"\nscore = \"dot\"")),
        "`score`: concatmlp needs its own: its query vector, subject beside relation, is twice as \
         wide as object vectors; expected mlp, found dot"
    );
    assert_eq!(
        faults(&raw("output = \"monotone\"\nscore = \"mlp\"")),
        "`score`: output = \"monotone\" is made of dot products; expected dot or cosine, found mlp"
    );
}

#[test]
fn a_list_is_given_with_or_without_brackets() {
    let option = |text: &str| {
        let mut raw = raw("score = \"mlp\"");
        raw.add_option("hidden", text);
        raw
    };
    for (text, expected) in [
        ("512,256", &[512, 256][..]),
        ("[7, 6, 5, 4]", &[7, 6, 5, 4]),
        ("[128]", &[128]),
        ("128", &[128]),
    ] {
        assert_eq!(option(text).check().unwrap().hidden, expected, "{text}");
    }
    for text in ["0", "3,0", "1,2,3,4,5", "3,many", "3,0.5"] {
        assert_eq!(
            faults(&option(text)),
            format!("--hidden: expected 1 to 4 whole numbers from 1 to 100000, found `{text}`")
        );
    }
    assert!(faults(&raw("score = \"mlp\"\nhidden = []")).ends_with("to 100000, found `[]`"));
    assert_eq!(
        faults(&raw("hidden = [3]")),
        "my.toml: `hidden`: only means something with encoder = \"concatmlp\" or score = \"mlp\"; \
         found encoder = \"distmult\" and score = \"dot\""
    );
    // A choice that could not be read is the only fault.
    assert!(!faults(&raw("score = \"mpl\"\nhidden = [3]")).contains('\n'));
    let config = option("30,20").check().unwrap();
    assert!(config.to_toml().contains("hidden = [30, 20]\n"), "{}", config.to_toml());
    assert!(config.changes().contains(&("hidden", "30,20".into())));
}

#[test]
fn negatives_go_with_a_softmax_sigmoids_or_a_margin_alone() {
    assert!(raw("negatives = 10").check().is_ok());
    assert!(raw("negatives = 10\noutput = \"sigmoid\"\nadversarial = 1").check().is_ok());
    assert!(raw("negatives = 10\noutput = \"sigmoid\"\nanswers_per_item = 1").check().is_ok());
    assert_eq!(
        faults(&raw("output = \"mixtape\"\nnegatives = 10")),
        "`negatives`: output = \"mixtape\" is made for all objects; expected none with it, found 10"
    );
    assert!(raw("negatives = 10\noutput = \"margin\"\nadversarial = 1").check().is_ok());
    assert_eq!(
        faults(&raw("output = \"margin\"")),
        "`negatives`: a margin is kept from drawn entities; expected a number with output = \
         \"margin\", found none"
    );
    assert_eq!(
        faults(&raw("output = \"mixture\"\nnegatives = 10")),
        "`negatives`: each component of a mixture is normalised over all objects; expected none \
         with output = \"mixture\", found 10"
    );
    assert_eq!(
        faults(&raw("smoothing = 0.1\nnegatives = 10\nscore = \"l1\"")),
        "`smoothing`: goes by the mean of all object vectors, and the distance to a mean is not \
         the mean of distances; expected 0 with score = \"l1\", found 0.1\n\
         `smoothing`: spreads weight over all objects, of which only some are scored; expected 0 \
         with negatives, found 0.1"
    );
    assert_eq!(
        faults(&raw("adversarial = 1\nmargin = 3")),
        "my.toml: `margin`: only means something with output = \"margin\", or sigmoids and a \
         distance as score; found score = \"dot\" and output = \"softmax\"\n\
         my.toml: `adversarial`: only means something with output = \"margin\", or \"sigmoid\" and \
         negatives; found output = \"softmax\" and no negatives"
    );
}

#[test]
fn output_layers_of_dot_products_are_refused_with_other_scores() {
    for (output, expected) in [
        ("sigsoftmax", "dot or cosine"),
        ("monotone", "dot or cosine"),
        ("mixtape", "dot"),
        ("fourier", "dot"),
    ] {
        assert!(raw(&format!("output = \"{output}\"")).check().is_ok(), "{output}");
        assert_eq!(
            faults(&raw(&format!("output = \"{output}\"\nscore = \"l1\""))),
            format!(
                "`score`: output = \"{output}\" is made of dot products; expected {expected}, \
                 found l1"
            )
        );
    }
    assert_eq!(
        faults(&raw("output = \"mixtape\"\ncomponents = 1")),
        "`components`: one score has nothing to be mixed with; expected at least 2 with a mixtape, \
         found 1"
    );
}

#[test]
fn sigmoids_of_distances_have_a_margin() {
    let shift = |text: &str| raw(text).check().unwrap().shift();
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
    assert_eq!(
        differences("", "dim = 0").unwrap_err(),
        "my.toml: `dim`: expected a whole number from 1 to 100000, found `0`"
    );
}

#[test]
fn every_setting_has_a_meaning() {
    for setting in SETTINGS {
        assert!(setting.meaning.trim().ends_with('.'), "{}", setting.name);
    }
}

#[test]
fn every_published_config_can_train() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut raw = RawConfig::default();
        raw.add_file(&path, &std::fs::read_to_string(&path).unwrap()).unwrap();
        raw.check().unwrap();
        checked += 1;
    }
    assert!(checked > 0);
}
