//! Sockets of a cgroup that is being stopped, and those of its clients.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;

use epitaph_tests::network::Network;
use nix::sys::socket::sockopt::TcpRepair;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage};

use super::*;

/// Ten bytes have arrived at a server's end of that port, and were not only sent: a busy machine takes its time.
fn until_unread(port: u16) {
    let local = format!(":{port:04X}");
    wait_for("ten unread bytes", || {
        let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/net/{name}")).expect("the kernel's sockets"));
        let arrived = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[1].ends_with(&local) && words[3] == "01" && words[4].ends_with(":0000000A")
        };
        tables.iter().flat_map(|table| table.lines()).any(arrived).then_some(())
    });
}

#[test]
fn refused_reset_and_cut_connections_are_the_servers() {
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let (mut server, ports) = Player::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "serve"]);
    let [v4, v6]: [u16; 2] = ports
        .split(' ')
        .map(|port| port.parse().expect("port"))
        .collect::<Vec<_>>()
        .try_into()
        .expect("two");
    let hosts = [("127.0.0.1", v4), ("::1", v6)];
    let mut clients = hosts.map(|to| TcpStream::connect(to).expect("connect"));
    assert_eq!(server.line(), "accepted\n");
    // Unread bytes: the end of the server resets this one; the other it closes with a FIN.
    clients[0].write_all(b"never read").expect("write");
    until_unread(v4);

    let both = watch::SELF | watch::CHILDREN;
    probes.kernel.watch(cgroup.id(), both, Some(cgroup.id())).expect("watch");
    probes.kernel.arm(cgroup.id()).expect("arm");
    // Who only listens for the other family has not closed anything.
    TcpStream::connect(("127.0.0.1", v6)).expect_err("nothing listens for IPv4");
    probes.settle();
    let refused = |event: &Event| matches!(event, Event::Tcp(tcp) if !tcp.has_socket && tcp.local.port() == v6);
    assert_eq!(probes.count(refused), 0);
    server.order();
    assert_eq!(server.line(), "closed\n");
    for (host, port) in hosts {
        let closed = probes.tcp("listener closed", |tcp| {
            tcp.op
                == TcpOp::State {
                    old: TcpState::Listen,
                    new: TcpState::Close,
                }
                && tcp.local.port() == port
        });
        assert_eq!(
            (closed.cgroup, closed.close.by_exit, closed.tgid),
            (Some(cgroup.id()), false, Pid(server.pid())),
            "{host}"
        );
        assert_eq!(
            TcpStream::connect((host, port)).expect_err("nothing listens").kind(),
            ErrorKind::ConnectionRefused
        );
        let refused = probes.tcp("refused", |tcp| !tcp.has_socket && tcp.local.port() == port);
        assert_eq!((refused.container, refused.progress), (Some(cgroup.id()), None));
        assert_eq!(
            (refused.cgroup, refused.local.ip().to_string().as_str()),
            (Some(cgroup.id()), host)
        );
        let is_by_server = matches!(refused.op, TcpOp::ResetSent { state: None, .. });
        let is_by_client = refused.op == TcpOp::Error { errno: 111 };
        let sees_all = probes.clients() == SeenClients::All;
        assert!(if sees_all { is_by_server } else { is_by_client }, "{refused:?}");
        let netns = fs::metadata("/proc/self/ns/net").expect("ns").ino();
        assert_eq!(u64::from(refused.netns), netns);
    }

    server.kill(signal::Signal::SIGKILL);
    let client_port = |i: usize| clients[i].local_addr().expect("address").port();
    let reset = probes.tcp("reset", |tcp| {
        matches!(tcp.op, TcpOp::ResetSent { .. }) && tcp.remote.port() == client_port(0)
    });
    assert_eq!(
        (reset.cgroup, reset.has_socket, reset.close.by_exit),
        (Some(cgroup.id()), true, true)
    );
    let counts = reset.counts.expect("counts");
    assert_eq!(counts.bytes_received, 10);
    let progress = reset.progress.expect("progress");
    assert_eq!((progress.unread, progress.data_segments_received), (10, 1));
    assert_eq!((progress.unacknowledged, progress.data_segments_sent), (0, 0));
    let ago = progress.jiffies.wrapping_sub(counts.last_received);
    assert!(ago < 100_000, "{counts:?} {progress:?}");
    // The kernel counts its ticks from five minutes before the boot on.
    let rate = i64::from(clock::ticks_per_second().expect("this is Linux"));
    let up = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock").tv_sec() - 300;
    let away = progress.jiffies.wrapping_sub((up * rate) as u32).cast_signed();
    assert!(i64::from(away).abs() < 10 * rate, "{away} ticks of {rate} a second");
    assert_eq!(reset.container, Some(cgroup.id()));
    let cut = probes.tcp("cut", |tcp| {
        tcp.op
            == TcpOp::State {
                old: TcpState::Established,
                new: TcpState::FinWait1,
            }
            && tcp.remote.port() == client_port(1)
    });
    assert_eq!(
        (cut.cgroup, cut.close.by_exit, cut.local.port()),
        (Some(cgroup.id()), true, v6)
    );
    assert_eq!((reset.close.foreign, cut.close.foreign), (false, false));
    assert_eq!(cut.remote.ip().to_string(), "::1");
    server.wait();

    // Disarmed, the port belongs to no cgroup again. Another cgroup is armed: otherwise no program looks at the refusal.
    let other = need!(Cgroup::v2(), "no cgroup v2");
    probes.kernel.arm(other.id()).expect("arm");
    probes.kernel.disarm(cgroup.id()).expect("disarm");
    probes.kernel.give_back_ports().expect("give back");
    probes.drain();
    probes.seen.clear();
    TcpStream::connect(hosts[0]).expect_err("nothing listens");
    probes.settle();
    assert_eq!(
        probes.count(|event| matches!(event, Event::Tcp(tcp) if tcp.local.port() == v4)),
        0
    );
}

