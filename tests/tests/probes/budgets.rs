//! What a container can make the probes record: noise that can be no evidence is dropped, the rest is bounded, and what goes
//! beyond is counted as that container's own loss.

use epitaph_core::event::HeldSockets;
use epitaph_ebpf::{Class, limits};
use epitaph_tests::sys::boot_now;

use super::*;

const BOTH: u64 = watch::SELF | watch::CHILDREN;

/// A cgroup that user space has named as a container's.
fn container(probes: &mut Probes) -> Option<Cgroup> {
    let cgroup = Cgroup::v2()?;
    probes.kernel.watch(cgroup.id(), BOTH, Some(cgroup.id())).expect("watch");
    Some(cgroup)
}

fn path(cgroup: &Cgroup) -> &str {
    cgroup.0.to_str().expect("utf-8")
}

/// `probe-player storm`, and the processes that it sends signals to.
fn storm(cgroup: &Cgroup, count: usize, nested: &[&str]) -> (Player, Vec<u32>) {
    let (count, mut args) = (count.to_string(), vec!["--cgroup", path(cgroup), "storm"]);
    args.push(&count);
    args.extend(nested);
    let (player, pids) = Player::ready(&args);
    (player, pids.split(' ').map(|pid| pid.parse().expect("a pid")).collect())
}

fn done(player: &mut Player) {
    player.order();
    assert_eq!(player.line(), "done\n");
}

fn lost(losses: &[Loss], kind: Kind, scope: LossScope) -> u64 {
    let of = losses.iter().filter(|loss| loss.kind == kind && loss.scope == scope);
    of.map(|loss| loss.count).sum()
}

fn signals_to(probes: &Probes, pid: u32, number: u8) -> usize {
    probes.count(|e| matches!(e, Event::SignalGenerate(s) if s.target.tgid == Pid(pid) && s.signal.number() == number))
}

#[test]
fn a_signal_within_a_container_is_recorded_if_it_can_be_evidence() {
    const SENT: usize = 50;
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(container(&mut probes), "no cgroup v2");
    let (mut player, others) = storm(&cgroup, SENT, &[]);
    done(&mut player);
    probes.settle();
    assert_eq!(signals_to(&probes, others[0], 15), 0, "no stop is in progress");

    // From outside, and to the first process.
    kill(pid(others[0]), signal::Signal::SIGTERM).expect("signal");
    probes.signal_to(others[0], 15);
    assert!(!probes.kernel.armed().contains(&cgroup.id()), "not the first process");
    player.kill(signal::Signal::SIGCONT);
    probes.signal_to(player.pid(), 18);

    probes.kernel.arm(cgroup.id()).expect("arm");
    done(&mut player);
    probes.settle();
    assert_eq!(signals_to(&probes, others[0], 15), 1 + SENT, "a stop is in progress");
    probes.kernel.disarm(cgroup.id()).expect("disarm");

    // It kills its child at its end: a SIGKILL is always recorded.
    drop(player.child.stdin.take());
    player.wait();
    let killed = probes.signal_to(others[0], 9);
    assert_eq!(killed.sender.tgid, Pid(player.pid()));
    let own = [LossScope::Within(cgroup.id()), LossScope::Others(cgroup.id())];
    assert!(!probes.kernel.lost().iter().any(|loss| own.contains(&loss.scope)));
}

#[test]
fn a_storm_of_signals_costs_no_other_container_a_record() {
    let mut probes = need!(Probes::load(), "not root");
    let noisy = need!(container(&mut probes), "no cgroup v2");
    let quiet = need!(container(&mut probes), "no cgroup v2");
    let victim = Player::in_cgroup(&quiet, "handler");
    // Nested cgroups, each with what looks like a first process, have the budget of the container around them.
    let nested = ["a", "b", "c"].map(|name| noisy.child(name));
    let sent = 16 * Class::SignalWithin.budget() as usize;
    let (mut player, others) = storm(&noisy, sent, &nested.each_ref().map(path));
    done(&mut player);
    victim.kill(signal::Signal::SIGTERM);
    probes.signal_to(victim.pid(), 15);
    probes.wait("handler entered", |event| {
        matches!(event, Event::SignalDeliver(deliver) if deliver.task.tgid == Pid(victim.pid())).then_some(())
    });
    probes.settle();
    let losses = probes.kernel.lost();
    let recorded: usize = others.iter().map(|&pid| signals_to(&probes, pid, 15)).sum();
    let of_noisy = lost(&losses, Kind::SignalGenerate, LossScope::Within(noisy.id())) as usize;
    assert_eq!(recorded + of_noisy, sent, "{losses:?}");
    assert!(of_noisy > 0, "{losses:?}");
    let of_others = |loss: &&Loss| {
        let own = [LossScope::Within(noisy.id()), LossScope::Others(noisy.id())];
        loss.kind == Kind::SignalGenerate && !own.contains(&loss.scope)
    };
    assert_eq!(losses.iter().find(of_others), None);
    // Reported once.
    assert_eq!(
        lost(&probes.kernel.lost(), Kind::SignalGenerate, LossScope::Within(noisy.id())),
        0
    );
    drop(player);
}

