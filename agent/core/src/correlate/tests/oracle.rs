//! The oracle of doubt: a hole allows records of its kind at each place in the order. Such records are put into a history, and lost: of the
//! rest, the verdict is that of the whole history, or less certain. So no list of what a verdict rests on can lack a kind.
//!
//! Only what a kernel and one runtime could have done: no second stop, no SIGKILL before the one that ended the process, no handler's entry
//! without a signal.

use std::time::Duration;

use super::pods::properties::ends;
use super::properties::deaths;
use crate::fixtures::monotone::Rule;
use crate::fixtures::script;
use crate::time::Boot;

/// Of each kind whose loss can change a verdict, by each party: the lines of a script behind their time. `BY` stands for the runtime or
/// systemd, `HOME` for the cgroup.
const RECORDS: [&[&str]; 12] = [
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
