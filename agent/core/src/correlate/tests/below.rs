//! Programs below a main process that exits with 0: what each sequence of signals inside says of them.

use std::time::Duration;

use expect_test::expect;

use super::{check, container};
use crate::fixtures::monotone::Rule;
use crate::fixtures::script::{ZERO, play};
use crate::ledger::{Claim, Hole};
use crate::report::{Report, Termination};
use crate::termination::TerminationFacts;

/// As supervisord with nginx and an application behind it.
#[test]
fn a_program_with_a_client_beside_one_that_closes_its_listener() {
    check(
        &container(
            "
        proc nginx in=app pid=107 ns=7 start=+0.1 parent=main comm=nginx
        proc py in=app pid=108 ns=8 start=+0.1 parent=main comm=python3
        +0.1 exec nginx
        +0.1 exec py
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> nginx handler already-armed
        +1.0003 enter nginx TERM
        +1.0004 TERM main -> py default exiting already-armed
        +1.0005 tcp app closed 80 0 by=nginx
        +1.001 exit py TERM listening serving already-armed
        +1.0011 tcp app closed 9000 0 by-exit by=py
        +1.0012 tcp app cut 9000 40001 server=127.0.0.1 client=127.0.0.1 sent=0 received=90 last-sent=0 last-received=20 by=py
        +1.0013 tcp app half-closed-by-itself 9000 40001 server=127.0.0.1 client=127.0.0.1 itself by=nginx
        +1.2 exit nginx 0
        +1.3 exit main 0 already-armed
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `app` forwarded SIGTERM to `python3`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
              fix: install a SIGTERM handler in `python3` that finishes the work in flight and then exits with 0; `python3` was 0.9 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
}

/// As `kill -INT; sleep 5; kill` of a trap: the program handles the first, and the default action of the second ends it.
#[test]
fn a_second_signal_from_inside_ends_a_program_with_clients() {
    let escalated = |first: &str| {
        container(&format!(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0002 {first} main -> server handler already-armed
        +1.0003 enter server {first}
        +6 TERM main -> server default exiting already-armed
        +6.001 exit server TERM listening serving already-armed
        +6.1 exit main 0 already-armed
        "
        ))
    };
    check(
        &escalated("INT"),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `app` forwarded SIGINT to `server`, whose handler ran, but the shutdown did not finish: `app` sent SIGTERM 5.0 s later
              fix: the shutdown of `server` needs more than the 5.0 s that `app` gave it: raise the stop timeout of `app`, or shorten the shutdown
        "#]],
    );
    // A handler that is installed for one time.
    check(
        &escalated("TERM"),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `app` forwarded SIGTERM to `server`, whose handler ran, but the shutdown did not finish: `app` sent SIGTERM 5.0 s later
              fix: the shutdown of `server` needs more than the 5.0 s that `app` gave it: raise the stop timeout of `app`, or shorten the shutdown
        "#]],
    );
}

/// As s6-overlay, and `pkill` of a trap: one process sends the stop signal, another SIGKILL.
#[test]
fn one_process_inside_stops_a_program_and_another_kills_it() {
    check(
        &container(
            "
        proc job in=app pid=107 ns=7 start=+0.1 parent=main comm=job
        proc k1 in=app pid=110 ns=10 start=+1.0005 parent=main comm=pkill
        proc k2 in=app pid=111 ns=11 start=+6 parent=main comm=pkill
        +0.1 exec job
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.001 TERM k1 -> job handler already-armed
        +1.0011 enter job TERM
        +1.002 exit k1 0
        +6.001 KILL k2 -> job waiting=none already-armed
        +6.002 exit job KILL looked already-armed
        +6.003 exit k2 0
        +6.01 exit main 0 already-armed
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `pkill` forwarded SIGTERM to `job`, whose handler ran, but the shutdown did not finish: `pkill` sent SIGKILL 5.0 s later
              fix: the shutdown of `job` needs more than the 5.0 s between SIGTERM from `pkill` and SIGKILL from `pkill`: wait longer there, or shorten the shutdown
        "#]],
    );
}

/// A worker of a queue, below a wrapper that exits with 0: what it has open is a connection to its broker.
#[test]
fn the_default_action_ends_a_worker_with_a_connection_to_a_server() {
    check(
        "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=bash
        proc w in=app.service pid=107 start=+0.1 parent=main comm=node
        +0.001 exec main
        +0.1 exec w
        +1 TERM systemd -> main handler armed
        +1.0001 TERM systemd -> w default exiting already-armed
        +1.0002 enter main TERM
        +1.001 exit w TERM looked already-armed
        +1.0011 tcp app.service cut 41000 5672 sent=900 received=90 last-sent=20 last-received=19 by=w
        +1.1 exit main 0 looked already-armed
        ",
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              systemd sent SIGTERM to `bash` (pid 100), the handler ran, and the process exited with code 0, 0.1 s later; systemd sent SIGTERM to `node`, which its default action terminated with connections open
              fix: install a SIGTERM handler in `node` that finishes the work in flight and then exits with 0
        "#]],
    );
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=dumb-init
        proc sh in=app pid=106 ns=6 start=+0.1 parent=main comm=sh
        proc w in=app pid=107 ns=7 start=+0.2 parent=sh comm=node
        +0.001 exec main
        +0.1 exec sh
        +0.2 exec w
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> sh handler already-armed
        +1.0001 TERM main -> w default exiting already-armed
        +1.0002 enter sh TERM
        +1.001 exit w TERM looked already-armed
        +1.0011 tcp app cut 41000 5672 sent=900 received=90 last-sent=20 last-received=19 by=w
        +1.1 exit sh 0
        +1.2 exit main 0 looked already-armed
        ",
        expect![[r#"
            default-action: Stopped/DefaultAction/Quiet
              `dumb-init` forwarded SIGTERM to `node`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost
              fix: install a SIGTERM handler in `node` that finishes the work in flight and then exits with 0; `node` was 0.8 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
}

/// Of a unit with KillMode=mixed: systemd kills what is left as soon as the main process exits.
#[test]
fn a_job_in_its_shutdown_is_killed_at_the_main_processes_exit() {
    check(
        "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=bash
        proc job in=app.service pid=107 start=+0.1 parent=main comm=job
        +0.001 exec main
        +0.1 exec job
        +1 TERM systemd -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> job handler already-armed
        +1.0003 enter job TERM
        +1.0005 exit main 0 looked already-armed
        +1.01 KILL systemd -> job waiting=none already-armed
        +1.011 exit job KILL looked already-armed
        ",
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `bash` forwarded SIGTERM to `job`, whose handler ran; `bash` (pid 100) then exited with code 0, and systemd killed `job`, whose shutdown had not finished
              fix: let `bash` (pid 100) wait until `job` has exited: a trap interrupts `wait`, so a shell must call `wait` again after the trap, and a program must wait for its children before its own exit
        "#]],
    );
}

/// As HAProxy at SIGUSR1 from a shell: clients are refused while it drains for longer than [`crate::tolerances`] reach back from the exit.
#[test]
fn clients_are_refused_while_a_program_drains_unasked() {
    check(
        &container(
            "
        +20 USR1 bash -> main handler armed
        +20.0001 enter main USR1
        +20.01 tcp app closed 80
        +20.5 tcp app refused 80 5001
        +21 tcp app refused 80 5002
        +50 exit main 0 already-armed
        ",
        ),
        expect![[r#"
            clean-exit: Completed/Clean/Unknown
              PID 1 `app` exited by itself with code 0; clients were refused before, but too long ago to count without a stop of the container
        "#]],
    );
}

/// As `docker exec app pkill -TERM celery`: nobody inside the main process decided that its pool ends.
#[test]
fn a_command_from_inside_signals_a_main_process_and_its_pool() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=celery
        proc tool in=app pid=120 ns=20 start=+0.9 parent=shim comm=pkill
        proc child in=app pid=108 ns=8 start=+0.2 parent=main comm=celery
        +0.001 exec main
        +0.9 exec tool
        +1 TERM tool -> main handler unarmed
        +1.0001 enter main TERM
        +1.0005 exit child TERM looked unarmed
        +1.5 exit main 0 armed
        ",
        expect![[r#"
            unknown: Unknown/Unknown/Unknown
              PID 1 `celery` exited with code 0, but the reason is unknown: a process with the name of its parent, `celery`, was terminated by a signal; signals that follow a stop from inside the container are not recorded, and nothing shows whether that process had work in hand
              fix: send SIGTERM to the main process alone, so that `celery` stops its own processes
        "#]],
    );
}

/// As Debian's nginx, `Type=forking` with an `ExecStop=` of `start-stop-daemon`: the stop command is not the unit's main process.
#[test]
fn a_stop_command_of_a_daemon_is_not_its_main_process() {
    let stopped = |rest: &str| {
        format!(
            "
        +0 mkdir nginx.service
        proc launcher in=nginx.service pid=200 start=+0 parent=systemd comm=nginx
        proc master in=nginx.service pid=201 start=+0.05 parent=systemd comm=nginx
        proc worker in=nginx.service pid=202 start=+0.06 parent=master comm=nginx
        proc ssd in=nginx.service pid=300 start=+60 parent=systemd comm=start-stop-daem
        +0.001 exec launcher
        +0.1 exit launcher 0 armed leaves-others
        +60.001 exec ssd
        +60.002 QUIT ssd -> master handler unarmed
        +60.003 enter master QUIT
        {rest}
        "
        )
    };
    check(
        &stopped(
            "
        +60.1 tcp nginx.service closed 80 0 by=master by-own
        +60.2 exit worker 0 looked already-armed leaves-others
        +60.5 exit master SEGV looked already-armed leaves-others
        +60.52 exit ssd 0 looked already-armed
        ",
        ),
        expect![[r#"
            crashed: Unknown/Crashed/Unknown
              `nginx` (pid 201) crashed with SIGSEGV, 0.5 s after SIGQUIT
              fix: look at the core dump or the last lines of the log: the fault is in the program
        "#]],
    );
    // It gives up, and systemd stops the daemon.
    check(
        &stopped(
            "
        +65 exit ssd 2 looked armed leaves-others
        +65.01 TERM systemd -> master handler already-armed
        +65.02 enter master TERM
        +65.3 tcp nginx.service closed 80 0 by=master
        +65.4 exit worker 0 looked already-armed leaves-others
        +65.5 exit master 0 looked already-armed
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              systemd sent SIGTERM to `nginx` (pid 201), the handler ran, and the process exited with code 0, 0.5 s later
        "#]],
    );
}

/// A shell as PID 1 discards the stop signal, and somebody stops the program below it: by `docker exec … pkill`.
#[test]
fn a_program_is_stopped_from_inside_after_the_first_process_discarded_the_stop() {
    check(
        &container(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        proc tool in=app pid=120 ns=20 start=+2.9 parent=shim comm=pkill
        +0.1 exec server
        +1 TERM runc -> main ignored default armed
        +2.9 exec tool
        +3 TERM tool -> server default exiting already-armed
        +3.001 exit server TERM listening serving already-armed
        +3.1 exit main 0 already-armed
        ",
        ),
        expect![[r#"
            early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            default-action: Stopped/DefaultAction/Quiet
              `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the process exited with code 0, 2.1 s later, for another reason; `pkill` sent SIGTERM to `server`, which its default action terminated with its listener and connections open
              fix: install a SIGTERM handler in `server` that finishes the work in flight and then exits with 0
        "#]],
    );
}

/// The same, ended by somebody on the host; the shell passes the code on.
#[test]
fn a_program_is_killed_after_the_first_process_discarded_the_stop() {
    check(
        &container(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +1 TERM runc -> main ignored default armed
        +3 KILL bash -> server already-armed
        +3.001 exit server KILL listening serving already-armed
        +3.1 exit main 137 already-armed
        ",
        ),
        expect![[r#"
            early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            killed-by-other: Stopped/KilledByOther/Quiet
              `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal, and the process exited with code 137, 2.1 s later; `bash` (pid 70) killed `server`, which never got the signal, with its listener and connections open
              fix: find out why `server` was killed, and use the stop command of the container runtime instead
        "#]],
    );
}

/// As gunicorn on a path behind a unit's shell: which sockets the program had, its exit shows.
#[test]
fn a_units_shell_above_a_server_on_a_path() {
    check(
        "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        proc w in=app.service pid=107 start=+0.1 parent=main comm=gunicorn
        +0.001 exec main
        +0.1 exec w
        +1 TERM systemd -> main default exiting armed
        +1.0001 TERM systemd -> w handler already-armed
        +1.0002 enter w TERM
        +1.0005 exit main TERM looked already-armed leaves-others
        +1.5 exit w 0 last-on-a-path already-armed
        ",
        expect![[r#"
            clean-exit: Stopped/Clean/Unknown
              systemd sent SIGTERM to `gunicorn` (pid 107), the handler ran, and the process exited with code 0, 0.5 s later; a process served clients by a Unix or UDP socket, and what those lost is not observed
        "#]],
    );
}

/// What is no fault of the program's: each of these is clean, as the same without the helper is.
#[test]
fn helpers_are_no_programs() {
    let clean = |what: &str, script: String| {
        let shown = super::script::show(&super::script::run(&script), false);
        assert!(shown.contains("/Clean/"), "{what}: {shown}");
    };
    let init = |comm: &str, rest: &str| {
        format!(
            "
            +0 mkdir app
            proc main in=app pid=100 ns=1 start=+0 parent=shim comm={comm}
            proc web in=app pid=107 ns=7 start=+0.1 parent=main comm=web
            proc helper in=app pid=108 ns=8 start=+0.2 parent=main comm=helper
            proc below in=app pid=109 ns=9 start=+0.3 parent=web comm=ffmpeg
            +0.001 exec main
            +0.1 exec web
            +0.2 exec helper
            +0.3 exec below
            {rest}
            "
        )
    };
    // The job of an entrypoint has ended: it ends its own server, long after a stop that the kernel discarded.
    clean(
        "its own server",
        init(
            "sh",
            "
            +1 TERM runc -> main ignored default armed
            +5 TERM main -> web default exiting already-armed
            +5.001 exit web TERM listening already-armed
            +5.1 exit main 0 already-armed
            ",
        ),
    );
    clean(
        "the helper of a program in a signalled group",
        init(
            "dumb-init",
            "
            +10 TERM runc -> main default sigwait armed
            +10.0001 TERM main -> web handler already-armed
            +10.0001 TERM main -> below handler already-armed
            +10.0002 enter web TERM
            +10.0002 enter below TERM
            +10.0005 tcp app closed 80 0 by=web
            +10.001 KILL web -> below waiting=none already-armed
            +10.002 exit below KILL looked already-armed
            +10.2 exit web 0 already-armed
            +10.3 exit main 0 already-armed
            ",
        ),
    );
    clean(
        "a kill by somebody's command in the container",
        init(
            "bash",
            "
            proc tool in=app pid=120 ns=20 start=+1.9 parent=shim comm=kill
            +1 TERM runc -> main handler armed
            +1.0001 enter main TERM
            +1.0002 TERM main -> helper handler already-armed
            +1.0003 enter helper TERM
            +2 KILL tool -> helper waiting=none already-armed
            +2.001 exit helper KILL looked already-armed
            +2.1 exit main 0 already-armed
            ",
        ),
    );
    clean(
        "an exporter with the open connection of Prometheus",
        init(
            "supervisord",
            "
            +1 TERM runc -> main handler armed
            +1.0001 enter main TERM
            +1.0002 TERM main -> web handler already-armed
            +1.0003 enter web TERM
            +1.0004 TERM main -> helper default exiting already-armed
            +1.0005 tcp app closed 80 0 by=web
            +1.001 exit helper TERM listening serving already-armed
            +1.0011 tcp app closed 9100 0 by-exit by=helper
            +1.0012 tcp app cut 9100 40001 sent=9000 received=90 last-sent=9000 last-received=8000 by=helper
            +1.2 exit web 0 already-armed
            +1.3 exit main 0 already-armed
            ",
        ),
    );
    clean(
        "a download of a server that closes its listener",
        "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=gitea
        proc curl in=app.service pid=107 start=+0.1 parent=main comm=curl
        +0.001 exec main
        +0.1 exec curl
        +1 TERM systemd -> main handler armed
        +1.0001 TERM systemd -> curl default exiting already-armed
        +1.0002 enter main TERM
        +1.001 exit curl TERM looked already-armed leaves-others
        +1.0011 tcp app.service cut 41000 443 sent=900 received=90 last-sent=20 last-received=19 by=curl
        +1.1 tcp app.service closed 80 0 by=main
        +1.5 exit main 0 looked already-armed
        "
        .to_owned(),
    );
    clean(
        "an agent on a path beside a server below a unit's shell",
        "
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        proc agent in=app.service pid=106 start=+0.1 parent=systemd comm=ssh-agent
        proc web in=app.service pid=107 start=+0.2 parent=main comm=web
        +0.001 exec main
        +0.1 exec agent
        +0.2 exec web
        +1 TERM systemd -> main default exiting armed
        +1.0001 TERM systemd -> agent handler already-armed
        +1.0002 TERM systemd -> web handler already-armed
        +1.0003 enter agent TERM
        +1.0004 enter web TERM
        +1.0005 exit main TERM looked already-armed leaves-others
        +1.001 exit agent 2 last-on-a-path already-armed leaves-others
        +1.1 tcp app.service closed 80 0 by=web
        +1.5 exit web 0 looked already-armed
        "
        .to_owned(),
    );
    clean(
        "a subshell of a command in the container",
        init(
            "web",
            "
            proc tool in=app pid=120 ns=20 start=+0.8 parent=shim comm=bash
            proc sub in=app pid=121 ns=21 start=+0.9 parent=tool comm=bash
            +0.8 exec tool
            +1 TERM tool -> main handler unarmed
            +1.0001 enter main TERM
            +1.1 exit sub TERM unarmed from-outside
            +1.2 exit tool 0
            +1.5 exit main 0 armed
            ",
        ),
    );
}

/// The records of sockets would show that it was a program.
#[test]
fn without_the_records_of_sockets_a_default_action_is_not_clean() {
    let worker = |lost: &str| {
        format!(
            "
            +0 mkdir app.service
            proc main in=app.service pid=100 start=+0 parent=systemd comm=bash
            proc w in=app.service pid=107 start=+0.1 parent=main comm=node
            +0.001 exec main
            +0.1 exec w
            +1 TERM systemd -> main handler armed
            +1.0001 TERM systemd -> w default exiting already-armed
            +1.0002 enter main TERM
            +1.001 exit w TERM looked already-armed
            {lost}
            +1.1 exit main 0 looked already-armed
            "
        )
    };
    let shown = |script: &str| super::script::show(&super::script::run(script), false);
    let lost = shown(&worker("+1.0012 lost tcp +1.001 1 within app.service"));
    assert!(lost.starts_with("unknown"), "{lost}");
}

/// As a shell above a server that drains for longer than the agent was there: which of them was the program, its sockets would have shown.
#[test]
fn a_gap_after_the_end_of_a_units_shell_hides_which_process_was_the_program() {
    let stopped = |rest: &str| {
        format!(
            "
        -100 start
        +0 mkdir app.service
        proc main in=app.service pid=100 start=+0 parent=systemd comm=sh
        proc w in=app.service pid=107 start=+0.1 parent=main comm=server
        +0.001 exec main
        +0.1 exec w
        +1 TERM systemd -> main default exiting armed
        +1.0001 TERM systemd -> w handler already-armed
        +1.0002 enter w TERM
        +1.0005 exit main TERM looked already-armed leaves-others
        {rest}
        "
        )
    };
    check(
        &stopped("+6 tcp app.service closed 80 0 by=w\n+6.001 exit w 0 looked already-armed"),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              systemd sent SIGTERM to `server` (pid 107), the handler ran, and the process exited with code 0, 5.0 s later
        "#]],
    );
    check(
        &stopped("+2 tick\n+7 start\n+7 scanned\n+20 tick"),
        expect![[r#"
        unknown: Stopped/Unknown/Unknown
          `sh` (pid 100) was terminated by SIGTERM, but the reason is unknown: systemd stopped other processes of the unit, too, and nothing shows whether one of them was the program: the sockets were not observed
          fix: run `epitaph doctor`: the report names each probe that is not active on this kernel; records that were lost need a larger `kernel.ring_bytes`
    "#]],
    );
}

/// The shell between may have had more to do: its exit is not known, for a record was lost, or nobody observed.
#[test]
fn the_reason_why_an_exit_below_is_not_known_is_named() {
    let script = container(
        "
        proc wrap in=app pid=106 ns=6 start=+0.1 parent=main comm=sh
        proc server in=app pid=107 ns=7 start=+0.2 parent=wrap comm=server
        +0.1 exec wrap
        +0.2 exec server
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> wrap handler already-armed
        +1.0002 enter wrap TERM
        +1.0003 TERM wrap -> server default exiting already-armed
        +1.001 exit server TERM serving already-armed
        +1.003 lost sched_process_exit +1.0015 1 within app
        +1.004 exit main 143 already-armed
        ",
    );
    let mut reports = play(&script).into_iter();
    let facts = reports.find_map(|(_, report)| match report {
        Report::Terminated(of) => Some(of.facts),
        _ => None,
    });
    let mut facts = facts.expect("a termination");
    let sentence = |facts: &TerminationFacts| Termination::judged(facts.clone(), None).verdict.sentence;
    let lost = sentence(&facts);
    assert!(
        lost.ends_with("kernel records of process exits were lost during the termination"),
        "{lost}"
    );
    for claim in [Claim::Main, Claim::Others] {
        facts.missing.retain(claim, |_| false);
    }
    facts.missing.add(Claim::Others, [Hole::gap(facts.begin, Some(facts.end))]);
    let gap = sentence(&facts);
    assert!(gap.ends_with("epitaph was not observing for part of that time"), "{gap}");
}

/// An OOM kill of a process below goes before what the stop signal did inside, and before a SIGKILL that nobody is known to have sent.
#[test]
fn a_lost_oom_kill_below_blames_no_other() {
    let history = |rest: &str| {
        let script = container(&format!(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        proc worker in=app pid=108 ns=8 start=+0.1 parent=main comm=worker
        +0.1 exec server
        +0.1 exec worker
        {rest}
        "
        ));
        crate::fixtures::script::parse(&script).inputs
    };
    let victim = ZERO.plus(Duration::from_millis(1_500));
    let by_default = history(
        "
        +1 TERM runc -> main default sigwait armed
        +1.0001 TERM main -> server default exiting already-armed
        +1.5 oom worker
        +1.501 exit worker KILL looked already-armed
        +1.6 exit server TERM looked already-armed
        +1.601 exit main 143 already-armed
        ",
    );
    let killed = history(
        "
        +1 TERM runc -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> server handler already-armed
        +1.0003 enter server TERM
        +1.49 KILL server -> server kernel already-armed
        +1.5 oom server
        +1.501 exit server KILL listening serving already-armed
        +2 exit main 0 already-armed
        ",
    );
    for history in [by_default, killed] {
        assert_eq!(Rule::of(&history).lose(&[victim]), Ok(()));
    }
}

/// With sigwait(3) or signalfd(2): raising the signal again proves that the process had read it.
#[test]
fn who_reads_its_stop_signal_without_a_handler_raises_it_again() {
    // After its work.
    check(
        &container(
            "
        +1 TERM runc -> main default sigwait armed
        +1.1 tcp app closed 80 0
        +1.5 TERM main -> main default exiting already-armed
        +1.501 exit main TERM already-armed
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, which reads the signal without a handler (signalfd or sigwait), and the process then terminated itself with the same signal, 0.5 s later
        "#]],
    );
    // Without any.
    check(
        &container(
            "
        +1 TERM runc -> main default sigwait armed
        +1.0005 TERM main -> main default exiting already-armed
        +1.001 exit main TERM already-armed
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Unknown
              PID 1 `app` read SIGTERM, raised SIGTERM again at once, and was terminated by the default action: any work that it had not finished was lost
              fix: handle SIGTERM in the application that runs in PID 1 `app`: finish the work in flight, then exit with 0; the handler of a language runtime only raises the signal again
        "#]],
    );
    // Below an init.
    let below = |raised: &str| {
        container(&format!(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +1 TERM runc -> main default sigwait armed
        +1.0002 TERM main -> server default sigwait already-armed
        +{raised} TERM server -> server default exiting already-armed
        +1.501 exit server TERM looked already-armed
        +1.502 exit main 0 already-armed
        "
        ))
    };
    check(
        &below("1.5"),
        expect![[r#"
        clean-exit: Stopped/Clean/Unknown
          The container runtime sent SIGTERM to PID 1 `app`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `server`, and the process exited with code 0, 0.5 s later; whether clients used a Unix or UDP socket is not known: the process reads its stop signal without a handler (signalfd or sigwait)
    "#]],
    );
    check(
        &below("1.0004"),
        expect![[r#"
        default-action: Stopped/DefaultAction/Unknown
          `app` forwarded SIGTERM to `server`, which read SIGTERM and raised it again at once, so the default action terminated it: any work that it had not finished was lost
          fix: install a SIGTERM handler in `server` that finishes the work in flight and then exits with 0; `server` was 0.9 s old at SIGTERM: a handler that is installed later than that comes too late
    "#]],
    );
    // A listener that it closed in between would show its work.
    let closed = below("1.0004").replace("+1.0004 TERM", "+1.0003 tcp app closed 80 0 by=server\n+1.0004 TERM");
    let closed = crate::fixtures::script::parse(&closed).inputs;
    assert_eq!(Rule::of(&closed).lose(&[ZERO.plus(Duration::from_micros(1_000_300))]), Ok(()));
    // A second one while the first waits is no signal of its own: nothing shows that the first was read.
    check(
        &container(
            "
        +1 TERM runc -> main default blocked armed
        +1.5 TERM main -> main default pending already-armed
        +1.501 exit main TERM already-armed
        ",
        ),
        expect![[r#"
            crashed: Stopped/Crashed/Unknown
              PID 1 `app` terminated itself with SIGTERM, 0.5 s after SIGTERM
              fix: look for the reason in the last lines of the log of PID 1 `app`, which sent SIGTERM to itself
        "#]],
    );
}

/// In its shutdown a daemon has closed its listener, and its parent is outside, as that of an exec probe is.
#[test]
fn a_daemon_of_a_container_with_the_hosts_pids_is_killed_in_its_shutdown() {
    check(
        "
        +0 mkdir app
        proc main in=app pid=100 start=+0 parent=shim comm=runsvdir
        proc server in=app pid=107 start=+0.1 parent=shim comm=server
        +0.001 exec main
        +0.2 exec server
        +4.5 tcp app closed 8080 0 by=server
        +5 TERM shim -> main handler armed
        +5.0001 enter main TERM
        +5.0002 exit main 0 already-armed leaves-others
        +5.0003 KILL shim -> server waiting=none already-armed
        +5.001 exit server KILL already-armed
        +5.0011 tcp app cut 8080 40001 sent=9 received=90 last-sent=20 last-received=19 by-exit by=server
        ",
        expect![[r#"
            force-killed: Stopped/ForceKilled/Undecided
              The container runtime sent SIGTERM to `runsvdir` (pid 100), the handler ran, and the process exited with code 0, less than 1 ms later; the container runtime then killed `server`, which never got the signal, with connections open; 1 connection may have had a request under way, which the kernel cannot tell
              fix: `runsvdir` (pid 100) exits without waiting for `server`: let a shell stop the services first and wait for them (`trap 'kill $!; sv -w 8 shutdown DIR/*; exit 0' TERM; runsvdir DIR & wait`, with the directory of the services as DIR)
        "#]],
    );
}

/// As a preStop hook that signals PID 1, or a person: what the first signal led to is of the stop that follows.
#[test]
fn another_party_asks_just_before_the_runtime_does() {
    check(
        &container(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +1 TERM bash -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> server default exiting already-armed
        +1.001 exit server TERM listening serving already-armed
        +1.0011 tcp app closed 80 0 by-exit by=server
        +1.05 tcp app refused 80 40001
        +1.2 TERM runc -> main handler already-armed
        +1.2001 enter main TERM
        +1.3 exit main 0 already-armed
        ",
        ),
        expect![[r#"
            default-action: Stopped/DefaultAction/Refused
              `app` forwarded SIGTERM to `server`, which has no SIGTERM handler and was terminated by the default action: any work in flight was lost; 1 connection was refused in the 48 ms after the listener closed (10.0.0.2)
              fix: install a SIGTERM handler in `server` that finishes the work in flight and then exits with 0; `server` was 0.9 s old at SIGTERM: a handler that is installed later than that comes too late
        "#]],
    );
    // The program got it from the first one, and was killed in its shutdown.
    check(
        &container(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +1 TERM bash -> main handler armed
        +1.0001 enter main TERM
        +1.0002 TERM main -> server handler already-armed
        +1.0003 enter server TERM
        +1.2 TERM runc -> main handler already-armed
        +1.2001 enter main TERM
        +1.3 exit main 0 already-armed
        +1.3001 KILL main -> server kernel waiting=none already-armed
        +1.301 exit server KILL listening serving already-armed
        ",
        ),
        expect![[r#"
            killed-after-grace: Stopped/KilledAfterGrace/Quiet
              `app` forwarded SIGTERM to `server`, whose handler ran; PID 1 `app` then exited with code 0, and the kernel killed `server`, whose shutdown had not finished
              fix: let PID 1 `app` wait until `server` has exited: a trap interrupts `wait`, so a shell must call `wait` again after the trap, and a program must wait for its children before its own exit
        "#]],
    );
    // A reload of before is no stop.
    check(
        &container(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +1 HUP bash -> main handler armed
        +1.0001 enter main HUP
        +1.0002 TERM main -> server handler already-armed
        +1.0003 enter server TERM
        +1.001 exit server 0 looked already-armed
        +1.2 TERM runc -> main handler already-armed
        +1.2001 enter main TERM
        +1.3 exit main 0 already-armed
        ",
        ),
        expect![[r#"
            clean: Stopped/Clean/Quiet
              The container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later
        "#]],
    );
}

/// The OOM killer's choice is the only record of why a program ended by SIGKILL, and the shell above it exits with 0 at once.
#[test]
fn the_oom_killer_ends_a_program_below_a_shell_that_exits_with_0() {
    check(
        &container(
            "
        proc server in=app pid=107 ns=7 start=+0.1 parent=main comm=server
        +0.1 exec server
        +1 oom server
        +1.001 exit server KILL listening serving unarmed
        +1.014 exit main 0 armed
        ",
        ),
        expect![[r#"
            oom-child: Oom/OomChild/Unknown
              The OOM killer killed `server` (pid 107), which had sockets of clients, because memory ran out, and the main process, PID 1 `app`, exited with code 0, 14 ms later
              fix: raise the memory limit, or reduce the memory that is needed; let PID 1 `app` exit with an error if such a process fails
        "#]],
    );
}
