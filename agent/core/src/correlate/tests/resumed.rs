//! Terminations over a gap of the observation: a restart of the agent, a reboot of the node.

use std::collections::BTreeMap;
use std::time::Duration;

use expect_test::expect;

use super::*;
use crate::correlate::{Correlator, Keeper, Limits};
use crate::input::Observation;
use crate::render::id;
use crate::report::Report;
use crate::time::Boot;
use crate::verdict::Verdict;

/// Observed from before the container's begin, and again after a gap.
fn restarted(rest: &str) -> String {
    format!("-100 start\n{}", container(rest))
}

#[test]
fn an_exit_in_the_gap_is_reported_and_its_status_is_unknown() {
    check(
        &restarted(
            "
            +1 TERM runc -> main handler
            +1.001 enter main TERM
            +2 tick
            +6 start
            +6 scanned
            +20 tick
            ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              How PID 1 `app` terminated is unknown: the process exited within 4.0 s in which epitaph did not observe; SIGTERM had been sent before
              fix: look up the exit code in the log of the container runtime or systemd: epitaph was not running when the process exited
        "#]],
    );
}

/// A nested container has ended long before.
#[test]
fn an_exit_in_the_gap_is_not_that_of_a_nested_container() {
    check(
        &restarted(
            "
            proc box in=app pid=110 ns=1 level=2 start=+0.5 parent=main comm=box
            +0.51 exec box
            +1 exit box 0
            +4 TERM runc -> main default
            +4.02 start
            +4.02 scanned
            +4.02 rmdir app
            +20 tick
            ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              How PID 1 `app` terminated is unknown: the process exited within 20 ms in which epitaph did not observe; SIGTERM had been sent before
              fix: look up the exit code in the log of the container runtime or systemd: epitaph was not running when the process exited
        "#]],
    );
}

/// A scan takes a while; the journal of a predecessor may take half a minute before it.
#[test]
fn an_exit_in_the_gap_was_before_the_observation_began_again() {
    check(
        &restarted(
            "
            +1 TERM runc -> main handler
            +1.001 enter main TERM
            +2 tick
            +6 start
            +9 scanned
            +20 tick
            ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              How PID 1 `app` terminated is unknown: the process exited within 4.0 s in which epitaph did not observe; SIGTERM had been sent before
              fix: look up the exit code in the log of the container runtime or systemd: epitaph was not running when the process exited
        "#]],
    );
}

/// Killed while it took something else: kernel records that are as old as the last one taken may have waited.
#[test]
fn the_gap_begins_with_the_last_kernel_record_that_was_taken() {
    check(
        &restarted(
            "
            +1 TERM runc -> main handler
            +1.001 enter main TERM
            +2 skew -10 10
            +6 start
            +6 scanned
            +20 tick
            ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              How PID 1 `app` terminated is unknown: the process exited within 5.0 s in which epitaph did not observe; SIGTERM had been sent before
              fix: look up the exit code in the log of the container runtime or systemd: epitaph was not running when the process exited
        "#]],
    );
}

#[test]
fn a_container_that_is_still_there_goes_on() {
    check(
        &restarted(
            "
            +1 TERM runc -> main handler
            +2 tick
            +6 start
            +6 found main
            +6 scanned
            +31 KILL runc -> main
            +31.001 exit main KILL
            +31.1 rmdir app
            +40 tick
            ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` was terminated by SIGKILL, but the reason is unknown: epitaph did not observe for 4.0 s around that time
              fix: keep epitaph running without interruption: no evidence exists for the time in which it did not observe
        "#]],
    );
}

#[test]
fn an_exit_before_the_gap_is_judged_but_its_traffic_is_unknown() {
    check(
        &restarted(
            "
            +1 TERM runc -> main handler
            +1.001 enter main TERM
            +1.5 exit main 0
            +2 tick
            +6 start
            +6 scanned
            +20 tick
            ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later; the sockets of the container were not observed
        "#]],
    );
}

#[test]
fn an_exit_just_before_the_gap_may_lack_records_of_other_cpus() {
    check(
        &restarted(
            "
            +1 TERM runc -> main handler
            +1.001 enter main TERM
            +1.5 exit main 0
            +6 start
            +6 scanned
            +20 tick
            ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: epitaph did not observe for 4.4 s around that time
              fix: keep epitaph running without interruption: no evidence exists for the time in which it did not observe
        "#]],
    );
}

#[test]
fn the_node_goes_down_during_a_stop() {
    check(
        &container(
            "
            +1 TERM runc -> main handler
            +2.2 tick
            +60 reboot
            +80 tick
            ",
        ),
        expect![[r#"
            unknown: Stopped/Unknown/Unknown
              How PID 1 `app` terminated is unknown: the node went down 1.2 s after SIGTERM, and no exit was seen until then
              fix: look for the reason of the shutdown or crash in the log of the previous boot (`journalctl -b -1`)
        "#]],
    );
}

/// What the reports judge, by the trace.
fn judged(reports: &[Report], out: &mut BTreeMap<String, Verdict>) {
    for report in reports {
        match report {
            Report::Terminated(t) if !t.is_still_ending() => {
                out.insert(id::of(t).to_string(), t.verdict.clone());
            }
            Report::PodTerminated(p) => {
                out.insert(id::of_pod(&p.pod, &p.boot_id).to_string(), p.verdict.clone());
            }
            _ => {}
        }
    }
}

/// An agent is killed after any input, and its successor has what was kept: each termination that the first one had facts of is
/// reported, by the one or the other, and no verdict is cleaner than without the kill.
#[test]
fn a_core_with_what_was_kept_reports_what_the_killed_one_had_begun() {
    let mut broken = Vec::new();
    let mut resumed = 0;
    let ends = properties::deaths().into_iter().chain(pods::properties::ends());
    let histories = ends.map(|text| (text, true)).chain(whole().map(|text| (text, false)));
    for (text, may_lose_all) in histories {
        let inputs = script::parse(&text).inputs;
        let mut whole = BTreeMap::new();
        let mut core = Correlator::new(Limits::default());
        for (now, input) in &inputs {
            judged(&core.handle(*now, input.clone()).reports, &mut whole);
        }
        let last = inputs.last().map_or(Boot(0), |(now, _)| *now).plus(Duration::from_secs(120));
        judged(&core.handle(last, Input::Tick).reports, &mut whole);
        judged(&core.handle(last, Input::End).reports, &mut whole);
        // The journal's oldest segments are never removed, or halfway, or just before the kill.
        let cuts = (1..inputs.len()).flat_map(|kill| [None, Some(kill / 2), Some(kill - 1)].map(|removed| (removed, kill)));
        for (removed, kill) in cuts {
            // A limit: see `an_exit_that_went_with_the_oldest_segment_is_not_reported`.
            if removed == Some(kill - 1) && !may_lose_all {
                continue;
            }
            let (first, begun) = killed_after(&inputs[..kill], removed);
            let (kept, at) = first;
            let mut both = begun.reported.clone();
            let mut core = Correlator::new(Limits::default());
            for (now, input) in kept {
                let mut again = BTreeMap::new();
                judged(&core.handle(now, input).reports, &mut again);
                both.extend(again.into_iter().filter(|(id, _)| !begun.finished.contains(id)));
            }
            let since = at.plus(Duration::from_secs(5));
            let start = Observation {
                since,
                ..begun.observation.clone()
            };
            let mut rest = vec![(since, Input::Start(start)), (since, Input::Scanned)];
            rest.push((since.plus(Duration::from_secs(200)), Input::Tick));
            rest.push((since.plus(Duration::from_secs(201)), Input::End));
            for (now, input) in rest {
                let mut again = BTreeMap::new();
                judged(&core.handle(now, input).reports, &mut again);
                for (id, verdict) in again {
                    if begun.finished.contains(&id) {
                        continue;
                    }
                    resumed += 1;
                    if !verdict.unclean && verdict.headline == "clean" && whole.get(&id).is_none_or(|of| of.headline != "clean")
                    {
                        broken.push(format!("cut after {kill}, removed {removed:?}: {id} is clean\n{text}"));
                    }
                    // Without its pod's fact a container has a trace of its own.
                    let mut of_whole = whole.iter().filter(|(of, _)| **of == id || !whole.contains_key(&id));
                    // Its traffic in the gap is not known.
                    let is_as = |of: &str| of == verdict.headline || (of, verdict.headline) == ("clean", "clean-exit");
                    if verdict.headline != "unknown" && !of_whole.any(|(_, of)| is_as(of.headline)) {
                        broken.push(format!(
                            "cut after {kill}, removed {removed:?}: {id} is {}\n{text}",
                            verdict.headline
                        ));
                    }
                    both.insert(id, verdict);
                }
            }
            if !begun.open_is_reported(&both) {
                broken.push(format!(
                    "cut after {kill}, removed {removed:?}: a termination in progress is lost\n{text}"
                ));
            }
        }
    }
    assert!(resumed > 50, "{resumed} resumed terminations");
    assert!(
        broken.is_empty(),
        "{} broken\n{}",
        broken.len(),
        broken[..broken.len().min(5)].join("\n\n")
    );
}

/// epitaph observed the process before, so it did not start before the observation began.
#[test]
fn a_stop_signal_may_have_come_in_the_gap_before_the_exit() {
    check(
        &restarted(
            "
            +1 tick
            +6 start
            +6 found main
            +6 scanned
            +10 exit main 0
            +20 tick
            ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: epitaph did not observe for 5.0 s before, so a stop signal may have been missed
              fix: keep epitaph running without interruption: no evidence exists for the time in which it did not observe
        "#]],
    );
}

/// A grace period can be a day: a stop signal in a gap counts for as long as one that was seen.
#[test]
fn a_stop_signal_may_have_come_in_a_gap_of_long_ago() {
    let ended = |how: &str| restarted(&format!("+1 tick\n+6 start\n+6 found main\n+6 scanned\n{how}\n"));
    check(
        &ended("+1206 exit main 0"),
        expect![[r#"
        unknown: Unknown/Unknown/Unknown
          PID 1 `app` exited with code 0, but the reason is unknown: epitaph did not observe for 5.0 s before, so a stop signal may have been missed
          fix: keep epitaph running without interruption: no evidence exists for the time in which it did not observe
    "#]],
    );
    check(
        &ended("+1206 KILL runc -> main\n+1206.001 exit main KILL"),
        expect![[r#"
        unknown: Unknown/Unknown/Unknown
          PID 1 `app` was terminated by SIGKILL, but the reason is unknown: epitaph did not observe for 5.0 s before, so a stop signal may have been missed
          fix: keep epitaph running without interruption: no evidence exists for the time in which it did not observe
    "#]],
    );
    // A runtime's stop signal leads to no exit after an hour, but to its own SIGKILL.
    check(
        &ended("+3700 exit main 0"),
        expect![[r#"
        clean: Completed/Clean/Quiet
          PID 1 `app` exited by itself with code 0
    "#]],
    );
    check(
        &ended("+3700 KILL runc -> main\n+3700.001 exit main KILL"),
        expect![[r#"
        unknown: Unknown/Unknown/Unknown
          PID 1 `app` was terminated by SIGKILL, but the reason is unknown: epitaph did not observe for 5.0 s before, so a stop signal may have been missed
          fix: keep epitaph running without interruption: no evidence exists for the time in which it did not observe
    "#]],
    );
}

/// What the first seen stop signal was the first of, a gap before may hide.
#[test]
fn times_after_a_gap_are_the_least() {
    check(
        &restarted(
            "
            +1 tick
            +6 start
            +6 found main
            +6 scanned
            +100 TERM runc -> main handler
            +100.001 enter main TERM
            +100.4 exit main 0
            +120 tick
            ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.4 s later; epitaph did not observe for part of the time before this SIGTERM: the stop may have begun before it, and the shutdown may have taken longer than stated; the sockets of the container were not observed
        "#]],
    );
}

/// An agent that waits for its predecessor's journal observes meanwhile: both have the record of the same signal.
#[test]
fn a_signal_that_two_agents_observed_is_one() {
    let repeated = |second: &str| {
        let text = restarted(&format!(
            "
            +1 TERM runc -> main handler
            +1.001 enter main TERM
            +1.2 tick
            +0.5 start
            +0.5 found main
            +0.5 scanned
            {second} TERM runc -> main handler
            +1.001 enter main TERM
            +1.9 exit main 0
            +20 tick
            "
        ));
        let mut core = Correlator::new(Limits::default());
        let inputs = script::parse(&text).inputs;
        let mut reports = Vec::new();
        for (now, input) in inputs {
            reports.extend(core.handle(now, input).reports);
        }
        let stops = reports.into_iter().filter_map(|report| match report {
            Report::Terminated(t) => t.facts.stop.map(|stop| stop.repeated),
            _ => None,
        });
        stops.collect::<Vec<_>>()
    };
    assert_eq!((repeated("+1.00001"), repeated("+1.1")), (vec![0], vec![1]));
}

/// What was not observed after the exit is no reason for it.
#[test]
fn gaps_before_the_exit_are_added_up() {
    check(
        &restarted(
            "
            +1 tick
            +6 start
            +6 found main
            +6 scanned
            +50 tick
            +53 start
            +53 found main
            +53 scanned
            +60 exit main 0
            +61 tick
            +66 start
            +66 scanned
            +80 tick
            ",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: epitaph did not observe for 8.0 s before, so a stop signal may have been missed
              fix: keep epitaph running without interruption: no evidence exists for the time in which it did not observe
        "#]],
    );
}

/// The first observation of the process began shortly before the exit, and was interrupted.
#[test]
fn a_restart_does_not_hide_a_late_start() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=app
        +100 start
        +100 found main
        +100 scanned
        +105 tick
        +110 start
        +110 found main
        +110 scanned
        +115 exit main 0
        +140 tick
        ",
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` exited with code 0, but the reason is unknown: the process started before the observation began, so a stop signal may have been missed
              fix: nothing to fix: the process started before the observation began
        "#]],
    );
}

/// As podman's stop is: SIGTERM from the host, and ten seconds later SIGKILL by the same party. The SIGTERM was in the gap.
#[test]
fn a_manual_stop_may_have_begun_in_a_gap_after_a_late_start() {
    check(
        "
        -100.5 mkdir app
        proc main in=app pid=100 ns=1 start=-100 parent=shim comm=app
        +0 start
        +0.001 found main
        +0.001 scanned
        +100 tick
        +106 start
        +106 found main
        +106 scanned
        +111 KILL bash -> main
        +111.001 exit main KILL
        +140 tick
        ",
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `app` was terminated by SIGKILL, but the reason is unknown: the process started before the observation began, so a stop signal may have been missed
              fix: nothing to fix: the process started before the observation began
        "#]],
    );
}

/// Terminations that end while an agent observes, each with evidence from before the first record of it that is kept, or from inside.
fn whole() -> impl Iterator<Item = String> {
    let ends = [
        "+1 exit server SEGV listening serving by-own\n+1.0005 tcp app closed 80 by-exit\n+1.001 tcp app cut 80 5001 sent=0 received=5 last-sent=0 last-received=3
        +1.01 exit main 0 already-armed",
        "+1 exit server 7 listening serving by-own\n+1.01 exit main 0 already-armed",
        "+1 exit server SEGV last-on-a-path unarmed\n+1.01 exit main 0 armed",
        "+1 KILL bash -> server unarmed\n+1.001 exit server KILL unarmed\n+1.01 exit main 137 armed",
        "+1 enter server TERM\n+1.001 TERM runc -> main handler armed\n+1.002 TERM main -> server handler already-armed
        +1.01 exit server 0 already-armed\n+1.02 exit main 0 already-armed",
        "+0.9 TERM runc -> main handler armed\n+0.9001 enter main TERM\n+0.90015 TERM main -> main default blocked waiting=TERM already-armed
        +0.9002 discard main TERM\n+1 KILL runc -> main waiting=none already-armed\n+1.001 exit main KILL already-armed",
        "+1 exit main 0 armed\n+1.0001 KILL main -> server kernel waiting=none already-armed
        +1.001 exit server KILL listening serving already-armed\n+1.002 tcp app closed 80 by-exit",
    ];
    let below = "proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server\n+0.1 exec server\n";
    ends.into_iter()
        .map(move |end| restarted(&format!("{below}{end}\n+1.5 tick\n+2 tick")))
}

/// The agent is killed in the time in which its report waits: first its own verdict, then the one of the next agent.
#[test]
fn a_successor_judges_what_the_killed_agent_saw_whole() {
    let mut shown = String::new();
    for text in whole() {
        let inputs = script::parse(&format!("{text}\n+4.5 start\n+4.5 scanned\n+20 tick")).inputs;
        let is_start = |(_, input): &(Boot, Input)| matches!(input, Input::Start(_));
        let restart = inputs.iter().rposition(is_start).expect("a restart");
        let mut seen = BTreeMap::new();
        let mut core = Correlator::new(Limits::default());
        for (now, input) in &inputs[..restart] {
            judged(&core.handle(*now, input.clone()).reports, &mut seen);
        }
        assert!(seen.is_empty(), "the report does not wait\n{text}");
        judged(&core.handle(inputs[restart].0, Input::Tick).reports, &mut seen);
        let again = restarted_after(&inputs, restart, None);
        for verdict in [seen, again].iter().flat_map(BTreeMap::values) {
            shown += &format!("{:?}/{:?}: {}\n", verdict.exit, verdict.traffic, verdict.sentence);
        }
    }
    expect![[r#"
        Crashed/Cut: `server` was terminated by SIGSEGV, and PID 1 `app` exited with code 0; 1 open connection was dropped at exit, with an unanswered request
        Crashed/Unknown: `server` was terminated by SIGSEGV, and PID 1 `app` exited with code 0
        NonzeroExit/Quiet: `server` exited with code 7, and PID 1 `app` exited with code 0
        NonzeroExit/Unknown: `server` exited with code 7, and PID 1 `app` exited with code 0
        Crashed/Unknown: `server` was terminated by SIGSEGV, and PID 1 `app` exited with code 0
        Crashed/Unknown: `server` was terminated by SIGSEGV, and PID 1 `app` exited with code 0
        NonzeroExit/Quiet: PID 1 `app` exited by itself with code 137
        Unknown/Unknown: PID 1 `app` exited with code 137, but the reason is unknown: kernel records of sent signals were lost during the termination
        Clean/Quiet: The container runtime sent SIGTERM to PID 1 `app`, and the process exited with code 0, 19 ms later
        Unknown/Unknown: PID 1 `app` exited with code 0, but the reason is unknown: kernel records of started signal handlers were lost during the termination
        IgnoredStopSignal/Quiet: PID 1 `app` entered its SIGTERM handler, which raised SIGTERM again for the default action; PID 1 has none, so the kernel discarded the second signal; the container runtime sent SIGKILL 0.1 s later
        IgnoredStopSignal/Unknown: PID 1 `app` entered its SIGTERM handler, which raised SIGTERM again for the default action; PID 1 has none, so the kernel discarded the second signal; the container runtime sent SIGKILL 0.1 s later
        ForceKilled/Quiet: PID 1 `app` exited by itself with code 0; the kernel then killed `server`, which still ran, with its listener and connections open
        ForceKilled/Unknown: PID 1 `app` exited by itself with code 0; the kernel then killed `server`, which still ran, with its listener and connections open
    "#]].assert_eq(&shown);
}

/// The stop signal went with the journal's oldest segment, and the agent was killed within the grace period.
#[test]
fn what_went_with_the_oldest_segment_may_have_been_decisive() {
    let text = restarted(
        "
        +1 TERM runc -> main handler
        +2 tick
        +2.1 tick
        +6 start
        +6 found main
        +6 scanned
        +61 KILL runc -> main
        +61.001 exit main KILL
        +61.1 rmdir app
        +70 tick
        ",
    );
    let inputs = script::parse(&text).inputs;
    let is_start = |(_, input): &(Boot, Input)| matches!(input, Input::Start(_));
    let restart = inputs.iter().rposition(is_start).expect("a restart");
    let verdict = |removed: Option<usize>| {
        let verdicts = restarted_after(&inputs, restart, removed).into_values();
        let all: Vec<_> = verdicts.map(|of| (of.headline, of.sentence)).collect();
        format!("{all:?}")
    };
    expect![[r#"[("unknown", "PID 1 `app` was terminated by SIGKILL, but the reason is unknown: epitaph did not observe for 3.9 s around that time")]"#]].assert_eq(&verdict(None));
    expect![[r#"[("unknown", "PID 1 `app` was terminated by SIGKILL, but the reason is unknown: epitaph did not observe for 3.9 s before, so a stop signal may have been missed")]"#]].assert_eq(&verdict(Some(restart - 1)));
}

/// A limit (docs/limits.md): the first process's exit went with the journal's oldest segment, and the agent was killed before the report.
#[test]
fn an_exit_that_went_with_the_oldest_segment_is_not_reported() {
    let text = restarted(
        "
        proc worker in=app pid=107 ns=7 start=+0.1 parent=main comm=worker
        +0.1 exec worker
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        +1.6 exit worker 0
        +2 tick
        +6 start
        +6 scanned
        +20 tick
        ",
    );
    let inputs = script::parse(&text).inputs;
    let is_start = |(_, input): &(Boot, Input)| matches!(input, Input::Start(_));
    let restart = inputs.iter().rposition(is_start).expect("a restart");
    let is_exit = |(_, input): &(Boot, Input)| {
        matches!(
            input,
            Input::Kernel {
                event: Event::ProcessExit(_),
                ..
            }
        )
    };
    let exit = inputs.iter().position(is_exit).expect("an exit");
    let headlines = |removed: Option<usize>| {
        let verdicts = restarted_after(&inputs, restart, removed).into_values();
        verdicts.map(|of| of.headline).collect::<Vec<_>>()
    };
    assert_eq!(headlines(Some(exit)), ["unknown"]);
    assert_eq!(headlines(Some(exit + 1)), [""; 0]);
}

pub(super) struct Begun {
    observation: Observation,
    reported: BTreeMap<String, Verdict>,
    finished: HashSet<String>,
    /// Own cgroups of the subjects with a stop signal or an exit, that are not reported.
    open: usize,
}

impl Begun {
    fn open_is_reported(&self, both: &BTreeMap<String, Verdict>) -> bool {
        both.len() >= self.reported_before() + usize::from(self.open > 0)
    }

    fn reported_before(&self) -> usize {
        self.finished.len()
    }
}

/// Runs a core until it is killed; returns what was kept.
pub(super) fn killed(inputs: &[(Boot, Input)]) -> ((Vec<(Boot, Input)>, Boot), Begun) {
    killed_after(inputs, None)
}

/// The verdicts of a core that goes on at `restart` with what [`killed_after`] kept of the inputs before.
fn restarted_after(inputs: &[(Boot, Input)], restart: usize, removed: Option<usize>) -> BTreeMap<String, Verdict> {
    let ((kept, _), _) = killed_after(&inputs[..restart], removed);
    let mut core = Correlator::new(Limits::default());
    let mut verdicts = BTreeMap::new();
    for (now, input) in kept.iter().chain(&inputs[restart..]) {
        judged(&core.handle(*now, input.clone()).reports, &mut verdicts);
    }
    verdicts
}

/// As [`killed`]; what was kept before that input is gone, but for the header of the segment.
fn killed_after(inputs: &[(Boot, Input)], removed: Option<usize>) -> ((Vec<(Boot, Input)>, Boot), Begun) {
    let mut core = Correlator::new(Limits::default());
    let mut keeper = Keeper::default();
    let mut kept = Vec::new();
    let mut reported = BTreeMap::new();
    let mut observation = None;
    let mut at = Boot(0);
    let mut owns = HashSet::new();
    for (index, (now, input)) in inputs.iter().enumerate() {
        at = at.max(*now);
        if removed == Some(index) {
            kept.retain(|(_, input)| matches!(input, Input::Start(_)));
            kept.extend(keeper.forget(&core).into_iter().map(|input| (*now, input)));
            kept.extend(keeper.owed(&core).iter().map(|input| (*now, input.clone())));
        }
        if let Input::Start(of) = input {
            observation = Some(of.clone());
            kept.push((*now, input.clone()));
        }
        keeper.note(input);
        let concern = keeper.concern(&core, input);
        let answers = core.handle(*now, input.clone());
        owns.extend(answers.about);
        let concern = concern.about(answers.about);
        judged(&answers.reports, &mut reported);
        let event = || match input {
            Input::Kernel { event, .. } => Some(event.clone()),
            _ => None,
        };
        let keep = keeper.keep(&core, *now, &concern, event, !answers.is_empty());
        kept.extend(keep.before.into_iter().map(|input| (*now, input)));
        // As the agent does while a termination is in progress: what comes after the last frame is a gap.
        let is_beat = matches!(input, Input::Tick) && keeper.is_in_progress(&core);
        if keep.itself || is_beat {
            kept.push((*now, input.clone()));
        }
    }
    let open = owns.iter().filter(|own| core.is_stopped(**own)).count();
    let finished = reported.keys().cloned().collect();
    let begun = Begun {
        observation: observation.expect("a start"),
        reported,
        finished,
        open,
    };
    ((kept, at), begun)
}
