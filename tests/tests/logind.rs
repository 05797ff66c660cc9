//! `epitaph logind` on a real dbus-daemon. logind and systemd are played by this process: the real ones run in the emulated machines of
//! `cargo xtask test systemd`.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::bus::SystemBus;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::http::get;
use epitaph_tests::machine::is_root;
use epitaph_tests::play::Players;
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::sys::{kill, locked};
use epitaph_tests::timeout::{TIMEOUT, ended, holds, until};
use nix::libc::SIGTERM;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_stream::StreamExt as _;
use zbus::wire::{Fd, ObjectPath, Variant};
use zbus::{Connection, Message, MessageStream};

const LOGIND: &str = "org.freedesktop.login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
const PATH: &str = "/org/freedesktop/login1";
const SYSTEMD: &str = "org.freedesktop.systemd1";
/// Name, path and interface of systemd-oomd.
const OOMD: (&str, &str, &str) = (
    "org.freedesktop.oom1",
    "/org/freedesktop/oom1",
    "org.freedesktop.oom1.Manager",
);

/// A job of systemd that no test plays for another reason.
const MARKER: &str = "halt.target";

/// For a test of several threads on a clock of its own: nothing of the core is here.
#[expect(clippy::disallowed_methods, reason = "a test's own limits")]
fn now() -> Instant {
    Instant::now()
}

/// What the played logind and systemd answer.
struct Answers {
    preparing: bool,
    limit: Duration,
    scheduled: (String, u64),
    locks: Vec<(String, String, String, String, u32, u32)>,
    /// The read end of our own lock's pipe; None: refused.
    lock: Option<std::io::PipeReader>,
    grants: bool,
    subscribed: u32,
    /// How often the locks were asked for.
    listed: u32,
    /// What this version does not have: properties and methods.
    absent: Vec<&'static str>,
    /// What is refused.
    refused: Vec<&'static str>,
}

impl Default for Answers {
    fn default() -> Self {
        Answers {
            preparing: false,
            limit: Duration::from_secs(30),
            scheduled: (String::new(), 0),
            locks: vec![lock("kubelet", "delay")],
            lock: None,
            grants: false,
            subscribed: 0,
            listed: 0,
            absent: Vec::new(),
            refused: Vec::new(),
        }
    }
}

fn lock(who: &str, mode: &str) -> (String, String, String, String, u32, u32) {
    let text = |text: &str| text.to_owned();
    (text("shutdown"), text(who), text("because"), text(mode), 0, 700)
}