/// A client whose connection the server does not know: made without a handshake, as a checkpoint's restoration makes it (TCP_REPAIR).
#[test]
fn the_listeners_reset_names_the_client() {
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let (_server, ports) = Player::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "serve"]);
    let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().expect("port")).collect();
    probes.kernel.arm(cgroup.id()).expect("arm");
    for (host, port) in [(Ipv4Addr::LOCALHOST.into(), ports[0]), (Ipv6Addr::LOCALHOST.into(), ports[1])] {
        let mut client = unannounced(SocketAddr::new(host, port)).expect("a connection without a handshake");
        let _ = client.write_all(b"whom do you mean");
        let own = client.local_addr().expect("address");
        let reset = probes.tcp("reset", |tcp| matches!(tcp.op, TcpOp::ResetSent { .. }) && tcp.remote == own);
        let state = Some(TcpState::Listen);
        assert!(
            matches!(reset.op, TcpOp::ResetSent { state: of, .. } if of == state),
            "{reset:?}"
        );
        assert_eq!(
            (reset.cgroup, reset.has_socket, reset.not_syn, reset.local),
            (Some(cgroup.id()), true, true, SocketAddr::new(host, port))
        );
    }
}

fn unannounced(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let socket = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    socket::setsockopt(&socket, TcpRepair, &1)?;
    let loopback = SockaddrStorage::from(SocketAddr::new(to.ip(), 0));
    socket::bind(socket.as_raw_fd(), &loopback)?;
    socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
    socket::setsockopt(&socket, TcpRepair, &0)?;
    Ok(TcpStream::from(socket))
}

const CONNECTED: TcpOp = TcpOp::State {
    old: TcpState::SynSent,
    new: TcpState::Established,
};
const NOT_CONNECTED: TcpOp = TcpOp::State {
    old: TcpState::SynSent,
    new: TcpState::Close,
};

