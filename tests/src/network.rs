//! A network namespace of a story's own, with a veth pair between it and ours. Made by iproute2's `ip`; removed on drop.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Command, Output};
use std::thread;

use anyhow::{Context, ensure};

use crate::story::Loss;
use crate::sys::random_hex;
use crate::timeout::{holds, until};

/// See the module.
#[derive(Debug)]
pub struct Network {
    name: String,
    /// The end of the pair that is in our namespace.
    ours: String,
    outside: IpAddr,
    inside: IpAddr,
}

impl Network {
    /// Err with the reason if none can be made here.
    pub fn available() -> Result<(), String> {
        // A BusyBox answers with its help.
        let works = ip(&["netns", "list"]).map(|_| ());
        works.map_err(|_| "no network namespaces: `ip netns list` fails; iproute2 has it".to_owned())
    }

    /// With addresses of one family.
    ///
    /// # Errors
    /// `ip` is missing or refuses.
    pub fn create(ipv6: bool) -> anyhow::Result<Network> {
        let hex = random_hex(3)?;
        let number = u32::from_str_radix(&hex, 16).unwrap_or(0);
        // Four random addresses: of the range for network tests (RFC 2544), or of a private range (RFC 4193).
        let [outside, inside] = [1, 2].map(|n| match ipv6 {
            false => IpAddr::from(Ipv4Addr::from(0xc612_0000 + (number % (1 << 15)) * 4 + n)),
            true => IpAddr::from(Ipv6Addr::from((0xfd65_7069_7461_u128 << 80) + u128::from(number * 4 + n))),
        });
        // Usable at once, without asking whether another has it.
        let (bits, at_once): (_, &[&str]) = if ipv6 { (126, &["nodad"]) } else { (30, &[]) };
        let [ours, theirs] = ["ep", "eq"].map(|end| format!("{end}{hex}"));
        let name = format!("epitaph-{hex}");
        ip(&["netns", "add", &name])?;
        let network = Network {
            name,
            ours,
            outside,
            inside,
        };
        let Network { name, ours, .. } = &network;
        ip(&["link", "add", ours, "type", "veth", "peer", "name", &theirs, "netns", name])?;
        let [outside, inside] = [outside, inside].map(|ip| format!("{ip}/{bits}"));
        ip(&[&["address", "add", &outside, "dev", ours][..], at_once].concat())?;
        ip(&["link", "set", ours, "up"])?;
        ip(&[&["-netns", name, "address", "add", &inside, "dev", &theirs][..], at_once].concat())?;
        ip(&["-netns", name, "link", "set", &theirs, "up"])?;
        ip(&["-netns", name, "link", "set", "lo", "up"])?;
        Ok(network)
    }

    /// The command, to be run in the namespace: the same process executes it.
    pub fn command(&self, command: Vec<String>) -> Vec<String> {
        let inside = ["ip", "netns", "exec", &self.name].map(str::to_owned);
        inside.into_iter().chain(command).collect()
    }

    /// From now on, answers every packet to its address from outside with an ICMP error, as a rejecting policy or proxy does.
    ///
    /// # Errors
    /// `ip` refuses, or `/proc/sys` is read-only.
    pub fn reject(&self) -> anyhow::Result<()> {
        let (name, inside) = (&self.name, self.inside.to_string());
        let (family, limit) = if self.inside.is_ipv6() {
            ("ipv6", "icmp/ratelimit")
        } else {
            ("ipv4", "icmp_ratelimit")
        };
        // Only a forwarding host sends such errors, and the rate limit must not suppress any.
        let settings = format!("set -e; cd /proc/sys/net/{family}; echo 1 > conf/all/forwarding; echo 0 > {limit}");
        ip(&["netns", "exec", name, "sh", "-c", &settings])?;
        ip(&["-netns", name, "route", "add", "prohibit", &inside])?;
        ip(&["-netns", name, "route", "delete", "local", &inside, "table", "local"]).map(drop)
    }

    /// From now on, nothing that is sent from inside arrives, as when a pod's route is removed.
    ///
    /// # Errors
    /// `ip` refuses.
    pub fn lose(&self, what: Loss) -> anyhow::Result<()> {
        match what {
            Loss::Route => {
                let family = if self.inside.is_ipv6() { "-6" } else { "-4" };
                // More specific than the link's own.
                let outside = self.outside.to_string();
                ip(&["-netns", &self.name, family, "route", "add", "blackhole", &outside]).map(drop)
            }
            // The route inside stays, and the device drops what it is given.
            Loss::Link => ip(&["link", "set", &self.ours, "down"]).map(drop),
        }
    }

