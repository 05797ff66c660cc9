//! Signals, and what the kernel did with them.

use super::*;

#[test]
fn a_signal_tells_what_the_kernel_did_with_it() {
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
        assert_eq!((seen.code, seen.group), (si_code::USER, true), "{role}");
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
fn a_handler_entered_is_told_and_a_default_action_is_not() {
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
fn stopped_and_frozen_targets_are_told() {
    let mut probes = need!(Probes::load(), "not root");
    let (stopped, _) = Player::ready(&["default"]);
    stopped.kill(signal::Signal::SIGSTOP);
    let stat = format!("/proc/{}/stat", stopped.pid());
    while !fs::read_to_string(&stat).expect("stat").contains(") T ") {
        sleep(Duration::from_millis(1));
    }
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
    while !fs::read_to_string(cgroup.0.join("cgroup.events"))
        .expect("events")
        .contains("frozen 1")
    {
        sleep(Duration::from_millis(1));
    }
    frozen.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(frozen.pid(), 15);
    assert!(seen.state.frozen && !seen.state.stopped, "{:?}", seen.state);
    assert_eq!(seen.target.cgroup, cgroup.id());
    cgroup.write("cgroup.freeze", "0");

    let Some(v1) = Cgroup::v1("freezer") else {
        println!("no v1 freezer on this machine, so none to be told");
        return;
    };
    let frozen = Player::in_cgroup(&v1, "default");
    v1.write("freezer.state", "FROZEN");
    while fs::read_to_string(v1.0.join("freezer.state")).expect("state").trim() != "FROZEN" {
        sleep(Duration::from_millis(1));
    }
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

/// What agents say to each other costs nobody anything.
#[test]
fn a_hello_is_heard_and_arms_nothing() {
    let mut probes = need!(Probes::load(), "not root");
    let hello_of = |probes: &mut Probes, pid: u32| {
        probes.wait("a hello", |event| match event {
            Event::Hello(hello) if hello.task.tgid == Pid(pid) => Some(*hello),
            _ => None,
        })
    };
    let me = std::process::id();
    hello::say(0x00c0_ffee).expect("say hello");
    let ours = hello_of(&mut probes, me);
    assert_eq!((ours.nonce, ours.task.ns_pid), (0x00c0_ffee, me));

    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    probes.kernel.watch(cgroup.id(), watch::SELF).expect("watch");
    let code = epitaph_ebpf::hello::code(7).to_string();
    let (player, _) = Player::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "hello", &code]);
    let theirs = hello_of(&mut probes, player.pid());
    assert_eq!((theirs.nonce, theirs.task.cgroup), (7, cgroup.id()));
    assert!(!probes.kernel.armed().contains(&cgroup.id()));
    // The same signal from outside is httpd's stop.
    player.kill(signal::Signal::SIGWINCH);
    probes.signal_to(player.pid(), 28);
    assert!(probes.kernel.armed().contains(&cgroup.id()));
}

#[test]
fn init_of_a_pid_namespace_drops_what_it_does_not_handle_and_takes_the_rest_with_it() {
    let mut probes = need!(Probes::load(), "not root");
    let mut unshare = Command::new("unshare")
        .args(["--pid", "--fork", "sh", "-c", "sleep 1000 & sleep 1000 & wait"])
        .spawn()
        .expect("unshare(1)");
    let init = descendant(unshare.id());
    let kids = wait_for(|| Some(children_of(init)).filter(|kids| kids.len() == 2));

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
        assert_eq!((seen.code, seen.sender.tgid), (si_code::KERNEL, Pid(init)));
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
