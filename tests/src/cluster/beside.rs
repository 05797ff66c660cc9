//! Terminations of a pod that goes on, each with a trace of its own: the other containers of a pod that restarts in place.

use serde_json::Value;

use super::play::text;
use super::reported::{outline, roots};
use super::stories::Beside;
use crate::traces::{kind_of, tag};
use crate::victim::Totals;

/// Tolerated difference of a count: this, or a twentieth of the clients' own.
const SLACK: u64 = 2;

/// The trace of one of these containers, and of nothing else.
pub(super) fn is_beside(beside: &[Beside], trace: &Value) -> bool {
    root_of(trace).is_some_and(|root| beside.iter().any(|of| is_of(of.container, root)))
}

/// `traces`: all of these containers.
pub(super) fn differs_beside(beside: &[Beside], traces: &[Value]) -> Vec<String> {
    let mut left: Vec<&Value> = traces.iter().collect();
    let mut problems = Vec::new();
    for of in beside {
        let is_it = |trace: &&Value| root_of(trace).is_some_and(|root| is_as_expected(of, root));
        match left.iter().position(is_it) {
            Some(place) => drop(left.swap_remove(place)),
            None => problems.push(format!(
                "no trace beside of {}: {}, {}, {:?}",
                of.container, of.verdict, of.cause, of.sentence
            )),
        }
    }
    problems.extend(left.into_iter().map(|trace| format!("beside it:\n{}", outline(trace))));
    problems
}

/// The lost connections that the agent counted for that container, by the clients' own log.
pub(super) fn differs_from_clients(container: &str, traces: &[Value], totals: &Totals) -> Vec<String> {
    let its = traces
        .iter()
        .filter(|trace| root_of(trace).is_some_and(|root| is_of(container, root)));
    let mut counted = Counted::default();
    its.for_each(|trace| counted.add(trace));
    let lost = totals.lost();
    eprintln!(
        "{container}: the clients were answered {} times, refused {}, reset {}, cut {}; reported: {counted:?}",
        totals.ok, totals.refused, totals.reset, totals.cut
    );
    let slack = SLACK.max(lost / 20);
    let mut problems = Vec::new();
    if lost == 0 || totals.ok == 0 {
        problems.push(format!("nothing was lost, or nothing answered: {totals:?}"));
    }
    let is_more = counted.connections > lost + slack;
    let is_less = counted.connections + slack < lost && !counted.is_least;
    if is_more || is_less || counted.connections == 0 {
        problems.push(format!(
            "the clients of {container} lost {lost}, and the agent reports {counted:?}"
        ));
    }
    problems
}

#[derive(Debug, Default)]
struct Counted {
    connections: u64,
    /// The sockets were not observed for the whole time.
    is_least: bool,
}

impl Counted {
    fn add(&mut self, trace: &Value) {
        let Some(root) = root_of(trace) else { return };
        let is_observed = tag(root, "epitaph.connections.observed") == true;
        self.is_least |= !is_observed;
        for what in ["refused", "reset", "cut"] {
            let key = format!("epitaph.connections.{what}");
            let spans = trace["spans"].as_array().into_iter().flatten();
            // A count that may not be whole is on its span alone.
            let seen = spans
                .filter(|span| span["operationName"] == format!("{what} connections"))
                .find_map(|span| tag(span, &key).as_u64());
            self.connections += tag(root, &key).as_u64().or(seen).unwrap_or(0);
        }
    }
}

fn is_as_expected(of: &Beside, root: &Value) -> bool {
    let sentence = text(&tag(root, "epitaph.sentence"));
    is_of(of.container, root)
        && tag(root, "epitaph.verdict") == of.verdict
        && tag(root, "epitaph.cause") == of.cause
        && of.sentence.iter().all(|words| sentence.contains(words))
}

fn is_of(container: &str, root: &Value) -> bool {
    tag(root, "k8s.container.name") == container
}

/// Of a container that terminated alone.
fn root_of(trace: &Value) -> Option<&Value> {
    match roots(trace)[..] {
        [root] if kind_of(root) == "container.stop" => Some(root),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SETUP: Beside = Beside {
        container: "setup",
        verdict: "clean",
        cause: "completed",
        sentence: &["code 0"],
    };

    fn trace(container: &str, tags: &Value) -> Value {
        let mut all = vec![
            json!({"key": "k8s.container.name", "value": container}),
            json!({"key": "epitaph.verdict", "value": "clean"}),
            json!({"key": "epitaph.cause", "value": "completed"}),
            json!({"key": "epitaph.sentence", "value": "exited with code 0"}),
        ];
        let more = tags.as_object().into_iter().flatten();
        all.extend(more.map(|(key, value)| json!({"key": key, "value": value})));
        json!({"spans": [{"operationName": "container.stop clean", "references": [], "tags": all}]})
    }

    #[test]
    fn each_life_has_one_trace() {
        let of = |name: &str| trace(name, &json!({}));
        let problems = |traces: &[Value]| differs_beside(&[SETUP, SETUP], traces).len();
        assert_eq!(problems(&[of("setup"), of("setup")]), 0);
        assert_eq!(problems(&[of("setup")]), 1, "a life is missing");
        assert_eq!(
            problems(&[of("setup"), of("setup"), of("setup")]),
            1,
            "a life is reported twice"
        );
        let other = Beside {
            cause: "restart-in-place",
            ..SETUP
        };
        assert_eq!(differs_beside(&[other], &[of("setup")]).len(), 2, "another cause");
        assert!(is_beside(&[SETUP], &of("setup")) && !is_beside(&[SETUP], &of("app")));
    }

    #[test]
    fn counts_are_compared_with_the_clients_own() {
        let totals = |refused: u64| Totals {
            ok: 100,
            refused,
            ..Totals::default()
        };
        let of = |observed: bool, refused: u64| {
            let mut tags = json!({"epitaph.connections.refused": refused});
            if observed {
                tags["epitaph.connections.observed"] = json!(true);
            }
            trace("web", &tags)
        };
        let problems = |trace: Value, lost: u64| differs_from_clients("web", &[trace], &totals(lost)).len();
        assert_eq!(problems(of(true, 40), 42), 0);
        assert_eq!(problems(of(true, 30), 42), 1, "too few");
        assert_eq!(problems(of(false, 30), 42), 0, "at least");
        assert_eq!(problems(of(false, 50), 42), 1, "too many");
        assert_eq!(problems(of(false, 0), 42), 1, "none");
        assert_eq!(problems(of(true, 0), 0), 2, "nothing was lost");
    }
}
