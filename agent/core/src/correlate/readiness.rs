//! Whether Services send clients to a pod, as the statuses of the API show it.

use crate::time::Boot;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readiness {
    /// The last status that was Ready.
    pub last: Option<Boot>,
    /// The first that was not, since then. That none followed is no evidence, as the network of the node may be down.
    pub unready: Option<Boot>,
}

impl Readiness {
    pub fn status(&mut self, takes_clients: bool, at: Boot) {
        if takes_clients {
            (self.last, self.unready) = (Some(at), None);
        } else {
            self.unready.get_or_insert(at);
        }
    }
}