#[test]
fn queued_and_accepted_connections_are_distinguished_at_the_close() {
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let (mut server, ports) = Player::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "serve"]);
    let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().expect("port")).collect();
    let hosts = [("127.0.0.1", ports[0]), ("::1", ports[1])];
    let mut accepted = hosts.map(|to| TcpStream::connect(to).expect("connect"));
    assert_eq!(server.line(), "accepted\n");
    accepted
        .iter_mut()
        .for_each(|client| client.write_all(b"never read").expect("write"));
    ports.iter().for_each(|&port| until_unread(port));
    let queued = hosts.map(|to| TcpStream::connect(to).expect("connect"));
    probes.kernel.arm(cgroup.id()).expect("arm");
    server.kill(signal::Signal::SIGKILL);
    server.wait();
    for (clients, unheld) in [(&queued, true), (&accepted, false)] {
        for client in clients {
            let port = client.local_addr().expect("address").port();
            let closed = TcpOp::State {
                old: TcpState::Established,
                new: TcpState::Close,
            };
            let end = probes.tcp("closed", |tcp| {
                tcp.op == closed && tcp.remote.port() == port && tcp.client.is_none()
            });
            assert_eq!((end.close.unheld, end.sk_err, end.cgroup), (unheld, 0, Some(cgroup.id())));
            probes.tcp("reset", |tcp| {
                matches!(tcp.op, TcpOp::ResetSent { .. }) && tcp.remote.port() == port
            });
        }
    }
}

#[test]
fn connects_of_the_kubelet_and_failed_connects_of_others_are_reported() {
    let mut probes = need!(Probes::alone(), "not root");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let kubelet = need!(Cgroup::v2(), "no cgroup v2");
    let path = |cgroup: &Cgroup| cgroup.0.to_str().expect("utf-8").to_owned();
    let (server, ports) = Player::ready(&["--cgroup", &path(&cgroup), "serve"]);
    let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().expect("port")).collect();
    let served = [format!("127.0.0.1:{}", ports[0]), format!("[::1]:{}", ports[1])];
    // Nothing listens on port 1.
    let network = Network::available()
        .is_ok()
        .then(|| Network::create(false).expect("a network"));
    let elsewhere = network.as_ref().map(|network| format!("{}:1", network.address().ip()));
    let all: Vec<&str> = served
        .iter()
        .map(String::as_str)
        .chain(["127.0.0.1:1", "[::1]:1"])
        .chain(elsewhere.as_deref())
        .collect();
    let connect = |home: &Cgroup| {
        let mut player = Player::start(&[&["--cgroup", &path(home), "connect"], &all[..]].concat());
        let results: Vec<String> = all.iter().map(|_| player.line()).collect();
        assert_eq!(results[..2], ["connected\n", "connected\n"]);
        assert!(
            results[2..].iter().all(|result| result == "connection refused\n"),
            "{results:?}"
        );
        player.wait();
        player.pid()
    };
    probes.kernel.kubelet(kubelet.id(), true).expect("register the kubelet");
    connect(&kubelet);
    probes.settle();
    // As a client's: its own end has it watched, too, which is another story.
    let recorded = |probes: &Probes, of: &Cgroup| {
        probes.count(|e| matches!(e, Event::Tcp(t) if t.cgroup == Some(of.id()) && t.client.is_some()))
    };
    assert_eq!(recorded(&probes, &kubelet), 0, "without a termination, nothing is reported");

    let (other, ended) = (need!(Cgroup::v2(), "no cgroup v2"), need!(Cgroup::v2(), "no cgroup v2"));
    probes.kernel.arm(ended.id()).expect("arm");
    connect(&kubelet);
    connect(&other);
    probes.settle();
    for (home, by) in [(&kubelet, Client::Kubelet), (&other, Client::Other)] {
        for to in &all {
            let to: SocketAddr = to.parse().expect("an address");
            let of = |probes: &Probes, op: TcpOp| -> Vec<Tcp> {
                let all = probes.seen.iter().filter_map(|(_, event)| match event {
                    Event::Tcp(tcp)
                        if tcp.cgroup == Some(home.id()) && tcp.client.is_some() && tcp.remote == to && tcp.op == op =>
                    {
                        Some(*tcp)
                    }
                    _ => None,
                });
                all.collect()
            };
            let [connected, reset, failed] = [CONNECTED, TcpOp::ResetReceived, NOT_CONNECTED].map(|op| of(&probes, op));
            let counts = (connected.len(), reset.len(), failed.len());
            let expected = match (to.port(), by) {
                // On a loopback, a client shows nothing about another network namespace.
                (1, Client::Other) if to.ip().is_loopback() => (0, 0, 0),
                (1, _) => (0, 1, 1),
                (_, Client::Kubelet) => (1, 0, 0),
                (_, Client::Other) => (0, 0, 0),
            };
            assert_eq!(counts, expected, "{by:?} to {to}");
            for tcp in connected.iter().chain(&reset).chain(&failed) {
                assert_eq!((tcp.client, tcp.local.ip() == to.ip()), (Some(by), to.ip().is_loopback()));
                assert_ne!(tcp.local.port(), 0);
            }
            assert!(failed.iter().all(|tcp| tcp.sk_err == 111));
        }
    }
    probes.kernel.kubelet(kubelet.id(), false).expect("forget the kubelet");
    drop(server);
}

