//! epitaph's annotations on a pod or a namespace.

use std::collections::BTreeMap;

use epitaph_core::pod::PodOptions;

use crate::source::bounded;

const IGNORE: &str = "epitaph.dev/ignore";
const EXPECTED: &str = "epitaph.dev/expected-exit-codes";

/// In a list of namespaces: each of them.
const EVERY: &str = "*";

/// Longest value quoted in a warning.
const MAX_QUOTED: usize = 64;

/// The namespaces in which an annotation counts, for each annotation; `*` is every namespace. Whoever creates pods can write them,
/// so an administrator decides who may hide terminations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    pub ignore: Vec<String>,
    pub expected_exit_codes: Vec<String>,
}

impl Default for Allowed {
    fn default() -> Self {
        Allowed {
            ignore: vec![EVERY.to_owned()],
            expected_exit_codes: vec![EVERY.to_owned()],
        }
    }
}

fn is_in(namespaces: &[String], namespace: &str) -> bool {
    namespaces.iter().any(|one| one == EVERY || one == namespace)
}

/// None: not annotated, or with a value that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::source) struct Annotated {
    ignore: Option<bool>,
    expected_exit_codes: Option<Vec<u8>>,
}

/// An annotation with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub(in crate::source) enum BadAnnotation {
    #[error("annotation {IGNORE} is \"{0}\", which is neither \"true\" nor \"false\"; it is ignored")]
    Ignore(String),
    #[error("annotation {EXPECTED} is \"{0}\", which is not a list of exit codes from 0 to 255 such as \"0,3\"; it is ignored")]
    Expected(String),
    #[error(
        "annotation {IGNORE} does not count in this namespace; `kubernetes.allow_ignore` names the namespaces in which it does"
    )]
    IgnoreNotAllowed,
    #[error(
        "annotation {EXPECTED} does not count in this namespace; `kubernetes.allow_expected_exit_codes` names the namespaces in \
         which it does"
    )]
    ExpectedNotAllowed,
    #[error(
        "annotation {} does not make this pod the mirror of a static pod: the kubelet's mirror pods belong to their node, and name \
         the hash of a manifest; it is ignored",
        super::convert::MIRROR
    )]
    Mirror,
}

impl Annotated {
    pub fn parse(annotations: Option<&BTreeMap<String, String>>, mut bad: impl FnMut(BadAnnotation)) -> Annotated {
        let value = |name: &str| annotations.and_then(|all| all.get(name)).map(|value| value.trim());
        let quoted = |value: &str| bounded(value, MAX_QUOTED);
        let mut annotated = Annotated::default();
        match value(IGNORE) {
            Some("true") => annotated.ignore = Some(true),
            Some("false") => annotated.ignore = Some(false),
            Some(other) => bad(BadAnnotation::Ignore(quoted(other))),
            None => {}
        }
        if let Some(text) = value(EXPECTED) {
            match codes(text) {
                Some(codes) => annotated.expected_exit_codes = Some(codes),
                None => bad(BadAnnotation::Expected(quoted(text))),
            }
        }
        annotated
    }

    /// Without what does not count in the namespace.
    pub fn allowed(mut self, allowed: &Allowed, namespace: &str, mut bad: impl FnMut(BadAnnotation)) -> Annotated {
        // `ignore: "false"` hides nothing.
        if self.ignore == Some(true) && !is_in(&allowed.ignore, namespace) {
            self.ignore = None;
            bad(BadAnnotation::IgnoreNotAllowed);
        }
        let declares = self.expected_exit_codes.as_ref().is_some_and(|codes| !codes.is_empty());
        if declares && !is_in(&allowed.expected_exit_codes, namespace) {
            self.expected_exit_codes = None;
            bad(BadAnnotation::ExpectedNotAllowed);
        }
        self
    }

    /// Value of `epitaph.dev/ignore`, if annotated.
    pub fn ignore(&self) -> Option<bool> {
        self.ignore
    }

    /// The pod's own annotation, else its namespace's.
    pub fn over(self, namespace: &Annotated) -> PodOptions {
        PodOptions {
            ignore: self.ignore.or(namespace.ignore).unwrap_or(false),
            expected_exit_codes: self
                .expected_exit_codes
                .or_else(|| namespace.expected_exit_codes.clone())
                .unwrap_or_default(),
        }
    }
}

/// Sorted, each once: at most 256. An empty list overrides the namespace's.
fn codes(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let mut codes = text
        .split(',')
        .map(|code| code.trim().parse().ok())
        .collect::<Option<Vec<u8>>>()?;
    codes.sort_unstable();
    codes.dedup();
    Some(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(annotations: &[(&str, &str)]) -> (Annotated, Vec<String>) {
        let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut bad = Vec::new();
        let annotated = Annotated::parse(Some(&annotations), |problem| bad.push(problem.to_string()));
        (annotated, bad)
    }

    #[test]
    fn a_pods_annotation_overrides_its_namespaces() {
        let (namespace, _) = parse(&[(IGNORE, "true"), (EXPECTED, "3, 0,3")]);
        let silent = Annotated::parse(None, |_| {});
        let expected = |ignore, expected_exit_codes| PodOptions {
            ignore,
            expected_exit_codes,
        };
        assert_eq!(silent.over(&namespace), expected(true, vec![0, 3]));
        let (pod, _) = parse(&[(IGNORE, "false"), (EXPECTED, "")]);
        assert_eq!(pod.over(&namespace), expected(false, vec![]));
        assert_eq!(Annotated::default().over(&Annotated::default()), PodOptions::default());
    }

    #[test]
    fn an_administrator_decides_where_annotations_count() {
        let of = |ignore: &[&str], expected: &[&str], namespace: &str| {
            let texts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            let allowed = Allowed {
                ignore: texts(ignore),
                expected_exit_codes: texts(expected),
            };
            let (annotated, _) = parse(&[(IGNORE, "true"), (EXPECTED, "3")]);
            let mut bad = Vec::new();
            let options = annotated
                .allowed(&allowed, namespace, |problem| bad.push(problem))
                .over(&Annotated::default());
            (options.ignore, options.expected_exit_codes, bad)
        };
        use BadAnnotation::{ExpectedNotAllowed, IgnoreNotAllowed};
        assert_eq!(of(&["*"], &["*"], "shop"), (true, vec![3], vec![]));
        assert_eq!(of(&["dev", "shop"], &[], "shop"), (true, vec![], vec![ExpectedNotAllowed]));
        assert_eq!(of(&["dev"], &["shop"], "shop"), (false, vec![3], vec![IgnoreNotAllowed]));
        let none = Allowed {
            ignore: vec![],
            expected_exit_codes: vec![],
        };
        let (harmless, _) = parse(&[(IGNORE, "false"), (EXPECTED, "")]);
        let kept = harmless.clone().allowed(&none, "shop", |problem| panic!("{problem}"));
        assert_eq!(kept, harmless);
    }

    #[test]
    fn a_bad_value_is_reported_and_ignored() {
        let (annotated, bad) = parse(&[(IGNORE, "yes"), (EXPECTED, "0,256\u{1b}")]);
        assert_eq!(annotated, Annotated::default());
        expect_test::expect![[r#"
            [
                "annotation epitaph.dev/ignore is \"yes\", which is neither \"true\" nor \"false\"; it is ignored",
                "annotation epitaph.dev/expected-exit-codes is \"0,256\\u{1b}\", which is not a list of exit codes from 0 to 255 such as \"0,3\"; it is ignored",
            ]
        "#]]
        .assert_debug_eq(&bad);
    }
}
