//! The parts of `node-shutdown`, as far as people are shown them.

use serde::Deserialize;

use super::{At, Text};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Signs {
    pub prepared: Option<At>,
    pub cancelled: Option<At>,
    pub scheduled_for: Option<At>,
    pub job: Option<Text>,
    pub job_at: Option<At>,
    pub stopping: Option<At>,
    pub init_signal: Option<Text>,
    pub init_signal_at: Option<At>,
    pub sigterm_to_all: Option<At>,
    pub sigkill_to_all: Option<At>,
    pub spoofed: Option<Spoofed>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Spoofed {
    pub time: Option<At>,
    pub count: u64,
    pub pid: Option<u32>,
    pub comm: Option<Text>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Delay {
    pub begin: Option<At>,
    pub end: Option<At>,
    pub limit_ms: Option<f64>,
    pub expired: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lock {
    pub who: Text,
    pub mode: Text,
    pub taken: Option<At>,
    pub released: Option<At>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Phase {
    pub priority: i64,
    pub period_ms: f64,
    pub begin: Option<At>,
    pub end: Option<At>,
    pub overran: bool,
    pub at_least: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodInShutdown {
    pub namespace: Text,
    pub name: Text,
    pub stopped: Option<At>,
    pub ended: Option<At>,
    pub cut: Option<Cut>,
    pub started: Option<At>,
    pub clients: Option<ClientLoss>,
    pub still_ready: Option<StillReady>,
}

impl PodInShutdown {
    /// As far as known.
    pub fn lost(&self) -> u64 {
        self.clients.as_ref().map_or(0, |clients| clients.lost)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClientLoss {
    pub lost: u64,
    pub at_least: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StillReady {
    pub after_stop_ms: f64,
    pub at_least: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Cut {
    pub time: Option<At>,
    /// By SIGKILL; otherwise a container still ran when the delay ended.
    pub killed: bool,
}
