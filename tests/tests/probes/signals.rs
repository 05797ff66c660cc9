//! Signals, and what the kernel did with them.

use super::*;

#[test]
fn a_signal_record_has_the_kernels_result() {
    let mut probes = need!(Probes::load(), "not root");
    let me = std::process::id();
    for (role, disposition, result, blocked, exiting) in [
        ("default", Disposition::Default, SignalResult::Delivered, false, true),
        ("ignore", Disposition::Ignore, SignalResult::Ignored, false, false),
        ("handler", Disposition::Handler, SignalResult::Delivered, false, false),
        ("block", Disposition::Default, SignalResult::Delivered, true, false),
    ] {
        let (player, _) = Player::ready(&[role]);
        player.kill(signal::Signal::SIGTERM);
        let seen = probes.signal_to(player.pid(), 15);
        assert_eq!((seen.disposition, seen.result), (disposition, result), "{role}");
        assert_eq!((seen.state.blocked, seen.state.exiting), (blocked, exiting), "{role}");
        assert!(!seen.state.sigwait, "{role}");
        assert_eq!(
            (seen.code, seen.from_kernel, seen.group),
            (si_code::USER, false, true),
            "{role}"
        );
        assert_eq!((seen.sender.tgid, seen.target.ppid), (Pid(me), Pid(me)), "{role}");
        assert_eq!(seen.target.comm.to_string(), "probe-player", "{role}");
        assert_eq!(
            (seen.target.ns_pid, seen.target.is_ns_init()),
            (player.pid(), false),
            "{role}"
        );
        assert!(seen.target.start > seen.sender.start, "{role}");
    }
}

#[test]
fn an_entered_handler_is_reported_and_a_default_action_is_not() {
    let mut probes = need!(Probes::load(), "not root");
    let (handler, _) = Player::ready(&["handler"]);
    let (default, _) = Player::ready(&["default"]);
    default.kill(signal::Signal::SIGTERM);
    handler.kill(signal::Signal::SIGTERM);
    let entered = probes.wait("handler entered", |event| match event {
        Event::SignalDeliver(deliver) if deliver.task.tgid == Pid(handler.pid()) => Some(*deliver),
        _ => None,
    });
    assert_eq!(entered.signal, Signal::TERM);
    probes.exit_of(default.pid());
    assert_eq!(
        probes.count(|e| matches!(e, Event::SignalDeliver(d) if d.task.tgid == Pid(default.pid()))),
        0
    );
}

#[test]
fn stopped_and_frozen_targets_are_reported() {
    let mut probes = need!(Probes::load(), "not root");
    let (stopped, _) = Player::ready(&["default"]);
    stopped.kill(signal::Signal::SIGSTOP);
    let stat = format!("/proc/{}/stat", stopped.pid());
    wait_for("the stop", || {
        fs::read_to_string(&stat).expect("stat").contains(") T ").then_some(())
    });
    stopped.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(stopped.pid(), 15);
    assert!(
        seen.state.stopped && !seen.state.frozen && !seen.state.exiting,
        "{:?}",
        seen.state
    );

    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let frozen = Player::in_cgroup(&cgroup, "default");
    cgroup.write("cgroup.freeze", "1");
    wait_for("the freeze", || {
        let events = fs::read_to_string(cgroup.0.join("cgroup.events")).expect("events");
        events.contains("frozen 1").then_some(())
    });
    frozen.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(frozen.pid(), 15);
    assert!(seen.state.frozen && !seen.state.stopped, "{:?}", seen.state);
    assert_eq!(seen.target.cgroup, cgroup.id());
    cgroup.write("cgroup.freeze", "0");

    let Some(v1) = Cgroup::v1("freezer") else {
        println!("no v1 freezer on this machine, so no frozen target to report");
        return;
    };
    let frozen = Player::in_cgroup(&v1, "default");
    v1.write("freezer.state", "FROZEN");
    wait_for("the freeze", || {
        let state = fs::read_to_string(v1.0.join("freezer.state")).expect("state");
        (state.trim() == "FROZEN").then_some(())
    });
    frozen.kill(signal::Signal::SIGUSR1);
    let seen = probes.signal_to(frozen.pid(), 10);
    v1.write("freezer.state", "THAWED");
    assert!(seen.state.frozen, "{:?}", seen.state);
}