/// logind and systemd on one connection, which answers until it is dropped.
struct Services {
    connection: Connection,
    answers: Arc<Mutex<Answers>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Services {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Services {
    async fn start(bus: &Path, answers: Answers) -> anyhow::Result<Services> {
        let connection = connect(bus).await?;
        let answers = Arc::new(Mutex::new(answers));
        let mut stream = MessageStream::from(&connection);
        let (replies, known) = (connection.clone(), answers.clone());
        let task = tokio::spawn(async move {
            while let Some(Ok(message)) = stream.next().await {
                if message.message_type() == zbus::message::Type::MethodCall {
                    let _ = answer(&replies, &message, &known).await;
                }
            }
        });
        let services = Services {
            connection,
            answers,
            task,
        };
        for name in [LOGIND, SYSTEMD] {
            services.own(name).await?;
        }
        Ok(services)
    }

    async fn own(&self, name: &str) -> anyhow::Result<()> {
        daemon(&self.connection, "RequestName", &(name, 4_u32)).await
    }

    async fn disown(&self, name: &str) -> anyhow::Result<()> {
        daemon(&self.connection, "ReleaseName", &(name,)).await
    }

    fn change(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.answers.lock().expect("nobody panics with it"));
    }

    /// Waits until the role has asked for the locks so many times more.
    fn until_listed(&self, more: u32) -> anyhow::Result<()> {
        let listed = || self.answers.lock().expect("nobody panics with it").listed;
        let before = listed();
        until("questions for the locks", || {
            let count = listed() - before;
            Ok(holds(count >= more, || format!("{count} of {more}")))
        })
    }

    /// As logind does from systemd 255 on.
    async fn prepare(&self, start: bool, kind: &str) -> anyhow::Result<()> {
        self.change(|answers| answers.preparing = start);
        let metadata = HashMap::from([("type", Variant::from(kind))]);
        emit(&self.connection, "PrepareForShutdownWithMetadata", &(start, metadata)).await?;
        emit(&self.connection, "PrepareForShutdown", &(start,)).await
    }

    async fn changed(&self, property: &str) -> anyhow::Result<()> {
        let nothing = HashMap::<&str, Variant<'_>>::new();
        let body = (MANAGER, nothing, vec![property]);
        let signal = ("org.freedesktop.DBus.Properties", "PropertiesChanged");
        Ok(self
            .connection
            .emit_signal(None::<&str>, PATH, signal.0, signal.1, &body)
            .await?)
    }

    async fn job(&self, member: &str, unit: &str) -> anyhow::Result<()> {
        let job = ObjectPath::try_from("/org/freedesktop/systemd1/job/7")?;
        let (path, interface) = ("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
        let signal = Message::signal(path, interface, member);
        let signal = match member {
            "JobNew" => signal.build(&(7_u32, job, unit))?,
            _ => signal.build(&(7_u32, job, unit, "done"))?,
        };
        Ok(self.connection.send(&signal).await?)
    }
}

async fn connect(bus: &Path) -> anyhow::Result<Connection> {
    let address = format!("unix:path={}", bus.display());
    Ok(zbus::connection::Builder::address(address.as_str()).build().await?)
}

async fn daemon<B: serde::Serialize + zbus::wire::DynamicType>(on: &Connection, member: &str, body: &B) -> anyhow::Result<()> {
    let name = "org.freedesktop.DBus";
    on.call_method(Some(name), "/org/freedesktop/DBus", Some(name), member, body)
        .await?;
    Ok(())
}

async fn emit<B: serde::Serialize + zbus::wire::DynamicType>(on: &Connection, member: &str, body: &B) -> anyhow::Result<()> {
    Ok(on.emit_signal(None::<&str>, PATH, MANAGER, member, body).await?)
}

async fn answer(on: &Connection, call: &Message, answers: &Mutex<Answers>) -> anyhow::Result<()> {
    let header = call.header();
    let member = header.member().map(|member| member.as_str().to_owned()).unwrap_or_default();
    let property = || -> anyhow::Result<String> {
        let (_, name): (String, String) = call.body().deserialize()?;
        Ok(name)
    };
    let asked = match member.as_str() {
        "Get" => property()?,
        member => member.to_owned(),
    };
    let (is_absent, is_refused) = {
        let answers = answers.lock().expect("nobody panics with it");
        let is = |names: &[&str]| names.contains(&asked.as_str());
        (is(&answers.absent), is(&answers.refused))
    };
    if is_absent || is_refused {
        let error = match (is_absent, member.as_str()) {
            (false, _) => "AccessDenied",
            (true, "Get") => "UnknownProperty",
            (true, _) => "UnknownMethod",
        };
        let name = format!("org.freedesktop.DBus.Error.{error}");
        on.reply_error(&header, name.as_str(), &(asked,)).await?;
        return Ok(());
    }
    match member.as_str() {
        "Get" => {
            let value = {
                let answers = answers.lock().expect("nobody panics with it");
                match property()?.as_str() {
                    "PreparingForShutdown" => Variant::from(answers.preparing),
                    "InhibitDelayMaxUSec" => Variant::from(u64::try_from(answers.limit.as_micros())?),
                    "ScheduledShutdown" => Variant::from(zbus::wire::Structure::from(answers.scheduled.clone())),
                    "Version" => Variant::from("257.9-1~deb13u1".to_owned()),
                    "SystemState" => Variant::from(if answers.preparing { "stopping" } else { "running" }.to_owned()),
                    other => bail!("no property {other}"),
                }
            };
            on.reply(&header, &value).await?;
        }
        "ListInhibitors" => {
            let locks = {
                let mut answers = answers.lock().expect("nobody panics with it");
                answers.listed += 1;
                answers.locks.clone()
            };
            on.reply(&header, &locks).await?;
        }
        "Subscribe" => {
            answers.lock().expect("nobody panics with it").subscribed += 1;
            on.reply(&header, &()).await?;
        }
        "Inhibit" if answers.lock().expect("nobody panics with it").grants => {
            let (reader, writer) = std::io::pipe()?;
            on.reply(&header, &Fd::from(std::os::fd::OwnedFd::from(writer))).await?;
            answers.lock().expect("nobody panics with it").lock = Some(reader);
        }
        "Inhibit" => {
            let name = "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired";
            on.reply_error(&header, name, &("Interactive authentication required.",))
                .await?;
        }
        "GetUnitByPID" => {
            let unit = ObjectPath::try_from("/org/freedesktop/systemd1/unit/session_2d3_2escope")?;
            on.reply(&header, &unit).await?;
        }
        _ => {
            on.reply_error(&header, "org.freedesktop.DBus.Error.UnknownMethod", &(member,))
                .await?;
        }
    }
    Ok(())
}

/// `epitaph logind`, whose lines are events where it prints them.
struct Role {
    child: Child,
    events: Receiver<Value>,
    log: Arc<Mutex<String>>,
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Role {
    fn start(epitaph: &Epitaph, args: &[&str]) -> anyhow::Result<Role> {
        let mut child = epitaph
            .command()
            .arg("logind")
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = Arc::new(Mutex::new(String::new()));
        let (logged, kept) = (BufReader::new(child.stderr.take().context("no standard error")?), log.clone());
        std::thread::spawn(move || {
            for line in logged.lines().map_while(Result::ok) {
                *locked(&kept) += &format!("{line}\n");
            }
        });
        let lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let (to, events) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Ok(mut line) = serde_json::from_str::<Value>(&line) {
                    let _ = to.send(line["node"].take());
                }
            }
        });
        Ok(Role { child, events, log })
    }

