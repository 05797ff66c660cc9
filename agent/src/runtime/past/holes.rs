//! What `list` and `why` say of times that the journal does not have.

use epitaph_core::time::Wall;

use crate::journal::{Hole, Why};
use epitaph_story::story::{many, moment};

/// A line for each hole that reaches into the time from `since` to `until`.
pub fn notes(holes: &[Hole], since: Option<Wall>, until: Option<Wall>) -> Vec<String> {
    let within = |hole: &&Hole| since.is_none_or(|since| hole.to >= since) && until.is_none_or(|until| hole.from <= until);
    holes.iter().filter(within).map(note).collect()
}

fn note(hole: &Hole) -> String {
    let (from, to) = (moment(hole.from), moment(hole.to));
    match &hole.why {
        Why::Lost { reports, state } => {
            let why = match state.as_deref() {
                Some("full") => "the disk was full for too long",
                Some("read_only") => "the file system was read-only for too long",
                Some(_) => "the disk was in trouble for too long",
                None => "the disk did not keep up",
            };
            let are = if *reports == 1 { "is" } else { "are" };
            format!(
                "{} {are} not in the journal, with an end between {from} and {to} UTC: {why}; the collector, if one is set, has the traces, \
                 and the agent's log has the unclean ones",
                many(*reports, "termination")
            )
        }
        Why::Silence => format!(
            "nothing was written to the journal between {from} and {to} UTC: no agent ran, or the agent could not write; terminations of \
             this time are missing"
        ),
        Why::Boot => format!(
            "nothing was written to the journal from {from} until the machine booted at {to} UTC: the machine was off, or no agent ran"
        ),
        Why::Cut(count) => format!(
            "the journal lacks {} of the time between {from} and {to} UTC: terminations of this time may be missing",
            many(*count, "record")
        ),
        Why::End => format!(
            "nothing has been written to the journal since {from} UTC: no agent runs with this journal, or the agent cannot write (see its \
             log and `/readyz`); later terminations are missing"
        ),
        Why::Several(count) => format!("the journal has {count} more holes between {from} and {to} UTC"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn hole(from: u64, why: Why) -> Hole {
        let at = |seconds: u64| Wall((1_795_000_000 + seconds) * 1_000_000_000);
        Hole {
            from: at(from),
            to: at(from + 50),
            why,
        }
    }

    #[test]
    fn holes_of_the_asked_time_are_named() {
        let lost = |reports, state: Option<&str>| Why::Lost {
            reports,
            state: state.map(str::to_owned),
        };
        let holes = [
            hole(0, Why::Several(3)),
            hole(100, lost(12, Some("full"))),
            hole(200, lost(1, Some("read_only"))),
            hole(300, Why::Silence),
            hole(350, Why::Boot),
            hole(360, Why::Cut(3)),
            hole(400, Why::End),
        ];
        expect![[r#"
            the journal has 3 more holes between 2026-11-18 11:06:40 and 2026-11-18 11:07:30 UTC
            12 terminations are not in the journal, with an end between 2026-11-18 11:08:20 and 2026-11-18 11:09:10 UTC: the disk was full for too long; the collector, if one is set, has the traces, and the agent's log has the unclean ones
            1 termination is not in the journal, with an end between 2026-11-18 11:10:00 and 2026-11-18 11:10:50 UTC: the file system was read-only for too long; the collector, if one is set, has the traces, and the agent's log has the unclean ones
            nothing was written to the journal between 2026-11-18 11:11:40 and 2026-11-18 11:12:30 UTC: no agent ran, or the agent could not write; terminations of this time are missing
            nothing was written to the journal from 2026-11-18 11:12:30 until the machine booted at 2026-11-18 11:13:20 UTC: the machine was off, or no agent ran
            the journal lacks 3 records of the time between 2026-11-18 11:12:40 and 2026-11-18 11:13:30 UTC: terminations of this time may be missing
            nothing has been written to the journal since 2026-11-18 11:13:20 UTC: no agent runs with this journal, or the agent cannot write (see its log and `/readyz`); later terminations are missing"#]].assert_eq(&notes(&holes, None, None).join("\n"));
        let at = |seconds: u64| Some(Wall((1_795_000_000 + seconds) * 1_000_000_000));
        assert_eq!(notes(&holes, at(160), at(290)).len(), 1);
        assert_eq!(notes(&holes, at(150), at(200)).len(), 2, "the ends are within");
        assert_eq!(notes(&holes, at(500), None).len(), 0);
    }
}
