//! Text timelines, through the core to spans.

use epitaph_core::fixtures::script::play;
use epitaph_core::fixtures::terminations::observation;
use epitaph_core::report::Report;
use opentelemetry::Value;
use opentelemetry::trace::SpanId;

use crate::render::attributes::key;
use crate::render::span::{Options, pod_trace, trace};

const WEB: &str = "
    -60 api synced
    pod web app app.prestop=http
    -60 mkdir web:pause
    proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
    -60 exec pause
    -59 mkdir web:app
    proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
    -59 exec main
    -58 pod web app=running
";

#[test]
fn a_container_that_terminates_alone_has_its_own_trace() {
    let script = format!(
        "{WEB}
        +1 KILL main -> main kernel
        +1.0001 oom main
        +1.01 exit main KILL
        +2 pod web app.last=web:app:137:OOMKilled app.restarts=1 app.id=web:app:2 app=running
        "
    );
    let ended = play(&script).into_iter().find_map(|(_, output)| match output {
        Report::Terminated(of) => Some(of),
        _ => None,
    });
    let spans = trace(&ended.expect("a termination"), &observation(), &Options::default()).spans;
    let (root, rest) = spans.split_first().expect("a root");
    assert_eq!(
        (root.name.as_ref(), root.parent_span_id),
        ("container.stop oom-killed", SpanId::INVALID)
    );
    assert!(rest.iter().all(|span| span.parent_span_id == root.span_context.span_id()));
}

/// The begin of a wait without an observed process is known to a second only; here the request was seen late.
#[test]
fn a_wait_with_its_end_before_its_begin_has_no_length_and_an_attribute() {
    let script = format!(
        "{WEB}
        +0 skew -10 10
        +1.4 TERM runc -> main handler
        +1.41 enter main TERM
        +1.6 exit main 0
        +1.9 pod web deleted=+1:30
        +2.5 pod web app=0:Completed
        +3 gone web
        "
    );
    let ended = play(&script).into_iter().find_map(|(_, output)| match output {
        Report::PodTerminated(pod) => Some(pod),
        _ => None,
    });
    let spans = pod_trace(&ended.expect("a pod's end"), &observation(), &Options::default()).spans;
    let span = spans.iter().find(|span| span.name == "preStop").expect("a hook");
    assert_eq!(span.start_time, span.end_time);
    let apart = span.attributes.iter().find(|a| a.key.as_str() == key::ENDED_BEFORE_BEGIN);
    assert_eq!(apart.map(|a| a.value.clone()), Some(Value::F64(0.5)));
}
