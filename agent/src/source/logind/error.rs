//! Why the bus, or logind on it, is not observed; with remedies.

use std::io;
use std::path::PathBuf;

use crate::error::{HasRemedy, Remedy};

#[derive(Debug, thiserror::Error)]
pub(super) enum BusError {
    #[error("cannot connect to the bus at {path}: {source}")]
    Connect { path: PathBuf, source: zbus::Error },
    #[error("the bus at {path} did not answer within {seconds} s")]
    Silent { path: PathBuf, seconds: u64 },
    #[error("the bus has closed the connection")]
    Closed,
    #[error("{member} failed: {source}")]
    Call { member: &'static str, source: zbus::Error },
    #[error("the answer to {member} has an unexpected form: {source}")]
    Answer { member: &'static str, source: zbus::Error },
    #[error("nobody owns org.freedesktop.login1: systemd-logind does not run")]
    NoLogind,
}

impl BusError {
    /// The service refused, is slow or gone, and the bus still works.
    pub fn is_of_service(&self) -> bool {
        match self {
            BusError::Call { source, .. } => match source {
                zbus::Error::MethodError(..) => true,
                zbus::Error::InputOutput(error) => error.kind() == io::ErrorKind::TimedOut,
                _ => false,
            },
            BusError::Answer { .. } | BusError::NoLogind => true,
            BusError::Connect { .. } | BusError::Silent { .. } | BusError::Closed => false,
        }
    }

    fn is_denied(&self) -> bool {
        let source = match self {
            BusError::Connect { source, .. } | BusError::Call { source, .. } => source,
            _ => return false,
        };
        match source {
            zbus::Error::InputOutput(error) => error.kind() == io::ErrorKind::PermissionDenied,
            zbus::Error::MethodError(name, ..) => name.as_str() == "org.freedesktop.DBus.Error.AccessDenied",
            _ => false,
        }
    }
}

impl HasRemedy for BusError {
    fn remedy(&self) -> Option<Remedy> {
        if self.is_denied() {
            return Some(
                "a security module refuses: on Ubuntu give this container the AppArmor profile Unconfined (chart value \
                 `logind.appArmorProfile`)"
                    .into(),
            );
        }
        Some(match self {
            BusError::Connect { .. } | BusError::Silent { .. } => {
                "mount the node's directory /run/dbus (not the socket alone), or start dbus; without logind on this node switch the \
                 role off (chart value `logind.enabled`, setting `logind.socket`)"
                    .into()
            }
            BusError::NoLogind => "start systemd-logind; without it the kubelet has no graceful node shutdown either".into(),
            BusError::Closed | BusError::Call { .. } | BusError::Answer { .. } => return None,
        })
    }
}

/// Why the agent cannot listen for the role.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for the logind role at {path}: {source}")]
pub struct ListenError {
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}

impl HasRemedy for ListenError {
    fn remedy(&self) -> Option<Remedy> {
        Some("let `logind.socket` name a path in a directory that exists and that epitaph may write to, or leave it out".into())
    }
}