    /// The next event that `is`, and the ones before it.
    fn until(&self, what: &str, is: impl Fn(&Value) -> bool) -> anyhow::Result<(Value, Vec<Value>)> {
        let (begin, mut before) = (now(), Vec::new());
        loop {
            match self.events.recv_timeout(TIMEOUT.saturating_sub(begin.elapsed())) {
                Ok(event) if is(&event) => return Ok((event, before)),
                Ok(event) => before.push(event),
                Err(RecvTimeoutError::Timeout) => bail!("no {what}; before: {before:?}; its log: {}", self.log()),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("it ended without {what}; before: {before:?}; its log: {}", self.log())
                }
            }
        }
    }

    fn expect(&self, event: &Value) -> anyhow::Result<Vec<Value>> {
        Ok(self.until(&event.to_string(), |found| found == event)?.1)
    }

    /// The events up to a marker: a job that systemd queues after all that logind and systemd have sent so far. Both are on one
    /// connection, so that the bus and the role keep the order.
    fn before_a_marker(&self, stage: &Stage, services: &Services) -> anyhow::Result<Vec<Value>> {
        stage.runtime.block_on(services.job("JobNew", MARKER))?;
        self.expect(&json!({"event": "job", "unit": MARKER, "removed": false}))
    }

    fn log(&self) -> String {
        locked(&self.log).clone()
    }

    /// KiB, resident.
    fn memory(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .context("no VmHWM")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

struct Stage {
    runtime: Runtime,
    bus: SystemBus,
    epitaph: Epitaph,
    directory: TempDir,
}

impl Stage {
    /// With a bus that does not run yet; None, and a skip, where there is no dbus-daemon.
    fn set(test: &str) -> anyhow::Result<Option<Stage>> {
        if !SystemBus::is_possible() {
            skip(test, "no dbus-daemon");
            return Ok(None);
        }
        let directory = tempfile::tempdir()?;
        Ok(Some(Stage {
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?,
            bus: SystemBus::new(directory.path())?,
            epitaph: Epitaph::copied(&program(&binaries()), directory.path())?,
            directory,
        }))
    }

    fn services(&self) -> anyhow::Result<Services> {
        self.services_with(Answers::default())
    }

    /// From the first question on: a role may wait for them already.
    fn services_with(&self, answers: Answers) -> anyhow::Result<Services> {
        self.runtime.block_on(Services::start(&self.bus.socket(), answers))
    }

    fn stranger(&self) -> anyhow::Result<Connection> {
        self.runtime.block_on(connect(&self.bus.socket()))
    }

    fn role(&self) -> anyhow::Result<Role> {
        let bus = self.bus.socket();
        Role::start(&self.epitaph, &["--print", "--bus", &bus.to_string_lossy()])
    }
}

fn binaries() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    path.pop();
    path
}

fn connected(preparing: bool) -> Value {
    json!({"event": "bus", "state": {"bus": "connected", "systemd": 257, "preparing": preparing}})
}

fn is_unavailable(event: &Value) -> bool {
    event["state"]["bus"] == "unavailable"
}

fn prepare(start: bool, kind: &str) -> Value {
    json!({"event": "prepare", "start": start, "kind": kind, "sender": {"from": "logind"}})
}

fn prepares(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "prepare").collect()
}

