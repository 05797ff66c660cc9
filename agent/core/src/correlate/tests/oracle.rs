//! The oracle of doubt: a hole allows records of its kind at each place in the order. Such records are put into a history, and lost: of the
//! rest, the verdict is that of the whole history, or less certain. So no list of what a verdict rests on can lack a kind.
//!
//! Only what a kernel and one runtime could have done: no second stop, no SIGKILL before the one that ended the process, no handler's entry
//! without a signal.

use std::time::Duration;

use super::pods::properties::ends;
use super::pods::web;
use super::properties::deaths;
use super::{container, unit};
use crate::correlate::Limits;
use crate::fixtures::monotone::Rule;
use crate::fixtures::script;
use crate::time::Boot;

/// Of each kind whose loss can change a verdict, by each party: the lines of a script behind their time. `BY` stands for the runtime or
/// systemd, `HOME` for the cgroup.
const RECORDS: [&[&str]; 13] = [
    &["TERM BY -> main handler", "enter main TERM"],
    &["TERM BY -> main ignored default"],
    &["TERM bash -> main handler", "enter main TERM"],
    &["TERM main -> helper default already-armed", "exit helper TERM"],
    &[
        "TERM main -> helper handler already-armed",
        "enter helper TERM",
        "KILL main -> helper",
        "exit helper KILL",
    ],
    &["oom helper", "exit helper KILL"],
    &["exec probe", "oom probe", "exit probe KILL"],
    &["exit helper SEGV listening serving"],
    &["exit helper 3 listening looked"],
    &["KILL bash -> helper already-armed", "exit helper KILL serving"],
    &["KILL bash -> helper unarmed", "exit helper KILL by-own listening"],
    &["tcp HOME closed 80", "tcp HOME refused 80 5009"],
    &["tcp HOME reset 80 5010"],
];

/// The main process has executed its program.
const BEGIN: f64 = 0.002;

#[test]
fn what_a_hole_allows_makes_no_verdict_cleaner_and_blames_no_other() {
    check(deaths());
}

#[test]
fn what_a_hole_allows_makes_no_pods_verdict_cleaner_and_blames_no_other() {
    check(ends());
}

