//! Settings that do not go together.

use super::*;

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
fn what_goes_by_a_bilinear_score_is_refused_with_others() {
    let all = "distmult, complex, rescal, cp, simple, tucker, ensemble, compgcn, rgcn";
    let goes_by =
        "goes by a dot product that is linear in subject, relation and object; expected 0 but for";
    assert_eq!(
        faults(&raw("encoder = \"conve\"\ndim = 24\nrelation_weight = 0.5")),
        format!("`relation_weight`: {goes_by} {all}, found 0.5 with encoder = \"conve\"")
    );
    let found = "with score = \"cosine\"";
    assert_eq!(
        faults(&raw("score = \"cosine\"\ndura = 0.01\nrelation_weight = 2")),
        format!(
            "`dura`: {goes_by} {all}, found 0.01 {found}\n\
             `relation_weight`: {goes_by} {all}, found 2 {found}"
        )
    );
    assert_eq!(
        faults(&raw("init_scale = 0.1")),
        "my.toml: `init_scale`: only means something with init = \"normal\"; found init = \"xavier\""
    );
}

#[test]
fn adagrad_starts_with_long_steps_unless_told() {
    let rate = |text: &str| raw(text).check().unwrap().training.learning_rate;
    assert_eq!(rate("optimizer = \"adagrad\""), 0.1);
    assert_eq!(rate("optimizer = \"adagrad\"\nlearning_rate = 0.01"), 0.01);
    assert_eq!(rate(""), 1e-3);
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
fn negatives_go_with_a_softmax_sigmoids_or_a_margin_alone() {
    assert!(raw("negatives = 10").check().is_ok());
    assert!(raw("negatives = 10\noutput = \"sigmoid\"\nadversarial = 1").check().is_ok());
    assert!(raw("negatives = 10\noutput = \"sigmoid\"\nanswers_per_item = 1").check().is_ok());
    assert_eq!(
        faults(&raw("output = \"mixtape\"\nnegatives = 10")),
        "`negatives`: its scores are made for all objects; expected none with output = \"mixtape\", \
         found 10"
    );
    assert!(raw("negatives = 10\noutput = \"margin\"\nadversarial = 1").check().is_ok());
    assert_eq!(
        faults(&raw("output = \"margin\"")),
        "`negatives`: a margin is kept from negative samples; expected a number with output = \
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
        "my.toml: `margin`: only means something with output = \"margin\", or output = \"sigmoid\" or \
         \"mixture-of-sigmoids\", and a distance as score; found output = \"softmax\"\n\
         my.toml: `adversarial`: only means something with output = \"margin\", or output = \
         \"sigmoid\" and negatives; found output = \"softmax\""
    );
    assert_eq!(
        faults(&raw("output = \"sigmoid\"\nadversarial = 1\nmargin = 3")),
        "my.toml: `margin`: only means something with output = \"margin\", or output = \"sigmoid\" or \
         \"mixture-of-sigmoids\", and a distance as score; found output = \"sigmoid\" and score = \
         \"dot\"\n\
         my.toml: `adversarial`: only means something with output = \"margin\", or output = \
         \"sigmoid\" and negatives; found output = \"sigmoid\" and no negatives"
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