#[test]
fn a_shutdown_is_reported_with_its_locks_and_its_end() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("a_shutdown_is_reported_with_its_locks_and_its_end")? else {
        return Ok(());
    };
    stage.bus.start()?;
    let services = stage.services()?;
    let role = stage.role()?;
    role.expect(&connected(false))?;
    let (locks, _) = role.until("locks", |event| event["event"] == "inhibitors")?;
    let kubelet = json!({"what": "shutdown", "who": "kubelet", "why": "because", "mode": "delay", "uid": 0, "pid": 700});
    assert_eq!(locks["locks"], json!([kubelet]));
    role.expect(&json!({"event": "delay_limit", "limit": {"secs": 30, "nanos": 0}}))?;
    role.expect(&json!({"event": "scheduled", "shutdown": null}))?;
    assert_eq!(services.answers.lock().expect("no panic").subscribed, 1);

    // Scheduled, and the limit raised: with a signal of systemd 257.
    services.change(|answers| {
        answers.scheduled = ("reboot".to_owned(), 1_795_261_450_000_000);
        answers.limit = Duration::from_secs(60);
    });
    stage.runtime.block_on(services.changed("ScheduledShutdown"))?;
    role.expect(&json!({"event": "delay_limit", "limit": {"secs": 60, "nanos": 0}}))?;
    let scheduled = json!({"type": "reboot", "at": 1_795_261_450_000_000_000_u64});
    role.expect(&json!({"event": "scheduled", "shutdown": scheduled}))?;

    // Announced twice by logind: one event. Then the locks as they go, without a signal.
    stage.runtime.block_on(services.prepare(true, "reboot"))?;
    let mut events = role.expect(&prepare(true, "reboot"))?;
    events.extend(role.expect(&json!({"event": "system_state", "state": "stopping"}))?);
    services.change(|answers| answers.locks.clear());
    events.extend(role.expect(&json!({"event": "inhibitors", "locks": []}))?);
    stage.runtime.block_on(services.job("JobNew", "reboot.target"))?;
    stage.runtime.block_on(services.job("JobNew", "ssh.service"))?;
    events.extend(role.expect(&json!({"event": "job", "unit": "reboot.target", "removed": false}))?);
    stage.runtime.block_on(services.job("JobRemoved", "reboot.target"))?;
    events.extend(role.expect(&json!({"event": "job", "unit": "reboot.target", "removed": true}))?);

    // Cancelled.
    stage.runtime.block_on(services.prepare(false, "reboot"))?;
    events.extend(role.expect(&prepare(false, "reboot"))?);
    events.extend(role.before_a_marker(&stage, &services)?);
    assert_eq!(prepares(&events), Vec::<&Value>::new());
    Ok(())
}

/// What [`Role::before_a_marker`] claims.
#[test]
fn a_marker_is_shown_behind_all_that_logind_and_systemd_sent_before_it() -> anyhow::Result<()> {
    const SIGNALS: usize = 40;
    let Some(mut stage) = Stage::set("a_marker_is_shown_behind_all_that_logind_and_systemd_sent_before_it")? else {
        return Ok(());
    };
    stage.bus.start()?;
    let services = stage.services()?;
    let role = stage.role()?;
    role.expect(&connected(false))?;
    stage.runtime.block_on(async {
        for n in 0..SIGNALS {
            services.prepare(n % 2 == 0, "reboot").await?;
            services.job("JobNew", "reboot.target").await?;
        }
        anyhow::Ok(())
    })?;
    let before = role.before_a_marker(&stage, &services)?;
    let jobs = before.iter().filter(|event| event["event"] == "job").count();
    assert_eq!((prepares(&before).len(), jobs), (SIGNALS, SIGNALS), "{before:?}");
    Ok(())
}

/// systemd-oomd's `Killed`, as sent from systemd 252 on: only from the owner of the name, whoever else sends the same.
#[test]
fn a_kill_by_systemd_oomd_is_reported_from_its_owner_alone() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("a_kill_by_systemd_oomd_is_reported_from_its_owner_alone")? else {
        return Ok(());
    };
    stage.bus.start()?;
    let services = stage.services()?;
    let role = stage.role()?;
    role.expect(&connected(false))?;
    let killed = |on: &Connection, cgroup: &str| {
        let (_, path, interface) = OOMD;
        let body = (cgroup, "memory-used");
        stage
            .runtime
            .block_on(on.emit_signal(None::<&str>, path, interface, "Killed", &body))
    };
    let own = |on: &Connection, member: &str| match member {
        "RequestName" => stage.runtime.block_on(daemon(on, member, &(OOMD.0, 4_u32))),
        _ => stage.runtime.block_on(daemon(on, member, &(OOMD.0,))),
    };
    let seen = |cgroup: &str| json!({"event": "oom_killed", "cgroup": cgroup, "reason": "memory-used"});
    let kills = |events: &[Value]| events.iter().filter(|event| event["event"] == "oom_killed").count();
    let (stranger, oomd) = (stage.stranger()?, stage.stranger()?);

    // Few machines run the daemon: without an owner nobody's signal counts.
    killed(&stranger, "/system.slice/forged.service")?;
    assert_eq!(kills(&role.before_a_marker(&stage, &services)?), 0);

    own(&oomd, "RequestName")?;
    killed(&stranger, "/system.slice/forged.service")?;
    killed(&oomd, "/system.slice/docker-4a1f.scope")?;
    assert_eq!(kills(&role.expect(&seen("/system.slice/docker-4a1f.scope"))?), 0);

    // The daemon restarts: another connection has the name.
    own(&oomd, "ReleaseName")?;
    let again = stage.stranger()?;
    own(&again, "RequestName")?;
    killed(&oomd, "/system.slice/forged.service")?;
    killed(&again, "/user.slice/user-1000.slice")?;
    assert_eq!(kills(&role.expect(&seen("/user.slice/user-1000.slice"))?), 0);
    Ok(())
}

