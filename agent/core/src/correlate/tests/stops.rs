//! What a stop signal came to: one rule or one pair of rules each.

use std::time::Duration;

use expect_test::expect;

use super::{check, check_evidence, container, script, unit};
use crate::correlate::{Correlator, Limits};
use crate::ids::CgroupId;
use crate::input::Input;
use crate::report::{Command, Report};
use crate::time::Boot;
use crate::verdict::TrafficAxis;

#[test]
fn exit_0_after_a_handled_stop_is_clean() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.5 s later
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +1.500 sched_process_exit: PID 1 `app` exited with code 0
        "#]],
    );
}

#[test]
fn exit_143_after_a_handled_stop_is_clean() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.5 exit main 143
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 143, 0.5 s later (128 + SIGTERM: the usual code of many language runtimes after a shutdown)
        "#]],
    );
}

#[test]
fn exit_143_without_a_handler_is_a_nonzero_exit() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored default
        +1.5 exit main 143
        ",
        ),
        expect![[r#"
            early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            nonzero-exit: Stopped/NonzeroExit/Quiet
              `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal, and the process exited with code 143, 0.5 s later
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn exit_143_without_a_stop_is_a_crash() {
    check(
        &container(
            "
        +1.5 exit main 143
        ",
        ),
        expect![[r#"
            nonzero-exit: Crash/NonzeroExit/Quiet
              PID 1 `app` exited by itself with code 143
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn ended_by_15_is_not_exit_143() {
    check(
        &unit(
            "
        +1 TERM systemd -> main default
        +1.001 exit main TERM
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              SIGTERM terminated `web` (pid 200): the process has no SIGTERM handler, so any work in flight was lost
              fix: install a handler that finishes the work in flight and then exits with 0
        "#]],
    );
}

#[test]
fn reraised_after_the_handler_is_clean() {
    check(
        &unit(
            "
        +1 TERM systemd -> main handler
        +1.001 enter main TERM
        +1.2 TERM main -> main default thread
        +1.201 exit main TERM
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              systemd sent SIGTERM to `web` (pid 200), the handler ran, and the process then terminated itself with the same signal, 0.2 s later
        "#]],
    );
}

#[test]
fn a_signalfd_reader_that_ends_with_0_is_clean() {
    check(
        &container(
            "
        +1 TERM runc -> main blocked default
        +1.2 exit main 0
        ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, which reads the signal without a handler (signalfd or sigwait), and the process exited with code 0, 0.2 s later; whether clients used a Unix or UDP socket is not known: the process reads its stop signal without a handler (signalfd or sigwait)
        "#]],
    );
}

#[test]
fn a_sigwait_reader_that_ends_with_143_is_clean() {
    check(
        &container(
            "
        +1 TERM runc -> main blocked default
        +1.2 exit main 143
        ",
        ),
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              The container runtime sent SIGTERM to PID 1 `app`, which reads the signal without a handler (signalfd or sigwait), and the process exited with code 143, 0.2 s later (128 + SIGTERM: the usual code of many language runtimes after a shutdown); whether clients used a Unix or UDP socket is not known: the process reads its stop signal without a handler (signalfd or sigwait)
        "#]],
    );
}

#[test]
fn masked_and_never_read() {
    check(
        &container(
            "
        +1 TERM runc -> main blocked default
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            blocked-stop-signal: Stopped/BlockedStopSignal/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, which blocks SIGTERM in its signal mask and never read the signal; the container runtime sent SIGKILL 10.0 s later
              fix: unblock the signal (a signal mask is inherited across fork and exec), or declare the signal that the program reads as its stop signal
        "#]],
    );
}

#[test]
fn frozen_is_not_masked() {
    check(
        &container(
            "
        +1 TERM runc -> main frozen handler
        +11 KILL runc -> main frozen
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            blocked-stop-signal: Stopped/BlockedStopSignal/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, which was frozen and never read the signal; the container runtime sent SIGKILL 10.0 s later
              fix: thaw the cgroup before the stop
        "#]],
    );
}

#[test]
fn stopped_is_not_masked() {
    check(
        &container(
            "
        +1 TERM runc -> main stopped handler
        +11 KILL runc -> main stopped
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            blocked-stop-signal: Stopped/BlockedStopSignal/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, which was stopped (SIGSTOP) and never read the signal; the container runtime sent SIGKILL 10.0 s later
              fix: continue the process (SIGCONT) before the stop
        "#]],
    );
}

#[test]
fn a_handler_that_is_never_entered() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            blocked-stop-signal: Stopped/BlockedStopSignal/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, whose handler never ran; the container runtime sent SIGKILL 10.0 s later
              fix: find what kept the process from running: a disk or network mount that hangs, or no CPU time
        "#]],
    );
}

/// `docker stop --time 0`: no disk and no load kept it from running.
#[test]
fn a_process_that_is_killed_at_once_had_no_time() {
    let stop = "
        +1 TERM runc -> main handler armed
        +1.002 KILL runc -> main waiting=TERM already-armed
        +1.003 exit main KILL already-armed
        ";
    check(
        &container(stop),
        expect![[r#"
            blocked-stop-signal: Stopped/BlockedStopSignal/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, which had no time to act on the signal; the container runtime sent SIGKILL 2 ms later
              fix: give PID 1 `app` time to act on SIGTERM (SIGKILL came within 2 ms after this signal): raise the time that the stop command waits (`docker stop --time`)
        "#]],
    );
    let by_systemd = stop.replace("runc", "systemd");
    check(
        &unit(&by_systemd),
        expect![[r#"
            blocked-stop-signal: Stopped/BlockedStopSignal/Quiet
              systemd sent SIGTERM to `web` (pid 200), which had no time to act on the signal; systemd sent SIGKILL 2 ms later
              fix: give `web` (pid 200) time to act on SIGTERM (SIGKILL came within 2 ms after this signal): raise `TimeoutStopSec=` of the unit
        "#]],
    );
}

#[test]
fn a_handler_entered_late_is_killed_after_grace() {
    check(
        &container(
            "
        +1 TERM runc -> main frozen handler
        +8 enter main TERM
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler started 7.0 s later, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}

#[test]
fn pid_1_without_a_handler() {
    check_evidence(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=sh
        +0.001 exec main
        +1 TERM runc -> main ignored default
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        expect![[r#"
            early: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
              fix: handle SIGTERM in PID 1 `sh`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.0 s
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `sh`: discarded by the kernel, no handler
              +11.000 signal_generate: SIGKILL from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `sh`
              +11.001 sched_process_exit: PID 1 `sh` was terminated by SIGKILL
        "#]],
    );
}

#[test]
fn pid_1_with_sig_ign() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored ignore
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            early: PID 1 `app` ignores SIGTERM (SIG_IGN), so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              PID 1 `app` ignores SIGTERM (SIG_IGN), so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
              fix: handle SIGTERM in PID 1 `app`: SIG_IGN is its own setting, or inherited from what starts it (`trap ''`, nohup); this avoids the wait of 10.0 s
        "#]],
    );
}

#[test]
fn ignored_and_the_kernel_does_not_say_why() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            early: `app` is PID 1 and either has no SIGTERM handler or ignores SIGTERM, so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `app` is PID 1 and either has no SIGTERM handler or ignores SIGTERM, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
              fix: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.0 s
        "#]],
    );
}

#[test]
fn a_unit_that_ignores_it() {
    check(
        &unit(
            "
        +1 TERM systemd -> main ignored ignore
        +91 KILL systemd -> main
        +91.001 exit main KILL
        ",
        ),
        expect![[r#"
            early: `web` (pid 200) ignores SIGTERM (SIG_IGN), so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `web` (pid 200) ignores SIGTERM (SIG_IGN), so the kernel discarded the signal; systemd sent SIGKILL 90 s later
              fix: handle SIGTERM in `web` (pid 200): SIG_IGN is its own setting, or inherited from what starts it (`trap ''`, nohup); this avoids the wait of 90 s
        "#]],
    );
}

#[test]
fn ignored_but_it_ended_with_0() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored default
        +3 exit main 0
        ",
        ),
        expect![[r#"
            early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            clean: Stopped/Clean/Quiet
              `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the process exited with code 0, 2.0 s later, for another reason
        "#]],
    );
}

