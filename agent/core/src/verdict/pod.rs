//! Many containers, one verdict.

use super::Judged;
use super::table::row;
use super::{Cause, Disagreement, Evidence, Exit, TrafficAxis, Verdict, advice};
use crate::kubernetes::{PodTerminationFacts, Reported};

/// Judges a finished pod, once: the container with the highest precedence gives the verdict, and the sentence names
/// that container and how many were unclean. `unseen` are those whose exit only the pod's status reports.
pub fn judge_pod(facts: &PodTerminationFacts, containers: &[Judged<'_>]) -> Verdict {
    let (stop_reason, unseen) = (facts.stop_reason.as_ref(), &facts.unseen[..]);
    let mut members: Vec<Member> = containers.iter().map(Member::seen).collect();
    let is_seen = |name: &str| members.iter().any(|member| member.name == name);
    let unseen_members = |(name, reported): &(String, Option<Reported>)| Member::unseen(name, reported.as_ref(), is_seen(name));
    let more: Vec<Member> = unseen.iter().map(unseen_members).collect();
    members.extend(more);
    let unobserved = advice::that_ran(unseen).map(|_| TrafficAxis::Unknown);
    let traffic = containers
        .iter()
        .map(|of| of.verdict.traffic)
        .chain(unobserved)
        .max_by_key(|axis| weight(*axis));
    let unclean = members.iter().filter(|member| member.verdict.unclean).count();
    let clean = members
        .iter()
        .filter(|member| member.verdict.exit == Exit::Clean && !member.verdict.unclean)
        .count();
    let total = members.len();
    // Of equal precedence the first counts, in the order of the exits.
    let speaker = members
        .iter()
        .enumerate()
        .max_by_key(|(place, member)| (member.precedence(), std::cmp::Reverse(*place)));
    let Some((place, member)) = speaker else {
        return Verdict {
            cause: stop_reason.map_or(Cause::Unknown, |stop_reason| stop_reason.cause),
            sentence: "no container of the pod was seen to exit".to_owned(),
            ..unobserved_verdict(Exit::Unknown)
        };
    };
    let before = |(name, headline): &(String, &str)| {
        format!("container `{name}` had exited before with the verdict {headline}, and was started again")
    };
    let others: Vec<String> = members
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != place)
        .filter_map(|(_, member)| member.aside())
        .chain(facts.earlier.iter().map(before))
        .collect();
    let mut evidence: Vec<Evidence> = members
        .iter()
        .flat_map(|member| {
            member.verdict.evidence.iter().map(|line| Evidence {
                text: match total {
                    1 => line.text.clone(),
                    _ => format!("{}: {}", member.name, line.text),
                },
                ..line.clone()
            })
        })
        .collect();
    evidence.sort_by_key(|line| (line.at, line.source));
    let verdict = &member.verdict;
    Verdict {
        cause: stop_reason.map_or(verdict.cause, |stop_reason| stop_reason.cause),
        traffic: traffic.unwrap_or(TrafficAxis::Unknown),
        sentence: sentence(member, (clean, unclean, total), &others),
        advice: advice::of_pod(containers, unseen),
        evidence,
        ..verdict.clone()
    }
}

struct Member {
    name: String,
    verdict: Verdict,
    /// What the pod's status reports of a container that was not observed.
    from_status: Option<String>,
}

impl Member {
    fn seen(of: &Judged<'_>) -> Member {
        let name = of.case.kubernetes.and_then(|context| context.container.clone());
        Member {
            name: name.unwrap_or_else(|| of.case.subject.to_string()),
            verdict: of.verdict.clone(),
            from_status: None,
        }
    }

    /// The pod's status is a hint: it proves neither a clean exit nor a kill. `is_next`: the life before was observed.
    fn unseen(name: &str, reported: Option<&Reported>, is_next: bool) -> Member {
        let status = match reported {
            Some(Reported {
                exit_code,
                reason: Some(reason),
            }) => format!("the pod's status reports {reason}, exit code {exit_code}"),
            Some(Reported { exit_code, reason: None }) => format!("the pod's status reports exit code {exit_code}"),
            None => "the pod's status reports no exit code".to_owned(),
        };
        let exit = match reported {
            Some(reported) if reported.never_started() => Exit::RuntimeFailed,
            _ => Exit::Unknown,
        };
        let how = match exit {
            Exit::RuntimeFailed => "the container runtime did not start the program",
            _ if is_next => "a restart was due after the observed exit, and no process of the next start was observed",
            _ => "no process of the container was observed",
        };
        Member {
            name: name.to_owned(),
            verdict: Verdict {
                sentence: format!("container `{name}`: {how}; {status}"),
                remedy: (exit == Exit::RuntimeFailed).then(|| super::words::lower(row(exit, TrafficAxis::Unknown).remedy)),
                ..unobserved_verdict(exit)
            },
            from_status: Some(status),
        }
    }

    fn precedence(&self) -> u8 {
        row(self.verdict.exit, self.verdict.traffic).precedence
    }

    /// A clause about a container that does not give the pod's verdict.
    fn aside(&self) -> Option<String> {
        match &self.from_status {
            Some(status) => Some(format!("container `{}` was not observed: {status}", self.name)),
            None => {
                let verdict = self.verdict.unclean.then(|| self.verdict.headline.to_owned());
                let disagreement = self.verdict.disagreement.as_ref().map(Disagreement::clause);
                let all: Vec<String> = verdict.into_iter().chain(disagreement).collect();
                (!all.is_empty()).then(|| format!("container `{}`: {}", self.name, all.join("; ")))
            }
        }
    }
}

/// The verdict of an exit without evidence.
fn unobserved_verdict(exit: Exit) -> Verdict {
    let row = row(exit, TrafficAxis::Unknown);
    Verdict {
        headline: row.headline,
        cause: Cause::Unknown,
        exit,
        traffic: TrafficAxis::Unknown,
        unclean: row.unclean,
        severity: row.severity,
        sentence: String::new(),
        remedy: None,
        advice: Vec::new(),
        disagreement: None,
        evidence: Vec::new(),
    }
}

fn sentence(member: &Member, (clean, unclean, total): (usize, usize, usize), others: &[String]) -> String {
    let own = &member.verdict.sentence;
    let prefix = format!("container `{}`: ", member.name);
    let rest = own.strip_prefix(&prefix).unwrap_or(own);
    let how_many = match unclean {
        0 => format!("{clean} of {total} clean"),
        _ => format!("{unclean} of {total} unclean"),
    };
    let mut text = match total {
        1 => own.clone(),
        _ => format!("container `{}` ({how_many}): {rest}", member.name),
    };
    for other in others {
        text.push_str("; ");
        text.push_str(other);
    }
    text
}

/// The worst for clients has the highest weight; unobserved sockets outweigh quiet ones.
fn weight(axis: TrafficAxis) -> u8 {
    match axis {
        TrafficAxis::Quiet => 0,
        TrafficAxis::Unknown => 1,
        TrafficAxis::Undecided => 2,
        TrafficAxis::RefusedNewPeers => 3,
        TrafficAxis::ProxyRejected => 4,
        TrafficAxis::Refused => 5,
        TrafficAxis::Reset => 6,
        TrafficAxis::Cut => 7,
    }
}
