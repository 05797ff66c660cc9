//! Events on the sockets: counts as attributes, times as spans.

use std::collections::BTreeMap;

use epitaph_core::report::Termination;
use epitaph_core::termination::{ClientPeer, Count, ListenerClosed, PeerPlace, Traffic};
use epitaph_core::time::Boot;
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::SpanData;

use super::Frame;
use super::attributes::{Attributes, data, refused_source};
use crate::render::attributes::key;

/// Sums over `all`: if the sockets of one were not observed, what was seen lost only.
pub(super) fn counts<'a>(all: impl IntoIterator<Item = &'a Traffic> + Clone, a: &mut Attributes) {
    let all = || all.clone().into_iter();
    let sum = |of: fn(&Traffic) -> u64| all().map(of).sum();
    let is_observed = all().all(|traffic| traffic.observed);
    let was_lost = all().any(|t| t.refused.all.count + t.reset.count + t.cut.count + t.rejected.count > 0);
    if (is_observed || was_lost) && all().any(Traffic::may_go_on) {
        a.flag(key::CONNECTIONS_AT_LEAST, true);
    }
    if !is_observed {
        a.some(key::CONNECTIONS_REFUSED, sum(|t| t.refused.all.count));
        a.some(key::CONNECTIONS_RESET, sum(|t| t.reset.count));
        a.some(key::CONNECTIONS_CUT, sum(|t| t.cut.count));
        a.some(key::CONNECTIONS_REJECTED, sum(|t| t.rejected.count));
        return;
    }
    a.flag(key::CONNECTIONS_OBSERVED, true);
    a.some(key::CONNECTIONS_ACCEPTED, sum(|t| t.accepted.count));
    a.some(key::CONNECTIONS_REFUSED, sum(|t| t.refused.all.count));
    a.maybe(
        key::CONNECTIONS_REFUSED_SOURCE,
        all().find_map(|t| refused_source(t.refused.source)),
    );
    a.some(key::CONNECTIONS_REFUSED_NEW_PEERS, sum(Traffic::refused_new));
    a.some(key::CONNECTIONS_RESET, sum(|t| t.reset.count));
    a.some(key::CONNECTIONS_RESET_QUEUED, sum(|t| t.reset_queued));
    a.some(key::CONNECTIONS_CUT, sum(|t| t.cut.count));
    a.some(key::CONNECTIONS_CUT_UNANSWERED, sum(|t| t.cut.count));
    a.some(key::CONNECTIONS_UNDECIDED, sum(|t| t.undecided.all.count));
    a.some(key::CONNECTIONS_IDLE_CLOSED, sum(|t| t.idle_closed.count));
    a.some(key::CONNECTIONS_REJECTED, sum(|t| t.rejected.count));
    if all().all(|traffic| traffic.kubelet.known) {
        a.flag(key::KUBELET_KNOWN, true);
        a.some(key::KUBELET_ACCEPTED, sum(|t| t.kubelet.accepted.count));
        a.some(key::KUBELET_REFUSED, sum(|t| t.kubelet.refused.count));
        a.some(key::KUBELET_BROKEN, sum(|t| t.kubelet.broken.count));
    }
}

/// Whose connections were lost.
pub(super) fn peers(traffic: &Traffic, a: &mut Attributes) {
    a.texts(key::CONNECTIONS_PEERS, traffic.peers.top.iter().map(peer_line));
    a.some(key::CONNECTIONS_PEERS_MORE, traffic.peers.more);
}

fn peer_line(peer: &ClientPeer) -> String {
    let counts = [("refused", peer.refused), ("reset", peer.reset), ("cut", peer.cut)];
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let counts: Vec<String> = counts.map(|(what, count)| format!("{count} {what}")).collect();
    let place = match &peer.place {
        PeerPlace::Pod(pod) => format!("pod {}/{}", data(&pod.namespace), data(&pod.name)),
        place => place.name().to_owned(),
    };
    let new = if peer.had_connected { "" } else { ", new" };
    format!("{} {place}: {}{new}", peer.address, counts.join(", "))
}