#[test]
fn a_storm_of_exits_hides_no_first_process() {
    const ROUND: u32 = 500;
    let mut probes = need!(Probes::load(), "not root");
    let noisy = need!(container(&mut probes), "no cgroup v2");
    let rounds = Class::ExitOfOther.budget().div_ceil(ROUND) + 1;
    let sent = rounds * ROUND;
    let (mut player, _) = Player::ready(&["--cgroup", path(&noisy), "exits", &ROUND.to_string()]);
    for _ in 0..rounds {
        done(&mut player);
        probes.drain();
    }
    drop(player.child.stdin.take());
    player.wait();
    assert_eq!(probes.exit_of(player.pid()).status, ExitStatus::Exited(0));
    let recorded = probes.count(|e| matches!(e, Event::ProcessExit(exit) if exit.task.ppid == Pid(player.pid()))) as u64;
    let losses = probes.kernel.lost();
    let others = lost(&losses, Kind::ProcessExit, LossScope::Others(noisy.id()));
    assert_eq!(recorded + others, u64::from(sent), "{losses:?}");
    assert_eq!(lost(&losses, Kind::ProcessExit, LossScope::Within(noisy.id())), 0);
}

#[test]
fn listeners_of_one_container_leave_room_for_those_of_others() {
    const CLOSED: u64 = 3 * limits::PORTS;
    let mut probes = need!(Probes::load(), "not root");
    let noisy = need!(container(&mut probes), "no cgroup v2");
    let quiet = need!(container(&mut probes), "no cgroup v2");
    let (mut server, at) = Player::ready(&["--cgroup", path(&quiet), "listen", "127.0.0.1:0"]);
    let (mut player, _) = Player::ready(&["--cgroup", path(&noisy), "churn", &CLOSED.to_string()]);
    for cgroup in [&noisy, &quiet] {
        probes.kernel.arm(cgroup.id()).expect("arm");
    }
    done(&mut player);
    probes.drain();
    // A few ports may have been taken again.
    let losses = probes.kernel.lost();
    let of_noisy = lost(&losses, Kind::Tcp, LossScope::Within(noisy.id()));
    assert!((1..=CLOSED - limits::PORTS).contains(&of_noisy), "{losses:?}");

    server.order();
    assert_eq!(server.line(), "closed\n");
    let at: std::net::SocketAddr = at.parse().expect("an address");
    TcpStream::connect(at).expect_err("nothing listens");
    let refused = probes.tcp("refused", |tcp| !tcp.has_socket && tcp.local == at);
    assert_eq!(refused.cgroup, Some(quiet.id()));
    let losses = probes.kernel.lost();
    assert_eq!(lost(&losses, Kind::Tcp, LossScope::Within(quiet.id())), 0, "{losses:?}");

    // Disarmed, it gives its ports back, and no others.
    probes.kernel.disarm(noisy.id()).expect("disarm");
    probes.kernel.give_back_ports().expect("give back");
    probes.kernel.arm(noisy.id()).expect("arm");
    drop(player);
    let few = (limits::PORTS / 2).to_string();
    let (mut player, _) = Player::ready(&["--cgroup", path(&noisy), "churn", &few]);
    done(&mut player);
    let losses = probes.kernel.lost();
    assert_eq!(lost(&losses, Kind::Tcp, LossScope::Within(noisy.id())), 0, "{losses:?}");
}

