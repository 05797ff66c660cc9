//! What observing costs, as ratios in one run: `cargo xtask bench`.
//!
//! No number here fails anything: a missed goal is marked, and the exit code reports only whether the cost could be measured.

mod agents;
mod attacks;
mod connections;
mod exits;
mod journal;
mod parts;
mod pure;
mod signals;
mod stats;
mod table;
mod target;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};

use table::Table;

fn main() -> anyhow::Result<()> {
    let mut args: Vec<_> = std::env::args_os().skip(1).filter(|arg| arg != "--bench").collect();
    let record = args.iter().position(|arg| arg == "--record");
    let record = record.and_then(|at| args.drain(at..).nth(1)?.into_string().ok());
    let programs = args.iter().position(|arg| arg == "--programs");
    let programs: Vec<PathBuf> = programs.map_or_else(Vec::new, |at| args.drain(at..).skip(1).map(PathBuf::from).collect());
    let mut args = args.into_iter();
    let epitaph = args
        .next()
        .map(PathBuf::from)
        .context(
            "usage: cost EPITAPH [core | density | signals | connections | exits | agents | start | journal | size | attacks | parts OBJECT] \
                  [--programs OF_PODS WHOLE] [--record COMMIT]",
        )?;
    let only = args.next();
    let object = args.next().map(PathBuf::from);
    let wanted = |part: &str| only.as_ref().is_none_or(|only| only == part);
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the measurements load probes and make cgroups: they need root"
    );

    let mut table = Table::new()?;
    if wanted("core") {
        pure::measure(&mut table)?;
    }
    if wanted("density") {
        pure::measure_density(&mut table)?;
    }
    if wanted("signals") {
        signals::measure(&epitaph, &mut table)?;
    }
    if wanted("connections") {
        connections::measure(&mut table)?;
    }
    if wanted("exits") {
        exits::measure(&mut table)?;
    }
    if wanted("agents") {
        agents::measure(&epitaph, &mut table)?;
    }
    if wanted("start") {
        agents::start(&epitaph, &mut table)?;
    }
    if let [of_pods, whole] = &programs[..] {
        agents::size(of_pods, whole, &mut table)?;
    }
    if wanted("journal") {
        journal::measure(&epitaph, &mut table)?;
    }
    if let Some(object) = object {
        parts::measure(&object, &mut table)?;
    }
    // Half an hour on two processors: only if it is named.
    if only.as_ref().is_some_and(|only| only == "attacks") {
        attacks::measure(&epitaph, &mut table)?;
    }
    table.print(record.as_deref())
}
