//! The calls to the bus, and the form of its signals. Nothing here starts a service: calls go to the unique names of running ones.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use epitaph_core::ids::Pid;
use epitaph_core::node::{InhibitMode, Inhibitor, ScheduledShutdown, ShutdownKind};
use epitaph_core::time::Wall;
use serde::Serialize;
use zbus::connection::Builder;
use zbus::message::Type;
use zbus::wire::{DynamicType, OwnedFd, OwnedVariant, Variant};
use zbus::{Connection, Message, MessageStream};

use super::bounds::{LOCKS, TARGETS, lock};
use super::error::BusError;
use super::gate::{DAEMON, Service, Signal, What};

/// Limit of one call. Everything on the other side answers within milliseconds.
const CALL: Duration = Duration::from_secs(5);

const LOGIND: (&str, &str) = ("/org/freedesktop/login1", "org.freedesktop.login1.Manager");
const SYSTEMD: (&str, &str) = ("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
const OOMD: (&str, &str) = ("/org/freedesktop/oom1", "org.freedesktop.oom1.Manager");
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Messages that wait in the connection, each of 32 MiB at most. They are taken at once.
const QUEUE: NonZeroUsize = NonZeroUsize::new(8).unwrap();

/// A signal of the bus with a longer body has another content than it should.
const BODY: usize = 64 << 10;

/// A connection to the system bus.
pub(super) struct Bus(Connection);

/// Who has a connection to the bus.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    pub pid: Option<Pid>,
    pub uid: Option<u32>,
}

impl Bus {
    pub async fn connect(path: &Path) -> Result<(Bus, MessageStream), BusError> {
        let builder = Builder::address(address(path).as_str()).method_timeout(CALL);
        let builder = builder.max_queued(QUEUE);
        let connection = tokio::time::timeout(CALL, builder.build())
            .await
            .map_err(|_| BusError::Silent {
                path: path.to_owned(),
                seconds: CALL.as_secs(),
            })?;
        let connection = connection.map_err(|source| not_connected(path, source))?;
        let stream = MessageStream::from(&connection);
        Ok((Bus(connection), stream))
    }

    /// Asks the daemon for the signals that [`signal`] reads. Those of a shutdown from any sender, so that a forged one is seen; all
    /// others from their services only.
    pub async fn subscribe(&self) -> Result<(), BusError> {
        let mut rules = Vec::new();
        for service in Service::ALL {
            let name = service.name();
            rules.push(format!("sender='{DAEMON}',member='NameOwnerChanged',arg0='{name}'"));
        }
        let (path, interface) = LOGIND;
        for member in ["PrepareForShutdown", "PrepareForShutdownWithMetadata"] {
            rules.push(format!("path='{path}',interface='{interface}',member='{member}'"));
        }
        let sender = Service::Logind.name();
        rules.push(format!(
            "sender='{sender}',path='{path}',interface='{PROPERTIES}',member='PropertiesChanged',arg0='{interface}'"
        ));
        let (path, interface) = SYSTEMD;
        let sender = Service::Systemd.name();
        for member in ["JobNew", "JobRemoved"] {
            for target in TARGETS {
                rules.push(format!(
                    "sender='{sender}',path='{path}',interface='{interface}',member='{member}',arg2='{target}'"
                ));
            }
        }
        let (path, interface) = OOMD;
        let sender = Service::Oomd.name();
        rules.push(format!(
            "sender='{sender}',path='{path}',interface='{interface}',member='Killed'"
        ));
        for rule in rules {
            self.daemon("AddMatch", &format!("type='signal',{rule}")).await?;
        }
        Ok(())
    }