#[test]
fn a_forged_signal_names_its_sender() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("a_forged_signal_names_its_sender")? else {
        return Ok(());
    };
    stage.bus.start()?;
    let services = stage.services()?;
    let role = stage.role()?;
    role.expect(&connected(false))?;
    let stranger = stage.stranger()?;
    let name = stranger.unique_name().context("no name")?.to_string();
    stage.runtime.block_on(emit(&stranger, "PrepareForShutdown", &(true,)))?;
    let (forged, _) = role.until("a forged signal", |event| event["event"] == "prepare")?;
    let sender = &forged["sender"];
    assert_eq!(
        (&forged["start"], &forged["kind"], &sender["from"]),
        (&json!(true), &Value::Null, &json!("other"))
    );
    assert_eq!(
        (sender["name"].as_str(), &sender["pid"]),
        (Some(name.as_str()), &json!(std::process::id()))
    );
    assert_eq!(sender["uid"], json!(nix::unistd::geteuid().as_raw()));
    let comm = fs::read_to_string("/proc/self/comm")?;
    assert_eq!(sender["comm"], json!(comm.trim_end()));
    assert_eq!(sender["unit"], "session-3.scope");

    // A sender that is gone is still one.
    let gone = stage.stranger()?;
    stage.runtime.block_on(async {
        emit(&gone, "PrepareForShutdown", &(false,)).await?;
        anyhow::Ok(gone.close().await?)
    })?;
    let (forged, _) = role.until("a forged end", |event| event["event"] == "prepare")?;
    assert_eq!(
        (&forged["start"], &forged["sender"]["from"]),
        (&json!(false), &json!("other"))
    );

    // The real one after it.
    stage.runtime.block_on(services.prepare(true, "power-off"))?;
    role.expect(&prepare(true, "power-off"))?;
    Ok(())
}

/// systemd 219 has no property ScheduledShutdown: everything else is observed, for as long as the role runs.
#[test]
fn a_logind_that_does_not_have_everything_is_observed() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("a_logind_that_does_not_have_everything_is_observed")? else {
        return Ok(());
    };
    stage.bus.start()?;
    let services = stage.services()?;
    services.change(|answers| answers.absent = vec!["ScheduledShutdown"]);
    let role = stage.role()?;
    role.expect(&connected(false))?;
    role.expect(&json!({"event": "scheduled", "shutdown": null}))?;
    // More rounds than a refusal of what was known is waited for.
    for count in 2..8 {
        services.change(|answers| answers.locks = vec![lock("kubelet", "delay"); count]);
        stage.runtime.block_on(services.changed("DelayInhibited"))?;
        let is_next = |event: &Value| event["locks"].as_array().is_some_and(|locks| locks.len() == count);
        let (_, before) = role.until("the next list", is_next)?;
        ensure!(!before.iter().any(is_unavailable), "{before:?}");
    }
    stage.runtime.block_on(services.prepare(true, "reboot"))?;
    role.expect(&prepare(true, "reboot"))?;
    Ok(())
}

#[test]
fn a_refused_question_is_not_the_end_of_the_others() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("a_refused_question_is_not_the_end_of_the_others")? else {
        return Ok(());
    };
    stage.bus.start()?;
    let services = stage.services()?;
    let mut second = 0;
    let mut rounds = |role: &Role| -> anyhow::Result<()> {
        for _ in 0..5 {
            second += 1;
            services.change(|answers| answers.scheduled = ("reboot".to_owned(), second * 1_000_000));
            stage.runtime.block_on(services.changed("ScheduledShutdown"))?;
            let scheduled = json!({"type": "reboot", "at": second * 1_000_000_000});
            let before = role.expect(&json!({"event": "scheduled", "shutdown": scheduled}))?;
            ensure!(!before.iter().any(is_unavailable), "{before:?}");
        }
        Ok(())
    };
    services.change(|answers| answers.refused = vec!["ListInhibitors", "InhibitDelayMaxUSec", "SystemState"]);
    let role = stage.role()?;
    role.expect(&connected(false))?;
    rounds(&role)?;
    services.change(|answers| answers.refused.clear());
    role.until("locks", |event| event["event"] == "inhibitors")?;

    // What was known does not stay when nobody says so any more. Then the others go on.
    services.change(|answers| answers.refused = vec!["ListInhibitors"]);
    until("the old list to go", || {
        stage.runtime.block_on(services.changed("DelayInhibited"))?;
        let events: Vec<Value> = role.events.try_iter().collect();
        Ok(holds(events.iter().any(is_unavailable), || format!("{events:?}")))
    })?;
    role.expect(&connected(false))?;
    rounds(&role)
}

