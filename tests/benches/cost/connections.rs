//! What a connection costs while the probes run: where no container stops, each change of its state is a comparison; of a container
//! that stops, each is a record.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use epitaph::source::kernel::Programs;
use epitaph_core::ids::CgroupId;
use epitaph_ebpf::watch;
use epitaph_tests::cgroup::Scope;

use crate::signals::load;
use crate::stats::{median, median_of_pairs, now};
use crate::table::Table;

const ROUNDS: usize = 24;
const BURSTS: usize = 20;
const BURST: usize = 200;
/// Each has ports of its own for clients: those of ended connections rest for a while.
const ADDRESSES: u8 = 16;

pub fn measure(table: &mut Table) -> anyhow::Result<()> {
    eprintln!("bench: a connection on the loopback, with and without the probes ({ROUNDS} rounds)");
    let listeners = listeners()?;
    let (mut none, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        none.push(round(&listeners, BURSTS)?);
        let _kernel = load("inet_sock_set_state", Programs::All)?;
        ours.push(round(&listeners, BURSTS)?);
    }
    let adds = median_of_pairs(&ours, &none, |with, without| with - without);
    let ratio = median_of_pairs(&ours, &none, |with, without| with / without);
    table.fact(
        "a connection on the loopback, not watched",
        format!("{:.1} µs", median(&none) / 1e3),
    );
    table.fact("the probes, where no container stops, add", format!("{adds:.0} ns"));
    table.goal(
        "a connection of no stopping container: with / without",
        "<= 1.05x",
        format!("{ratio:.3}x"),
        ratio <= 1.05,
    );
    of_a_stop(table)
}

/// A server and its clients in one container that stops: both ends of each connection are recorded. As many connections as
/// the container's budget of records allows.
fn of_a_stop(table: &mut Table) -> anyhow::Result<()> {
    const FEW: usize = 2;
    eprintln!("bench: a connection of a container that stops ({ROUNDS} rounds)");
    let scope = Scope::of_new_container()?;
    let inside = Inside::enter(&scope)?;
    let cgroup = CgroupId::v2(scope.id()?);
    // Sockets belong to the cgroup that made them.
    let listeners = listeners()?;
    let (mut none, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        none.push(round(&listeners, FEW)?);
        let mut kernel = load("inet_sock_set_state", Programs::All)?;
        kernel.watch(cgroup, watch::SELF, Some(cgroup))?;
        kernel.arm(cgroup)?;
        ours.push(round(&listeners, FEW)?);
        let lost = kernel.lost();
        ensure!(lost.is_empty(), "not every change was recorded: {lost:?}");
    }
    drop(inside);
    scope.remove()?;
    let adds = median_of_pairs(&ours, &none, |with, without| with - without);
    let ratio = median_of_pairs(&ours, &none, |with, without| with / without);
    table.fact(
        "the probes add to a connection of a container that stops, both ends",
        format!("{adds:.0} ns"),
    );
    table.goal(
        "a connection of a container that stops, both ends: with / without",
        "<= 1.5x",
        format!("{ratio:.3}x"),
        ratio <= 1.5,
    );
    Ok(())
}

/// This process, in a scope until dropped.
pub struct Inside(Vec<PathBuf>);

impl Inside {
    pub fn enter(scope: &Scope) -> anyhow::Result<Inside> {
        scope.join(std::process::id())?;
        // Of the slice that all scopes are in.
        let around = |dir: &Path| dir.parent().map(Path::to_owned);
        Ok(Inside(scope.directories().filter_map(around).collect()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        for dir in &self.0 {
            if let Err(error) = fs::write(dir.join("cgroup.procs"), std::process::id().to_string()) {
                eprintln!("bench: stays in its cgroup: {error}");
            }
        }
    }
}

fn listeners() -> anyhow::Result<Vec<TcpListener>> {
    (1..=ADDRESSES)
        .map(|last| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), 0)))
        .collect::<Result<Vec<_>, _>>()
        .context("listen on the loopback")
}

/// Nanoseconds per connection: connect, accept, and both ends closed.
fn round(listeners: &[TcpListener], count: usize) -> anyhow::Result<f64> {
    let mut bursts = Vec::new();
    for burst in 0..count {
        let listener = &listeners[burst % listeners.len()];
        let address = listener.local_addr()?;
        let begin = now();
        for _ in 0..BURST {
            let client = TcpStream::connect(address).context("connect on the loopback")?;
            let (server, _) = listener.accept().context("accept on the loopback")?;
            drop(client);
            drop(server);
        }
        bursts.push((now() - begin) as f64 / BURST as f64);
    }
    Ok(median(&bursts))
}
