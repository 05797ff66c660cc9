//! The share of victims that keep their verdict next to a hostile container, against the rate of what it does.

use std::path::Path;

use anyhow::Context as _;
use epitaph_tests::attack::{Attack, CLIENTS, ENDS, Outcome, Rate, SERVERS, play_under};
use epitaph_tests::network::Network;

use crate::table::Table;

const VICTIMS: usize = 200;
/// In a hundred.
const SHARE: usize = 99;

struct Row {
    what: &'static str,
    attacks: &'static [Attack],
    rates: &'static [Rate],
    victims: &'static [&'static str],
}

const ROWS: &[Row] = &[
    Row {
        what: "failed connects to a loopback and to another address",
        attacks: &[Attack::Connects, Attack::ConnectsElsewhere],
        rates: &[
            Rate::PerSecond(1_000),
            Rate::PerSecond(4_000),
            Rate::PerSecond(8_000),
            Rate::Full(2_000),
        ],
        victims: CLIENTS,
    },
    Row {
        what: "segments to a closed port",
        attacks: &[Attack::Segments],
        rates: &[Rate::PerSecond(100_000), Rate::Full(2_000)],
        victims: CLIENTS,
    },
    Row {
        what: "signals within a container",
        attacks: &[Attack::Signals { nested: 0 }, Attack::Signals { nested: 4 }],
        rates: &[Rate::PerSecond(5_000), Rate::PerSecond(50_000), Rate::Full(20_000)],
        victims: ENDS,
    },
    Row {
        what: "processes that exit",
        attacks: &[Attack::Exits],
        rates: &[Rate::PerSecond(500), Rate::Full(500)],
        victims: ENDS,
    },
    Row {
        what: "processes that exit with a listener and 128 files",
        attacks: &[Attack::ExitsWithSockets],
        rates: &[Rate::PerSecond(500), Rate::Full(500)],
        victims: SERVERS,
    },
    Row {
        what: "listeners opened and closed",
        attacks: &[Attack::Listeners],
        rates: &[Rate::PerSecond(1_000), Rate::Full(2_000)],
        victims: SERVERS,
    },
    Row {
        what: "connections that are aborted, whose packets interrupt the other CPU",
        attacks: &[Attack::Aborts; 3],
        rates: &[Rate::PerSecond(500), Rate::Full(500)],
        victims: SERVERS,
    },
    Row {
        what: "nested cgroups, also under another pod's name, pid namespaces, and stops by a runtime's name",
        attacks: &[Attack::Cgroups, Attack::ForgedCgroups, Attack::Inits, Attack::Pretends],
        rates: &[Rate::PerSecond(200), Rate::Full(100)],
        victims: ENDS,
    },
    Row {
        what: "requests to the agent's port, endless or with unread answers",
        attacks: &[Attack::Requests],
        rates: &[Rate::PerSecond(200), Rate::Full(200)],
        victims: ENDS,
    },
];

pub fn measure(epitaph: &Path, table: &mut Table) -> anyhow::Result<()> {
    let players = Path::new(env!("CARGO_BIN_EXE_victim"));
    let players = players.parent().context("the players lie nowhere")?;
    for row in ROWS {
        let goal = format!(">= {SHARE} % of {VICTIMS}");
        let needs_network = row.attacks.iter().any(|attack| attack.needs_network());
        if needs_network && let Err(why) = Network::available() {
            table.skip(row.what, &goal, &why);
            continue;
        }
        for &rate in row.rates {
            eprintln!("bench: {VICTIMS} victims, and {} ({rate:?})", row.what);
            let attackers: Vec<_> = row.attacks.iter().map(|&attack| (attack, rate)).collect();
            let directory = tempfile::tempdir()?;
            let outcome = play_under(players, epitaph, directory.path(), &attackers, row.victims, VICTIMS)?;
            enter(table, row.what, &goal, &outcome);
        }
    }
    Ok(())
}

fn enter(table: &mut Table, what: &str, goal: &str, outcome: &Outcome) {
    let kept = outcome.kept();
    // The table comes in half an hour.
    eprintln!("bench: {kept} kept their verdict, under {:.0}/s", outcome.per_second);
    table.goal(
        &format!("verdicts kept, {what}: {:.0}/s", outcome.per_second),
        goal,
        format!("{:.1} % ({kept})", kept as f64 * 100.0 / outcome.victims as f64),
        kept * 100 >= outcome.victims * SHARE,
    );
    for left_out in &outcome.left_out {
        eprintln!("bench: not played as written: {left_out}");
    }
    for other in &outcome.other {
        eprintln!("bench: another verdict: {other}");
    }
}
