mod dangers;
mod doubles;
mod election;
mod endpoints;
mod kubelets_word;
mod losses;
mod nodes;
mod replacements;
mod script;
mod shutting_down;

use std::fmt::Write as _;

use script::{ZERO, parse};

use super::{Ask, EndpointRemoval, Moment, Observer, ObserverLimits, Output, Replacement};
use crate::pod::ApiClock;
use crate::time::Boot;

const LIMITS: ObserverLimits = ObserverLimits {
    pods: 12,
    endpoints: 12,
    vacancies: 4,
    nodes: 4,
    lost_pods: 10,
    stuck_after: std::time::Duration::from_secs(60),
};

/// Plays a script and shows each output with its time.
fn play(script: &str) -> String {
    let mut observer = Observer::new(LIMITS);
    let mut text = String::new();
    play_on(&mut observer, script, &mut text);
    text
}

/// A tick each `step` seconds.
fn ticks(seconds: std::ops::Range<u32>, step: usize) -> String {
    seconds.step_by(step).map(|at| format!("+{at} tick\n")).collect()
}

/// Outputs that begin with one of these words, without their sentences.
fn headlines(script: &str, words: &[&str]) -> String {
    let text = play(script);
    let about = |line: &&str| {
        let what = line.split_once(' ').map_or("", |(_, what)| what);
        line.starts_with(['+', '-']) && words.iter().any(|word| what.starts_with(word))
    };
    text.lines().filter(about).map(|line| format!("{line}\n")).collect()
}

fn play_on(observer: &mut Observer, script: &str, text: &mut String) {
    play_from(Boot(0), observer, script, text);
}

/// Shows the outputs from that time on.
fn play_from(since: Boot, observer: &mut Observer, script: &str, text: &mut String) {
    for (at, input) in parse(script) {
        for output in observer.handle(at, input).iter().filter(|_| at >= since) {
            let _ = writeln!(text, "{} {}", time(at), show(output));
        }
    }
}

fn check(script: &str, expected: expect_test::Expect) {
    expected.assert_eq(&play(script));
}

fn time(at: Boot) -> String {
    let millis = i128::from(at.0 / 1_000_000) - i128::from(ZERO.0 / 1_000_000);
    format!("{:+.1}", millis as f64 / 1000.0)
}

fn moment(moment: Moment) -> String {
    match moment.gap {
        Some(gap) => format!("{} (gap {:.1})", time(moment.at), gap.as_secs_f64()),
        None => time(moment.at),
    }
}

fn show(output: &Output) -> String {
    match output {
        Output::Dropped { reason, count } => format!("dropped {count} {}", reason.name()),
        Output::Removal(r) => removal(r),
        Output::Replacement(r) => replacement(r),
        Output::Ask(Ask::Renewal { node }) => format!("ask renewal {node}"),
        Output::Ask(Ask::Agent { node, .. }) => format!("ask agent {node}"),
        Output::Ask(Ask::Claim { volume }) => format!("ask claim {volume}"),
        lost => nodes::show(lost),
    }
}

fn removal(r: &EndpointRemoval) -> String {
    let mut text = format!(
        "removal {} of {} [{} {}]: {} → {}",
        r.pod.name,
        r.service,
        r.address_types.join(","),
        r.ports.join(","),
        moment(r.begin),
        moment(r.end)
    );
    for (name, at) in [
        ("terminating", r.terminating),
        ("not ready", r.not_ready),
        ("not serving", r.not_serving),
        ("all terminating", r.all_terminating),
    ] {
        if let Some(at) = at {
            let _ = write!(text, ", {name} {}", moment(at));
        }
    }
    let ready = r.ready_after_end();
    if ready > std::time::Duration::from_secs(1) {
        let _ = write!(text, ", ready for {:.1} s after the pod's end", ready.as_secs_f64());
    }
    if r.publish_not_ready {
        text += ", publishNotReadyAddresses";
    }
    if r.is_of_lost_node {
        text += ", of a lost node";
    }
    text + &clock(r.api_clock)
}

fn replacement(r: &Replacement) -> String {
    let mut text = format!(
        "{} replaces {} ({}): created {}",
        r.by.name,
        r.pod.name,
        r.rule.name(),
        moment(r.created)
    );
    let attached = r.attached.map(|at| ("attached", Some(at)));
    let steps = [("scheduled", r.scheduled)].into_iter().chain(attached);
    for (name, at) in steps.chain([("ready", r.ready)]) {
        match at {
            Some(at) => write!(text, ", {name} {}", moment(at)),
            None => write!(text, ", never {name}"),
        }
        .expect("a String takes it");
    }
    if r.ready != Some(r.end) {
        let _ = write!(text, ", end {}", moment(r.end));
    }
    if r.is_of_lost_node {
        text += ", of a lost node";
    }
    text + &clock(r.api_clock)
}

fn clock(clock: Option<ApiClock>) -> String {
    clock.map_or_else(String::new, |ApiClock { earliest, latest }| {
        format!(", the API's clock {:+}..{:+} ms", earliest / 1_000_000, latest / 1_000_000)
    })
}