#[test]
fn an_exit_with_a_clients_socket_has_the_sockets_recorded_and_no_other_exit() {
    let none = HeldSockets::default();
    let listener = HeldSockets { listener: true, ..none };
    let connection = HeldSockets {
        connection: true,
        ..none
    };
    let more = HeldSockets { more: true, ..none };
    let unix = HeldSockets {
        unix_listener: true,
        last_unix_listener: true,
        ..none
    };
    let cases = [
        ("nothing", none, false),
        ("client", none, false),
        ("listener", listener, false),
        ("accepted", connection, false),
        ("last-of-100", listener, false),
        ("last-of-200", more, false),
        ("300", more, false),
        ("udp", none, true),
        ("udp-after-200", more, false),
        // Two of those far above are looked at in each row of 64.
        ("udp-at-300", none, true),
        ("files-at-130-140-and-255", none, false),
        ("unix-listener", unix, false),
        ("unix-accepted", none, true),
    ];
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(container(&mut probes), "no cgroup v2");
    let args: Vec<&str> = ["--cgroup", path(&cgroup), "holds"]
        .into_iter()
        .chain(cases.iter().map(|(what, ..)| *what))
        .collect();
    let (mut player, _) = Player::ready(&args);
    for (what, held, unobserved) in cases {
        player.order();
        let line = player.line();
        let exit = probes.exit_of(line.trim().parse().expect("a process id"));
        assert!(exit.held == Some(held), "{what}: {exit:?}");
        assert_eq!(exit.unobserved, unobserved, "{what}: {exit:?}");
        let is_armed = probes.kernel.armed().contains(&cgroup.id());
        assert_eq!(is_armed, held.is_of_clients(exit.is_own), "{what}");
        let armed = if held.is_of_clients(exit.is_own) {
            Armed::ByOwn
        } else {
            Armed::No
        };
        assert_eq!(exit.armed, Some(armed), "{what}");
        probes.kernel.disarm(cgroup.id()).expect("disarm");
    }
    // The player itself came in from outside.
    let pid = player.pid();
    drop(player.child.stdin.take());
    player.wait();
    assert_eq!(probes.exit_of(pid).held, None);
}

/// Long before its exit, a server may have closed what no other probe observes.
#[test]
fn an_entered_handler_shows_other_sockets_while_they_are_recorded() {
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(container(&mut probes), "no cgroup v2");
    let none = UnseenSockets::default();
    let unix = UnseenSockets {
        unix_listener: true,
        last_unix_listener: true,
        ..none
    };
    let udp = UnseenSockets { udp: true, ..none };
    let more = UnseenSockets { more: true, ..none };
    let cases = [
        ("unix", unix),
        ("udp", udp),
        ("tcp", none),
        ("udp-after-100", more),
        ("udp-at-100", udp),
    ];
    for (held, open) in cases {
        let (player, _) = Player::ready(&["--cgroup", path(&cgroup), "handler", held]);
        // It arms the sockets before the handler starts.
        player.kill(signal::Signal::SIGTERM);
        let entered = probes.wait("handler entered", |event| match event {
            Event::SignalDeliver(deliver) if deliver.task.tgid == Pid(player.pid()) => Some(*deliver),
            _ => None,
        });
        assert_eq!(entered.open, open, "{held}");
    }
}

#[test]
fn a_listener_that_closes_has_the_sockets_of_a_watched_cgroup_recorded() {
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(container(&mut probes), "no cgroup v2");
    let churn = || {
        let (mut player, _) = Player::ready(&["--cgroup", path(&cgroup), "churn", "1"]);
        done(&mut player);
        player
    };
    let _first = churn();
    let closed = probes.tcp("closed", |tcp| tcp.closes_listener() && tcp.cgroup == Some(cgroup.id()));
    assert!(closed.close.by_own, "{closed:?}");
    assert!(probes.kernel.armed().contains(&cgroup.id()));
    // Observed for another reason from now on.
    probes.kernel.arm(cgroup.id()).expect("arm");
    let _again = churn();
    let closed = probes.tcp("closed for others", |tcp| {
        tcp.closes_listener() && tcp.cgroup == Some(cgroup.id()) && !tcp.close.by_own
    });
    assert!(!closed.close.by_own);
    probes.kernel.disarm(cgroup.id()).expect("disarm");
    assert!(!probes.kernel.armed().contains(&cgroup.id()));
}

/// Nested cgroups of a container, more than its budget has room for.
const NESTED: usize = 40;

