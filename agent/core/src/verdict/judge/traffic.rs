//! The axis of the clients.

use crate::termination::Traffic;
use crate::verdict::TrafficAxis;

/// Cut before reset before refused: see [`table::TABLE`]. Quiet only if sockets were observed, all of them, and no connection is undecided.
pub fn traffic(traffic: &Traffic) -> TrafficAxis {
    if traffic.cut.count > 0 {
        TrafficAxis::Cut
    } else if traffic.reset.count > 0 {
        TrafficAxis::Reset
    } else if traffic.refused.all.count > 0 && !traffic.only_new_peers_refused() {
        TrafficAxis::Refused
    } else if traffic.rejected.count > 0 {
        TrafficAxis::ProxyRejected
    } else if traffic.refused.all.count > 0 {
        TrafficAxis::RefusedNewPeers
    } else if !traffic.observed {
        TrafficAxis::Unknown
    } else if traffic.undecided.all.count > 0 {
        TrafficAxis::Undecided
    } else if traffic.unseen.may_have_others() {
        TrafficAxis::Unknown
    } else {
        TrafficAxis::Quiet
    }
}
