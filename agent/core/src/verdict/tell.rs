//! The layer above the judgement: headline, severity, sentence, remedy, advice and evidence.

use super::case::Case;
use super::judge::Judgement;
use super::{Evidence, Exit, Severity, TrafficAxis, Verdict, advice, disagreement, evidence, sentence, table};
use crate::attribute::Subject;
use crate::event::Kind;
use crate::termination::TerminationFacts;

/// The verdict in words.
pub fn tell(case: &Case<'_>, judgement: &Judgement) -> Verdict {
    let (finding, traffic) = (&judgement.finding, judgement.traffic);
    let row = table::row(finding.exit, traffic);
    let mut evidence: Vec<Evidence> = evidence::list(case);
    evidence.sort_by_key(|line| (line.at, line.source));
    Verdict {
        headline: row.headline,
        cause: finding.cause,
        exit: finding.exit,
        traffic,
        unclean: row.unclean && !is_usual(row, case),
        severity: severity(row, traffic, case),
        sentence: sentence::sentence(case, finding, traffic),
        remedy: sentence::remedy(case, finding, traffic),
        advice: advice::list(case, finding.exit),
        disagreement: disagreement::find(case, finding),
        evidence,
    }
}

/// Of a clean exit with unknown traffic, a loss of TCP records is worth a look: clients may have been harmed, and whoever made the
/// loss may have wanted to hide that. Probes that this machine cannot have are not.
fn severity(row: &table::Row, traffic: TrafficAxis, facts: &TerminationFacts) -> Severity {
    let is_lost = facts.gaps.lost.iter().any(|&(kind, _)| kind == Kind::Tcp.name());
    match row.severity {
        _ if is_usual(row, facts) => Severity::Info,
        Severity::Info if traffic == TrafficAxis::Unknown && is_lost => Severity::Warning,
        // As critical as with a clean exit.
        Severity::Warning if traffic == TrafficAxis::Cut && row.unclean => Severity::Critical,
        severity => severity,
    }
}

/// A systemd unit is the only one of its kind, so its clients are refused at every restart, which takes a moment. No setting of the
/// unit avoids that, except for a socket unit.
fn is_usual(row: &table::Row, facts: &TerminationFacts) -> bool {
    let is_refused = matches!(row.traffic, [TrafficAxis::Refused | TrafficAxis::RefusedNewPeers]);
    row.exit == Exit::Clean && is_refused && matches!(facts.subject, Subject::Unit { .. })
}
