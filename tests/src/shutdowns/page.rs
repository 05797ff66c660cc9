//! `docs/shutdowns.md`.

use std::fmt::Write as _;

use super::{CASES, Case, Debian, NOT_MEASURED, Seen, Then, WITNESS_ENDED, When};

const HEAD: &str = "\
# Shutdowns of a node, measured

What logind does when a machine is shut down, and what Epitaph reports, by the way in which it is shut down. Each row was played on emulated
machines with the Debian package of Epitaph; `cargo xtask test systemd` (`--debian 11` for the older machine) plays all rows again, and fails if
a machine does something else. `UPDATE_EXPECT=1 cargo test -p epitaph-tests --lib shutdowns` writes this page from the table of the tests
(`tests/src/shutdowns.rs`).

- The machines have no kubelet: what the kubelet's lock and the pods add is in [verdicts.md](verdicts.md#shutdowns-of-the-node).
- *On the bus* are the signals that a witness saw, which is not Epitaph: PrepareForShutdown of logind, JobNew of systemd for shutdown.target.
  Programs that delay a shutdown, the kubelet among them, wait for PrepareForShutdown.
- *Reported* is when the report is written: *at once* while the machine runs on, *ending* as the agent ends in the shutdown, before the machine is down,
  *next boot* when the agent is started again. The time in which the machine was down is reported at the next boot in any case.
";

/// The whole page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for debian in Debian::ALL {
        let not_measured: Vec<&str> = NOT_MEASURED
            .iter()
            .filter(|(of, _)| *of == debian)
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        let _ = writeln!(page, "\n## systemd {} (Debian {})\n", debian.systemd(), debian.number());
        let mut measured = CASES
            .iter()
            .filter(|case| !not_measured.contains(&case.name))
            .filter_map(|case| Some((case, case.on(debian)?)))
            .peekable();
        if measured.peek().is_some() {
            page.push_str("| what is done | machine | on the bus | verdict | by | reported |\n|---|---|---|---|---|---|\n");
        }
        for (case, seen) in measured {
            row(
                &mut page,
                case,
                seen,
                debian == Debian::Thirteen && WITNESS_ENDED.contains(&case.name),
            );
        }
        if debian == Debian::Thirteen {
            page.push_str("\n*: the witness was stopped with the services, before systemd's JobNew could be seen.\n");
        }
        if !not_measured.is_empty() {
            let of = |name: &&str| CASES.iter().find(|case| case.name == *name).map(|case| case.does.to_string());
            let not_measured: Vec<_> = not_measured.iter().filter_map(of).collect();
            let _ = writeln!(page, "\nNot measured yet: {}.", not_measured.join("; "));
        }
    }
    page
}

fn row(page: &mut String, case: &Case, seen: Seen, witness_ended: bool) {
    let then = match seen.then {
        Then::Stays => "stays up",
        Then::Boots => "boots",
        Then::SoftBoots => "boots, same kernel",
        Then::Off => "is off",
    };
    let bus = match seen.bus {
        "" => "nothing",
        _ if witness_ended => "PrepareForShutdown *",
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