#[test]
fn connections_of_an_inherited_listener_are_attributed_to_the_terminating_cgroup() {
    let mut probes = need!(Probes::load(), "not root");
    let maker = need!(Cgroup::v2(), "no cgroup v2");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let [made_in, served_in] = [&maker, &cgroup].map(|cgroup| cgroup.0.to_str().expect("utf-8"));
    // Armed or not, the cgroup that made the listener is not the one that terminates.
    for both in [false, true] {
        let (mut server, ports) = Player::ready(&["--cgroup", made_in, "serve", served_in]);
        let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().expect("port")).collect();
        let mut clients = [("127.0.0.1", ports[0]), ("::1", ports[1])].map(|to| TcpStream::connect(to).expect("connect"));
        assert_eq!(server.line(), "accepted\n");
        // Unread bytes: the end of the server resets this one; the other it closes with a FIN.
        clients[0].write_all(b"never read").expect("write");
        until_unread(ports[0]);
        probes.kernel.arm(cgroup.id()).expect("arm");
        if both {
            probes.kernel.arm(maker.id()).expect("arm");
        }
        server.kill(signal::Signal::SIGKILL);
        server.wait();
        let old = TcpState::Established;
        let client_port = |i: usize| clients[i].local_addr().expect("address").port();
        for (i, what, new) in [(0, "reset", TcpState::Close), (1, "cut", TcpState::FinWait1)] {
            let seen = probes.tcp(what, |tcp| {
                tcp.close.foreign && tcp.op == TcpOp::State { old, new } && tcp.remote.port() == client_port(i)
            });
            assert_eq!(
                (seen.cgroup, seen.close.by_exit, seen.has_socket, seen.local.port()),
                (Some(cgroup.id()), true, true, ports[i]),
                "{what}"
            );
        }
        let sent = probes.tcp("reset sent", |tcp| {
            tcp.close.foreign && matches!(tcp.op, TcpOp::ResetSent { .. }) && tcp.remote.port() == client_port(0)
        });
        assert_eq!((sent.cgroup, sent.local.port()), (Some(cgroup.id()), ports[0]));
        probes.settle();
        // The maker's own events are still reported to it if it is armed, and by the close of its listener it is; the clients' sockets are
        // attributed to no cgroup here.
        let of_maker = probes.seen.iter().find_map(|(_, event)| match event {
            Event::Tcp(t) if t.cgroup == Some(maker.id()) && ports.contains(&t.local.port()) => Some(t),
            _ => None,
        });
        assert!(
            of_maker.is_some_and(|t| both || t.closes_listener() && t.close.by_own),
            "{of_maker:?}"
        );
        let of_clients = |event: &Event| matches!(event, Event::Tcp(t) if t.close.foreign && !ports.contains(&t.local.port()));
        assert_eq!(probes.count(of_clients), 0);
        for armed in [&maker, &cgroup] {
            probes.kernel.disarm(armed.id()).expect("disarm");
        }
        probes.drain();
        probes.seen.clear();
    }
}