/// When counting began, and when the first and the last new connection were accepted.
pub(super) fn times(t: &Termination, at: &Frame, a: &mut Attributes) {
    let traffic = &t.traffic;
    if !traffic.observed {
        return;
    }
    let request = t.kubernetes.as_ref().and_then(|context| context.request.as_ref());
    let expected = match request {
        Some(request) => Some(request.latest),
        None => t.stop.as_ref().map(|stop| stop.at),
    };
    if let Some(since) = traffic.since.filter(|since| expected != Some(*since)) {
        a.text(key::CONNECTIONS_SINCE, at.rfc3339(since));
    }
    if traffic.accepted.count > 0 {
        a.text(key::ACCEPTED_FIRST_AT, at.rfc3339(traffic.accepted.first));
        a.text(key::ACCEPTED_LAST_AT, at.rfc3339(traffic.accepted.last));
    }
}

pub(super) fn connection_spans(traffic: &Traffic, at: &Frame, parent: SpanId) -> impl Iterator<Item = SpanData> {
    let spans = [
        ("refused connections", key::CONNECTIONS_REFUSED, traffic.refused.all),
        ("reset connections", key::CONNECTIONS_RESET, traffic.reset),
        ("cut connections", key::CONNECTIONS_CUT, traffic.cut),
        ("rejected connections", key::CONNECTIONS_REJECTED, traffic.rejected),
    ];
    let queued = traffic.reset_queued;
    let source = refused_source(traffic.refused.source);
    let new = traffic.refused_new();
    spans
        .into_iter()
        .filter(|(.., count)| count.count > 0)
        .map(move |(name, key, Count { count, first, last })| {
            let mut a = Attributes::default();
            a.count(key, count);
            match key {
                key::CONNECTIONS_CUT => a.some(key::CONNECTIONS_CUT_UNANSWERED, count),
                key::CONNECTIONS_RESET => a.some(key::CONNECTIONS_RESET_QUEUED, queued),
                key::CONNECTIONS_REFUSED => {
                    a.maybe(key::CONNECTIONS_REFUSED_SOURCE, source);
                    a.some(key::CONNECTIONS_REFUSED_NEW_PEERS, new);
                }
                _ => {}
            }
            a.text(key::NETWORK_TRANSPORT, "tcp");
            at.span(name, parent, first, last, a)
        })
}

/// Most ports with their own span. Each close of a listener is an event as well.
const PORTS: usize = 8;

/// `listener closed → exit`: how long the main process continued after a port stopped accepting. One span per port, because a
/// server may close the listener for metrics first, or last.
pub(super) fn listener_spans(t: &Termination, at: &Frame, parent: SpanId) -> Vec<SpanData> {
    const NAME: &str = "listener closed → exit";
    let Some(exit) = t.exit else { return Vec::new() };
    let mut closed: Vec<(Boot, u16)> = closed_ports(t, exit.at).collect();
    closed.sort_unstable();
    closed.truncate(PORTS);
    let span = |(closed, port): (Boot, u16)| {
        let mut a = Attributes::default();
        a.count(key::SERVER_PORT, port.into());
        a.text(key::NETWORK_TRANSPORT, "tcp");
        let mut span = at.span(NAME, parent, closed, exit.at, a);
        span.span_context = at.context(at.span_id(&format!("{NAME} {port}")));
        span
    };
    closed.into_iter().map(span).collect()
}

/// Each port with its last listener closed before `exit`, and when. Not by the kill: such a listener accepted until the end.
fn closed_ports(t: &Termination, exit: Boot) -> impl Iterator<Item = (Boot, u16)> {
    let killed = t.kill.as_ref().map(|kill| kill.at);
    let with_the_end = |l: &ListenerClosed| l.at >= exit || (l.by_exit && killed.is_some_and(|killed| l.at >= killed));
    let mut ports: BTreeMap<u16, Option<Boot>> = BTreeMap::new();
    for listener in &t.traffic.listeners {
        let closed = ports.entry(listener.local.port()).or_insert(Some(listener.at));
        *closed = match with_the_end(listener) {
            true => None,
            false => closed.map(|closed| closed.max(listener.at)),
        };
    }
    ports.into_iter().filter_map(|(port, closed)| Some((closed?, port)))
}
