//! Text timelines, through the core to spans.

use std::time::Duration;

use epitaph_core::fixtures::script::play;
use epitaph_core::fixtures::terminations::observation;
use epitaph_core::report::Report;
use expect_test::expect;
use opentelemetry::Value;
use opentelemetry::trace::SpanId;

use super::text_of;
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
fn a_wait_with_its_end_before_its_begin_has_the_least_length_and_an_attribute() {
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
    assert_eq!(
        span.end_time.duration_since(span.start_time).ok(),
        Some(Duration::from_nanos(1))
    );
    let apart = span.attributes.iter().find(|a| a.key.as_str() == key::ENDED_BEFORE_BEGIN);
    assert_eq!(apart.map(|a| a.value.clone()), Some(Value::F64(0.5)));
}

/// `tini` forwards the signal to an application that handles it, and to a helper that ignores it until its SIGKILL.
#[test]
fn a_forwarded_stop_signal_has_a_span_for_each_process_that_got_it() {
    let script = "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=tini
        proc python in=app pid=107 ns=7 start=+0.1 parent=main comm=python3
        proc helper in=app pid=108 ns=8 start=+0.1 parent=main comm=helper
        +0.001 exec main
        +0.1 exec python
        +0.1 exec helper
        +1 TERM runc -> main default sigwait armed
        +1.001 TERM main -> python handler already-armed
        +1.002 enter python TERM
        +1.003 TERM main -> helper ignored ignore already-armed
        +1.5 exit python 0
        +11 KILL runc -> main waiting=none already-armed
        +11.001 exit main KILL
        +11.0011 KILL main -> helper kernel waiting=none already-armed
        +11.002 exit helper KILL
    ";
    let ended = play(script).into_iter().find_map(|(_, output)| match output {
        Report::Terminated(of) => Some(of),
        _ => None,
    });
    let ended = ended.expect("a termination");
    let trace = trace(&ended, &observation(), &Options::default());
    let all = text_of(&trace, ended.begin, true);
    let forwarded = all.find("forwarded SIGTERM < container.stop").expect("a span");
    expect![[r#"
        forwarded SIGTERM < container.stop ignored-stop-signal: 1..500 Unset
          process.pid=107
          process.executable.name=python3
          process.exit.code=0
          epitaph.stop.result=delivered
          epitaph.stop.disposition=handler
          epitaph.stop.sender.pid=100
          epitaph.stop.sender.comm=tini
          @2 handler.entered 
        forwarded SIGTERM < container.stop ignored-stop-signal: 3..10002 Unset
          process.pid=108
          process.executable.name=helper
          epitaph.status.signal=SIGKILL
          epitaph.stop.result=ignored
          epitaph.stop.disposition=ignore
          epitaph.stop.sender.pid=100
          epitaph.stop.sender.comm=tini
          @3 stop-signal-ignored 
          @10001 SIGKILL 
    "#]]
    .assert_eq(&all[forwarded..]);
    let shown = trace.spans[0].attributes.iter().any(|a| a.key.as_str() == key::EVIDENCE);
    assert!(!shown, "each line of evidence is a span, an event or an attribute");
}