#[test]
fn another_owner_of_the_name_is_logind_from_then_on() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("another_owner_of_the_name_is_logind_from_then_on")? else {
        return Ok(());
    };
    stage.bus.start()?;
    let old = stage.services()?;
    let role = stage.role()?;
    role.expect(&connected(false))?;
    stage.runtime.block_on(old.disown(LOGIND))?;
    let (unavailable, _) = role.until("unavailable", is_unavailable)?;
    let reason = unavailable["state"]["reason"].as_str().unwrap_or_default();
    ensure!(
        reason.contains("systemd-logind does not run; start systemd-logind"),
        "{reason}"
    );
    let new = stage.services()?;
    role.expect(&connected(false))?;
    stage
        .runtime
        .block_on(emit(&old.connection, "PrepareForShutdown", &(true,)))?;
    let (forged, _) = role.until("a forged signal", |event| event["event"] == "prepare")?;
    assert_eq!(forged["sender"]["from"], "other");
    stage.runtime.block_on(new.prepare(true, "halt"))?;
    role.expect(&prepare(true, "halt"))?;
    Ok(())
}

#[test]
fn a_bus_that_comes_late_and_restarts_is_connected_to() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("a_bus_that_comes_late_and_restarts_is_connected_to")? else {
        return Ok(());
    };
    let role = stage.role()?;
    let (unavailable, _) = role.until("unavailable", is_unavailable)?;
    let reason = unavailable["state"]["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains("mount the node's directory /run/dbus"), "{reason}");
    stage.bus.start()?;
    let services = stage.services_with(Answers {
        preparing: true,
        ..Answers::default()
    })?;
    // Announced before the role was there.
    role.expect(&connected(true))?;
    stage.bus.stop()?;
    drop(services);
    let (unavailable, _) = role.until("unavailable", is_unavailable)?;
    let reason = unavailable["state"]["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains("closed the connection"), "{reason}");
    stage.bus.start()?;
    let _services = stage.services()?;
    role.expect(&connected(false))?;
    Ok(())
}

/// As dbus-daemon answers the first message of a client whose AppArmor profile, or SELinux domain, may not send it.
#[test]
fn a_bus_that_a_security_module_denies_is_named_with_its_remedy() -> anyhow::Result<()> {
    const DENIED: &str = "An AppArmor policy prevents this sender from sending this message to this recipient";
    let directory = tempfile::tempdir()?;
    let epitaph = Epitaph::copied(&program(&binaries()), directory.path())?;
    let bus = directory.path().join("system_bus_socket");
    let listener = UnixListener::bind(&bus)?;
    // The role is not root on the bus.
    for (path, mode) in [(directory.path(), 0o755), (&*bus, 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    let daemon = "org.freedesktop.DBus";
    let hello = Message::method_call("/org/freedesktop/DBus", "Hello")
        .destination(daemon)
        .interface(daemon)
        .build(&())?;
    let denial = Message::error(&hello.header(), "org.freedesktop.DBus.Error.AccessDenied").build(&(DENIED,))?;
    // Ends with the test's process.
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // The role tries again; one that is killed meanwhile is gone.
            let _ = deny(client, denial.data());
        }
    });
    let role = Role::start(&epitaph, &["--print", "--bus", &bus.to_string_lossy()])?;
    let (unavailable, _) = role.until("unavailable", is_unavailable)?;
    let reason = unavailable["state"]["reason"].as_str().unwrap_or_default();
    for words in [DENIED, "a security module refuses", "logind.appArmorProfile"] {
        ensure!(reason.contains(words), "no `{words}` in {reason}");
    }
    Ok(())
}

/// What a bus does of a client's connection: the handshake, then this answer to the first message.
fn deny(mut client: UnixStream, answer: &[u8]) -> std::io::Result<()> {
    let (mut asked, mut byte) = (Vec::new(), [0]);
    while !asked.ends_with(b"BEGIN\r\n") {
        client.read_exact(&mut byte)?;
        asked.push(byte[0]);
    }
    client.write_all(b"OK 0123456789abcdef0123456789abcdef\r\n")?;
    if asked.windows(17).any(|words| words == b"NEGOTIATE_UNIX_FD") {
        client.write_all(b"AGREE_UNIX_FD\r\n")?;
    }
    client.write_all(answer)?;
    std::io::copy(&mut client, &mut std::io::sink()).map(drop)
}

fn lost(events: &[Value], reason: &str) -> u64 {
    let of = events.iter().filter(|event| event["reason"] == reason);
    of.filter_map(|event| event["count"].as_u64()).sum()
}

