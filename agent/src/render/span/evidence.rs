//! The evidence that no attribute, event or child span of the same trace shows.
//!
//! A line is matched by source and time, never by its text. A line of a new kind is therefore kept until its fact has an attribute.

use epitaph_core::event::Kind;
use epitaph_core::report::Termination;
use epitaph_core::termination::Traffic;
use epitaph_core::time::Boot;
use epitaph_core::verdict::{Evidence, Source};

use super::{Frame, forward};

pub(super) fn not_shown<'a>(t: &'a Termination, at: &Frame) -> impl Iterator<Item = &'a Evidence> {
    let has_root = at.pod.is_some();
    t.verdict.evidence.iter().filter(move |line| !is_shown(line, t, has_root))
}

fn is_shown(line: &Evidence, t: &Termination, has_root: bool) -> bool {
    let at = line.at;
    let stop = t.stop.as_ref();
    match line.source {
        Source::Probe(kind) if forward::shows(t, kind, at) => true,
        // Not the signal of a crash or for another process: of such a signal only the name is an attribute.
        Source::Probe(Kind::SignalGenerate) => {
            stop.is_some_and(|stop| stop.at == at || stop.raised_again.is_some_and(|raised| raised.at == at))
                || t.kill.as_ref().is_some_and(|kill| kill.at == at)
        }
        Source::Probe(Kind::SignalDeliver) => stop.is_some_and(|stop| stop.handler_entered == Some(at)),
        Source::Probe(Kind::OomVictim) => t.oom.iter().any(|oom| oom.at == at),
        Source::Probe(Kind::ProcessExit) => t.exit.is_some_and(|exit| exit.at == at),
        Source::Probe(Kind::Tcp) => of_traffic(&t.traffic, at),
        Source::Probe(_) => false,
        Source::Kubernetes => of_kubernetes(t, at, has_root),
        // Of the node's shutdown, not of a termination.
        Source::Bus | Source::Kubelet => false,
    }
}

fn of_traffic(traffic: &Traffic, at: Boot) -> bool {
    let spans = [traffic.refused.all, traffic.reset, traffic.cut, traffic.rejected];
    // These are attributes only if the sockets were observed.
    let counts = [
        traffic.accepted,
        traffic.undecided.all,
        traffic.idle_closed,
        traffic.kubelet.refused,
        traffic.kubelet.broken,
    ];
    let counts = counts.iter().filter(|_| traffic.observed);
    let mut counted = spans.iter().chain(counts).filter(|count| count.count > 0);
    counted.any(|count| count.first == at) || traffic.listeners.iter().any(|listener| listener.at == at)
}

fn of_kubernetes(t: &Termination, at: Boot, has_root: bool) -> bool {
    let Some(context) = t.kubernetes.as_deref() else {
        return false;
    };
    let asked = context.request.as_ref().map_or(t.begin, |request| request.latest);
    // Events of the root.
    let shortened = context.request.iter().flat_map(|request| &request.shortened);
    let mut shortened = shortened.filter(|_| has_root).map(|(seen, _)| *seen);
    let hook = context.pre_stop.as_ref().filter(|run| run.begin.is_some());
    let hook = hook.map_or([None; 2], |run| [run.begin, run.end]);
    // The pod's status, and why it may be incomplete, carry the time of the end.
    [asked, t.end].contains(&at)
        || shortened.any(|seen| seen == at)
        || hook.contains(&Some(at))
        || context.mains_ended() == Some(at)
}
