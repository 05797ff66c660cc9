//! For a process that got its stop signal and did not act on it.

use super::asked::{Asked, Remedy};
use crate::event::Disposition;
use crate::ids::Signal;
use crate::verdict::judge::{Blocked, InnerEnd, Why};
use crate::verdict::sentence::inside::{self, PARALLEL, SentOn};
use crate::verdict::sentence::settings::{Managed, grace, had_no_time, or_declare, stop_signal, too_young};
use crate::verdict::words::{manager, seconds, subject, target};
use crate::verdict::{Exit, TrafficAxis};

/// Programs that did not get the signal: what lets it reach them.
pub const SENT_ON: &[Remedy] = &[
    Remedy {
        name: "service-in-the-foreground",
        helps_if: "The stop signal reached `tail`, `sleep` or `cat`, a program that only keeps the container running; the service is another process.",
        holds: |of| SentOn::of(of).is_some_and(|on| on.is_stand_in()),
        words: |of| {
            sent_on(of, |on, others| {
                format!(
                    "{} only keeps the {} running: start {others} in the foreground instead (with `exec` in a shell), so that {} reaches the \
                     service",
                    on.who,
                    subject(of.case),
                    on.signal
                )
            })
        },
    },
    Remedy {
        name: "stop-the-services-of-runsvdir",
        helps_if: "runsvdir is the first process: at SIGTERM and at SIGHUP it exits without waiting for its services.",
        holds: |of| SentOn::of(of).is_some_and(|on| on.is("runsvdir")),
        words: |of| {
            sent_on(of, |on, others| {
                format!(
                    "{} exits without waiting for {others}: let a shell stop the services first and wait for them (`trap 'kill $!; sv -w 8 \
                     shutdown DIR/*; exit 0' TERM; runsvdir DIR & wait`, with the directory of the services as DIR)",
                    on.who
                )
            })
        },
    },
    Remedy {
        name: "a-grace-period-above-the-jobs",
        helps_if: "GNU parallel read the stop signal and waited for its jobs, but sent no signal to these jobs.",
        holds: |of| SentOn::of(of).is_some_and(|on| on.is(PARALLEL)),
        words: |of| {
            sent_on(of, |on, others| {
                format!(
                    "raise the grace period above the length of a job: at {} {} waited for its jobs ({others})",
                    on.signal, on.who
                )
            })
        },
    },
    Remedy {
        name: "signal-the-group-below-the-init",
        helps_if: "An init forwarded the stop signal to a process, and this process did not send the signal to the programs below it.",
        holds: |of| SentOn::of(of).is_some_and(|on| on.is_below_an_init(of.case)),
        words: |of| {
            sent_on(of, |on, others| {
                format!(
                    "send {} on from {} to {others}: start the program with `exec`, or in the background with a trap that runs `kill` and then \
                     `wait`, or let the init signal the whole process group (`tini -g`)",
                    on.signal, on.who
                )
            })
        },
    },
    Remedy {
        name: "send-the-signal-on",
        helps_if: "The first process got the stop signal and did not send it to the programs below it, which need the signal.",
        holds: |of| SentOn::of(of).is_some(),
        words: |of| {
            sent_on(of, |on, others| {
                format!(
                    "send {} on from {} to {others}: a shell must start the program with `exec`, or in the background with a trap that runs \
                     `kill` and then `wait`; any other program must signal its children and wait for them before its own exit",
                    on.signal, on.who
                )
            })
        },
    },
];

fn sent_on(of: &Asked<'_>, words: impl Fn(&SentOn, &str) -> String) -> Option<String> {
    let on = SentOn::of(of)?;
    let lost = match of.why() {
        Why::Ignored => saved(of).unwrap_or_default(),
        _ => String::new(),
    };
    Some(words(&on, &inside::names(of.case, &on.others)) + &lost)
}

/// At which it starts no further job and waits for those that run.
pub fn is_hangup_of_parallel(of: &Asked<'_>) -> bool {
    stop_signal(of.case) == Signal::HUP && SentOn::of(of).is_some_and(|on| on.is(PARALLEL))
}

