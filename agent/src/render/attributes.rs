//! Every attribute that a span, a span event or a resource of ours carries: one table, from which `docs/attributes.md` is
//! made and against which every span of the tests is checked.

use std::fmt::Write as _;

/// Where an attribute stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum On {
    Resource,
    /// A span, or an event of one.
    Span,
}

/// A value's type, in OpenTelemetry's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    String,
    Strings,
    Int,
    Bool,
}

impl Type {
    pub const fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::Strings => "string[]",
            Type::Int => "int",
            Type::Bool => "boolean",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    pub key: &'static str,
    pub on: On,
    pub value: Type,
    /// Empty where a unit makes no sense.
    pub unit: &'static str,
    pub meaning: &'static str,
}

macro_rules! table {
    ($($name:ident $key:literal $on:ident $value:ident $unit:literal $meaning:literal)*) => {
        /// The keys, as code names them.
        pub mod key {
            $(#[doc = $meaning] pub const $name: &str = $key;)*
        }
        /// The table, in the order of the docs.
        pub const ATTRIBUTES: &[Attribute] = &[
            $(Attribute { key: $key, on: On::$on, value: Type::$value, unit: $unit, meaning: $meaning },)*
        ];
    };
}

table! {
    SERVICE_NAME "service.name" Resource String "" "`epitaph`, unless configured; the agent's own spans: `epitaph-agent`, unless configured."
    SERVICE_INSTANCE_ID "service.instance.id" Resource String "" "What died: the container's id, or the unit's name."
    HOST_NAME "host.name" Resource String "" "The machine's host name."
    OS_TYPE "os.type" Resource String "" "`linux`."
    BOOT_ID "epitaph.boot_id" Resource String "" "The boot in which it died: `/proc/sys/kernel/random/boot_id`."
    TELEMETRY_SDK_LANGUAGE "telemetry.sdk.language" Resource String "" "`rust`."
    TELEMETRY_SDK_NAME "telemetry.sdk.name" Resource String "" "`opentelemetry`."
    TELEMETRY_SDK_VERSION "telemetry.sdk.version" Resource String "" "Version of the OpenTelemetry SDK whose data types were used."

    CONTAINER_ID "container.id" Span String "" "The container's id, 64 hex digits."
    CONTAINER_RUNTIME_NAME "container.runtime.name" Span String "" "`containerd`, `cri-o`, `docker`, `podman`; absent where the cgroup's name does not tell."
    UNIT_NAME "epitaph.unit.name" Span String "" "The systemd unit's name."
    CGROUP_PATH "epitaph.cgroup.path" Span String "" "The subject's cgroup, from the root of its hierarchy."
    PROCESS_PID "process.pid" Span Int "" "The main process (on `oom`: the victim), in the initial pid namespace."
    PROCESS_VPID "process.vpid" Span Int "" "The main process, as it sees itself."
    PROCESS_EXECUTABLE_NAME "process.executable.name" Span String "" "Its name as the kernel has it (`comm`: 15 bytes, chosen by the process), escaped."
    PROCESS_CREATION_TIME "process.creation.time" Span String "" "When the main process started, RFC 3339."
    PROCESS_EXIT_CODE "process.exit.code" Span Int "" "Exit code of the main process; absent where a signal ended it."

    VERDICT "epitaph.verdict" Span String "" "The headline; `epitaph explain` says what each means."
    CAUSE "epitaph.cause" Span String "" "Why it had to end."
    EXIT "epitaph.exit" Span String "" "How it ended."
    TRAFFIC "epitaph.traffic" Span String "" "What its clients saw."
    UNCLEAN "epitaph.unclean" Span Bool "" "Somebody may have noticed; the span's status is then Error with the sentence."
    SEVERITY "epitaph.severity" Span String "" "`info`, `warning` or `critical`."
    SENTENCE "epitaph.sentence" Span String "" "What happened, in one sentence with the measured times."
    REMEDY "epitaph.remedy" Span String "" "What to change, with a number where one was measured."
    EVIDENCE "epitaph.evidence" Span Strings "" "What the verdict rests on, in order of time: `+<ms after begin> ms <source>: <text>`."

    STOP_SIGNAL "epitaph.stop.signal" Span String "" "The first stop signal, by name."
    STOP_RESULT "epitaph.stop.result" Span String "" "What the kernel did with it: `delivered`, `ignored`, `already-pending`, `overflow-fail`, `lose-info`."
    STOP_DISPOSITION "epitaph.stop.disposition" Span String "" "What the process had for it: `handler`, `default`, `ignore`, `unknown`."
    STOP_STATE "epitaph.stop.state" Span Strings "" "State of the main process at that moment, of `blocked`, `stopped`, `frozen`, `exiting`, `traced`."
    STOP_REPEATED "epitaph.stop.repeated" Span Int "{signal}" "Later stop signals to the main process."
    STOP_SENDER_PID "epitaph.stop.sender.pid" Span Int "" "Who sent it; 0 is the kernel."
    STOP_SENDER_COMM "epitaph.stop.sender.comm" Span String "" "Its name (`comm`), escaped."
    STOP_SENDER_PARENT_PID "epitaph.stop.sender.parent.pid" Span Int "" "Its parent."
    STOP_SENDER_PARENT_COMM "epitaph.stop.sender.parent.comm" Span String "" "Its parent's name, escaped."
    STOP_SENDER_ROLE "epitaph.stop.sender.role" Span String "" "`runtime`, `itself`, `inside`, `other` or `kernel`."
    STOP_SENDER_PLACE "epitaph.stop.sender.place" Span String "" "Where it lived: a container, a unit, `host`, or `unknown`."
    KILL_SENDER_PID "epitaph.kill.sender.pid" Span Int "" "Who sent SIGKILL; 0 is the kernel."
    KILL_SENDER_COMM "epitaph.kill.sender.comm" Span String "" "Its name (`comm`), escaped."
    KILL_SENDER_PARENT_PID "epitaph.kill.sender.parent.pid" Span Int "" "Its parent."
    KILL_SENDER_PARENT_COMM "epitaph.kill.sender.parent.comm" Span String "" "Its parent's name, escaped."
    KILL_SENDER_ROLE "epitaph.kill.sender.role" Span String "" "As for the stop signal's sender."
    KILL_SENDER_PLACE "epitaph.kill.sender.place" Span String "" "As for the stop signal's sender."
    KILL_BY_CGROUP "epitaph.kill.by_cgroup" Span Bool "" "SIGKILL came by `cgroup.kill`."
    STATUS_SIGNAL "epitaph.status.signal" Span String "" "The signal that ended the main process, by name."
    STATUS_CORE_DUMPED "epitaph.status.core_dumped" Span Bool "" "The kernel set the core flag."
    OOM_KILLED "epitaph.oom.killed" Span Int "{process}" "Processes of the subject that the OOM killer took."
    OOM_MAIN "epitaph.oom.main" Span Bool "" "On `oom`: the victim was the main process."
    OTHER_EXITS "epitaph.other_exits" Span Int "{process}" "Other processes of the subject that ended between begin and end."

    CONNECTIONS_OBSERVED "epitaph.connections.observed" Span Bool "" "Its sockets were watched over the whole of it; else no count below is given."
    CONNECTIONS_ACCEPTED "epitaph.connections.accepted" Span Int "{connection}" "New connections accepted after the stop signal."
    CONNECTIONS_REFUSED "epitaph.connections.refused" Span Int "{connection}" "Connections refused because nobody listened any more."
    CONNECTIONS_REFUSED_SOURCE "epitaph.connections.refused_source" Span String "" "How they were known: `server-reset`, or `client-error` on kernels before 6.12."
    CONNECTIONS_RESET "epitaph.connections.reset" Span Int "{connection}" "Established connections that its side reset."
    CONNECTIONS_CUT "epitaph.connections.cut" Span Int "{connection}" "Connections open at the death, closed by it with a FIN, and not provably idle."
    CONNECTIONS_CUT_UNANSWERED "epitaph.connections.cut_unanswered" Span Int "{connection}" "Of those: where the client's last bytes had got no answer."
    CONNECTIONS_IDLE_CLOSED "epitaph.connections.idle_closed" Span Int "{connection}" "Connections closed by the death where the server had spoken last."
    SERVER_ADDRESS "server.address" Span String "" "On `listener.closed`: the address it listened on."
    SERVER_PORT "server.port" Span Int "" "On `listener.closed`: the port it listened on."
    NETWORK_TRANSPORT "network.transport" Span String "" "`tcp`."
    LISTENER_BY_EXIT "epitaph.listener.by_exit" Span Bool "" "The listener was closed by the end of its process, not by close(2)."

    LOST "epitaph.lost" Span Strings "" "Kernel records lost while this went on, `<kind>=<count>`; absent where none was."
    OVER_CAP "epitaph.over_cap" Span Int "{fact}" "Facts counted but not kept, over the cap of one timeline."
    LATE_START "epitaph.late_start" Span Bool "" "It ran already when observation began: a stop signal may have come before."
    INACTIVE_PROBES "epitaph.inactive_probes" Span Strings "" "Probes that were not active."
}

/// `docs/attributes.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Attributes\n\n\
         Made from the table in `agent/src/render/attributes.rs`; a test holds both equal (`UPDATE_EXPECT=1 cargo test -p epitaph attributes` \
         writes this file). Keys outside `epitaph.*` are OpenTelemetry's semantic conventions. An attribute that was not measured is absent, \
         never 0 or empty.\n",
    );
    for (on, title) in [(On::Resource, "Resource"), (On::Span, "Spans and their events")] {
        let _ = write!(text, "\n## {title}\n\n| key | type | unit | meaning |\n|---|---|---|---|\n");
        for a in ATTRIBUTES.iter().filter(|a| a.on == on) {
            let unit = if a.unit.is_empty() { "" } else { &format!("`{}`", a.unit) };
            let _ = writeln!(text, "| `{}` | {} | {unit} | {} |", a.key, a.value.name(), a.meaning);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_are_the_table() {
        expect_test::expect_file!["../../../docs/attributes.md"].assert_eq(&markdown());
    }

    /// A key that is also the namespace of another cannot be stored as both by backends that nest.
    #[test]
    fn no_key_is_another_ones_namespace() {
        for a in ATTRIBUTES {
            for b in ATTRIBUTES {
                assert!(
                    !b.key.starts_with(&format!("{}.", a.key)),
                    "{} is the namespace of {}",
                    a.key,
                    b.key
                );
            }
        }
        let keys: std::collections::HashSet<_> = ATTRIBUTES.iter().map(|a| a.key).collect();
        assert_eq!(keys.len(), ATTRIBUTES.len(), "a key twice");
    }
}
