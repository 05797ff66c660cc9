//! Where the role that observes logind and the agent meet.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::source::logind;

/// Of `epitaph agent` and `epitaph logind`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogindSettings {
    /// None: the agent does not listen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// The role's user.
    pub uid: u32,
    /// Socket of the system bus.
    pub bus: PathBuf,
    /// A delay lock of our own.
    pub lock: bool,
}

impl Default for LogindSettings {
    fn default() -> Self {
        LogindSettings {
            socket: None,
            uid: logind::NOBODY,
            bus: logind::BUS.into(),
            lock: false,
        }
    }
}
