//! Under any neighbour's load: what a hostile container does at full speed costs no other container its verdict.
//!
//! `cargo xtask bench --only attacks` plays ten times as many victims, at several rates.

use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::ensure;
use epitaph_tests::agent::program;
use epitaph_tests::attack::{Attack, CLIENTS, ENDS, Rate, SERVERS, play_under};
use epitaph_tests::cgroup::Mounts;
use epitaph_tests::machine::is_root;
use epitaph_tests::network::Network;
use epitaph_tests::skip::skip;
use epitaph_tests::sys::locked;

const VICTIMS: usize = 20;
/// Of them, at least so many are played as their story says, on a machine that is loaded by others, too.
const PLAYED: usize = 15;

/// One test at a time: each loads the whole machine.
static MACHINE: Mutex<()> = Mutex::new(());

/// Whether every victim that is played as written gets the verdict under `attackers` that it has without them.
fn under(test: &str, attackers: &[(Attack, Rate)], names: &[&str]) -> anyhow::Result<()> {
    if !is_root() {
        skip(test, "observing needs root");
        return Ok(());
    }
    if Mounts::find()?.v2.is_none() {
        skip(test, "no cgroup v2");
        return Ok(());
    }
    let _machine = locked(&MACHINE);
    let mut players = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    players.pop();
    let directory = tempfile::tempdir()?;
    let outcome = play_under(&players, &program(&players), directory.path(), attackers, names, VICTIMS)?;
    let (kept, played, per_second) = (outcome.kept(), outcome.victims, outcome.per_second);
    println!("{test}: {kept} of {played} victims keep their verdict, under {per_second:.0} acts a second");
    let left_out = outcome.left_out.join("\n");
    if !left_out.is_empty() {
        println!("not played as written, and left out:\n{left_out}");
    }
    ensure!(
        played >= PLAYED,
        "{played} of {VICTIMS} were played as written; the others:\n{left_out}"
    );
    ensure!(kept == played, "the others:\n{}", outcome.other.join("\n"));
    Ok(())
}

fn has_networks(test: &str) -> bool {
    let available = Network::available();
    if let Err(why) = &available {
        skip(test, why);
    }
    available.is_ok()
}

/// By two containers, one of them with cgroups that it nests.
#[test]
fn a_neighbour_that_signals_itself() -> anyhow::Result<()> {
    let storm = |nested| (Attack::Signals { nested }, Rate::Full(20_000));
    under("a_neighbour_that_signals_itself", &[storm(0), storm(4)], ENDS)
}

#[test]
fn a_neighbour_whose_processes_exit() -> anyhow::Result<()> {
    let exits = (Attack::Exits, Rate::Full(500));
    under("a_neighbour_whose_processes_exit", &[exits], ENDS)
}

/// Each exit is a reason to record its sockets, and the longest look at open files.
#[test]
fn a_neighbour_whose_processes_exit_with_clients_sockets() -> anyhow::Result<()> {
    let exits = (Attack::ExitsWithSockets, Rate::Full(500));
    let test = "a_neighbour_whose_processes_exit_with_clients_sockets";
    under(test, &[exits], &[ENDS, SERVERS].concat())
}

#[test]
fn a_neighbour_that_opens_and_closes_listeners() -> anyhow::Result<()> {
    let churn = (Attack::Listeners, Rate::Full(2_000));
    under("a_neighbour_that_opens_and_closes_listeners", &[churn], SERVERS)
}

/// With cgroups, pid namespaces and names of its own, as a container has that runs containers, or pretends to.
#[test]
fn a_neighbour_that_plays_a_runtime() -> anyhow::Result<()> {
    let full = |attack| (attack, Rate::Full(100));
    let attackers = [
        full(Attack::Cgroups),
        full(Attack::ForgedCgroups),
        full(Attack::Inits),
        full(Attack::Pretends),
    ];
    under("a_neighbour_that_plays_a_runtime", &attackers, ENDS)
}

#[test]
fn a_neighbour_that_keeps_the_metrics_port_busy() -> anyhow::Result<()> {
    let requests = (Attack::Requests, Rate::Full(100));
    under("a_neighbour_that_keeps_the_metrics_port_busy", &[requests], ENDS)
}

/// Packets interrupt the probes, so that the kernel skips runs of them.
#[test]
fn a_neighbour_whose_packets_interrupt_the_probes() -> anyhow::Result<()> {
    let test = "a_neighbour_whose_packets_interrupt_the_probes";
    if !has_networks(test) {
        return Ok(());
    }
    under(test, &[(Attack::Aborts, Rate::Full(500)); 3], SERVERS)
}

#[test]
fn a_neighbour_that_sends_segments_to_a_closed_port() -> anyhow::Result<()> {
    let test = "a_neighbour_that_sends_segments_to_a_closed_port";
    if !has_networks(test) {
        return Ok(());
    }
    under(test, &[(Attack::Segments, Rate::PerSecond(100_000))], CLIENTS)
}

#[test]
fn a_neighbour_whose_connects_fail() -> anyhow::Result<()> {
    let test = "a_neighbour_whose_connects_fail";
    if !has_networks(test) {
        return Ok(());
    }
    let flood = |attack| (attack, Rate::PerSecond(8_000));
    under(test, &[flood(Attack::Connects), flood(Attack::ConnectsElsewhere)], CLIENTS)
}