/// A player of `role` in each of [`NESTED`] cgroups of the container.
fn nested_players(container: &Cgroup, role: [&str; 2]) -> (Vec<Cgroup>, Vec<Player>) {
    let nested: Vec<Cgroup> = (0..NESTED).map(|n| container.child(&format!("n{n}"))).collect();
    let player = |cgroup: &Cgroup| Player::ready(&["--cgroup", path(cgroup), role[0], role[1]]).0;
    let players = nested.iter().map(player).collect();
    (nested, players)
}

/// Of the nested cgroups, those that are armed: at most the container's budget of so many windows.
fn armed_within(probes: &Probes, nested: &[Cgroup], windows: u64) -> u64 {
    let is_nested = |cgroup: &&CgroupId| nested.iter().any(|nested| nested.id() == **cgroup);
    let armed = probes.kernel.armed().iter().filter(is_nested).count() as u64;
    assert!(
        armed <= windows * u64::from(Class::Arm.budget()),
        "{armed} in {windows} windows"
    );
    armed
}

/// Of many nested cgroups; and none of its ports takes the refused clients of another container.
#[test]
fn a_container_has_few_of_its_cgroups_recorded_for_its_own_doing() {
    let mut probes = need!(Probes::load(), "not root");
    let noisy = need!(container(&mut probes), "no cgroup v2");
    let (nested, mut players) = nested_players(&noisy, ["churn", "1"]);
    let begin = boot_now();
    players.iter_mut().for_each(done);
    let windows = (boot_now() - begin) / limits::WINDOW_NS + 2;
    let armed = armed_within(&probes, &nested, windows);
    let losses = probes.kernel.lost();
    let lost = lost(&losses, Kind::Tcp, LossScope::Within(noisy.id()));
    assert_eq!(armed + lost, NESTED as u64, "{losses:?}");
}

/// The same by processes that exit with a client's socket.
#[test]
fn a_container_has_few_of_its_cgroups_recorded_for_its_exits() {
    let mut probes = need!(Probes::load(), "not root");
    let noisy = need!(container(&mut probes), "no cgroup v2");
    let (nested, mut players) = nested_players(&noisy, ["holds", "listener"]);
    let begin = boot_now();
    let mut ended: Vec<u32> = Vec::new();
    for player in &mut players {
        player.order();
        ended.push(player.line().trim().parse().expect("a process id"));
    }
    let windows = (boot_now() - begin) / limits::WINDOW_NS + 2;
    let mut by_exit = 0;
    for pid in ended {
        let exit = probes.exit_of(pid);
        assert!(exit.held.is_some_and(|held| held.listener), "{exit:?}");
        // One that was not recorded from then on says so; its listener, which closes then, is another reason.
        by_exit += u64::from(exit.armed == Some(Armed::ByOwn));
    }
    let armed = armed_within(&probes, &nested, windows);
    assert!((1..=armed).contains(&by_exit), "{by_exit} of {armed} by their exits");
    let losses = probes.kernel.lost();
    let lost = lost(&losses, Kind::Tcp, LossScope::Within(noisy.id()));
    assert!(armed + lost >= NESTED as u64, "{armed}, {losses:?}");
}

#[test]
fn a_listener_of_ones_own_takes_no_port_of_a_container_that_is_stopped() {
    let mut probes = need!(Probes::load(), "not root");
    let noisy = need!(container(&mut probes), "no cgroup v2");
    let quiet = need!(container(&mut probes), "no cgroup v2");
    // Nobody else gets the port between the two listeners.
    let reserved = format!("127.0.0.1:{}", free_port().expect("a port"));
    let (mut server, at) = Player::ready(&["--cgroup", path(&quiet), "listen", &reserved]);
    probes.kernel.arm(quiet.id()).expect("arm");
    server.order();
    assert_eq!(server.line(), "closed\n");
    let (mut neighbour, same) = Player::ready(&["--cgroup", path(&noisy), "listen", &at]);
    assert_eq!(at, same);
    neighbour.order();
    assert_eq!(neighbour.line(), "closed\n");
    let at: std::net::SocketAddr = at.parse().expect("an address");
    let closed = probes.tcp("closed", |tcp| {
        tcp.closes_listener() && tcp.cgroup == Some(noisy.id()) && tcp.local == at
    });
    assert!(closed.close.by_own);
    TcpStream::connect(at).expect_err("nothing listens");
    let refused = probes.tcp("refused", |tcp| !tcp.has_socket && tcp.local == at);
    assert_eq!(refused.cgroup, Some(quiet.id()));
    let losses = probes.kernel.lost();
    assert_eq!(lost(&losses, Kind::Tcp, LossScope::Within(quiet.id())), 0, "{losses:?}");
    assert!(lost(&losses, Kind::Tcp, LossScope::Within(noisy.id())) > 0, "{losses:?}");
}

