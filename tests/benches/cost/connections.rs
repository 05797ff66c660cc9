//! What a connection costs while the probes run and no watched container stops: each change of its state is a comparison.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::Context as _;

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
    let listeners = (1..=ADDRESSES)
        .map(|last| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), 0)))
        .collect::<Result<Vec<_>, _>>()
        .context("listen on the loopback")?;
    let (mut none, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        none.push(round(&listeners)?);
        let _kernel = load("inet_sock_set_state", false)?;
        ours.push(round(&listeners)?);
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
    Ok(())
}

/// Nanoseconds per connection: connect, accept, and both ends closed.
fn round(listeners: &[TcpListener]) -> anyhow::Result<f64> {
    let mut bursts = Vec::new();
    for burst in 0..BURSTS {
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
