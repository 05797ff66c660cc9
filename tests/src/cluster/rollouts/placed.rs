//! Rollouts whose clients are on the servers' node or on another, and call the Service or a pod's address, by both modes of kube-proxy:
//! a client's socket knows the address that it called, and only the packets know the pod's.

use std::fmt::{self, Display, Formatter};

use anyhow::Context as _;

use super::{Rollout, Row, Sleep, several, with_late_proxies};
use crate::cluster::images::VICTIM;
use crate::cluster::node::quoted;
use crate::cluster::play::Stage;
use crate::cluster::{Cluster, node_name};

/// By which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    Service,
    /// One pod's own, IPv4.
    Pod,
    PodByIpv6,
}

/// A client, and what it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// On the servers' node.
    pub near: bool,
    pub called: Called,
}

impl Client {
    /// The rules of a late kube-proxy come after the pods.
    ///
    /// # Errors
    /// The node does not answer, or the server does not.
    pub(super) fn until_answered(self, cluster: &Cluster, address: &str) -> anyhow::Result<()> {
        let node = if self.near { Placed::SERVERS } else { Placed::OTHERS };
        cluster
            .node(node)?
            .until(&format!("busybox wget -qO /dev/null http://{address}/"), address)
    }

    /// As a unit of the other node.
    ///
    /// # Errors
    /// The node does not answer.
    pub(super) fn start(self, cluster: &Cluster, name: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let arguments = arguments.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let script = format!(
            "systemctl stop {name} 2>/dev/null || true
             exec systemd-run --quiet --collect --unit={name} --property=StandardOutput=truncate:{log} \
               chroot {ROOT} /victim {arguments}",
            log = log(name),
        );
        cluster.node(Placed::OTHERS)?.run(&script).map(drop)
    }

    /// Its log.
    ///
    /// # Errors
    /// As [`Client::start`].
    pub(super) fn end(self, cluster: &Cluster, name: &str) -> anyhow::Result<String> {
        // Until the unit's end: its log is whole then.
        let script = format!("systemctl stop {name} && cat {}", log(name));
        cluster.node(Placed::OTHERS)?.run(&script)
    }
}

fn log(client: &str) -> String {
    format!("/run/{client}.json")
}

impl Display for Client {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let node = if self.near { "near" } else { "far" };
        let called = match self.called {
            Called::Service => "service",
            Called::Pod => "pod",
            Called::PodByIpv6 => "ipv6",
        };
        write!(f, "{node}-{called}")
    }
}

/// Where the servers and their clients are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The mode of kube-proxy on both nodes.
    pub proxy: &'static str,
    pub clients: &'static [Client],
}

impl Placed {
    pub const SERVERS: &str = "node-1";
    const OTHERS: &str = "node-2";
}

impl Display for Placed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.proxy)
    }
}

const fn client(near: bool, called: Called) -> Client {
    Client { near, called }
}

const BY_SERVICE: &[Client] = &[client(true, Called::Service), client(false, Called::Service)];
const ALL: &[Client] = &[
    client(true, Called::Service),
    client(false, Called::Service),
    client(true, Called::Pod),
    client(false, Called::Pod),
    client(false, Called::PodByIpv6),
];
/// Modes of kube-proxy.
pub const PROXIES: [&str; 2] = ["iptables", DEFAULT];
/// What the nodes are made with.
const DEFAULT: &str = "nftables";
const NODES: [u8; 2] = [1, 2];
/// Where the victim's image is mounted for the clients on the other node.
const ROOT: &str = "/run/victim";

