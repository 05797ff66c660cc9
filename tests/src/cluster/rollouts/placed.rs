//! Rollouts whose clients are on the servers' node or on another, and call the Service or a pod's address, by both modes of kube-proxy:
//! a client's socket knows the address that it called, and only the packets know the pod's.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use anyhow::Context as _;

use super::{Rollout, Row, Sleep, hold_proxy, several};
use crate::cluster::node_name;
use crate::cluster::play::Stage;

/// By which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    Service,
    /// One pod's own, IPv4.
    Pod,
    PodByIpv6,
}

/// Where the clients are, and what they call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// On the servers' node.
    pub near: bool,
    pub called: Called,
    /// The mode of kube-proxy on both nodes.
    pub proxy: &'static str,
}

impl Placed {
    pub const SERVERS: &str = "node-1";
    const OTHERS: &str = "node-2";

    #[must_use]
    pub fn node_of_clients(self) -> &'static str {
        match self.near {
            true => Placed::SERVERS,
            false => Placed::OTHERS,
        }
    }
}

impl Display for Placed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let node = if self.near { "near" } else { "far" };
        let called = match self.called {
            Called::Service => "service",
            Called::Pod => "pod",
            Called::PodByIpv6 => "ipv6",
        };
        write!(f, "{}-{node}-{called}", self.proxy)
    }
}

const PROXIES: [&str; 2] = ["iptables", DEFAULT];
/// What the nodes are made with.
const DEFAULT: &str = "nftables";
const NODES: [u8; 2] = [1, 2];
/// The pods of several at once take an emulated node longer than one after the other.
const AT_ONCE: usize = 1;

/// Rollouts with kube-proxies that are late, by the Service under each mode and the others under one of the two, and after them those by the Service with the preStop sleep that they were
/// advised.
///
/// # Errors
/// A rollout could not be played.
pub fn all(stage: &Stage) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for proxy in PROXIES {
        let played = set_proxy(stage, proxy).and_then(|()| with_late_proxies(stage, proxy));
        match played {
            Ok(of_proxy) => rows.extend(of_proxy),
            Err(error) => {
                set_proxy(stage, DEFAULT)?;
                return Err(error).with_context(|| format!("with kube-proxy's mode {proxy}"));
            }
        }
    }
    Ok(rows)
}

/// What the rows of [`all`] do not prove, a line each.
pub fn unproven(rows: &[Row]) -> Vec<String> {
    let mut problems = Vec::new();
    for row in rows {
        let rollout = row.rollout;
        let lost: u64 = row.clients.iter().sum();
        if !row.agrees() {
            problems.push(format!("{rollout}: the counts of the agent and of the clients differ"));
        }
        if row.answered == 0 {
            problems.push(format!("{rollout}: the server answered no client"));
        }
        let is_cure = rollout.sleep != Sleep::None;
        if is_cure && lost > 0 {
            problems.push(format!(
                "{rollout}: connections were lost in spite of the advised preStop sleep"
            ));
        }
        if !is_cure && lost == 0 {
            problems.push(format!("{rollout}: no connection was lost"));
        }
        let is_cured = |other: &Row| other.rollout.placed == rollout.placed && other.rollout.sleep != Sleep::None;
        let can_be = rollout.placed.is_some_and(|placed| placed.called == Called::Service);
        if can_be && !is_cure && !rows.iter().any(is_cured) {
            problems.push(format!("{rollout}: no preStop sleep was advised"));
        }
    }
    problems
}

fn with_late_proxies(stage: &Stage, proxy: &'static str) -> anyhow::Result<Vec<Row>> {
    let others = match proxy {
        DEFAULT => [(true, Called::Pod), (false, Called::PodByIpv6)],
        _ => [(false, Called::Pod), (true, Called::PodByIpv6)],
    };
    let all = [(true, Called::Service), (false, Called::Service)].into_iter().chain(others);
    let rollouts = all.map(|(near, called)| Rollout {
        server: "close-and-drain",
        sleep: Sleep::None,
        late_proxy: true,
        placed: Some(Placed { near, called, proxy }),
    });
    let rollouts: Vec<Rollout> = rollouts.collect();
    let over = AtomicBool::new(false);
    scope(|threads| {
        let held = NODES.map(|node| {
            let over = &over;
            threads.spawn(move || hold_proxy(stage, node, over))
        });
        let mut rows = several(stage, rollouts, AT_ONCE);
        if let Ok(rows) = &mut rows {
            let cures = rows.iter().filter_map(|row| {
                let seconds = u32::try_from(row.advised?).ok()?;
                let is_by_service = row.rollout.placed?.called == Called::Service;
                let sleep = Sleep::Seconds(seconds);
                is_by_service.then_some(Rollout { sleep, ..row.rollout })
            });
            rows.extend(several(stage, cures.collect(), AT_ONCE)?);
        }
        over.store(true, Ordering::Relaxed);
        for held in held {
            held.join().expect("a thread that holds kube-proxy panicked")?;
        }
        rows
    })
}

/// Until its rules are there. A restarted kube-proxy removes those of the other mode.
fn set_proxy(stage: &Stage, mode: &str) -> anyhow::Result<()> {
    for node in NODES {
        let node = stage.cluster.node(&node_name(node))?;
        node.run(&format!(
            "sed -i 's/\"mode\": *\"[a-z]*\"/\"mode\": \"{mode}\"/' /etc/kubernetes/kube-proxy.json && systemctl restart kube-proxy"
        ))?;
        node.until_healthy("kube-proxy", 10256)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(near: bool, called: Called, sleep: Sleep, clients: u64, advised: Option<u64>) -> Row {
        let proxy = "iptables";
        Row {
            rollout: Rollout {
                server: "close-and-drain",
                sleep,
                late_proxy: true,
                placed: Some(Placed { near, called, proxy }),
            },
            clients: [clients, 0, 0],
            answered: 1_000,
            agent: [clients, 0, 0],
            verdicts: Vec::new(),
            lost: 0,
            advised,
        }
    }

    #[test]
    fn rows_that_prove_nothing_do_not_pass() {
        let good = || {
            vec![
                row(false, Called::Service, Sleep::None, 28, Some(5)),
                row(false, Called::Pod, Sleep::None, 40, None),
                row(false, Called::Service, Sleep::Seconds(5), 0, None),
            ]
        };
        assert_eq!(unproven(&good()), [""; 0]);
        let broken = |break_it: fn(&mut Vec<Row>)| {
            let mut rows = good();
            break_it(&mut rows);
            unproven(&rows)
        };
        assert_eq!(
            broken(|rows| rows[0].agent = [0; 3]),
            ["close-and-drain-no-sleep-late-iptables-far-service: the counts of the agent and of the clients differ"]
        );
        assert_eq!(
            broken(|rows| rows.truncate(2)),
            ["close-and-drain-no-sleep-late-iptables-far-service: no preStop sleep was advised"]
        );
        assert_eq!(
            broken(|rows| rows[1] = row(false, Called::Pod, Sleep::None, 0, None)),
            ["close-and-drain-no-sleep-late-iptables-far-pod: no connection was lost"]
        );
        assert_eq!(
            broken(|rows| rows[2] = row(false, Called::Service, Sleep::Seconds(5), 2, None)),
            ["close-and-drain-sleep-5-late-iptables-far-service: connections were lost in spite of the advised preStop sleep"]
        );
    }
}