/// Found by a reader: the script behind its begin, and when its record is lost, or nobody observes.
#[test]
fn histories_that_broke_the_rule() {
    let of_pods = [
        // The exit of a killed process is late, and the stop signal of as long ago is not over.
        (
            "+1.05 pod web deleted=+1:30\n+1.3 TERM runc -> main handler\n+1.31 enter main TERM\n+31.3 KILL runc -> main\n+660 exit main KILL",
            1.3,
        ),
        // Another party's signal is not the one that a deletion asked for.
        (
            "+1.05 pod web deleted=+1:30\n+1.3 TERM runc -> main handler\n+1.31 enter main TERM\n+5 TERM bash -> main handler
            +31.3 KILL runc -> main\n+31.31 exit main KILL",
            1.3,
        ),
        (
            "+1.3 TERM runc -> main handler\n+1.31 enter main TERM\n+3 TERM bash -> main handler\n+5.05 pod web deleted=+5:30\n+7 exit main 0",
            1.3,
        ),
        // A code that is expected, or for which a rule restarts the container, leaves the end of a program below what it was.
        (
            "pod web expect=3 app\n-58 pod web app=running\nproc helper in=web:app pid=130 ns=9 start=+0 parent=main comm=helper
            +1 oom helper\n+1.001 exit helper KILL\n+1.2 exit main 3",
            1.0,
        ),
        (
            "pod web expect=3 app\n-58 pod web app=running\nproc helper in=web:app pid=130 ns=9 start=+0 parent=main comm=helper
            +1 KILL bash -> helper already-armed\n+1.001 exit helper KILL serving\n+1.2 exit main 3",
            1.0,
        ),
        (
            "pod web app app.rule=restart:3\n-58 pod web app=running\nproc helper in=web:app pid=130 ns=9 start=+0 parent=main comm=helper
            +1 KILL bash -> helper already-armed\n+1.001 exit helper KILL serving\n+1.2 exit main 3",
            1.0,
        ),
        // A hook, a forced deletion, or the main containers took the time, unless a process below is at fault.
        (
            "pod web app app.prestop=exec:/bin/hook\n-58 pod web app=running\nproc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=hook
            proc helper in=web:app pid=131 ns=9 start=+0 parent=main comm=helper\n+1.05 pod web deleted=+1:8\n+1.12 exec hook
            +9.3 TERM runc -> main handler\n+9.31 enter main TERM\n+9.32 TERM main -> helper ignored default
            +11.4 KILL runc -> main\n+11.41 exit main KILL\n+11.42 exit hook KILL\n+12 pod web app=137:Error\n+13 gone web",
            9.32,
        ),
        (
            "-10 skew 0 10\nproc helper in=web:app pid=131 ns=9 start=+0 parent=main comm=helper\n+1.05 pod web deleted=+1:30
            +2 TERM runc -> main handler\n+2.01 enter main TERM\n+2.02 TERM main -> helper ignored default\n+5.05 pod web deleted=+5:0
            +6 KILL runc -> main\n+6.01 exit main KILL\n+7 gone web",
            2.02,
        ),
        (
            "pod web grace=8 app log:sidecar\n-57 mkdir web:log\nproc log in=web:log pid=110 ns=1 start=-57 parent=shim comm=log\n-57 exec log
            proc helper in=web:log pid=131 ns=9 start=+0 parent=log comm=helper\n-56 pod web app=running log=running
            +1.05 pod web deleted=+1:8\n+1.2 TERM runc -> main handler\n+1.21 enter main TERM\n+9.3 TERM runc -> log handler
            +9.31 enter log TERM\n+9.32 TERM log -> helper ignored default\n+9.9 KILL runc -> main\n+9.91 exit main KILL
            +11.5 KILL runc -> log\n+11.51 exit log KILL\n+12 pod web app=137:Error log=137:Error\n+13 gone web",
            9.32,
        ),
        // What the kubelet does to a container that another party has stopped.
        (
            "+1.3 TERM runc -> main handler\n+1.31 enter main TERM\n+5.1 event web app Killing at=+5 Container app failed liveness probe, will be restarted
            +7 exit main 0\n+7.5 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running\n+7.6 events web known",
            1.3,
        ),
        // The deletion's own grace period is not that of an earlier stop that was not observed.
        (
            "pod web grace=3600 app\n-58 pod web app=running\n-10 skew 0 10\nproc probe in=web:app pid=991 ns=10 start=+5.9 parent=shim comm=probe
            +5 TERM runc -> main handler\n+6 exec probe\n+6.1 exit probe 0\n+100.05 pod web deleted=+100:1\n+101 exit main 0",
            5.0,
        ),
    ];
    // Clients count from the stop signal on, as long ago as it was.
    let of_none =
        "+1 TERM runc -> main handler armed\n+1.001 enter main TERM\n+2 tcp app closed 80\n+2.5 tcp app refused 80 5002
        +1500 exit main 0 armed";
    // What a handler did before it raised the signal again in vain.
    let work = [
        "tcp app closed 80",
        "exit helper 0",
        "TERM main -> helper handler already-armed",
    ];
    let raised = work.map(|work| {
        let rest = format!(
            "proc helper in=app pid=130 ns=9 start=+0 parent=main comm=helper
            +1 TERM runc -> main handler armed\n+1.001 enter main TERM\n+1.003 {work}
            +1.005 TERM main -> main ignored default thread already-armed\n+11 KILL runc -> main already-armed\n+11.001 exit main KILL"
        );
        (container(&rest), 1.003)
    });
    // Of a long grace period the stop signal may be long ago.
    let of_long_ago = "pod web grace=3600 app\n-58 pod web app=running\n-10 skew 0 10\n+1 TERM runc -> main handler
        +1500.05 pod web deleted=+1500:3600\n+1510 exit main 0";
    // What systemd ends after the main process, whose exit was not observed, is no main process.
    let left = "proc child in=web.service pid=201 start=+0.1 parent=main comm=child\n+1 TERM systemd -> main handler
        +1.001 enter main TERM\n+1.5 exit main 0\n+1.51 TERM systemd -> child default\n+1.511 exit child TERM\n+9 rmdir web.service";
    let scripts = of_pods.map(|(rest, lost)| (web(rest), lost));
    let of_one = [(container(of_none), 1.0), (unit(left), 1.5)];
    let scripts = scripts.into_iter().chain(of_one).chain(raised);
    let breaches: Vec<String> = scripts
        .chain([(web(of_long_ago), 1.0)])
        .flat_map(|(text, lost)| {
            let at = script::ZERO.plus(Duration::from_secs_f64(lost));
            let history = script::parse(&text).inputs;
            let rule = Rule::of(&history);
            let broken = [("", rule.lose(&[at])), ("GAP: ", rule.miss(&[at]))];
            broken.map(|(how, broken)| broken.err().map(|breach| format!("{how}{breach}\n{text}")))
        })
        .flatten()
        .collect();
    assert!(breaches.is_empty(), "{}", breaches.join("\n\n"));
}

