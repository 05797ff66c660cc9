//! Text timelines of the node's shutdowns: one for each verdict, and the case next to it that must not be confused.

mod clients;
mod kubelet;
mod less_evidence;
mod next_boot;
mod pods;
mod proof;
pub mod properties;
mod signs;
mod stayed_ready;
pub mod swept;

use std::fmt::Write;

use expect_test::Expect;

use super::pods::at;
use crate::fixtures::script::{Played, play_all};
use crate::report::{NodeShutdown, Report};

/// logind is observed, the kubelet has two phases and its lock; two pods run, one of them critical.
const NODE: &str = "
    -90 node bus connected
    -90 node limit 60
    -90 node locks kubelet:delay:812 epitaph:delay:900
    -90 node kubelet 60 20
    -60 api synced
    pod web priority=0 grace=30 app
    pod dns priority=2000000000 grace=30 dns
    -60 mkdir web:pause
    proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
    -60 exec pause
    -59 mkdir web:app
    proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
    -59 exec main
    -59 mkdir dns:dns
    proc dns in=dns:dns pid=110 ns=1 start=-59 parent=shim comm=dns
    -59 exec dns
    -58 pod web app=running
    -58 pod dns dns=running
    ";

/// The pods end in their phases, and the kubelet lets go of its lock.
const ORDERLY: &str = "
    +1 node prepare true reboot
    +1.1 TERM runc -> main handler
    +1.11 enter main TERM
    +9 exit main 0
    +9.1 rmdir web:app
    +9.5 pod web phase=failed reason=Terminated app=0:Completed
    +10 TERM runc -> dns handler
    +10.01 enter dns TERM
    +12 exit dns 0
    +12.1 rmdir dns:dns
    +12.5 pod dns phase=failed reason=Terminated dns=0:Completed
    +13 node locks epitaph:delay:900
    +13.2 node locks
    +13.3 node job reboot.target
    +13.3 node state stopping
    ";

/// The first phase kills `app` before its grace period of 120 s is over. `options`: further words of the pod's line; `before_stop`: a
/// line before the stop signal.
fn cut_by_a_phase(options: &str, before_stop: &str) -> String {
    node(&format!(
        "
        pod web priority=0 grace=120 {options} app
        -1 pod web app=running
        +1 node prepare true reboot
        {before_stop}
        +1.1 TERM runc -> main handler
        +1.11 enter main TERM
        +41.1 KILL runc -> main
        +41.11 exit main KILL
        +41.2 rmdir web:app
        +42 TERM runc -> dns handler
        +42.01 enter dns TERM
        +43 exit dns 0
        +44 node locks
        +44.1 node job reboot.target
        +47 node agent-ends
        +60 end
        "
    ))
}

fn node(rest: &str) -> String {
    format!("{NODE}{rest}")
}

/// The same, observed again after a gap: the first begin stands in the script, too.
fn gap(rest: &str) -> String {
    format!("-100 start{NODE}{rest}")
}

/// The node's reports, and the terminations of pods with their cause.
fn check(script: &str, expect: Expect) {
    expect.assert_eq(&show(&play_all(script)));
}

fn show(played: &Played) -> String {
    let mut lines: Vec<(crate::time::Boot, String)> = Vec::new();
    for (now, report) in &played.reports {
        let mut text = String::new();
        match report {
            Report::NodeShutdown(of) => shutdown(&mut text, of),
            Report::NodeDown(of) => writeln!(
                text,
                "down {}…{} of {}{}",
                at(of.begin),
                at(of.end),
                of.key.ordinal,
                if of.is_soft { ", soft" } else { "" }
            )
            .expect("a string"),
            Report::PodTerminated(of) => {
                let by = of
                    .shutdown
                    .as_ref()
                    .map(|by| format!(", by {} {}", by.key.ordinal, by.evidence));
                let v = &of.verdict;
                writeln!(
                    text,
                    "pod {} {}: {:?}{}",
                    of.pod.name,
                    v.headline,
                    v.cause,
                    by.unwrap_or_default()
                )
                .expect("a string");
                writeln!(text, "  {}", v.sentence).expect("a string");
            }
            Report::Terminated(of) => {
                let by = of
                    .shutdown
                    .as_ref()
                    .map(|by| format!(", by {} {}", by.key.ordinal, by.evidence));
                let v = &of.verdict;
                writeln!(text, "{} {}: {:?}{}", of.subject, v.headline, v.cause, by.unwrap_or_default()).expect("a string");
                writeln!(text, "  {}", v.sentence).expect("a string");
            }
            Report::Stuck(_) => writeln!(text, "stuck").expect("a string"),
            _ => continue,
        }
        lines.push((*now, text));
    }
    lines.sort_by_key(|(now, _)| *now);
    lines.into_iter().map(|(now, text)| format!("{} {text}", at(now))).collect()
}

fn shutdown(text: &mut String, of: &NodeShutdown) {
    let v = &of.verdict;
    writeln!(
        text,
        "node {} {:?} {}…{} {}{} {:?}",
        of.key.ordinal,
        v.severity,
        at(of.begin),
        at(of.end),
        v.headline,
        if v.unclean { " UNCLEAN" } else { "" },
        of.ending
    )
    .expect("a string");
    writeln!(text, "  {}", v.sentence).expect("a string");
    if let Some(remedy) = &v.remedy {
        writeln!(text, "  fix: {remedy}").expect("a string");
    }
}

/// The verdicts on the node's shutdowns.
fn verdicts(script: &str) -> Vec<&'static str> {
    let of = |(_, report): &(crate::time::Boot, Report)| match report {
        Report::NodeShutdown(of) => Some(of.verdict.headline),
        _ => None,
    };
    play_all(script).reports.iter().filter_map(of).collect()
}