    /// The unique name of the owner.
    pub async fn owner(&self, of: Service) -> Result<Option<String>, BusError> {
        match self.daemon("GetNameOwner", of.name()).await {
            Ok(answer) => Ok(Some(read(&answer, "GetNameOwner")?)),
            Err(error) if error.is_of_service() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Of a connection that may be gone already.
    pub async fn credentials(&self, name: &str) -> Result<Credentials, BusError> {
        const MEMBER: &str = "GetConnectionCredentials";
        let answer = match self.daemon(MEMBER, name).await {
            Ok(answer) => answer,
            Err(error) if error.is_of_service() => return Ok(Credentials::default()),
            Err(error) => return Err(error),
        };
        let body = answer.body();
        let all: HashMap<&str, Variant<'_>> = body
            .deserialize()
            .map_err(|source| BusError::Answer { member: MEMBER, source })?;
        let number = |name: &str| all.get(name).and_then(|value| u32::try_from(value).ok());
        Ok(Credentials {
            pid: number("ProcessID").filter(|pid| *pid > 0).map(Pid),
            uid: number("UnixUserID"),
        })
    }

    /// Lets systemd send its signals of jobs.
    pub async fn subscribe_to_jobs(&self, systemd: &str) -> Result<(), BusError> {
        self.call(systemd, SYSTEMD, "Subscribe", &()).await.map(drop)
    }

    /// The unit of a process, if the process still exists.
    pub async fn unit(&self, systemd: &str, pid: Pid) -> Result<Option<String>, BusError> {
        const MEMBER: &str = "GetUnitByPID";
        match self.call(systemd, SYSTEMD, MEMBER, &(pid.0,)).await {
            Ok(answer) => {
                let body = answer.body();
                let path: zbus::wire::ObjectPath<'_> = body
                    .deserialize()
                    .map_err(|source| BusError::Answer { member: MEMBER, source })?;
                Ok(unit_of_path(path.as_str()))
            }
            Err(error) if error.is_of_service() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The number of systemd's version.
    pub async fn version(&self, systemd: &str) -> Result<Option<u32>, BusError> {
        let text: String = self.property(systemd, SYSTEMD, "Version").await?;
        Ok(version(&text))
    }

    pub async fn system_state(&self, systemd: &str) -> Result<String, BusError> {
        self.property(systemd, SYSTEMD, "SystemState").await
    }

    pub async fn preparing(&self, logind: &str) -> Result<bool, BusError> {
        self.property(logind, LOGIND, "PreparingForShutdown").await
    }

    pub async fn delay_limit(&self, logind: &str) -> Result<Duration, BusError> {
        let micros = self.property(logind, LOGIND, "InhibitDelayMaxUSec").await?;
        Ok(Duration::from_micros(micros))
    }

    /// logind has a time of zero, or that of the largest number, where nothing is scheduled.
    pub async fn scheduled(&self, logind: &str) -> Result<Option<ScheduledShutdown>, BusError> {
        let (kind, micros): (String, u64) = self.property(logind, LOGIND, "ScheduledShutdown").await?;
        let is_set = !kind.is_empty() && micros != 0 && micros != u64::MAX;
        Ok(is_set.then(|| ScheduledShutdown {
            kind,
            at: Wall(micros.saturating_mul(1_000)),
        }))
    }

    /// The first [`LOCKS`] locks, those that delay or block a shutdown first, in a stable order; and the number of the others.
    pub async fn inhibitors(&self, logind: &str) -> Result<(Vec<Inhibitor>, u64), BusError> {
        const MEMBER: &str = "ListInhibitors";
        let answer = self.call(logind, LOGIND, MEMBER, &()).await?;
        let lines: Vec<(String, String, String, String, u32, u32)> = read(&answer, MEMBER)?;
        let mut locks: Vec<Inhibitor> = lines
            .into_iter()
            .map(|(what, who, why, mode, uid, pid)| Inhibitor {
                what,
                who,
                why,
                mode: mode_of(&mode),
                uid,
                pid: Pid(pid),
            })
            .collect();
        locks.sort_by_cached_key(|lock| (!lock.is_for_shutdown(), !lock.is_kubelets(), lock.clone()));
        let over = locks.len().saturating_sub(LOCKS) as u64;
        locks.truncate(LOCKS);
        Ok((locks.into_iter().map(lock).collect(), over))
    }

    /// A delay lock on shutdown, which is held until the descriptor is closed.
    pub async fn inhibit(&self, logind: &str) -> Result<OwnedFd, BusError> {
        const MEMBER: &str = "Inhibit";
        let body = ("shutdown", Inhibitor::OWN, "Epitaph writes down what terminates", "delay");
        let answer = self.call(logind, LOGIND, MEMBER, &body).await?;
        read(&answer, MEMBER)
    }

    async fn property<T>(&self, owner: &str, (path, interface): (&str, &str), name: &'static str) -> Result<T, BusError>
    where
        T: TryFrom<OwnedVariant, Error: Into<zbus::Error>>,
    {
        let answer = self.call(owner, (path, PROPERTIES), "Get", &(interface, name)).await;
        // The name says more than `Get`.
        let answer = answer.map_err(|error| match error {
            BusError::Call { source, .. } => BusError::Call { member: name, source },
            error => error,
        })?;
        let value: OwnedVariant = read(&answer, name)?;
        T::try_from(value).map_err(|source| BusError::Answer {
            member: name,
            source: source.into(),
        })
    }

    async fn daemon(&self, member: &'static str, argument: &str) -> Result<Message, BusError> {
        self.call(DAEMON, ("/org/freedesktop/DBus", DAEMON), member, &(argument,))
            .await
    }

    async fn call<B: Serialize + DynamicType>(
        &self,
        to: &str,
        (path, interface): (&str, &str),
        member: &'static str,
        body: &B,
    ) -> Result<Message, BusError> {
        let called = self.0.call_method(Some(to), path, Some(interface), member, body).await;
        called.map_err(|source| match &source {
            // The end of the connection, seen by a call that was under way.
            zbus::Error::InputOutput(error) if !matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::PermissionDenied) => {
                BusError::Closed
            }
            _ => BusError::Call { member, source },
        })
    }
}

/// Why there is no connection: the bus is not there, is not for this user, or does not accept it.
fn not_connected(path: &Path, source: zbus::Error) -> BusError {
    let path = path.to_owned();
    match path.try_exists() {
        Ok(false) => BusError::Missing { path },
        Err(error) if error.kind() == ErrorKind::PermissionDenied && is_for_owner_only(&path) => BusError::RootOnly { path },
        _ => BusError::Connect { path, source },
    }
}

/// Nobody but the owner of the directory may look into it, whatever a security module allows.
fn is_for_owner_only(path: &Path) -> bool {
    const SEARCH_OF_OTHERS: u32 = 0o011;
    let directory = path.parent().map(Path::metadata);
    directory.is_some_and(|directory| directory.is_ok_and(|directory| directory.mode() & SEARCH_OF_OTHERS == 0))
}

fn read<T>(answer: &Message, member: &'static str) -> Result<T, BusError>
where
    T: for<'b> zbus::wire::DynamicDeserialize<'b>,
{
    let body = answer.body();
    body.deserialize().map_err(|source| BusError::Answer { member, source })
}

/// A message with the name of one of our signals has another content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotASignal;

/// The signal that a message is; None: a message that is not one of those that are asked for (an answer, the bus' own signals to us).
pub(super) fn signal(message: &Message) -> Result<Option<Signal>, NotASignal> {
    if message.message_type() != Type::Signal {
        return Ok(None);
    }
    let header = message.header();
    let (Some(sender), Some(interface), Some(member)) = (header.sender(), header.interface(), header.member()) else {
        return Err(NotASignal);
    };
    let path = header.path().map_or("", |path| path.as_str());
    if message.body().len() > BODY {
        return Err(NotASignal);
    }
    let what = match (interface.as_str(), member.as_str()) {
        (DAEMON, "NameOwnerChanged") => owner(message)?,
        (DAEMON, "NameAcquired" | "NameLost") => None,
        (PROPERTIES, "PropertiesChanged") if path == LOGIND.0 => Some(What::Changed),
        (of, "PrepareForShutdown") if of == LOGIND.1 && path == LOGIND.0 => {
            let start = body(message)?;
            Some(What::Prepare {
                start,
                metadata: false,
                kind: None,
            })
        }
        (of, "PrepareForShutdownWithMetadata") if of == LOGIND.1 && path == LOGIND.0 => Some(with_metadata(message)?),
        (of, "JobNew") if of == SYSTEMD.1 => {
            let (_, _, unit): (u32, zbus::wire::OwnedObjectPath, String) = body(message)?;
            job(unit, false)
        }
        (of, "JobRemoved") if of == SYSTEMD.1 => {
            let (_, _, unit, _): (u32, zbus::wire::OwnedObjectPath, String, String) = body(message)?;
            job(unit, true)
        }
        (of, "Killed") if of == OOMD.1 && path == OOMD.0 => {
            let (cgroup, reason) = body(message)?;
            Some(What::OomKilled { cgroup, reason })
        }
        // Sent to this connection alone: nothing of that kind was asked for.
        _ => return Err(NotASignal),
    };
    let sender = sender.as_str().to_owned();
    Ok(what.map(|what| Signal { sender, what }))
}

fn owner(message: &Message) -> Result<Option<What>, NotASignal> {
    let (name, _, now): (String, String, String) = body(message)?;
    let of = Service::ALL.into_iter().find(|service| service.name() == name);
    let now = (!now.is_empty()).then_some(now);
    Ok(of.map(|of| What::Owner { of, now }))
}

fn with_metadata(message: &Message) -> Result<What, NotASignal> {
    let body = message.body();
    let (start, metadata): (bool, HashMap<&str, Variant<'_>>) = body.deserialize().map_err(|_| NotASignal)?;
    let kind = metadata.get("type").and_then(|kind| <&str>::try_from(kind).ok());
    Ok(What::Prepare {
        start,
        metadata: true,
        kind: kind.and_then(ShutdownKind::parse),
    })
}

fn job(unit: String, removed: bool) -> Option<What> {
    TARGETS.contains(&unit.as_str()).then_some(What::Job { unit, removed })
}

fn body<T>(message: &Message) -> Result<T, NotASignal>
where
    T: for<'b> zbus::wire::DynamicDeserialize<'b>,
{
    message.body().deserialize().map_err(|_| NotASignal)
}

fn mode_of(mode: &str) -> InhibitMode {
    match mode {
        "delay" => InhibitMode::Delay,
        "block" => InhibitMode::Block,
        "block-weak" => InhibitMode::BlockWeak,
        _ => InhibitMode::Other,
    }
}

/// `252.39-1~deb12u1`, `systemd 219`, `v257.9`: the first number.
fn version(text: &str) -> Option<u32> {
    let from = text.find(|c: char| c.is_ascii_digit())?;
    let digits = text[from..].split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// The last part of a unit's path: every byte but letters and digits is `_` and two hex digits.
fn unit_of_path(path: &str) -> Option<String> {
    let mut bytes = path.strip_prefix("/org/freedesktop/systemd1/unit/")?.bytes();
    let mut name = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'_' {
            name.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        name.push((digit()? * 16 + digit()?) as u8);
    }
    String::from_utf8(name).ok().filter(|name| !name.is_empty())
}

/// <https://dbus.freedesktop.org/doc/dbus-specification.html#addresses>
fn address(path: &Path) -> String {
    let mut address = "unix:path=".to_owned();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' | b'/' | b'.' => address.push(char::from(byte)),
            byte => {
                let _ = write!(address, "%{byte:02x}");
            }
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use nix::unistd::{Uid, geteuid, setfsuid};

    use super::*;
    use crate::error;

    /// The kubelet's bus of Talos, in a directory of root with mode 0700: not a refusal of AppArmor or SELinux.
    #[test]
    fn a_bus_for_root_only_has_another_remedy_than_a_refused_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dbus/system_bus_socket");
        let directory = path.parent().unwrap();
        fs::create_dir(directory).unwrap();
        let connected = |mode| {
            fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
            let path = path.clone();
            // A thread of its own, whose files are seen as by uid 65534 if the test is root.
            let connecting = std::thread::spawn(move || {
                if geteuid().is_root() {
                    setfsuid(Uid::from_raw(65_534));
                }
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let connected = runtime.block_on(Bus::connect(&path));
                error::line(&connected.err().expect("there is no bus"))
            });
            connecting.join().unwrap()
        };
        // Without root the directory is the test's own.
        let is_root = geteuid().is_root();
        fs::set_permissions(directory.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
        let refused = connected(if is_root { 0o700 } else { 0o600 });
        assert!(
            refused.starts_with("the bus at ") && refused.contains(" is for root only") && !refused.contains("AppArmor"),
            "{refused}"
        );
        let absent = connected(0o755);
        assert!(absent.starts_with("no system bus at "), "{absent}");
    }

    #[test]
    fn versions_of_all_distributions() {
        let all = ["252.39-1~deb12u1", "systemd 219", "v257.9", "256", "", "rc"];
        assert_eq!(all.map(version), [Some(252), Some(219), Some(257), Some(256), None, None]);
    }

    #[test]
    fn names_of_units_are_unescaped() {
        let unit = |path: &str| unit_of_path(&format!("/org/freedesktop/systemd1/unit/{path}"));
        assert_eq!(unit("ssh_2eservice").as_deref(), Some("ssh.service"));
        assert_eq!(unit("session_2d3_2escope").as_deref(), Some("session-3.scope"));
        assert_eq!((unit("a_2"), unit("a_zz"), unit("_ff"), unit("")), (None, None, None, None));
        assert_eq!(unit_of_path("/other"), None);
    }

    #[test]
    fn a_path_is_escaped_in_an_address() {
        assert_eq!(address(Path::new("/run/dbus/a,b;c")), "unix:path=/run/dbus/a%2cb%3bc");
    }

    fn of(path: &'static str, interface: &'static str, member: &'static str) -> zbus::message::Builder<'static> {
        Message::signal(path, interface, member).sender(":1.9")
    }

    #[test]
    fn signals_are_read_and_all_else_is_not_one() {
        let prepare = |member: &'static str| of(LOGIND.0, LOGIND.1, member);
        let read = |message: Message| signal(&message).map(|signal| signal.map(|signal| signal.what));
        let plain = read(prepare("PrepareForShutdown").build(&(true,)).unwrap());
        let prepared = |metadata, kind| {
            let start = true;
            Ok(Some(What::Prepare { start, metadata, kind }))
        };
        assert_eq!(plain, prepared(false, None));
        for (name, kind) in [("kexec", Some(ShutdownKind::Kexec)), ("sing", None)] {
            let body = (
                true,
                HashMap::from([("type", Variant::from(name)), ("x", Variant::from(1_u32))]),
            );
            assert_eq!(
                read(prepare("PrepareForShutdownWithMetadata").build(&body).unwrap()),
                prepared(true, kind)
            );
        }
        for garbage in [
            prepare("PrepareForShutdown").build(&("yes",)).unwrap(),
            prepare("PrepareForShutdown").build(&()).unwrap(),
            prepare("PrepareForShutdown").build(&(true, "x".repeat(BODY))).unwrap(),
            prepare("PrepareForShutdownWithMetadata").build(&(true, 5_u32)).unwrap(),
            prepare("PrepareForSleep").build(&(true,)).unwrap(),
            of("/other", LOGIND.1, "PrepareForShutdown").build(&(true,)).unwrap(),
            of(SYSTEMD.0, SYSTEMD.1, "JobNew").build(&("x",)).unwrap(),
        ] {
            assert_eq!(read(garbage), Err(NotASignal));
        }
    }
}
