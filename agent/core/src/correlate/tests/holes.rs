//! After a hole in the evidence: what was lost before a unit's cgroup was created is not about the unit.

use expect_test::{Expect, expect};

use super::check;
use crate::event::{Event, Kind};
use crate::fixtures::monotone::{Rule, Seed};
use crate::fixtures::recorded::Recorded;
use crate::fixtures::script;
use crate::input::{CgroupFact, Input};

/// Records of all kinds are lost, as `how` states.
fn hole(at: &str, how: &str) -> String {
    let lost = Kind::ALL.map(|kind| format!("{at} lost {} -1 1 {how}\n", kind.name()));
    lost.concat()
}

const SECOND_UNIT: &str = "
    +30 mkdir web.service
    proc main in=web.service pid=200 start=+30.001 parent=systemd comm=web
    +30.002 exec main
";
const FAILED: &str = "
    +40 exit main 3
    +40.1 rmdir web.service
";

fn check_unit(before: &str, unit: &str, expect: Expect) {
    check(&format!("{before}{unit}{FAILED}"), expect);
}

#[test]
fn a_unit_that_begins_after_a_hole_is_judged() {
    check_unit(
        &hole("+0", ""),
        SECOND_UNIT,
        expect![[r#"
        nonzero-exit: Crash/NonzeroExit/Quiet
          `web` (pid 200) exited by itself with code 3
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
    check_unit(
        &hole("+0", "not-recorded"),
        SECOND_UNIT,
        expect![[r#"
        nonzero-exit: Crash/NonzeroExit/Quiet
          `web` (pid 200) exited by itself with code 3
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
}

/// The record of the exec of its first process may be among the lost ones.
#[test]
fn a_unit_that_begins_within_the_hole_is_not_judged() {
    check_unit(
        &format!("-0.5 mkdir web.service\n{}", hole("+0", "")),
        &SECOND_UNIT.replace("+30 mkdir web.service", ""),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              `web` (pid 200) exited with code 3, but the reason is unknown: kernel records of program starts were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the unit itself send signals, exit or connect thousands of times per second: each unit has a budget of records
        "#]],
    );
}

/// Nothing shows that the cgroup is younger than the hole.
#[test]
fn a_unit_whose_creation_was_not_seen_is_not_judged() {
    let mut core = Recorded::default();
    let mut out = Vec::new();
    for (now, mut input) in script::parse(&format!("{}{SECOND_UNIT}{FAILED}+60 tick", hole("+0", ""))).inputs {
        // Its record is lost, and its path is found later.
        if let Input::Kernel {
            event: Event::CgroupMkdir(made),
            ..
        } = &input
        {
            let path = made.path.clone().expect("a path");
            input = Input::Cgroup(CgroupFact::of(made.cgroup, Ok(path)));
        }
        out.extend(core.handle(now, input).reports);
    }
    expect![[r#"
        unknown: Unknown/Unknown/Unknown
          `web` (pid 200) exited with code 3, but the reason is unknown: kernel records of program starts were lost during the termination
          fix: raise `kernel.ring_bytes`, unless processes of the unit itself send signals, exit or connect thousands of times per second: each unit has a budget of records
    "#]].assert_eq(&script::show(&out, false));
}

#[test]
fn a_recording_that_begins_later_did_not_lose_records() {
    check_unit(
        &format!("-0.5 mkdir web.service\n{}", hole("+0", "not-recorded")),
        &SECOND_UNIT.replace("+30 mkdir web.service", ""),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              `web` (pid 200) exited with code 3, but the reason is unknown: the recording begins too late, and evidence from before its begin may be missing
              fix: read the agent's own verdict (`epitaph why`, `epitaph list`), or export more: `epitaph export` with an earlier `--since`
        "#]],
    );
}

#[test]
fn a_damaged_recording_did_not_lose_records_in_the_kernel() {
    let holes = format!("{}{}", hole("+0", "not-recorded"), hole("+0", "damaged"));
    check_unit(
        &format!("-0.5 mkdir web.service\n{holes}"),
        &SECOND_UNIT.replace("+30 mkdir web.service", ""),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              `web` (pid 200) exited with code 3, but the reason is unknown: a part of the journal or of the recording is damaged or was not written, and the evidence may have been in that part
              fix: if a copy or an export is damaged, make it again; if the journal itself is damaged, the agent's log of that time has the reason: a disk that was full, read-only or slow, or a damaged file
        "#]],
    );
}

/// systemd runs such a command after the main process, of which the agent has seen nothing.
#[test]
fn a_command_that_began_before_the_agent_is_not_taken_for_the_main_process() {
    let at_the_start = |began: &str, end: &str| {
        format!(
            "
            -2000 mkdir web.service
            proc post in=web.service pid=210 start={began} parent=systemd comm=cleanup
            +0 start
            +0 found post
            +0 scanned
            {end}
            +30 tick
            "
        )
    };
    let by_error = "+0.5 exit post 3\n+0.6 rmdir web.service";
    check(
        &at_the_start("-1", by_error),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              `cleanup` (pid 210) exited with code 3, but the reason is unknown: the process began while epitaph did not observe, so it may have been a command that systemd runs before or after the unit's main process (`ExecStartPre=`, `ExecStopPost=`)
              fix: look up the exit of the main process in the log of systemd (`journalctl -u`): epitaph was not observing when the process began
        "#]],
    );
    check(
        &at_the_start("-1", "+0.5 exit post 0\n+0.6 rmdir web.service"),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              `cleanup` (pid 210) exited with code 0, but the reason is unknown: the process began while epitaph did not observe, so it may have been a command that systemd runs before or after the unit's main process (`ExecStartPre=`, `ExecStopPost=`)
              fix: look up the exit of the main process in the log of systemd (`journalctl -u`): epitaph was not observing when the process began
        "#]],
    );
    // After `TimeoutStopSec=`.
    check(
        &at_the_start(
            "-1",
            "+0.5 TERM systemd -> post default\n+0.501 exit post TERM\n+0.6 rmdir web.service",
        ),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              `cleanup` (pid 210) was terminated by SIGTERM, but the reason is unknown: the process began while epitaph did not observe, so it may have been a command that systemd runs before or after the unit's main process (`ExecStartPre=`, `ExecStopPost=`)
              fix: look up the exit of the main process in the log of systemd (`journalctl -u`): epitaph was not observing when the process began
        "#]],
    );
    // One that is older than such commands are is the main process, and so is a server.
    check(
        &at_the_start("-1000", by_error),
        expect![[r#"
        nonzero-exit: Unknown/NonzeroExit/Unknown
          `cleanup` (pid 210) exited with code 3; the process started before the observation began, so a stop signal may have come before
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
    check(
        &at_the_start(
            "-1",
            "+0.4 TERM systemd -> post handler armed\n+0.401 enter post TERM\n+0.45 tcp web.service closed 80\n+0.5 exit post 3\n+0.6 rmdir web.service",
        ),
        expect![[r#"
            nonzero-exit: Stopped/NonzeroExit/Unknown
              systemd sent SIGTERM to `cleanup` (pid 210), the handler ran, and the process exited with code 3, 0.1 s later
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

/// Where both may be the reason, records were lost.
#[test]
fn a_loss_after_the_begin_of_a_recording_is_a_loss() {
    check_unit(
        &format!(
            "-0.5 mkdir web.service\n{}+35 lost sched_process_exec +34 1 within web.service\n",
            hole("+0", "not-recorded")
        ),
        &SECOND_UNIT.replace("+30 mkdir web.service", ""),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              `web` (pid 200) exited with code 3, but the reason is unknown: kernel records of program starts were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the unit itself send signals, exit or connect thousands of times per second: each unit has a budget of records
        "#]],
    );
}

#[test]
fn a_unit_that_begins_after_a_restart_is_judged() {
    check_unit(
        "-100 start\n-50 tick\n+0 start\n+0 scanned\n",
        SECOND_UNIT,
        expect![[r#"
            nonzero-exit: Crash/NonzeroExit/Quiet
              `web` (pid 200) exited by itself with code 3
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

/// Without a record of the main process, the cgroup of an empty unit is nothing.
#[test]
fn an_empty_cgroup_that_begins_after_a_hole_is_not_a_termination() {
    check(
        &format!("{}+30 mkdir web.service\n+31 rmdir web.service", hole("+0", "")),
        expect![""],
    );
    check(
        &format!("+0.5 mkdir web.service\n{}+31 rmdir web.service", hole("+1", "")),
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              How the main process terminated is unknown: kernel records of program starts were lost during the termination
              fix: raise `kernel.ring_bytes`, unless processes of the unit itself send signals, exit or connect thousands of times per second: each unit has a budget of records
        "#]],
    );
}

/// Doubt is monotone after holes of each form: see [`super::monotone`].
#[test]
fn no_verdict_after_a_hole_is_cleaner_for_less_evidence() {
    const SEEDS: u64 = 400;
    let ends = [
        "+40 exit main 3\n+40.1 rmdir web.service\n",
        "+40 exit main 0\n+40.1 rmdir web.service\n",
        "+40 TERM systemd -> main handler\n+40.01 enter main TERM\n+40.1 exit main 0\n+40.2 rmdir web.service\n",
        "+40 KILL bash -> main\n+40.01 exit main KILL\n+40.1 rmdir web.service\n",
    ];
    let second = "proc pre in=web.service pid=190 start=+30 parent=systemd comm=pre\n+30.0005 exec pre\n+30.0008 exit pre 0\n";
    for hole in [hole("+0", ""), hole("+0", "not-recorded"), hole("+29.9", "")] {
        for end in ends {
            for begin in [
                SECOND_UNIT.to_owned(),
                SECOND_UNIT.replace("    proc main", &format!("    {second}    proc main")),
            ] {
                let history = script::parse(&format!("{hole}{begin}{end}")).inputs;
                let rule = Rule::of(&history);
                let broken = (0..SEEDS).find_map(|seed| rule.check(Seed(seed)).err());
                assert_eq!(broken, None, "{hole}{begin}{end}");
            }
        }
    }
}