#[test]
fn noise_is_dropped_in_the_kernel_and_stop_signals_of_any_number_are_kept() {
    let mut probes = need!(Probes::load(), "not root");
    let (player, _) = Player::ready(&["default"]);
    let send = |number: i32| {
        // Not nix: it knows no number above 31.
        epitaph_tests::sys::kill(player.pid().cast_signed(), number).expect("kill");
    };
    for number in [17, 23, 18, 28] {
        send(number);
    }
    // 37, systemd's own: its default action ends the player.
    send(37);
    probes.signal_to(player.pid(), 37);
    let count = |number: u8| {
        probes.count(
            |e| matches!(e, Event::SignalGenerate(s) if s.target.tgid == Pid(player.pid()) && s.signal.number() == number),
        )
    };
    assert_eq!([17, 23, 18, 28, 37].map(count), [0, 0, 1, 1, 1]);
}

/// As tini and dumb-init read their signals: no handler enters, and at the SIGKILL nothing waits.
#[test]
fn a_wait_for_a_signal_is_reported_and_so_is_an_unread_signal() {
    let mut probes = need!(Probes::load(), "not root");
    let (mut waiting, _) = Player::ready(&["sigwait"]);
    // At that time the signal is not blocked.
    wait_for("the wait for signals", || (!blocks(waiting.pid(), 15)).then_some(()));
    waiting.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(waiting.pid(), 15);
    assert!(seen.state.sigwait && !seen.state.blocked, "{:?}", seen.state);
    assert_eq!(seen.result, SignalResult::Delivered);
    assert_eq!(waiting.line(), "read\n");
    let (other, _) = Player::ready(&["sigwait", "SIGHUP"]);
    wait_for("the wait for signals", || (!blocks(other.pid(), 1)).then_some(()));
    other.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(other.pid(), 15);
    assert!(!seen.state.sigwait && seen.state.blocked, "{:?}", seen.state);
    let (handler, _) = Player::ready(&["handler"]);
    handler.kill(signal::Signal::SIGTERM);
    probes.wait("handler entered", |event| {
        matches!(event, Event::SignalDeliver(deliver) if deliver.task.tgid == Pid(handler.pid())).then_some(())
    });
    let (blocking, _) = Player::ready(&["block"]);
    blocking.kill(signal::Signal::SIGTERM);
    for (player, unread) in [(waiting, false), (handler, false), (blocking, true)] {
        player.kill(signal::Signal::SIGKILL);
        let pending = probes.signal_to(player.pid(), 9).pending.expect("read");
        assert_eq!(
            (pending.contains(Signal::TERM), pending.contains(Signal::KILL)),
            (unread, true)
        );
    }
}

/// The signal mask of the main thread has the signal.
fn blocks(pid: u32, signal: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask");
    u64::from_str_radix(blocked.trim(), 16).expect("a mask") >> (signal - 1) & 1 != 0
}

/// rt_sigqueueinfo(2) refuses `SI_KERNEL` for other processes only. The kernel's SIGKILL for a CPU limit has the same sender.
#[test]
fn a_signal_that_a_process_queues_itself_as_the_kernels_is_not_the_kernels() {
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let dir = cgroup.0.to_str().expect("utf-8").to_owned();
    for (role, from_kernel, armed) in [("forge-kernel-kill", false, Armed::No), ("cpu-limit", true, Armed::ByThis)] {
        let mut player = Player::start(&["--cgroup", &dir, role]);
        assert_eq!(player.wait().signal(), Some(9), "{role}");
        let seen = probes.signal_to(player.pid(), 9);
        assert_eq!((seen.sender.tgid, seen.code), (seen.target.tgid, si_code::KERNEL), "{role}");
        assert_eq!((seen.from_kernel, seen.armed), (from_kernel, Some(armed)), "{role}");
        probes.exit_of(player.pid());
        probes.kernel.disarm(cgroup.id()).expect("disarm");
    }
}

/// SIGSYS of a seccomp filter. Before 5.16 a filter that kills raises no signal: the exit alone is recorded.
#[test]
fn a_refused_system_call_is_in_the_record_of_its_signal() {
    let mut probes = need!(Probes::load(), "not root");
    let refused = SystemCall {
        abi: match std::env::consts::ARCH {
            "aarch64" => CallAbi::Arm64,
            _ => CallAbi::X86_64,
        },
        number: libc::SYS_getppid as i32,
    };
    assert_eq!(refused.name(), Some("getppid"));
    for how in ["trap", "kill"] {
        let mut player = Player::start(&["seccomp", how]);
        assert_eq!(player.wait().signal(), Some(libc::SIGSYS), "{how}");
        // The kernel ends the process without a signal, and no record shows the exit of a process that got none.
        if how == "kill" && loading::kernel() < (5, 16) {
            continue;
        }
        let seen = probes.signal_to(player.pid(), libc::SIGSYS);
        assert_eq!((seen.code, seen.call), (si_code::SYS_SECCOMP, Some(refused)), "{how}");
    }
    // Of another, the same place in its siginfo has something else.
    let (player, _) = Player::ready(&["default"]);
    player.kill(signal::Signal::SIGSYS);
    let seen = probes.signal_to(player.pid(), libc::SIGSYS);
    assert_eq!((seen.code, seen.call), (si_code::USER, None));
}