/// What this text is beside another remedy.
pub fn sent_on_text(of: &Asked<'_>) -> Option<String> {
    let first = SENT_ON.iter().find(|remedy| (remedy.holds)(of))?;
    (first.words)(of)
}

/// The signal had no effect on the main process, or ended it at once.
pub const MAIN: &[Remedy] = &[
    Remedy {
        name: "handle-what-is-ignored",
        helps_if: "The process ignores the stop signal (SIG_IGN). The process itself, or the program that started it, has set this.",
        holds: |of| *of.why() == Why::Ignored && is_ignored(of),
        words: |of| {
            handle(
                of,
                ": SIG_IGN is its own setting, or inherited from what starts it (`trap ''`, nohup)",
            )
        },
    },
    Remedy {
        name: "handle-as-the-first-process",
        helps_if: "The process is PID 1 and has no handler for the stop signal, so the kernel discards the signal.",
        holds: |of| *of.why() == Why::Ignored,
        words: |of| {
            handle(
                of,
                ", use `exec` in the shell that starts the program, or run a small init such as tini",
            )
        },
    },
    Remedy {
        name: "handle-in-the-application-or-run-an-init",
        helps_if: "PID 1 is a language runtime whose handler only raises the stop signal again, which the kernel discards for PID 1.",
        holds: |of| *of.why() == Why::RaisedInVain,
        words: |of| {
            Some(format!(
                "handle {} in the application that runs in {}: the handler of a language \
                 runtime only raises the signal again; or run \
                 a small init such as tini{}",
                stop_signal(of.case),
                target(of.case.main()),
                saved(of).unwrap_or_default()
            ))
        },
    },
    Remedy {
        name: "handle-in-the-application",
        helps_if: "A language runtime's handler raised the stop signal again at once, so that work in flight was lost.",
        holds: |of| *of.why() == Why::RaisedAgain,
        words: |of| {
            Some(format!(
                "handle {} in the application that runs in {}: finish the work in flight, then exit with 0; the handler of a language \
                 runtime only raises the signal again",
                stop_signal(of.case),
                target(of.case.main())
            ))
        },
    },
    // The second signal would have its default action below an init.
    Remedy {
        name: "exit-with-0-instead-of-raising",
        helps_if: "PID 1 raised the stop signal again after its shutdown. For PID 1 a signal has no default action, so PID 1 exited with \
                   an error.",
        holds: |of| {
            *of.why() == Why::RaisedThenFailed
                && of.exit() == Exit::Clean
                && matches!(of.axis, TrafficAxis::Quiet | TrafficAxis::Unknown)
        },
        words: |of| {
            Some(format!(
                "exit with 0 in {} after the shutdown, instead of raising the signal again (PID 1 has no default action, so an error code \
                 follows); or run a small init such as tini",
                target(of.case.main())
            ))
        },
    },
    // SIGABRT of a watchdog, or a signal that somebody chose.
    Remedy {
        name: "find-who-asked-for-a-fault-signal",
        helps_if: "The runtime or systemd sent a signal that means a fault, such as SIGABRT of a watchdog, and its default action ended the process.",
        holds: |of| *of.why() == Why::DefaultAction && of.case.stop().is_some_and(|stop| stop.signal.is_fault()),
        words: stopped_by_fault,
    },
    Remedy {
        name: "install-a-handler",
        helps_if: "The process has no handler for the stop signal, so the default action of the signal ended the process, and work in \
                   flight was lost.",
        holds: |of| *of.why() == Why::DefaultAction,
        words: |of| Some(of.row() + &early(of).unwrap_or_default()),
    },
];

fn is_ignored(of: &Asked<'_>) -> bool {
    of.case.stop().is_some_and(|stop| stop.disposition == Disposition::Ignore)
}

/// An ignored signal stays ignored across fork and exec: neither helps then.
fn handle(of: &Asked<'_>, how: &str) -> Option<String> {
    let signal = stop_signal(of.case);
    Some(format!(
        "handle {signal} in {}{how}{}{}{}",
        target(of.case.main()),
        or_declare(of.case, signal),
        saved(of).unwrap_or_default(),
        early(of).unwrap_or_default()
    ))
}