/// As in a host's network namespace: a port no longer belongs to a former listener once another process listens on it.
#[test]
fn a_port_belongs_to_its_last_listener() {
    for oldest in [false, true] {
        let mut probes = need!(if oldest { Probes::oldest() } else { Probes::load() }, "not root");
        let (first, second) = (need!(Cgroup::v2(), "no cgroup v2"), need!(Cgroup::v2(), "no cgroup v2"));
        let listen = |cgroup: &Cgroup, at: &str| Player::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "listen", at]);
        // Nobody else gets the port between two listeners.
        let port = free_port().expect("a port");
        let (mut server, at) = listen(&first, &format!("[::]:{port}"));
        let close = |server: &mut Player| {
            server.order();
            assert_eq!(server.line(), "closed\n");
        };
        // How many of two clients were reported for each cgroup: if both sides are watched, the same client twice.
        let refuse = |probes: &mut Probes| {
            probes.drain();
            probes.seen.clear();
            for host in ["127.0.0.1", "::1"] {
                TcpStream::connect((host, port)).expect_err("nothing listens");
            }
            probes.settle();
            [&first, &second].map(|of| {
                let recorded = probes.seen.iter().filter_map(|(_, event)| match event {
                    Event::Tcp(tcp) if !tcp.has_socket && tcp.local.port() == port && tcp.cgroup == Some(of.id()) => {
                        Some(tcp.remote)
                    }
                    _ => None,
                });
                recorded.collect::<HashSet<_>>().len()
            })
        };
        for cgroup in [&first, &second] {
            probes.kernel.arm(cgroup.id()).expect("arm");
        }
        close(&mut server);
        assert_eq!(refuse(&mut probes), [2, 0], "the first has closed it");

        // Sockets of this program, whose cgroup is not watched: another could hide the refusals of the first with them.
        for host in ["127.0.0.9", "127.0.0.1"] {
            drop(TcpListener::bind((host, port)).expect("listen again"));
            assert_eq!(refuse(&mut probes), [2, 0], "a stranger has listened on {host}");
        }

        probes.kernel.lost();
        let (mut server, _) = listen(&second, &at);
        close(&mut server);
        assert_eq!(refuse(&mut probes), [0, 2], "the second has closed it");
        // The record of that close may be over the second's budget.
        let lost = probes.kernel.lost();
        let of_first = |loss: &Loss| loss.kind == Kind::Tcp && loss.scope == LossScope::Within(first.id());
        assert!(lost.iter().any(of_first), "{lost:?}");
    }
}

#[test]
fn without_a_reset_record_the_clients_error_is_used() {
    let mut probes = need!(Probes::oldest(), "not root");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let (mut server, ports) = Player::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "serve"]);
    let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().expect("port")).collect();
    server.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(server.pid(), 15);
    // Old kernels give no BTF pointer to the sender: it was read by the helper.
    let comm = fs::read_to_string("/proc/self/comm").expect("comm");
    assert_eq!(
        (seen.sender.tgid, seen.sender.comm.to_string().as_str()),
        (Pid(std::process::id()), comm.trim())
    );
    server.wait();
    assert_eq!(probes.kernel.armed().iter().filter(|&&armed| armed == cgroup.id()).count(), 1);
    for (host, port) in [("127.0.0.1", ports[0]), ("::1", ports[1])] {
        TcpStream::connect((host, port)).expect_err("nothing listens");
        let refused = probes.tcp("refused", |tcp| {
            tcp.op == TcpOp::Error { errno: 111 } && tcp.local.port() == port
        });
        assert_eq!((refused.has_socket, refused.cgroup), (false, Some(cgroup.id())));
        assert_eq!(
            (
                refused.local.ip().to_string().as_str(),
                refused.remote.ip().to_string().as_str()
            ),
            (host, host)
        );
    }
}

#[test]
fn the_kernel_arms_by_itself_before_the_sockets_close() {
    let mut probes = need!(Probes::load(), "not root");
    if !own_cgroup_is_root() {
        skip(&test_name(), "not in the root cgroup");
        return;
    }
    // Killed from outside; and exited by itself, without a signal.
    for killed in [true, false] {
        let cgroup = need!(Cgroup::v2(), "no cgroup v2");
        let (mut server, ports) = Player::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "serve"]);
        let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().expect("port")).collect();
        if killed {
            server.kill(signal::Signal::SIGKILL);
        } else {
            let _clients = [("127.0.0.1", ports[0]), ("::1", ports[1])].map(|to| TcpStream::connect(to).expect("connect"));
            assert_eq!(server.line(), "accepted\n");
            drop(server.child.stdin.take());
        }
        server.wait();
        for port in ports {
            let closed = probes.tcp("listener closed", |tcp| {
                tcp.op
                    == TcpOp::State {
                        old: TcpState::Listen,
                        new: TcpState::Close,
                    }
                    && tcp.local.port() == port
                    // Another test's listener can have the same port at the other address.
                    && tcp.cgroup == Some(cgroup.id())
            });
            assert!(closed.close.by_exit);
        }
    }
}
