//! Evidence that the rest of the trace shows is not exported again.

use std::sync::Arc;

use epitaph_core::event::Kind;
use epitaph_core::fixtures::pods;
use epitaph_core::fixtures::terminations::{ignored, ms, observation, oom};
use epitaph_core::report::Termination;
use epitaph_core::time::Boot;
use epitaph_core::verdict::{Evidence, Source};

use crate::render::attributes::key;
use crate::render::span::{Options, Trace, pod_trace, trace};

/// The signal of a crash: no attribute has its sender.
pub(super) fn fault(at: Boot) -> Evidence {
    line(at, Kind::SignalGenerate, "SIGSEGV from `sh` (sent by the kernel)")
}

fn line(at: Boot, source: impl Into<Source>, text: &str) -> Evidence {
    Evidence {
        at,
        source: source.into(),
        text: text.into(),
    }
}

/// The evidence on each span, its list as text.
fn on(trace: &Trace) -> Vec<String> {
    let spans = trace.spans.iter();
    let found = spans.flat_map(|span| span.attributes.iter().filter(|a| a.key.as_str() == key::EVIDENCE));
    found.map(|a| a.value.to_string()).collect()
}

fn alone(t: &Termination) -> Vec<String> {
    on(&trace(t, &observation(), &Options::default()))
}

#[test]
fn evidence_in_attributes_and_events_is_left_out() {
    assert_eq!(ignored(8).verdict.evidence.len(), 2);
    assert_eq!(alone(&ignored(8)), [""; 0], "the stop signal and the kill");
    let mut t = ignored(8);
    t.verdict.evidence = vec![
        line(ms(40), Kind::Tcp, "the listener"),
        line(ms(41), Kind::Tcp, "the first refused connection"),
        line(ms(30_002), Kind::Tcp, "closed idle"),
        line(ms(30_002), Kind::ProcessExit, "the exit"),
    ];
    assert_eq!(alone(&t), [""; 0]);
    let mut t = oom(9);
    t.verdict.evidence = vec![line(ms(0), Kind::OomVictim, "the OOM kill")];
    assert_eq!(alone(&t), [""; 0]);
}

#[test]
fn evidence_without_an_attribute_is_exported() {
    let mut t = ignored(8);
    t.verdict.evidence.push(fault(ms(29_000)));
    assert_eq!(
        alone(&t),
        [r#"["+29000.000 ms signal_generate: SIGSEGV from `sh` (sent by the kernel)"]"#]
    );
    // The count of idle connections is an attribute only if sockets were observed.
    t.verdict.evidence = vec![line(ms(30_002), Kind::Tcp, "closed idle")];
    t.facts.traffic.observed = false;
    assert_eq!(alone(&t).len(), 1);
    t.verdict.evidence = vec![line(ms(0), Kind::ProcessExec, "of a kind without an attribute")];
    assert_eq!(alone(&t).len(), 1);
}

/// The shortened grace is an event of the root, which an agent that stops early does not export.
#[test]
fn evidence_of_the_root_is_exported_without_a_root() {
    let mut pod = pods::pod(8);
    let [app, _] = &mut pod.containers[..] else {
        panic!("two containers")
    };
    let request = Arc::make_mut(app.kubernetes.as_mut().expect("a pod's")).request.clone();
    let request = request.expect("a request");
    app.verdict.evidence = vec![
        line(request.latest, Source::Kubernetes, "deletion requested"),
        line(request.shortened[0].0, Source::Kubernetes, "shortened"),
        line(app.end, Source::Kubernetes, "reported"),
    ];
    let app = app.clone();
    assert_eq!(on(&pod_trace(&pod, &observation(), &Options::default())), [""; 0]);
    assert_eq!(alone(&app), [r#"["+100.000 ms kubernetes: shortened"]"#]);
}