#[test]
fn no_container_has_its_own_sockets_recorded() {
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(container(&mut probes), "no cgroup v2");
    // Of its own cgroups, one inside the other.
    let nested = cgroup.child("nested");
    let (mut player, others) = storm(&cgroup, 1, &[path(&nested)]);
    done(&mut player);
    assert_eq!(probes.signal_to(others[0], 15).armed, Some(Armed::No));
    // It ends its child first: an orphan's new parent would be this machine's init, outside.
    drop(player.child.stdin.take());
    player.wait();
    probes.settle();
    let armed = probes.kernel.armed();
    assert!(!armed.contains(&nested.id()), "{armed:?}");

    if !Path::new("/dev/pts/ptmx").exists() {
        println!("no devpts on this machine, so no terminal that hangs up");
        return;
    }
    let cgroup = need!(container(&mut probes), "no cgroup v2");
    let (mut player, _) = Player::ready(&["--cgroup", path(&cgroup), "hang-up"]);
    done(&mut player);
    let seen = probes.signal_to(player.pid(), 1);
    assert!(seen.from_kernel, "{seen:?}");
    assert_eq!(seen.armed, Some(Armed::No));
}

#[test]
fn records_of_both_rings_come_in_the_order_of_their_times() {
    const ROUNDS: usize = 100;
    const BACKLOG: usize = 1_500;
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(container(&mut probes), "no cgroup v2");
    let rare = Player::in_cgroup(&cgroup, "ignore");
    let (ordinary, _) = Player::ready(&["ignore"]);
    for _ in 0..ROUNDS {
        rare.kill(signal::Signal::SIGTERM);
        ordinary.kill(signal::Signal::SIGTERM);
    }
    // More than one drain takes.
    for _ in 0..BACKLOG {
        ordinary.kill(signal::Signal::SIGTERM);
    }
    rare.kill(signal::Signal::SIGTERM);
    probes.settle();
    let both = [Pid(rare.pid()), Pid(ordinary.pid())];
    let ours = probes.seen.iter().filter_map(|(at, event)| match event {
        Event::SignalGenerate(signal) if both.contains(&signal.target.tgid) => Some((*at, signal.target.tgid)),
        _ => None,
    });
    let ours: Vec<(Boot, Pid)> = ours.collect();
    // The last one too: a full batch leaves one record of the other ring over, and a later drain has it.
    assert_eq!(ours.len(), 2 * ROUNDS + BACKLOG + 1, "{:?}", probes.kernel.lost());
    assert!(ours.is_sorted(), "{ours:?}");
}

/// The core judges what is due by a record's time: all that happened before must have come.
#[test]
fn a_record_that_comes_during_a_drain_is_not_overtaken() {
    let mut probes = need!(Probes::alone(), "not root");
    let cgroup = need!(container(&mut probes), "no cgroup v2");
    let rare = Player::in_cgroup(&cgroup, "ignore");
    let (ordinary, _) = Player::ready(&["ignore"]);
    probes.settle();
    let both = [Pid(rare.pid()), Pid(ordinary.pid())];
    let ours = |bytes: &[u8]| match decode(bytes) {
        Ok((_, Event::SignalGenerate(signal))) if both.contains(&signal.target.tgid) => Some(signal.target.tgid),
        _ => None,
    };
    let mut came = Vec::new();
    rare.kill(signal::Signal::SIGTERM);
    wait_for("three signals", || {
        probes.kernel.drain(|bytes| {
            let Some(to) = ours(bytes) else { return };
            came.push(to);
            if came.len() == 1 {
                ordinary.kill(signal::Signal::SIGTERM);
                rare.kill(signal::Signal::SIGTERM);
            }
        });
        (came.len() >= 3).then_some(())
    });
    assert_eq!(came, [both[0], both[1], both[0]]);
}
