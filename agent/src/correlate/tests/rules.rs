//! Exit and cause: one rule or one pair of rules each.

use expect_test::expect;

use super::{check, check_evidence, container, unit};

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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
    );
}

#[test]
fn force_killed() {
    check(
        &container(
            "
        +11 KILL runc -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn force_killed_by_cgroup_kill() {
    check_evidence(
        &container(
            "
        +11 KILL runc -> main cgroup.kill
        +11.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn killed_by_a_stranger() {
    check(
        &container(
            "
        +11 KILL bash -> main
        +11.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn killed_by_a_stranger_inside_the_grace() {
    check_evidence(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +3 KILL bash -> main
        +3.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn killed_by_a_stranger_after_it_was_ignored() {
    check(
        &container(
            "
        +1 TERM runc -> main ignored default
        +3 KILL bash -> main
        +3.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn an_operators_term_is_not_the_runtimes() {
    check(
        &unit(
            "
        +1 TERM bash -> main handler
        +1.001 enter main TERM
        +2 exit main 0
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn an_operators_term_by_default_action() {
    check(
        &unit(
            "
        +1 TERM bash -> main default
        +1.001 exit main TERM
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn an_operators_usr1_kills() {
    check(
        &unit(
            "
        +1 USR1 bash -> main default
        +1.001 exit main USR1
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn the_runtime_kills_what_an_operator_had_asked() {
    check(
        &container(
            "
        +1 TERM bash -> main handler
        +1.001 enter main TERM
        +3 KILL runc -> main
        +3.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn oom_of_the_main_process() {
    check_evidence(
        &container(
            "
        +1 KILL main -> main kernel
        +1.0001 oom main
        +1.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn oom_inside_the_grace() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 KILL main -> main kernel
        +2.0001 oom main
        +2.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn marked_while_dying_of_a_kill_is_no_oom() {
    check(
        &container(
            "
        +1 KILL bash -> main
        +1.0001 oom main
        +1.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn oom_of_a_child_and_the_main_process_lives() {
    check(
        &container(
            "
        proc worker in=app pid=101 ns=7 start=+0.5 parent=main comm=worker
        +1 KILL worker -> worker kernel
        +1.0001 oom worker
        +1.001 exit worker KILL
        +2 tick
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn oom_of_a_child_and_the_main_process_ends_by_it() {
    check(
        &container(
            "
        proc worker in=app pid=101 ns=7 start=+0.5 parent=main comm=worker
        +1 KILL worker -> worker kernel
        +1.0001 oom worker
        +1.001 exit worker KILL
        +1.05 exit main 137
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn oom_of_a_child_long_before_is_not_the_reason() {
    check(
        &container(
            "
        proc worker in=app pid=101 ns=7 start=+0.5 parent=main comm=worker
        +1 KILL worker -> worker kernel
        +1.0001 oom worker
        +1.001 exit worker KILL
        +2 tick
        +30 exit main 1
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn oom_of_a_whole_cgroup_is_the_main_processes() {
    check(
        &container(
            "
        proc worker in=app pid=101 ns=7 start=+0.5 parent=main comm=worker
        +1 KILL worker -> worker kernel
        +1.0001 oom worker
        +1.0002 KILL worker -> main kernel
        +1.0003 oom main
        +1.001 exit worker KILL
        +1.002 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn an_oom_victim_of_which_only_the_pid_is_told() {
    check(
        &container(
            "
        +1 KILL main -> main kernel
        +1.0001 oom main pid-only
        +1.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_limit_is_no_oom() {
    check(
        &unit(
            "
        +1 KILL main -> main kernel
        +1.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_kernel_kill_that_nothing_explains() {
    check(
        &unit(
            "
        +1 KILL bash -> main kernel
        +1.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_fault() {
    check(
        &container(
            "
        +1 SEGV main -> main fault
        +1.001 exit main SEGV core
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn an_abort() {
    check(
        &container(
            "
        +1 ABRT main -> main thread
        +1.001 exit main ABRT
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_fault_during_the_shutdown() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 SEGV main -> main fault
        +2.001 exit main SEGV core
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_fault_signal_from_outside_is_no_fault() {
    check(
        &unit(
            "
        +1 SEGV bash -> main default
        +1.001 exit main SEGV core
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn systemds_watchdog_is_a_stop_signal() {
    check(
        &unit(
            "
        +1 ABRT systemd -> main default
        +1.001 exit main ABRT core
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn kill_9_by_itself() {
    check(
        &unit(
            "
        +1 KILL main -> main
        +1.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn killed_by_its_own_child() {
    check(
        &unit(
            "
        proc child in=web.service pid=201 start=+0.5 parent=main comm=child
        +1 KILL child -> main
        +1.001 exit main KILL
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn completed() {
    check(
        &container(
            "
        +5 exit main 0
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn nonzero_exit_by_itself() {
    check(
        &container(
            "
        +5 exit main 3
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn nonzero_exit_after_a_stop() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +2 exit main 2
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_go_program_as_pid_1_exits_2() {
    check(
        &container(
            "
        +1 TERM runc -> main handler
        +1.001 enter main TERM
        +1.01 exit main 2
        ",
        ),
        expect![[""]],
    );
}

#[test]
fn a_terminals_interrupt() {
    check(
        &unit(
            "
        +1 INT bash -> main kernel default
        +1.001 exit main INT
        ",
        ),
        expect![[""]],
    );
}