#[test]
fn a_flood_and_garbage_hide_nothing_of_logind() -> anyhow::Result<()> {
    const SENT: u64 = 5_000;
    const GARBAGE: u64 = 30;
    let Some(mut stage) = Stage::set("a_flood_and_garbage_hide_nothing_of_logind")? else {
        return Ok(());
    };
    stage.bus.start()?;
    let services = stage.services()?;
    let role = stage.role()?;
    role.expect(&connected(false))?;
    let stranger = stage.stranger()?;
    let begin = now();
    stage.runtime.block_on(async {
        let large = "x".repeat(1 << 20);
        for n in 0..SENT {
            emit(&stranger, "PrepareForShutdown", &(n % 2 == 0,)).await?;
            match n % 500 {
                0 => emit(&stranger, "PrepareForShutdown", &("no",)).await?,
                1 => emit(&stranger, "PrepareForShutdownWithMetadata", &(true, 1_u32)).await?,
                2 => emit(&stranger, "PrepareForShutdown", &(true, large.as_str())).await?,
                // Of logind itself, as often as somebody takes a lock and lets go of it.
                _ => services.changed("DelayInhibited").await?,
            }
        }
        services.prepare(true, "kexec").await
    })?;
    let mut events = role.expect(&prepare(true, "kexec"))?;
    // The losses are reported every now and then. Each forged signal is shown or counted, once: when all are, none is on its way.
    loop {
        let (strangers, garbage) = (lost(&events, "logind_strangers"), lost(&events, "logind_garbage"));
        let accounted = strangers + prepares(&events).len() as u64;
        ensure!(
            accounted <= SENT && garbage <= GARBAGE,
            "{accounted} of {SENT}, {garbage} of {GARBAGE}"
        );
        if (accounted, garbage) == (SENT, GARBAGE) {
            break;
        }
        let what = format!("the rest of {accounted} of {SENT}, {garbage} of {GARBAGE}");
        let (event, before) = role.until(&what, |event| event["event"] == "lost" || event["event"] == "prepare")?;
        events.extend(before);
        events.push(event);
    }
    ensure!(
        lost(&events, "logind_signal_queue") + lost(&events, "logind_role_queue") == 0,
        "a loss of logind's"
    );
    let forged = prepares(&events).len();
    // A burst of 16, and one a second.
    let most = 17 + begin.elapsed().as_secs() as usize;
    ensure!(
        (1..=most).contains(&forged),
        "{forged} forged signals are looked into, of {most} at most"
    );
    let memory = role.memory()?;
    ensure!(memory < 64 << 10, "{memory} KiB");
    Ok(())
}

/// The whole way: bus, role, socket, agent; and both of them restarted.
#[test]
fn the_agent_goes_on_whatever_becomes_of_the_role() -> anyhow::Result<()> {
    const TEST: &str = "the_agent_goes_on_whatever_becomes_of_the_role";
    if !is_root() {
        skip(TEST, "observing needs root");
        return Ok(());
    }
    let Some(mut stage) = Stage::set(TEST)? else {
        return Ok(());
    };
    stage.bus.start()?;
    let services = stage.services()?;
    let at = stage.directory.path().join("logind.sock").to_string_lossy().into_owned();
    let socket = format!("logind.socket={at}");
    let agent = Service::start(&stage.epitaph, stage.directory.path(), &["--set", &socket])?;
    let state = |state: &str| agent.until("epitaph_logind_state", &[&format!("state=\"{state}\"")], 1.0);
    state("off")?;
    let bus = stage.bus.socket().to_string_lossy().into_owned();
    let start = || Role::start(&stage.epitaph, &["--socket", &at, "--bus", &bus]);
    let mut role = start()?;
    state("connected")?;
    // A process of uid 0 changed its user, and has nothing left.
    let status = fs::read_to_string(format!("/proc/{}/status", role.child.id()))?;
    ensure!(status.contains("\nUid:\t65534\t65534\t65534\t65534\n"), "{status}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        ensure!(status.contains(&format!("\n{set}:\t0000000000000000\n")), "{status}");
    }

    // A forged flood is counted by the agent.
    let stranger = stage.stranger()?;
    stage.runtime.block_on(async {
        for _ in 0..100 {
            emit(&stranger, "PrepareForShutdown", &(true,)).await?;
        }
        anyhow::Ok(())
    })?;
    agent.until("epitaph_dropped_total", &["reason=\"logind_strangers\""], 50.0)?;

    role.child.kill()?;
    role.child.wait()?;
    state("off")?;
    assert_eq!(get(agent.port, "/readyz")?.0, 200, "readiness does not depend on it");
    let _role = start()?;
    state("connected")?;
    stage.runtime.block_on(services.disown(LOGIND))?;
    state("unavailable")?;
    assert_eq!(get(agent.port, "/readyz")?.0, 200);
    // Another user's connection: this test's is root's.
    drop(UnixStream::connect(&at)?);
    agent.until("epitaph_dropped_total", &["reason=\"logind_peer\""], 1.0)
}

