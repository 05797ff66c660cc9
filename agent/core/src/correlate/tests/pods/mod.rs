//! Text timelines of the kernel and of the Kubernetes API, joined.

mod bad_days;
mod deletions;
mod events;
mod first_contact;
mod forgeries;
mod graces;
mod hooks;
mod in_place;
mod in_place_order;
mod lingering;
mod lost;
mod oom_roles;
mod outages;
mod overlaps;
mod own_time;
mod places;
pub(super) mod properties;
mod restarts;
mod senders;
mod sockets;
mod statuses;

use std::fmt::Write;

use expect_test::Expect;

use crate::fixtures::script::{ZERO, play as run};
use crate::kubernetes::{PodContext, Request};
use crate::report::{Report, Termination};
use crate::time::Boot;

/// A pod with its sandbox and one container, running since a minute.
const WEB: &str = "
    -60 api synced
    pod web app
    -60 mkdir web:pause
    proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
    -60 exec pause
    -59 mkdir web:app
    proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
    -59 exec main
    -58 pod web app=running
";

pub(super) fn web(rest: &str) -> String {
    format!("{WEB}{rest}")
}

fn check(script: &str, expect: Expect) {
    expect.assert_eq(&show(&run(script)));
}

/// The sentences of the terminations.
fn check_sentences(script: &str, expect: Expect) {
    expect.assert_eq(&sentences(script));
}

fn sentences(script: &str) -> String {
    let verdicts = run(script).into_iter().filter_map(|(_, output)| match output {
        Report::Terminated(of) => Some(of.verdict),
        Report::Stuck(of) => Some(of.verdict),
        Report::PodTerminated(pod) => Some(pod.verdict),
        _ => None,
    });
    let lines: Vec<String> = verdicts.map(|v| format!("{}\n", v.sentence)).collect();
    lines.concat()
}

fn show(outputs: &[(Boot, Report)]) -> String {
    let mut text = String::new();
    for (now, output) in outputs {
        let now = at(*now);
        match output {
            Report::PodTerminated(pod) => {
                let v = &pod.verdict;
                let asked = pod.stop_reason.as_ref().map_or("nobody asked", |asked| &asked.evidence);
                writeln!(
                    text,
                    "{now} pod {} {}…{} {}: {:?}/{:?}/{:?} ({asked})",
                    pod.pod.name,
                    at(pod.begin),
                    at(pod.end),
                    v.headline,
                    v.cause,
                    v.exit,
                    v.traffic
                )
                .expect("a string");
                if let Some(request) = &pod.request {
                    writeln!(text, "  {}", request_line(request)).expect("a string");
                }
                pod.containers.iter().for_each(|of| container(&mut text, "  ", of));
                for (name, reported) in &pod.unseen {
                    writeln!(text, "  unseen {name} {reported:?}").expect("a string");
                }
                if let Some((seen, watched)) = pod.gone {
                    writeln!(text, "  gone {}{}", at(seen), if watched { "" } else { " (relist)" }).expect("a string");
                }
            }
            Report::Terminated(of) => container(&mut text, &format!("{now} "), of),
            Report::Stuck(of) => writeln!(text, "{now} {}: {}", of.verdict.headline, of.verdict.sentence).expect("a string"),
            Report::StopSignalIgnored(early) => {
                let left = early.grace_left.map(|left| format!(", {:.1} s left", left.as_secs_f64()));
                writeln!(text, "{now} early: {}{}", early.sentence, left.unwrap_or_default()).expect("a string");
            }
            Report::Dropped { reason, count } => writeln!(text, "{now} dropped {}: {count}", reason.name()).expect("a string"),
            Report::OptedOut { count } => writeln!(text, "{now} opted out: {count}").expect("a string"),
            Report::ChildOomKilled { oom, .. } => writeln!(text, "{now} child oom: {}", oom.comm).expect("a string"),
            // In `lingering`.
            Report::PodHeld(_) => {}
            Report::Workload(_) | Report::WorkloadGone(_) | Report::NodeShutdown(_) | Report::NodeDown(_) => {}
        }
    }
    text
}

fn container(text: &mut String, lead: &str, of: &Termination) {
    let v = &of.verdict;
    let name = match of.kubernetes.as_deref() {
        Some(PodContext {
            container: Some(name),
            pod,
            ..
        }) => format!("{}/{name}", pod.name),
        Some(PodContext { pod, .. }) => format!("{}/?", pod.name),
        None => "?".to_owned(),
    };
    let axes = format!("{}: {:?}/{:?}/{:?}", v.headline, v.cause, v.exit, v.traffic);
    let left = if of.of_ending_pod { ", in its pod's trace" } else { "" };
    let seen = if of.is_still_ending() { ", still ending" } else { "" };
    writeln!(text, "{lead}{name} {}…{} {axes}{left}{seen}", at(of.begin), at(of.end)).expect("a string");
    let Some(context) = of.kubernetes.as_deref() else { return };
    let indent = if lead == "  " { "    " } else { "  " };
    let mut said = Vec::new();
    said.extend(
        context
            .stop_reason
            .as_ref()
            .map(|asked| format!("{:?}: {}", asked.cause, asked.evidence)),
    );
    said.extend(context.grace.map(|grace| format!("grace {} s", grace.as_secs())));
    if context.restarts > 0 {
        said.push(format!("restarts {}", context.restarts));
    }
    said.extend(context.mains_ended().map(|ended| format!("mains ended {}", at(ended))));
    said.extend(context.reported.as_ref().map(|of| {
        let reason = of.reason.as_deref().unwrap_or("no reason");
        format!("reported {} {reason}", of.exit_code)
    }));
    if !said.is_empty() {
        writeln!(text, "{indent}{}", said.join(", ")).expect("a string");
    }
    if let Some(hook) = &context.pre_stop {
        let time = |at_time: Option<Boot>| at_time.map_or("?".to_owned(), at);
        let status = hook.status.map_or(String::new(), |status| format!(" {status:?}"));
        let failed = hook
            .failed
            .as_ref()
            .map_or(String::new(), |message| format!(" failed: {message}"));
        let seen = if hook.seen { "" } else { " not seen" };
        let (begin, end) = (time(hook.begin), time(hook.end));
        writeln!(text, "{indent}preStop {begin}…{end}{status}{seen}{failed}").expect("a string");
    }
    if let Some(incomplete) = &context.incomplete {
        writeln!(text, "{indent}incomplete: {incomplete}").expect("a string");
    }
}

fn request_line(request: &Request) -> String {
    let mut line = format!(
        "request {}…{} grace {} s",
        at(request.earliest),
        at(request.latest),
        request.grace.as_secs()
    );
    for (seen, grace) in &request.shortened {
        write!(line, ", {} to {} s", at(*seen), grace.as_secs()).expect("a string");
    }
    line
}

pub(super) fn at(at: Boot) -> String {
    let after = at.0 as f64 - ZERO.0 as f64;
    format!("{:+.3}", after / 1e9)
}
