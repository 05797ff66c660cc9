//! Why the bus, or logind on it, is not observed; with remedies.

use std::io;
use std::path::PathBuf;

use zbus::fdo;

use crate::error::{HasRemedy, Remedy};

#[derive(Debug, thiserror::Error)]
pub(super) enum BusError {
    /// The directory can be there without a bus: the chart makes it.
    #[error("no system bus at {path} yet: shutdowns of this node are not announced")]
    Missing { path: PathBuf },
    /// As Talos makes it. Not a refusal by a security module: the mode of the directory refuses.
    #[error("the bus at {path} is for root only: shutdowns of this node are not announced here")]
    RootOnly { path: PathBuf },
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
                zbus::Error::FDO(error) => !matches!(**error, fdo::Error::ZBus(_)),
                zbus::Error::InputOutput(error) => error.kind() == io::ErrorKind::TimedOut,
                _ => false,
            },
            BusError::Answer { .. } | BusError::NoLogind => true,
            BusError::Missing { .. }
            | BusError::RootOnly { .. }
            | BusError::Connect { .. }
            | BusError::Silent { .. }
            | BusError::Closed => false,
        }
    }

    /// The service does not have what was asked for: its version is too old, or another program has its name.
    pub fn is_unknown_member(&self) -> bool {
        const NAMES: [&str; 3] = [
            "org.freedesktop.DBus.Error.UnknownProperty",
            "org.freedesktop.DBus.Error.UnknownMethod",
            "org.freedesktop.DBus.Error.UnknownInterface",
        ];
        let BusError::Call { source, .. } = self else { return false };
        match source {
            zbus::Error::MethodError(name, ..) => NAMES.contains(&name.as_str()),
            zbus::Error::FDO(error) => matches!(
                **error,
                fdo::Error::UnknownProperty(_) | fdo::Error::UnknownMethod(_) | fdo::Error::UnknownInterface(_)
            ),
            _ => false,
        }
    }

    /// No answer in time.
    pub fn is_silence(&self) -> bool {
        matches!(self, BusError::Call { source: zbus::Error::InputOutput(error), .. } if error.kind() == io::ErrorKind::TimedOut)
    }

    fn is_denied(&self) -> bool {
        let source = match self {
            BusError::Connect { source, .. } | BusError::Call { source, .. } => source,
            _ => return false,
        };
        match source {
            zbus::Error::InputOutput(error) | zbus::Error::Connection(error, _) => {
                error.kind() == io::ErrorKind::PermissionDenied
            }
            zbus::Error::FDO(error) => matches!(**error, fdo::Error::AccessDenied(_)),
            _ => false,
        }
    }
}

impl HasRemedy for BusError {
    fn remedy(&self) -> Option<Remedy> {
        if self.is_denied() {
            return Some(
                "a security module refuses: on Ubuntu give this container the AppArmor profile Unconfined (chart value \
                 `logind.appArmorProfile`), with SELinux a domain that may connect to the bus (`logind.seLinuxOptions`)"
                    .into(),
            );
        }
        Some(match self {
            BusError::Missing { .. } => "nothing to do on a node without D-Bus and logind (k3d): the next boot reports what it can; \
                 elsewhere mount the node's directory /run/dbus (not the socket alone), or start dbus"
                .into(),
            BusError::RootOnly { .. } => "nothing to do on Talos, whose bus has room for the kubelet alone: the next boot reports what it can; \
                 elsewhere give the directory of the bus the mode 0755"
                .into(),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error;

    #[test]
    fn a_refusal_is_not_an_absence() {
        let refused = |kind: io::ErrorKind| {
            let source = zbus::Error::InputOutput(Arc::new(kind.into()));
            let path = "/run/dbus/system_bus_socket".into();
            error::line(&BusError::Connect { path, source })
        };
        assert!(refused(io::ErrorKind::PermissionDenied).contains("logind.appArmorProfile"));
        assert!(refused(io::ErrorKind::NotFound).contains("mount the node's directory /run/dbus"));
        let called = |source| BusError::Call { member: "Hello", source };
        let denied = called(zbus::Error::FDO(Box::new(fdo::Error::AccessDenied(
            "An AppArmor policy".to_owned(),
        ))));
        assert!(denied.is_of_service() && error::line(&denied).contains("logind.appArmorProfile"));
        let slow = called(zbus::Error::InputOutput(Arc::new(io::ErrorKind::TimedOut.into())));
        let broken = called(zbus::Error::InputOutput(Arc::new(io::ErrorKind::BrokenPipe.into())));
        assert!(slow.is_of_service() && !broken.is_of_service());
        assert!(slow.is_silence() && !broken.is_silence() && !denied.is_silence());
        let unknown = called(zbus::Error::FDO(Box::new(fdo::Error::UnknownProperty("x".to_owned()))));
        assert!(unknown.is_unknown_member() && !denied.is_unknown_member() && !slow.is_unknown_member());
    }
}