/// A node of k3d: the directory of the bus is there, as the chart makes it, and empty.
#[test]
fn an_agent_without_a_bus_reports_and_takes_the_bus_that_comes() -> anyhow::Result<()> {
    const TEST: &str = "an_agent_without_a_bus_reports_and_takes_the_bus_that_comes";
    const MISSING: &str = "no system bus at ";
    if !is_root() {
        skip(TEST, "observing needs root");
        return Ok(());
    }
    let Some(mut stage) = Stage::set(TEST)? else {
        return Ok(());
    };
    let at = stage.directory.path().join("logind.sock").to_string_lossy().into_owned();
    // Returns once it is ready.
    let agent = Service::start(
        &stage.epitaph,
        stage.directory.path(),
        &["--set", &format!("logind.socket={at}")],
    )?;
    let bus = stage.bus.socket().to_string_lossy().into_owned();
    let role = Role::start(&stage.epitaph, &["--socket", &at, "--bus", &bus, "--log", "info"])?;
    agent.until("epitaph_logind_state", &["state=\"unavailable\""], 1.0)?;
    assert_eq!(get(agent.port, "/readyz")?.0, 200, "readiness does not depend on it");
    let players = Players::new(&binaries())?;
    let player = players.cast(
        stories()
            .find(|story| story.name == "abort")
            .context("a story of that name")?,
    )?;
    let differs = players.play(&player)?.differs(&player);
    ensure!(differs.is_empty(), "{}", differs.join("\n"));
    agent.until_logged(&player.subject)?;

    stage.bus.start()?;
    let services = stage.services()?;
    agent.until("epitaph_logind_state", &["state=\"connected\""], 1.0)?;
    // Several attempts went before.
    let lines = role.log().lines().filter(|line| line.contains(MISSING)).count();
    assert_eq!(lines, 1, "{}", role.log());
    // What the bus announces reaches the agent: the source is active.
    stage.runtime.block_on(async {
        services.prepare(true, "power-off").await?;
        services.prepare(false, "power-off").await
    })?;
    agent.until("epitaph_node_shutdowns_total", &["verdict=\"cancelled\""], 1.0)
}

/// Taken for the agent, refused to another user, and released in a shutdown.
#[test]
fn the_delay_lock_is_held_for_the_agent_and_released_in_a_shutdown() -> anyhow::Result<()> {
    const TEST: &str = "the_delay_lock_is_held_for_the_agent_and_released_in_a_shutdown";
    if !is_root() {
        skip(TEST, "observing needs root");
        return Ok(());
    }
    let Some(mut stage) = Stage::set(TEST)? else {
        return Ok(());
    };
    stage.bus.start()?;
    let services = stage.services()?;
    services.change(|answers| answers.grants = true);
    let at = stage.directory.path().join("logind.sock").to_string_lossy().into_owned();
    let settings = ["--set", &format!("logind.socket={at}"), "--set", "logind.uid=0"];
    let agent = Service::start(&stage.epitaph, stage.directory.path(), &settings)?;
    let bus = stage.bus.socket().to_string_lossy().into_owned();
    let args = [
        "--socket",
        &at,
        "--bus",
        &bus,
        "--set",
        "logind.uid=0",
        "--set",
        "logind.lock=true",
        "--log",
        "info",
    ];
    let mut role = Role::start(&stage.epitaph, &args)?;
    let held = until("a lock to be taken", || {
        let taken = services.answers.lock().expect("no panic").lock.take();
        Ok(taken.ok_or_else(|| format!("none; {}{}", role.log(), agent.log())))
    })?;
    let released = std::thread::spawn(move || std::io::copy(&mut { held }, &mut std::io::sink()));
    services.change(|answers| {
        answers.locks = vec![lock("kubelet", "delay"), lock("epitaph", "delay")];
    });
    stage.runtime.block_on(services.prepare(true, "power-off"))?;
    // In a shutdown the role asks four times a second, so that this is longer than the agent waits where nobody else has a lock.
    services.until_listed(16)?;
    ensure!(!released.is_finished(), "released while the kubelet still needs time");
    services.change(|answers| answers.locks.truncate(0));
    until("the lock to be released", || {
        Ok(holds(released.is_finished(), || {
            format!("held; {}{}", role.log(), agent.log())
        }))
    })?;
    // The kubelet ends both at once: the role goes on while the agent does.
    kill(role.child.id().cast_signed(), SIGTERM)?;
    until("the role to take the stop signal", || {
        let log = role.log();
        Ok(holds(log.contains("observing until the agent is gone"), || log.clone()))
    })?;
    services.until_listed(4)?;
    ensure!(role.child.try_wait()?.is_none(), "it ended before the agent, in a shutdown");
    drop(agent);
    let status = ended(&mut role.child)?;
    ensure!(status.success(), "{status}: {}", role.log());
    Ok(())
}

#[test]
fn a_role_without_an_agent_is_told_what_is_missing() -> anyhow::Result<()> {
    let output = Command::new(program(&binaries())).arg("logind").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{text}");
    ensure!(text.contains("remedy: give --socket PATH"), "{text}");
    Ok(())
}