    /// From now on, packets of the network's loopback interrupt another CPU, as packets of a network card do.
    ///
    /// # Errors
    /// `ip` refuses, or the kernel has no receive packet steering.
    pub fn steer_packets(&self) -> anyhow::Result<()> {
        let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get().min(32));
        let steer = format!("echo {:x} > /sys/class/net/lo/queues/rx-0/rps_cpus", (1_u64 << cpus) - 1);
        ip(&["netns", "exec", &self.name, "sh", "-c", &steer]).map(drop)
    }

    /// The file of the network namespace, for setns(2).
    pub fn file(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    /// Any port of its own address.
    pub fn address(&self) -> SocketAddr {
        (self.inside, 0).into()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The pair goes with it.
        if let Err(error) = ip(&["netns", "delete", &self.name]) {
            eprintln!("left behind: {error:#}");
        }
    }
}

/// Waits until a server that listens on `port` has accepted every connection, and has read all that was sent to it: the process `pid` is of
/// its network namespace, the clients are of ours. At once where that process has ended.
///
/// # Errors
/// It does not read.
pub fn until_read(pid: u32, port: u16) -> anyhow::Result<()> {
    let of_server = format!("/proc/{pid}/net");
    until(&format!("what was sent to port {port} to be read"), || {
        // First what has not arrived: it comes to the server's queue.
        let mut waiting = rows("/proc/self/net", |row| row.remote == port && row.unsent > 0)?;
        waiting.extend(rows(&of_server, |row| row.local == port && row.unread > 0)?);
        Ok(holds(waiting.is_empty(), || format!("{waiting:?}")))
    })
}

/// A socket, as proc_pid_net(5) has it.
#[derive(Debug)]
struct Row {
    local: u16,
    remote: u16,
    /// Bytes that the other side has not acknowledged.
    unsent: u64,
    /// Bytes; of a listener, connections that were not accepted.
    unread: u64,
}

impl Row {
    fn read(line: &str) -> Option<Row> {
        let mut words = line.split_whitespace().skip(1);
        let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
        let (local, remote) = (port(words.next()?)?, port(words.next()?)?);
        let (unsent, unread) = words.nth(1)?.split_once(':')?;
        let queue = |text| u64::from_str_radix(text, 16).ok();
        Some(Row {
            local,
            remote,
            unsent: queue(unsent)?,
            unread: queue(unread)?,
        })
    }
}

/// The TCP sockets that are `wanted`; none where there is no such network, or no IPv6.
fn rows(net: &str, wanted: impl Fn(&Row) -> bool) -> anyhow::Result<Vec<Row>> {
    let mut found = Vec::new();
    for name in ["tcp", "tcp6"] {
        let text = match fs::read_to_string(format!("{net}/{name}")) {
            Ok(text) => text,
            // A process that was reaped, or one that was not.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => continue,
            Err(error) => return Err(error).with_context(|| format!("read {net}/{name}")),
        };
        found.extend(text.lines().filter_map(Row::read).filter(&wanted));
    }
    Ok(found)
}

fn ip(args: &[&str]) -> anyhow::Result<Output> {
    let line = || format!("ip {}", args.join(" "));
    let done = Command::new("ip").args(args).output().with_context(line)?;
    ensure!(
        done.status.success(),
        "{}: {}",
        line(),
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_server_has_read_when_it_has_accepted_and_read() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let unread = |least: u64| {
            let is_it = |row: &Row| row.local == address.port() && row.unread >= least;
            until("something to be unread", || {
                Ok(holds(!rows("/proc/self/net", is_it)?.is_empty(), || "nothing".to_owned()))
            })
        };
        let read = || until_read(std::process::id(), address.port());
        read().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        unread(1).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(read);
            // A connection that was not accepted, then bytes that were not read.
            assert!(!waits.is_finished());
            client.write_all(b"please\n").unwrap();
            unread(7).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            assert!(!waits.is_finished());
            let mut bytes = [0; 7];
            server.read_exact(&mut bytes).unwrap();
            waits.join().unwrap().unwrap();
        });
        // Of a process that has ended there is nothing to wait for.
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        until_read(ended.id(), address.port()).unwrap();
    }
}