#[test]
fn the_early_warning_comes_once_per_stop() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored default
        +2 TERM runc -> main ignored default
        +3 INT runc -> main ignored default
        ",
        ),
        expect![[r#"
            early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
        "#]],
    );
}

#[test]
fn killed_after_grace() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}

#[test]
fn a_custom_stop_signal() {
    check(
        &container(
            "
        +1 RTMIN+3 runc -> main handler
        +1.001 enter main RTMIN+3
        +11 KILL runc -> main cgroup.kill
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGRTMIN+3 to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL through cgroup.kill 10.0 s later
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}

#[test]
fn a_reload_is_no_stop() {
    check(
        &unit(
            "
        +1 HUP systemd -> main handler
        +1.001 enter main HUP
        +60 TERM systemd -> main handler
        +60.001 enter main TERM
        +61 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              systemd sent SIGTERM to `web` (pid 200), the handler ran, and the process exited with code 0, 1.0 s later
        "#]],
    );
}

#[test]
fn a_stop_signal_of_hup_alone_is_one() {
    check(
        &container(
            "
        +1 HUP runc -> main handler
        +1.001 enter main HUP
        +2 exit main 0
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGHUP to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later
        "#]],
    );
}

#[test]
fn an_old_reload_did_not_end_it() {
    check(
        &unit(
            "
        +1 HUP systemd -> main handler
        +1.001 enter main HUP
        +2000 exit main 1
        ",
        ),
        expect![[r#"
            nonzero-exit: Crash/NonzeroExit/Quiet
              `web` (pid 200) exited by itself with code 1
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn a_second_stop_is_counted_not_judged() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +3 TERM runc -> main handler
        +4 INT runc -> main handler
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
              +1.000 signal_generate: SIGTERM from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`: delivered, handler installed
              +1.000 signal_generate: 2 more stop signals followed
              +1.001 signal_deliver: PID 1 `app` entered the SIGTERM handler
              +11.000 signal_generate: SIGKILL from `runc` (pid 60, unit containerd.service, child of `shim`), the container runtime, to PID 1 `app`
              +11.001 sched_process_exit: PID 1 `app` was terminated by SIGKILL
        "#]],
    );
}

/// When, in seconds, the sockets of what were let go.
fn let_go(script: &str) -> Vec<(u64, u64)> {
    let forgotten = |(at, command)| match command {
        Command::Forget(cgroup) => Some((at, cgroup.id)),
        Command::Watch(_) | Command::ListEvents(_) => None,
    };
    play(script).0.into_iter().filter_map(forgotten).collect()
}

/// The commands with their times in seconds, and the traffic of each termination.
fn play(script: &str) -> (Vec<(u64, Command)>, Vec<TrafficAxis>) {
    play_with(script, |at, _| at)
}

/// `clock`: when an input is handled.
fn play_with(script: &str, clock: impl Fn(Boot, &Input) -> Boot) -> (Vec<(u64, Command)>, Vec<TrafficAxis>) {
    let mut correlator = Correlator::new(Limits::default());
    let (mut commands, mut traffic) = (Vec::new(), Vec::new());
    for (at, input) in script::parse(script).inputs {
        let now = clock(at, &input);
        let answers = correlator.handle(now, input);
        let seconds = now.since(script::ZERO).as_secs();
        commands.extend(answers.commands.into_iter().map(|command| (seconds, command)));
        for report in answers.reports {
            if let Report::Terminated(termination) = report {
                traffic.push(termination.verdict.traffic);
            }
        }
    }
    (commands, traffic)
}

const APP: u64 = 103;

#[test]
fn what_came_to_nothing_lets_the_sockets_go_after_a_minute() {
    let probe = "proc probe in=app pid=300 ns=9 start=+5 parent=shim comm=probe
        +5.001 exec probe
        ";
    let killed = "+10 KILL runc -> probe
        +10.001 exit probe KILL
        ";
    let ticks = "+69 tick
        +70 tick
        +71 tick
        +200 tick
        ";
    // A health check that was killed, and one that only failed.
    assert_eq!(let_go(&container(&format!("{probe}{killed}{ticks}"))), [(70, APP)]);
    assert_eq!(let_go(&container(&format!("{probe}+10 exit probe 1\n{ticks}"))), [(70, APP)]);
    // The last one counts.
    let again = "+40 KILL runc -> probe\n+69 tick\n+99 tick\n+100 tick\n";
    assert_eq!(let_go(&container(&format!("{probe}{killed}{again}"))), [(100, APP)]);
    // A worker of a unit: its signals are kept because it may be the main process.
    let worker = "proc worker in=web.service pid=300 start=+5 parent=main comm=worker
        +10 KILL bash -> worker
        +10.001 exit worker KILL
        ";
    assert_eq!(let_go(&unit(&format!("{worker}{ticks}"))), [(70, APP)]);
    // What goes on inside arms nothing.
    let inside = "proc child in=app pid=300 ns=9 start=+5 parent=main comm=child
        +10 KILL main -> child
        +10.001 exit child KILL
        ";
    assert_eq!(let_go(&container(&format!("{inside}{ticks}"))), []);
}

/// A neighbour signals the first process of each nested cgroup: the kernel's table of armed cgroups is bounded.
#[test]
fn a_container_keeps_few_of_its_nested_cgroups_watched() {
    let nested = |n: u32| {
        format!(
            "+1 mkdir app+{n}
            proc inner{n} in=app+{n} pid={} ns=20 start=+1 parent=main comm=inner
            +2 KILL bash -> inner{n} armed
            ",
            300 + n
        )
    };
    let script = container(&(0..40).map(nested).collect::<String>());
    assert_eq!(let_go(&script).len(), 40 - 15);
    let (_, traffic) = play(&format!("{script}+3 TERM runc -> main handler\n+3.1 exit main 0\n+6 tick"));
    assert_eq!(traffic, [TrafficAxis::Unknown]);
}

#[test]
fn a_stop_under_way_keeps_the_sockets_watched() {
    let probe = "proc probe in=app pid=300 ns=9 start=+5 parent=shim comm=probe
        +5.001 exec probe
        ";
    let end = "+12 KILL runc -> probe
        +12.001 exit probe KILL
        +71 tick
        +73 tick
        +900 tick
        +1000 exit main 0
        +1001 tick
        +1003 tick
        ";
    for stop in [
        "TERM runc -> main handler",
        "TERM runc -> main ignored default",
        "TERM bash -> main handler",
        "KILL runc -> main",
    ] {
        assert_eq!(
            let_go(&container(&format!("{probe}+10 {stop}\n{end}"))),
            [(1003, APP)],
            "{stop}"
        );
    }
    // Asked only after it was let go, it is watched anew.
    let late =
        "+10 KILL runc -> probe\n+10.001 exit probe KILL\n+71 tick\n+100 TERM runc -> main handler\n+200 tick\n+900 tick\n";
    assert_eq!(let_go(&container(&format!("{probe}{late}"))), [(71, APP)]);
}

/// Two lives in one cgroup: the first one's termination is assembled while the second is being stopped.
const RESTARTED: &str = "
    proc second in=web.service pid=210 start=+1.1 parent=systemd comm=web
    +1 TERM systemd -> main handler armed
    +1.001 enter main TERM
    +1.05 exit main 0 already-armed
    +1.1001 exec second
";

#[test]
fn the_end_of_one_life_does_not_let_the_next_ones_stop_go() {
    let script = unit(&format!(
        "{RESTARTED}
        +2 TERM systemd -> second handler already-armed
        +2.001 enter second TERM
        +3.5 tick
        +6 exit second 0 already-armed
        +9 tick
        "
    ));
    let (commands, traffic) = play(&script);
    assert_eq!(commands, [(9, Command::Forget(CgroupId::v2(APP)))]);
    // The first one's sockets may be closed in the second one's time.
    assert_eq!(traffic, [TrafficAxis::Unknown, TrafficAxis::Quiet]);
}

#[test]
fn the_end_of_one_life_does_not_let_the_next_ones_unassembled_exit_go() {
    let script = unit(&format!(
        "{RESTARTED}
        +2 exit second 3 already-armed
        +3.5 tick
        +9 tick
        "
    ));
    let (commands, traffic) = play(&script);
    assert_eq!(commands, [(9, Command::Forget(CgroupId::v2(APP)))]);
    assert_eq!(traffic, [TrafficAxis::Quiet, TrafficAxis::Quiet]);
}

/// The stop signal waits in the kernel's buffer while the sockets are let go.
#[test]
fn a_stop_before_the_sockets_were_let_go_and_known_after_is_watched_again_and_unknown() {
    let late = |stop: &str| {
        let script = container(&format!(
            "
            proc probe in=app pid=300 ns=9 start=+5 parent=shim comm=probe
            +5.001 exec probe
            +10 exit probe 1 armed
            +70.1 tick
            {stop} TERM runc -> main handler already-armed
            +75 exit main 0 already-armed
            +80 tick
            "
        ));
        let at_tick = script::ZERO.plus(Duration::from_millis(70_100));
        let at_stop = |at: Boot, input: &Input| match input {
            Input::Kernel { .. } if at.since(script::ZERO) > Duration::from_secs(69) => at.max(at_tick),
            _ => at,
        };
        play_with(&script, at_stop)
    };
    let app = CgroupId::v2(APP);
    let (forget, watch) = (|| Command::Forget(app), Command::Watch(app));
    let (commands, traffic) = late("+69.9");
    assert_eq!(commands, [(70, forget()), (70, watch), (80, forget())]);
    assert_eq!(traffic, [TrafficAxis::Unknown]);
    // A record after the sockets were let go armed them itself.
    let (commands, traffic) = late("+71");
    assert_eq!(commands, [(70, forget()), (80, forget())]);
    assert_eq!(traffic, [TrafficAxis::Quiet]);
}

/// Node.js as PID 1: its own handler re-raises, and the kernel discards the second signal when it is read. That it did is evidence,
/// and no handler's entry.
#[test]
fn a_signal_that_the_kernel_discards_when_it_is_read_is_no_handlers_entry() {
    let script = |discarded: &str| {
        container(&format!(
            "
            +1 TERM runc -> main default
            {discarded}
            +11 KILL runc -> main
            +11.01 exit main KILL
            "
        ))
    };
    let without = script::show(&script::run(&script("")), true);
    let with = script::show(&script::run(&script("+1.001 discard main TERM")), true);
    assert_eq!(with, without);
    let entered = script::show(&script::run(&script("+1.001 enter main TERM")), true);
    assert_ne!(entered, without);
}

/// A virtual machine that was paused after the stop signal: its wall clock is set when it goes on.
#[test]
fn a_step_of_the_clock_is_stated_by_what_terminates_meanwhile() {
    let steps = |rest: &str| -> Vec<Option<i64>> {
        let reports = script::run(&container(rest));
        let of = |report: Report| match report {
            Report::Terminated(t) => Some(t.facts.gaps.clock_step),
            _ => None,
        };
        reports.into_iter().filter_map(of).collect()
    };
    let stop = "+1 TERM runc -> main handler\n+1.001 enter main TERM\n";
    let exit = "\n+5 exit main 0\n+5.1 rmdir app\n+6 tick\n+20 tick";
    assert_eq!(steps(&[stop, "+3 clock +90", exit].concat()), [Some(90_000_000_000)]);
    assert_eq!(
        steps(&[stop, "+3 clock +90\n+4 clock +88", exit].concat()),
        [Some(88_000_000_000)]
    );
    assert_eq!(steps(&[stop, "+3 clock +0.4", exit].concat()), [None], "an adjustment");
    assert_eq!(steps(&["+0 clock +90\n", stop, exit].concat()), [None], "before the begin");
}

/// `docker run` without a terminal forwards it for each new size of its own.
#[test]
fn a_size_of_a_terminal_is_no_stop() {
    check(
        &container(
            "
        +1 WINCH runc -> main ignored default
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            force-killed: Stopped/ForceKilled/Quiet
              The container runtime sent SIGKILL to PID 1 `app` without a stop signal first
              fix: stop the container or unit with a grace period (without `kill`, `rm --force` or a grace period of 0)
        "#]],
    );
}

#[test]
fn a_signal_that_reopens_logs_is_no_shutdown() {
    check(
        &container(
            "
        +1 USR1 runc -> main handler
        +1.001 enter main USR1
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGUSR1 to PID 1 `app`, the handler started, but the process did not exit: the container runtime sent SIGKILL 10.0 s later
              fix: SIGUSR1 may not stop this program (some reload at SIGUSR1): declare the signal that does (`STOPSIGNAL` in the image); if the program does shut down at SIGUSR1: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
    // A soft stop: it has closed its listener.
    check(
        &container(
            "
        +1 USR1 runc -> main handler
        +1.001 enter main USR1
        +1.002 tcp app closed 80
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              The container runtime sent SIGUSR1 to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              fix: the shutdown needs more than the 10.0 s that it got: raise the grace period, or shorten the shutdown
        "#]],
    );
}

#[test]
fn a_declared_signal_without_a_handler_may_be_the_wrong_one() {
    check(
        &container(
            "
        +1 QUIT runc -> main ignored default
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[r#"
            early: `app` is PID 1 and has no SIGQUIT handler, so the kernel discarded the signal
            ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
              `app` is PID 1 and has no SIGQUIT handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
              fix: handle SIGQUIT in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini, or declare the signal that stops the program (`STOPSIGNAL` in the image); this avoids the wait of 10.0 s
        "#]],
    );
}

/// `docker kill --signal=HUP` is a reload, and `docker rm -f` later sends SIGKILL alone.
#[test]
fn a_kill_long_after_a_reload_gave_no_time() {
    let headline = |described: &str, kill: &str| {
        let script = container(&format!(
            "
            {described}
            +1 HUP runc -> main handler
            +1.001 enter main HUP
            +{kill} KILL runc -> main
            +{kill}1 exit main KILL
            "
        ));
        let reports = script::run(&script);
        let of = |report: &Report| match report {
            Report::Terminated(of) => Some(of.verdict.headline),
            _ => None,
        };
        reports.iter().find_map(of).expect("a termination")
    };
    for (described, kill, expected) in [
        ("", "1201.0", "force-killed"),
        ("+0.1 describe app stop=TERM", "61.0", "force-killed"),
        // By `docker stop --signal=HUP`, with the default time.
        ("+0.1 describe app stop=TERM", "11.0", "killed-after-grace"),
        // HUP may be the container's own.
        ("", "61.0", "killed-after-grace"),
        ("+0.1 describe app stop=HUP", "61.0", "killed-after-grace"),
        ("+0.1 describe app stop=HUP", "1201.0", "killed-after-grace"),
    ] {
        assert_eq!(headline(described, kill), expected, "{described} {kill}");
    }
}

/// httpd on containerd, which tells nobody the container's own signal: a pod that drains for longer than a reload is remembered.
#[test]
fn a_long_grace_period_after_a_signal_that_mostly_reloads() {
    let script = |signal: &str, described: &str| {
        let requested = super::pods::web(
            "
            pod web grace=1200 app
            +0.05 pod web deleted=+0:1200
            ",
        );
        let stopped = format!(
            "+1 {signal} runc -> main handler\n+1.001 enter main {signal}\n+1201 KILL runc -> main\n+1201.001 exit main KILL\n"
        );
        match described {
            "pod" => format!("{requested}{stopped}+1202 pod web app=137:Error\n+1203 gone web\n+1210 tick\n"),
            _ => container(&format!("{described}\n{stopped}")),
        }
    };
    let exit = |script: &str| {
        let of = |report: &Report| match report {
            Report::Terminated(of) => Some(of.verdict.headline),
            Report::PodTerminated(of) => Some(of.verdict.headline),
            _ => None,
        };
        script::run(script).iter().find_map(of).expect("a termination")
    };
    assert_eq!(exit(&script("WINCH", "pod")), "killed-after-grace");
    // `docker stop --signal=INT --time=1200`.
    assert_eq!(exit(&script("INT", "+0.1 describe app stop=TERM")), "killed-after-grace");
}