/// Node.js: the handler raises again what it got, blocked until it returns and without a handler then.
#[test]
fn a_signal_that_a_namespaces_init_reads_without_a_handler_is_reported_as_discarded() {
    let mut probes = need!(Probes::load(), "not root");
    let player = env!("CARGO_BIN_EXE_probe-player");
    let mut unshare = Command::new("unshare")
        .args(["--pid", "--fork", player, "raise-again"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare(1)");
    let mut ready = String::new();
    let mut out = BufReader::new(unshare.stdout.take().expect("piped"));
    out.read_line(&mut ready).expect("read the player");
    assert_eq!(ready, "ready\n");
    let init = descendant(unshare.id());
    kill(pid(init), signal::Signal::SIGTERM).expect("signal");
    let discarded = probes.wait("the signal discarded", |event| match event {
        Event::SignalDiscarded(discarded) if discarded.task.tgid == Pid(init) => Some(*discarded),
        _ => None,
    });
    assert_eq!((discarded.signal, discarded.task.is_ns_init()), (Signal::TERM, true));
    let of_init = |event: &Event| matches!(event, Event::SignalDeliver(deliver) if deliver.task.tgid == Pid(init));
    assert_eq!(probes.count(of_init), 1, "its handler, once");
    // The process goes on, and exits with its input.
    drop(unshare.stdin.take());
    unshare.wait().expect("wait");
    assert_eq!(probes.exit_of(init).status, ExitStatus::Exited(0));

    // Any other process is terminated by it.
    let (mut other, _) = Player::ready(&["raise-again"]);
    other.kill(signal::Signal::SIGTERM);
    assert_eq!(other.wait().signal(), Some(15));
    probes.exit_of(other.pid());
    let of_other = |event: &Event| matches!(event, Event::SignalDiscarded(it) if it.task.tgid == Pid(other.pid()));
    assert_eq!(probes.count(of_other), 0);
}

#[test]
fn a_record_shows_whether_the_targets_sockets_are_recorded_from_now_on() {
    let mut probes = need!(Probes::load(), "not root");
    let (unwatched, _) = Player::ready(&["ignore"]);
    unwatched.kill(signal::Signal::SIGTERM);
    assert_eq!(probes.signal_to(unwatched.pid(), 15).armed, Some(Armed::No));

    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let dir = cgroup.0.to_str().expect("utf-8").to_owned();
    let (mut player, _) = Player::ready(&["--cgroup", &dir, "no-queue"]);
    // Not a stop signal; a signal that finds no room and is not delivered; a signal that is delivered without its sender's name.
    player.kill(signal::Signal::SIGCONT);
    let by_queue = Command::new(env!("CARGO_BIN_EXE_probe-player"))
        .args(["queue", &player.pid().to_string(), "35"])
        .output()
        .expect("queue a signal");
    assert!(!by_queue.status.success(), "there is no room");
    assert_eq!(probes.signal_to(player.pid(), 18).armed, Some(Armed::No));
    let failed = probes.signal_to(player.pid(), 35);
    assert_eq!((failed.result, failed.armed), (SignalResult::OverflowFail, Some(Armed::No)));
    assert!(!probes.kernel.armed().contains(&cgroup.id()));
    epitaph_tests::sys::kill(player.pid().cast_signed(), 37).expect("kill");
    let seen = probes.signal_to(player.pid(), 37);
    assert_eq!((seen.result, seen.armed), (SignalResult::LoseInfo, Some(Armed::ByThis)));
    assert!(probes.kernel.armed().contains(&cgroup.id()));
    player.wait();
    assert_eq!(
        probes.exit_of(player.pid()).armed,
        Some(Armed::ByThis),
        "its parent is outside, and it failed"
    );
    probes.kernel.disarm(cgroup.id()).expect("disarm");

    let mut ending = Player::start(&["--cgroup", &dir, "abort"]);
    ending.wait();
    assert_eq!(probes.exit_of(ending.pid()).armed, Some(Armed::ByThis), "by its own exit");
}

/// The announcements of agents change nothing for other processes.
#[test]
fn an_announcement_is_reported_and_arms_nothing() {
    let mut probes = need!(Probes::load(), "not root");
    let announcement_of = |probes: &mut Probes, pid: u32| {
        probes.wait("an announcement", |event| match event {
            Event::PeerAnnouncement(announcement) if announcement.task.tgid == Pid(pid) => Some(*announcement),
            _ => None,
        })
    };
    let me = std::process::id();
    announcement::send(0x00c0_ffee).expect("announce");
    let ours = announcement_of(&mut probes, me);
    assert_eq!((ours.nonce, ours.task.ns_pid), (0x00c0_ffee, me));

    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    probes.kernel.watch(cgroup.id(), watch::SELF, None).expect("watch");
    let code = epitaph_ebpf::announcement::code(7).to_string();
    let (player, _) = Player::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "announce", &code]);
    let theirs = announcement_of(&mut probes, player.pid());
    assert_eq!((theirs.nonce, theirs.task.cgroup), (7, cgroup.id()));
    assert!(!probes.kernel.armed().contains(&cgroup.id()));
    // The same signal from outside is httpd's stop.
    player.kill(signal::Signal::SIGWINCH);
    probes.signal_to(player.pid(), 28);
    assert!(probes.kernel.armed().contains(&cgroup.id()));
}

