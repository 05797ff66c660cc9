//! Resets that no full socket sends, of every shape: what the probes read out of a packet, and by what they know its network namespace.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, socket};

use super::*;

const LOOPBACKS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// A server in the cgroup, and its ports by IPv4 and by IPv6.
fn serve(cgroup: &Cgroup) -> (Player, [SocketAddr; 2]) {
    let (server, ports) = Player::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "serve"]);
    let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().expect("port")).collect();
    (server, [0, 1].map(|i| SocketAddr::new(LOOPBACKS[i], ports[i])))
}

/// With options in its IPv4 header, and with a hop-by-hop and a destination header of IPv6: the segment begins later.
#[test]
fn a_refused_syn_behind_options_and_extension_headers_names_both_ends() {
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    if probes.clients() != SeenClients::All {
        return eprintln!("this kernel shows no packet that is refused");
    }
    let (mut server, at) = serve(&cgroup);
    probes.kernel.arm(cgroup.id()).expect("arm");
    server.kill(signal::Signal::SIGKILL);
    server.wait();
    for to in at {
        // Nobody waits for the answer there.
        let from = SocketAddr::new(to.ip(), 9);
        send(&syn(from, to), to.ip());
        let refused = probes.tcp("refused", |tcp| !tcp.has_socket && tcp.remote == from && tcp.local == to);
        assert_eq!(
            (refused.cgroup, refused.sequence, refused.not_syn),
            (Some(cgroup.id()), Some(SEQUENCE), false),
            "{refused:?}"
        );
    }
}

/// The server's end of a connection that the exit closed is a mini socket as soon as the client has acknowledged the FIN.
#[test]
fn the_reset_of_a_closed_connection_names_both_ends() {
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    if probes.clients() != SeenClients::All {
        return eprintln!("this kernel shows no packet that is refused");
    }
    let (mut server, at) = serve(&cgroup);
    let clients = at.map(|to| TcpStream::connect(to).expect("connect"));
    assert_eq!(server.line(), "accepted\n");
    probes.kernel.arm(cgroup.id()).expect("arm");
    server.kill(signal::Signal::SIGKILL);
    server.wait();
    for (mut client, to) in clients.into_iter().zip(at) {
        assert_eq!(client.read(&mut [0]).expect("the end of the stream"), 0);
        until_waiting(to.port());
        client.write_all(b"too late").expect("write");
        let own = client.local_addr().expect("address");
        let reset = probes.tcp("reset", |tcp| {
            matches!(tcp.op, TcpOp::ResetSent { .. }) && tcp.remote == own && tcp.client.is_none()
        });
        assert!(
            matches!(reset.op, TcpOp::ResetSent { state, .. } if state == Some(TcpState::TimeWait)),
            "{reset:?}"
        );
        assert_eq!((reset.cgroup, reset.local), (Some(cgroup.id()), to));
    }
}

/// A server's end of that port has sent its FIN, and the other end has acknowledged the FIN: FIN_WAIT2 or TIME_WAIT.
fn until_waiting(port: u16) {
    let local = format!(":{port:04X}");
    wait_for("an acknowledged FIN", || {
        let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/net/{name}")).expect("the kernel's sockets"));
        let is_waiting = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[1].ends_with(&local) && ["05", "06"].contains(&words[3])
        };
        tables.iter().flat_map(|table| table.lines()).any(is_waiting).then_some(())
    });
}

/// The kernel gives a new network namespace the lowest free number: that of a pod that has terminated.
#[test]
fn a_network_namespace_with_the_number_of_another_does_not_refuse_for_it() {
    let mut probes = need!(Probes::load(), "not root");
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    // BusyBox's is enough.
    let ip = Command::new("ip").args(["link", "show"]).output();
    need!(
        ip.ok().filter(|shown| shown.status.success()),
        "no `ip` to bring a loopback up with"
    );
    probes.kernel.arm(cgroup.id()).expect("arm");
    let (old, port) = in_new_namespace(|| {
        let path = cgroup.0.to_str().expect("utf-8");
        let (mut server, at) = Player::ready(&["--cgroup", path, "listen", "0.0.0.0:0"]);
        let port = at.parse::<SocketAddr>().expect("an address").port();
        server.order();
        assert_eq!(server.line(), "closed\n");
        refuse(port);
        (number(), port)
    });
    let is_of_old = |tcp: &Tcp| !tcp.has_socket && tcp.cgroup == Some(cgroup.id()) && tcp.local.port() == port;
    let refused = probes.tcp("refused", is_of_old);
    assert_eq!(u64::from(refused.netns), old);
    probes.settle();
    let count = |probes: &Probes| probes.count(|event| matches!(event, Event::Tcp(tcp) if is_of_old(tcp)));
    let before = count(&probes);
    // The kernel removes a network namespace some time after its last process.
    wait_for("a network namespace with the number of the old one", || {
        in_new_namespace(|| (number() == old).then(|| refuse(port)))
    });
    probes.settle();
    assert_eq!(count(&probes), before, "refused by the new namespace");
}

/// In a network namespace of its own, which ends with `what`.
fn in_new_namespace<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.expect("ip").success());
            what()
        });
        inside.join().expect("the thread ends")
    })
}

/// Of the calling thread's network namespace.
fn number() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").expect("ns").ino()
}

fn refuse(port: u16) {
    let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect_err("nothing listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

const SEQUENCE: u32 = 0x0102_0304;

/// With its IP header, which the kernel takes as it is.
fn send(packet: &[u8], to: IpAddr) {
    let family = if to.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let raw = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw).expect("a raw socket");
    let to = SockaddrStorage::from(SocketAddr::new(to, 0));
    let sent = sendto(raw.as_raw_fd(), packet, &to, MsgFlags::empty()).expect("send");
    assert_eq!(sent, packet.len());
}

fn syn(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    const TCP: u8 = 6;
    const DESTINATION_OPTIONS: u8 = 60;
    // Six bytes of padding: a header needs eight.
    const PADDING: [u8; 6] = [1, 4, 0, 0, 0, 0];
    let mut packet = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            // Six words. The kernel fills length, number and checksum.
            let fixed = [0x46, 0, 0, 0, 0, 0, 0, 0, 64, TCP, 0, 0];
            // Three times no operation, and the end of the options.
            [&fixed[..], &from.octets(), &to.octets(), &[1, 1, 1, 0]].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            // What follows: two headers and the segment. The first of the headers is hop-by-hop.
            let fixed = [0x60, 0, 0, 0, 0, 8 + 8 + 20, 0, 64];
            let hop_by_hop = [&[DESTINATION_OPTIONS, 0][..], &PADDING].concat();
            let destination = [&[TCP, 0][..], &PADDING].concat();
            [&fixed[..], &from.octets(), &to.octets(), &hop_by_hop, &destination].concat()
        }
        both => panic!("two families: {both:?}"),
    };
    let mut segment = [0_u8; 20];
    segment[0..2].copy_from_slice(&from.port().to_be_bytes());
    segment[2..4].copy_from_slice(&to.port().to_be_bytes());
    segment[4..8].copy_from_slice(&SEQUENCE.to_be_bytes());
    segment[12] = 5 << 4;
    segment[13] = 2;
    segment[14..16].copy_from_slice(&0xffff_u16.to_be_bytes());
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let summed = [segment.to_vec(), octets(from.ip()), octets(to.ip()), vec![0, TCP, 0, 20]].concat();
    let mut sum: u32 = summed
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    segment[16..18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet.extend(segment);
    packet
}
