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

- The machines have no kubelet and no pods. [verdicts.md](verdicts.md#shutdowns-of-the-node) has what these change.
- *Command or event*: what a person or the hardware does to the machine.
- *The machine then*: what the machine does after that. Where the machine powers off, the test switches the machine on again.
- *Signals on the system bus*: what a separate program, not Epitaph, recorded on D-Bus: PrepareForShutdown of logind, JobNew of systemd for
  shutdown.target. Programs that delay a shutdown, the kubelet among them, wait for PrepareForShutdown.
- *Epitaph's verdict*: [verdicts.md](verdicts.md#shutdowns-of-the-node) has the meaning. *None*: there was no shutdown, so Epitaph made no report.
- *Announced by*: what announced the shutdown, according to Epitaph's report. *Nothing*: no program announced it.
- *Report written*: *at once*, while the machine continues; *at the agent's exit*, in the shutdown, before the machine is down; *at the next boot*,
  when the agent is started again. The time in which the machine was down is reported at the next boot in any case.
";

const WITHIN: &str = "
## Power cuts within a shutdown, and the role's own lock

In each row both machines run `systemctl poweroff`. Then either the power plug is pulled at the moment that the row names, or `epitaph logind` (the
*role*) asks for a delay lock of its own (`logind.lock = true`). A power cut is reported at the next boot, with everything that was reported before
it. With and without the role's lock, a unit that exits 4 s after its stop signal is observed until its exit.

| event in the shutdown | Epitaph's report |
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
        page.push_str(
            "| command or event | the machine then | signals on the system bus | Epitaph's verdict | announced by | report written |\n\
             |---|---|---|---|---|---|\n",
        );
        for (case, seen) in CASES.iter().filter_map(|case| Some((case, case.on(debian)?))) {
            row(&mut page, case, seen);
        }
    }
    page.push_str(WITHIN);
    for cut in CUTS {
        let _ = writeln!(
            page,
            "| the power plug is pulled {} | `{}`, announced by {} |",
            cut.when, cut.verdict, cut.by
        );
    }
    for lock in LOCKS {
        let _ = writeln!(
            page,
            "| `epitaph logind` runs as {} | its own lock is {}, `graceful` |",
            lock.who, lock.state
        );
    }
    page.push_str(NEXT);
    page
}

fn row(page: &mut String, case: &Case, seen: Seen) {
    let then = match seen.then {
        Then::Stays => "stays up",
        Then::Boots => "reboots",
        Then::SoftBoots => "restarts its services, on the same kernel",
        Then::Off => "powers off",
    };
    let bus = match seen.bus {
        "" => "nothing",
        bus => bus,
    };
    let (verdict, by, when) = match seen.report {
        None => ("none".to_owned(), "", ""),
        Some((verdict, by, when)) => (
            format!("`{verdict}`"),
            if by == "none" { "nothing" } else { by },
            match when {
                When::AtOnce => "at once",
                When::Ending => "at the agent's exit",
                When::NextBoot => "at the next boot",
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