/// A program may take the new size of its terminal for a stop, as httpd does: only one with a handler, and it arms nothing.
#[test]
fn a_terminals_new_size_is_recorded_where_a_handler_is() {
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let devpts = Path::new("/dev/pts/ptmx").exists().then_some(());
    need!(devpts, "no devpts");
    probes.kernel.watch(cgroup.id(), watch::SELF, None).expect("watch");
    let dir = cgroup.0.to_str().expect("utf-8");
    let resized = |how: &str| {
        let (mut player, _) = Player::ready(&["--cgroup", dir, "resize", how]);
        player.order();
        assert_eq!(player.line(), "done\n");
        player
    };
    let player = resized("handler");
    let seen = probes.signal_to(player.pid(), 28);
    assert!(seen.from_kernel && seen.disposition == Disposition::Handler, "{seen:?}");
    assert_eq!(seen.armed, Some(Armed::No));
    let player = resized("");
    // What comes behind it.
    player.kill(signal::Signal::SIGHUP);
    probes.signal_to(player.pid(), 1);
    let is_size = |event: &Event| matches!(event, Event::SignalGenerate(s) if s.target.tgid == Pid(player.pid()) && s.signal.number() == 28);
    assert_eq!(probes.count(is_size), 0);
}

#[test]
fn init_of_a_pid_namespace_drops_unhandled_signals_and_its_exit_kills_the_rest() {
    let mut probes = need!(Probes::load(), "not root");
    let mut unshare = Command::new("unshare")
        .args(["--pid", "--fork", "sh", "-c", "sleep 1000 & sleep 1000 & wait"])
        .spawn()
        .expect("unshare(1)");
    let init = descendant(unshare.id());
    let kids = wait_for("two children", || Some(children_of(init)).filter(|kids| kids.len() == 2));

    kill(pid(init), signal::Signal::SIGTERM).expect("signal");
    let seen = probes.signal_to(init, 15);
    assert_eq!((seen.result, seen.disposition), (SignalResult::Ignored, Disposition::Default));
    assert!(seen.target.is_ns_init(), "{:?}", seen.target);
    let inum = fs::metadata(format!("/proc/{init}/ns/pid")).expect("ns").ino();
    assert_eq!(
        (u64::from(seen.target.pidns), seen.target.ns_level),
        (inum, seen.sender.ns_level + 1)
    );

    kill(pid(init), signal::Signal::SIGKILL).expect("signal");
    let exit = probes.exit_of(init);
    assert_eq!(
        exit.status,
        ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false
        }
    );
    assert!(exit.task.is_ns_init());
    for kid in kids {
        let seen = probes.signal_to(kid, 9);
        assert_eq!(
            (seen.code, seen.from_kernel, seen.sender.tgid),
            (si_code::KERNEL, true, Pid(init))
        );
        assert!(seen.target.ns_pid > 1);
        probes.exit_of(kid);
    }
    unshare.wait().expect("wait");
}

#[test]
fn a_name_with_escape_sequences_stays_text() {
    let mut probes = need!(Probes::load(), "not root");
    let (player, _) = Player::ready(&["comm"]);
    player.kill(signal::Signal::SIGTERM);
    assert_eq!(
        probes.signal_to(player.pid(), 15).target.comm.to_string(),
        r"a\u{1b}[31m\xff\\z"
    );
}