/// A program's end before the stop, and more exits after it than are kept.
#[test]
fn exits_of_helpers_push_no_programs_end_out() {
    let rest = |served: &str| {
        let helpers = (0..6).map(|i| format!("proc h{i} in=app pid={} ns={} start=+0 parent=main comm=h\n", 140 + i, 20 + i));
        let ends = (0..6).map(|i| format!("+1.{} exit h{i} 0{served}\n", i + 1));
        format!(
            "proc helper in=app pid=130 ns=9 start=+0 parent=main comm=helper\n{}
            +1 KILL bash -> helper already-armed\n+1.001 exit helper KILL serving\n{}
            +2 TERM runc -> main handler armed\n+2.001 enter main TERM\n+2.1 exit main 0",
            helpers.collect::<String>(),
            ends.collect::<String>()
        )
    };
    let limits = Limits {
        facts: 4,
        ..Limits::default()
    };
    for served in ["", " serving"] {
        let text = container(&rest(served));
        assert_eq!(Rule::of(&script::parse(&text).inputs).limit(limits), Ok(()), "{text}");
    }
}

/// The same where the core has no memory for all of it: clients' connections take most.
#[test]
fn connections_squeeze_no_programs_end_out() {
    let clients = (0..200).map(|i| format!("+1.{:03} tcp app accepted 80 {}\n", 500 + i, 6_000 + i));
    let text = container(&format!(
        "proc helper in=app pid=130 ns=9 start=+0 parent=main comm=helper
        +1 TERM runc -> main handler armed\n+1.001 enter main TERM\n+1.2 KILL bash -> helper already-armed
        +1.201 exit helper KILL serving\n{}+2.1 exit main 0",
        clients.collect::<String>()
    ));
    let history = script::parse(&text).inputs;
    for memory in (24..40).map(|kib| kib << 10) {
        let limits = Limits {
            memory,
            ..Limits::default()
        };
        assert_eq!(Rule::of(&history).limit(limits), Ok(()), "{memory} bytes\n{text}");
    }
}

fn check(scripts: Vec<String>) {
    let with_all = |text: &String| RECORDS.map(|records| with_each(text, records)).concat();
    let breaches: Vec<String> = scripts.iter().flat_map(with_all).collect();
    assert!(breaches.is_empty(), "{} breaches\n{}", breaches.len(), breaches.join("\n\n"));
}

/// The breaches of those records, in each of the pauses between the records of the script: one of them is lost, or all.
fn with_each(text: &str, records: &[&str]) -> Vec<String> {
    let home = text.lines().find_map(|line| line.trim().strip_prefix("proc main in="));
    let home = home.and_then(|home| home.split(' ').next()).unwrap_or_default();
    let is_unit = home.ends_with(".service");
    let by = if is_unit { "systemd" } else { "runc" };
    let stop = format!(" {by} -> main");
    if text.contains(&stop) && records[0].contains("BY -> main") || is_unit && records[1..].join("").contains("probe") {
        return Vec::new();
    }
    let cast = [
        format!("proc helper in={home} pid=990 ns=9 start=+0.0004 parent=main comm=helper"),
        format!("proc probe in={home} pid=991 ns=10 start=+0.0004 parent=shim comm=probe"),
    ];
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // While the main process lives. What another party asks for, it asks for before the stop.
    let is_stop = |line: &String| records[0].contains("bash -> main") && line.contains(&stop);
    let is_last = |line: &String| is_stop(line) || line.contains(" exit main ");
    let until = lines.iter().position(is_last).unwrap_or(lines.len() - 1);
    let mut breaches = Vec::new();
    for (at, next) in lines[..=until].iter().enumerate() {
        let Some(time) = seconds(next).filter(|time| *time > BEGIN) else {
            continue;
        };
        let before = lines[..at].iter().filter_map(|line| seconds(line)).fold(BEGIN, f64::max);
        let step = (time - before) / (1 + records.len()) as f64;
        let times: Vec<f64> = (1..=records.len()).map(|i| before + step * i as f64).collect();
        let record = |(time, line): (&f64, &&str)| format!("+{time} {}", line.replace("BY", by).replace("HOME", home));
        let records: Vec<String> = times.iter().zip(records).map(record).collect();
        let script = [&lines[..at], &cast, &records, &lines[at..]].concat().join("\n");
        let history = script::parse(&script).inputs;
        let rule = Rule::of(&history);
        let times: Vec<Boot> = times
            .iter()
            .map(|time| script::ZERO.plus(Duration::from_secs_f64(*time)))
            .collect();
        for lost in times.chunks(1).chain([&times[..]]) {
            let broken = rule.lose(lost).err();
            breaches.extend(broken.map(|breach| format!("{}: {breach}\n{script}", records.join("; "))));
            let broken = rule.miss(lost).err();
            breaches.extend(broken.map(|breach| format!("{}; GAP: {breach}\n{script}", records.join("; "))));
        }
    }
    breaches
}

/// The time of a line.
fn seconds(line: &str) -> Option<f64> {
    line.trim().strip_prefix('+')?.split(' ').next()?.parse().ok()
}
