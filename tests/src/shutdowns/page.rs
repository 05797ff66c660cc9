//! `docs/shutdowns.md`.

use std::fmt::Write as _;

use super::{CASES, CUTS, Case, Debian, LOCKS, Seen, Then, When};

const HEAD: &str = "\
# Shutdowns of a node, measured

This page answers: which command shuts a node down gracefully, and what does Epitaph report of each?

Each row was played on emulated
machines with the Debian package of Epitaph; `cargo xtask test systemd` (`--debian 11` for the older machine) plays all rows again, and fails if
a machine does something else. `UPDATE_EXPECT=1 cargo test -p epitaph-tests --lib shutdowns` writes this page from the table of the tests
(`tests/src/shutdowns.rs`).

- The machines have no kubelet: what the kubelet's lock and the pods add is in [verdicts.md](verdicts.md#shutdowns-of-the-node).
- *On the bus* are the signals that a separate program, not Epitaph, recorded on the bus: PrepareForShutdown of logind, JobNew of systemd for shutdown.target.
  Programs that delay a shutdown, the kubelet among them, wait for PrepareForShutdown.
- *Reported* is when the report is written: *at once* while the machine runs on, *ending* as the agent ends in the shutdown, before the machine is down,
  *next boot* when the agent is started again. The time in which the machine was down is reported at the next boot in any case.
";

const WITHIN: &str = "
## Power cuts within a shutdown, and the role's own lock

On both machines, within `systemctl poweroff`: the plug is pulled at one of several moments, or the role asks for a delay lock of its own
(`logind.lock = true`). A power cut is reported at the next boot, with everything that was reported before it. With the own lock, and
without it, a unit that exits 4 s after its stop signal is observed to its exit.

| what is done | reported |
|---|---|
";

const NEXT: &str = "
Next: [would this node shut its pods down gracefully?](doctor.md#would-this-node-shut-its-pods-down-gracefully), or [a node that rebooted](start/rebooted-node.md).
";

/// The whole page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for debian in Debian::ALL {
        let _ = writeln!(page, "\n## systemd {} (Debian {})\n", debian.systemd(), debian.number());
        page.push_str("| what is done | machine | on the bus | verdict | by | reported |\n|---|---|---|---|---|---|\n");
        for (case, seen) in CASES.iter().filter_map(|case| Some((case, case.on(debian)?))) {
            row(&mut page, case, seen);
        }
    }
    page.push_str(WITHIN);
    for cut in CUTS {
        let _ = writeln!(page, "| the plug is pulled {} | `{}`, by {} |", cut.when, cut.verdict, cut.by);
    }
    for lock in LOCKS {
        let _ = writeln!(
            page,
            "| the role runs as {} | own lock {}, `graceful` |",
            lock.who, lock.state
        );
    }
    page.push_str(NEXT);
    page
}

fn row(page: &mut String, case: &Case, seen: Seen) {
    let then = match seen.then {
        Then::Stays => "stays up",
        Then::Boots => "boots",
        Then::SoftBoots => "boots, same kernel",
        Then::Off => "is off",
    };
    let bus = match seen.bus {
        "" => "nothing",
        bus => bus,
    };
    let (verdict, by, when) = match seen.report {
        None => ("nothing".to_owned(), "", ""),
        Some((verdict, by, when)) => (
            format!("`{verdict}`"),
            by,
            match when {
                When::AtOnce => "at once",
                When::Ending => "ending",
                When::NextBoot => "next boot",
            },
        ),
    };
    let _ = writeln!(page, "| {} | {then} | {bus} | {verdict} | {by} | {when} |", case.does);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/shutdowns.md");
        expect_test::expect_file![path].assert_eq(&page());
    }
}