/// By one mode of kube-proxy, with proxies that are late: a rollout with a client of each kind, and one with the preStop sleep that was
/// advised, which helps clients of the Service.
///
/// # Errors
/// A rollout could not be played.
pub fn all(stage: &Stage, proxy: &'static str) -> anyhow::Result<Vec<Row>> {
    // Whatever runs there takes time from the servers' node, for emulation has the same processors for both. The clients there are units, and
    // kube-proxy is one.
    let others = stage.cluster.node(Placed::OTHERS)?;
    others.run(&format!(
        "mountpoint -q {ROOT} || {{ mkdir -p {ROOT} && ctr --namespace k8s.io images mount {VICTIM} {ROOT}; }}; systemctl stop kubelet containerd"
    ))?;
    let rows = set_proxy(stage, proxy).and_then(|()| rolled(stage, proxy));
    let restored = others.run("systemctl start containerd kubelet").map(drop);
    if proxy != DEFAULT {
        set_proxy(stage, DEFAULT)?;
    }
    restored?;
    rows.with_context(|| format!("with kube-proxy's mode {proxy}"))
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
        // Each second, from the close of the listener to the exit.
        if row.kubelet == 0 {
            problems.push(format!("{rollout}: no refused probe of the kubelet was counted as one"));
        }
        let is_cure = rollout.sleep != Sleep::None;
        if is_cure && lost > 0 {
            problems.push(format!(
                "{rollout}: connections were lost in spite of the advised preStop sleep"
            ));
        }
        if !is_cure {
            // Which of two proxies is late enough is chance.
            let (by_service, by_pod): (Vec<&String>, Vec<&String>) =
                row.unharmed.iter().partition(|name| name.ends_with("-service"));
            problems.extend(by_pod.iter().map(|client| format!("{client}: no connection was lost")));
            if by_service.len() == BY_SERVICE.len() {
                problems.push(format!("{rollout}: no client of the Service lost a connection"));
            }
        }
        let is_cured = |other: &Row| {
            let proxy = |of: &Row| of.rollout.placed.map(|placed| placed.proxy);
            proxy(other) == proxy(row) && other.rollout.sleep != Sleep::None
        };
        if !is_cure && !rows.iter().any(is_cured) {
            problems.push(format!("{rollout}: no preStop sleep was advised"));
        }
    }
    problems
}

fn rolled(stage: &Stage, proxy: &'static str) -> anyhow::Result<Vec<Row>> {
    let rollout = |sleep, clients| Rollout {
        server: "close-and-drain",
        sleep,
        late_proxy: true,
        placed: Some(Placed { proxy, clients }),
    };
    with_late_proxies(stage, &NODES, || {
        let mut rows = several(stage, vec![rollout(Sleep::None, ALL)], 1)?;
        let advised = rows.iter().filter_map(|row| u32::try_from(row.advised?).ok()).max();
        let cure = advised.map(|seconds| rollout(Sleep::Seconds(seconds), BY_SERVICE));
        rows.extend(several(stage, cure.into_iter().collect(), 1)?);
        Ok(rows)
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

    fn row(sleep: Sleep, lost: u64, advised: Option<u64>) -> Row {
        let clients = if sleep == Sleep::None { ALL } else { BY_SERVICE };
        Row {
            rollout: Rollout {
                server: "close-and-drain",
                sleep,
                late_proxy: true,
                placed: Some(Placed {
                    proxy: "iptables",
                    clients,
                }),
            },
            clients: [lost, 0, 0],
            answered: 1_000,
            agent: [lost, 0, 0],
            kubelet: 6,
            verdicts: Vec::new(),
            lost: 0,
            at_the_end: 0,
            advised,
            unharmed: Vec::new(),
        }
    }

    #[test]
    fn rows_that_prove_nothing_do_not_pass() {
        let good = || vec![row(Sleep::None, 140, Some(5)), row(Sleep::Seconds(5), 0, None)];
        assert_eq!(unproven(&good()), [""; 0]);
        let broken = |break_it: fn(&mut Vec<Row>)| {
            let mut rows = good();
            break_it(&mut rows);
            unproven(&rows)
        };
        assert_eq!(
            broken(|rows| rows[0].agent = [0; 3]),
            ["close-and-drain-no-sleep-late-iptables: the counts of the agent and of the clients differ"]
        );
        // The probes of the kubelet, counted as clients.
        assert_eq!(
            broken(|rows| {
                rows[0].agent[0] += rows[0].kubelet;
                rows[0].kubelet = 0;
            }),
            [
                "close-and-drain-no-sleep-late-iptables: the counts of the agent and of the clients differ",
                "close-and-drain-no-sleep-late-iptables: no refused probe of the kubelet was counted as one"
            ]
        );
        assert_eq!(
            broken(|rows| rows.truncate(1)),
            ["close-and-drain-no-sleep-late-iptables: no preStop sleep was advised"]
        );
        assert_eq!(
            broken(|rows| rows[0].unharmed.push("roll-far-pod".to_owned())),
            ["roll-far-pod: no connection was lost"]
        );
        assert_eq!(broken(|rows| rows[0].unharmed.push("roll-far-service".to_owned())), [""; 0]);
        assert_eq!(
            broken(|rows| rows[0]
                .unharmed
                .extend(["roll-near-service".to_owned(), "roll-far-service".to_owned()])),
            ["close-and-drain-no-sleep-late-iptables: no client of the Service lost a connection"]
        );
        assert_eq!(
            broken(|rows| rows[1] = row(Sleep::Seconds(5), 2, None)),
            ["close-and-drain-sleep-5-late-iptables: connections were lost in spite of the advised preStop sleep"]
        );
    }
}
