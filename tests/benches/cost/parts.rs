//! What each part of the probe at `signal_generate` costs: programs that end after the first part, after the second, and so on. The
//! nanoseconds of a part are the difference of two such programs.

use std::path::Path;
use std::thread::sleep;

use anyhow::ensure;
use epitaph::source::kernel::{Kernel, Programs};
use epitaph_ebpf::{Part, watch};

use crate::signals::{BURST, BURSTS, PAUSE, PROBE, TARGETS, load};
use crate::stats::{median, median_of_pairs};
use crate::table::Table;
use crate::target::{RECORDED, Target};

/// Each with nothing, the empty program, and a program for each part.
const ROUNDS: usize = 4;

/// Nanoseconds per kill(2), a median per round.
#[derive(Default)]
struct Costs {
    /// Of targets in no watched cgroup.
    unknown: Vec<f64>,
    /// Of first processes of containers, whose sockets the signal arms.
    container: Vec<f64>,
}

struct Targets {
    unknown: Vec<Target>,
    containers: Vec<Target>,
}

impl Costs {
    fn round(&mut self, targets: &Targets, kernel: Option<&mut Kernel>) -> anyhow::Result<()> {
        let mut kernel = kernel;
        if let Some(kernel) = kernel.as_deref_mut() {
            for target in &targets.containers {
                let cgroup = target.cgroup()?;
                kernel.watch(cgroup, watch::SELF, Some(cgroup))?;
            }
        }
        let (mut unknown, mut container) = (Vec::new(), Vec::new());
        for (one, other) in targets.unknown.iter().zip(&targets.containers).cycle().take(BURSTS) {
            unknown.push(one.burst(RECORDED, BURST)?);
            drain(kernel.as_deref_mut());
            container.push(other.burst(RECORDED, BURST)?);
            drain(kernel.as_deref_mut());
            sleep(PAUSE);
        }
        self.unknown.push(median(&unknown));
        self.container.push(median(&container));
        if let Some(kernel) = kernel {
            ensure!(kernel.lost().is_empty(), "records were lost while the probe was timed");
        }
        Ok(())
    }
}

fn drain(kernel: Option<&mut Kernel>) {
    if let Some(kernel) = kernel {
        while kernel.drain(|_| {}) > 0 {}
    }
}

/// `object`: the probes, built with the feature `parts`.
pub fn measure(object: &Path, table: &mut Table) -> anyhow::Result<()> {
    eprintln!("bench: kill(2) with the probe, part after part ({ROUNDS} rounds)");
    let start = || (0..TARGETS).map(|_| Target::start()).collect::<anyhow::Result<Vec<_>>>();
    let targets = Targets {
        unknown: start()?,
        containers: start()?,
    };
    let (mut none, mut empty) = (Costs::default(), Costs::default());
    let mut parts: Vec<Costs> = Part::ALL.iter().map(|_| Costs::default()).collect();
    for _ in 0..ROUNDS {
        none.round(&targets, None)?;
        empty.round(&targets, Some(&mut load(PROBE, Programs::Empty)?))?;
        for (&(last, _), costs) in Part::ALL.iter().zip(&mut parts) {
            let object = object.to_owned();
            costs.round(&targets, Some(&mut load(PROBE, Programs::UpTo { object, last })?))?;
        }
    }
    let mut row = |what: &str, with: &Costs, without: &Costs| {
        let over = |with: &[f64], without: &[f64]| median_of_pairs(with, without, |with, without| with - without);
        let unknown = over(&with.unknown, &without.unknown);
        let container = over(&with.container, &without.container);
        table.fact(what, format!("{unknown:.0} ns; {container:.0} ns"));
    };
    row("an empty program", &empty, &none);
    let before = std::iter::once(&empty).chain(&parts);
    for ((&(_, what), costs), before) in Part::ALL.iter().zip(&parts).zip(before) {
        row(what, costs, before);
    }
    if let Some(whole) = parts.last() {
        row("the whole program", whole, &none);
    }
    table.note(
        "First: the target is in no watched cgroup. Second: it is the first process of a container, and the signal arms the \
         container's sockets."
            .to_owned(),
    );
    Ok(())
}