/// The time that a stop takes less.
fn saved(of: &Asked<'_>) -> Option<String> {
    grace(of.case).map(|grace| format!("; this avoids the wait of {}", seconds(grace)))
}

/// Added for a process without a handler that had just started.
fn early(of: &Asked<'_>) -> Option<String> {
    let (main, stop) = of.case.main().zip(of.case.stop())?;
    too_young("the process", main.start, (stop.at, stop.signal), stop.disposition)
}

fn stopped_by_fault(of: &Asked<'_>) -> Option<String> {
    let by = match Managed::of(of.case) {
        Managed::Unit => "a watchdog that the service did not reset (`WatchdogSec=`), `KillSignal=`, or `systemctl kill`",
        Managed::Container | Managed::Pod => "`STOPSIGNAL` in the image, or a command such as `docker kill --signal`",
    };
    of.case.stop().map(|stop| {
        format!(
            "find out why the {} sent {}, which does not ask a program to shut down: {by}",
            manager(of.case),
            stop.signal
        )
    })
}

/// The signal was never read: by the main process, or by the one to which it was forwarded.
pub const BLOCKED: &[Remedy] = &[
    Remedy {
        name: "time-to-act",
        helps_if: "The runtime sent SIGKILL so soon after the stop signal that the handler had no time to run.",
        holds: |of| main_blocked(of).is_some_and(|how| had_no_time(of.case, how)),
        words: |of| {
            Some(format!(
                "give {} time to act on {} (SIGKILL came within {} after this signal): raise {}",
                target(of.case.main()),
                stop_signal(of.case),
                seconds(grace(of.case).unwrap_or_default()),
                match Managed::of(of.case) {
                    Managed::Unit => "`TimeoutStopSec=` of the unit",
                    Managed::Container => "the time that the stop command waits (`docker stop --time`)",
                    Managed::Pod => "the grace period (`terminationGracePeriodSeconds`, `kubectl delete --grace-period`)",
                }
            ))
        },
    },
    Remedy {
        name: "thaw-before-the-stop",
        helps_if: "The cgroup was frozen when the stop signal came.",
        holds: |of| is_blocked(of, Blocked::Frozen),
        words: |_| Some("thaw the cgroup before the stop".to_owned()),
    },
    Remedy {
        name: "continue-before-the-stop",
        helps_if: "The process was stopped (SIGSTOP) when the stop signal came.",
        holds: |of| is_blocked(of, Blocked::Stopped),
        words: |_| Some("continue the process (SIGCONT) before the stop".to_owned()),
    },
    Remedy {
        name: "detach-the-debugger",
        helps_if: "A debugger held the process when the stop signal came.",
        holds: |of| is_blocked(of, Blocked::Traced),
        words: |_| Some("detach the debugger before the stop".to_owned()),
    },
    Remedy {
        name: "unblock-the-signal",
        helps_if: "The process blocks the stop signal in its signal mask and never read it.",
        holds: |of| is_blocked(of, Blocked::Masked),
        words: |of| match of.inner() {
            Some(_) => Some(
                "unblock the signal (a signal mask is inherited across fork and exec), or read it with sigwait or signalfd"
                    .to_owned(),
            ),
            None => Some(of.row()),
        },
    },
    Remedy {
        name: "find-what-kept-it-from-running",
        helps_if: "The handler never ran within the grace period, and neither a freezer nor SIGSTOP nor a debugger held the process.",
        holds: |of| is_blocked(of, Blocked::HandlerNeverEntered) || is_blocked(of, Blocked::NothingEntered),
        words: |_| {
            Some("find what kept the process from running: a disk or network mount that hangs, or no CPU time".to_owned())
        },
    },
];

fn main_blocked(of: &Asked<'_>) -> Option<Blocked> {
    match of.why() {
        Why::Blocked(how) => Some(*how),
        _ => None,
    }
}

fn is_blocked(of: &Asked<'_>, how: Blocked) -> bool {
    let inner = of.inner().map(|(end, _)| end);
    main_blocked(of) == Some(how) || inner == Some(InnerEnd::Blocked(how))
}
