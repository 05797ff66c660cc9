//! The command line: the commands, how they are parsed, and the exit codes.

pub mod exit;
pub mod explain;
pub mod filter;
pub mod past;
pub mod typed;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use epitaph_story::color::Color;

pub use exit::SysExit;
pub use filter::Filter;
pub use past::{ExportArgs, ListArgs, ListFormat, PastArgs, When, WhyArgs, WhyFormat};

use crate::config::{Override, Overrides};

/// What a bug report needs: the version, the target and the format of the records.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{} ({}-{}, probe records v{}{})",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        std::env::consts::OS,
        epitaph_ebpf::VERSION,
        if cfg!(debug_assertions) { ", debug build" } else { "" }
    )
});

/// Why containers and systemd units terminated, with proof from the kernel.
#[derive(Debug, Parser)]
#[command(name = "epitaph", version = VERSION.as_str(), after_help = exit::HELP, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Observe this machine: traces and metrics to a collector; /metrics, /healthz, /readyz
    Agent(AgentArgs),
    /// Add to the agents' traces what one node cannot see: endpoint removals, replacement pods, lost nodes
    Observer(ObserverArgs),
    /// Observe on the system bus how this node is shut down, and who delays it: for the agent of this node, or as lines (--print)
    Logind(LogindArgs),
    /// Show terminations as they happen, in the terminal or as a stream
    Watch(WatchArgs),
    /// Record evidence to a file until Ctrl-C, and show terminations; filters apply to what is shown, not to the file
    Record(RecordArgs),
    /// Judge the evidence of a recording again, on any machine, without root
    Replay(ReplayArgs),
    /// Show from the agent's journal why a pod, container or unit terminated, or why this node shut down: sentence, timeline, remedy
    Why(WhyArgs),
    /// List finished terminations, a line each, or count them by workload and verdict
    List(ListArgs),
    /// Copy evidence from the agent's journal into a recording, for a bug report; `replay` judges it again
    Export(ExportArgs),
    /// Check whether this machine can be observed, and whether this node would shut its pods down gracefully; print a remedy for each
    /// problem
    Doctor(DoctorArgs),
    /// Ask agents and observers whether they are ready; exit code 69 if one is not
    Ready(ReadyArgs),
    /// Explain a verdict or an alert: what it means, what proves it, how to fix it; or explain what kubectl shows, such as 137 or OOMKilled
    Explain(ExplainArgs),
}

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// TOML file; docs/config.md lists the keys
    #[arg(long, value_name = "FILE", env = "EPITAPH_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print the effective configuration, secrets redacted, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Address of /metrics, /healthz and /readyz, or "off" [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Send traces of unclean terminations only
    #[arg(long)]
    pub unclean_only: bool,
    #[command(flatten)]
    pub kernel: KernelArgs,
    #[command(flatten)]
    pub kubernetes: KubernetesArgs,
    #[command(flatten)]
    pub otlp: OtlpArgs,
    #[command(flatten)]
    pub log: LogArgs,
    /// Any other setting, such as limits.timelines=2000; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub struct ObserverArgs {
    /// TOML file; docs/config.md lists the keys
    #[arg(long, value_name = "FILE", env = "EPITAPH_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print the effective configuration, secrets redacted, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Address of /metrics, /healthz and /readyz, or "off" [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Access to the API server, instead of the pod's ServiceAccount
    #[arg(long, value_name = "FILE", help_heading = "Kubernetes", hide = NO_KUBECONFIG)]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub otlp: OtlpArgs,
    #[command(flatten)]
    pub log: LogArgs,
    /// Any other setting, such as observer.lease_duration=30s; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub struct LogindArgs {
    /// Print each event as a line of JSON, instead of sending it to the agent
    #[arg(long)]
    pub print: bool,
    /// Socket at which the agent listens
    #[arg(long, value_name = "PATH", conflicts_with = "print")]
    pub socket: Option<PathBuf>,
    /// Socket of the system bus [default: /run/dbus/system_bus_socket]
    #[arg(long, value_name = "PATH")]
    pub bus: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
    /// Any other setting of `logind`, such as logind.lock=true; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub struct WatchArgs {
    #[command(flatten)]
    pub show: ShowArgs,
    #[command(flatten)]
    pub kernel: KernelArgs,
    #[command(flatten)]
    pub kubernetes: KubernetesArgs,
    #[command(flatten)]
    pub otlp: OtlpArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Debug, Args)]
pub struct RecordArgs {
    /// File to write; it must not exist yet
    pub file: PathBuf,
    #[command(flatten)]
    pub show: ShowArgs,
    #[command(flatten)]
    pub kernel: KernelArgs,
    #[command(flatten)]
    pub kubernetes: KubernetesArgs,
    #[command(flatten)]
    pub otlp: OtlpArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Recording: a file from `epitaph record` or `epitaph export`, or - for standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub show: ShowArgs,
    #[command(flatten)]
    pub otlp: OtlpArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Format of the output; docs/doctor.md describes the object of "json"
    #[arg(long, value_enum, default_value_t)]
    pub output: FindingsFormat,
    /// Answer one question only
    #[arg(long, value_enum)]
    pub only: Option<Question>,
    /// Check a mounted image of a node instead of this machine: would a node with these files shut its pods down gracefully?
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "only")]
    pub root: Option<PathBuf>,
    /// Configuration file of the agent: it names the agent's journal and, in a pod or an image, the kubelet's files [default: the installed
    /// one; with --root, none]
    #[arg(long, value_name = "FILE", env = "EPITAPH_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub kernel: KernelArgs,
    #[command(flatten)]
    pub kubernetes: KubernetesArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FindingsFormat {
    /// A line for each check, with its remedy
    #[default]
    #[value(alias = "auto")]
    Text,
    /// One JSON object
    Json,
}

/// A question to `epitaph doctor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Question {
    /// Can this machine be observed?
    Observation,
    /// Would this node shut its pods down gracefully?
    Shutdown,
    /// Can the agent write its journal, and does the journal outlive a reboot?
    Journal,
}

#[derive(Debug, Args)]
pub struct ReadyArgs {
    /// Address of an agent or observer. If a host name has several addresses, all of them are asked. Without this argument, the `listen`
    /// address of the configuration is asked
    #[arg(value_name = "HOST:PORT")]
    pub targets: Vec<String>,
    /// Also ask every address of this host name, such as the name of a headless Service. If the name still has no address after 15 s of
    /// --wait (for example without DNS), it is left out, and the output says so
    #[arg(long, value_name = "HOST:PORT")]
    pub each: Vec<String>,
    /// TOML configuration file with the `listen` address; not read if an address is given
    #[arg(long, value_name = "FILE", env = "EPITAPH_CONFIG")]
    pub config: Option<PathBuf>,
    /// Ask again until all are ready, at most for this time
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = epitaph_core::duration::parse)]
    pub wait: Duration,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// One or several names: a verdict, cause or traffic value, such as ignored-stop-signal, evicted-taint or quiet; an alert, such as
    /// EpitaphNodeLost; a probe, such as tcp_send_reset; or what kubectl shows, such as 137, OOMKilled or exit code 137 (quotation marks
    /// are not needed). Without a name, one line for each verdict is printed
    #[arg(value_name = "VERDICT|ALERT|WORD")]
    pub words: Vec<String>,
}

/// Which terminations are shown, and how.
#[derive(Debug, Default, Args)]
pub struct ShowArgs {
    /// Format of the output; docs/json.md describes the objects of "json"
    #[arg(long, value_enum, default_value_t)]
    pub output: OutputFormat,
    /// Colour in text; with NO_COLOR or TERM=dumb in the environment, "auto" means "never"
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
    #[command(flatten)]
    pub filter: Filter,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// A live view in a terminal; text if the output is not a terminal
    #[default]
    Auto,
    /// A block of lines for each termination
    Text,
    /// One JSON object per line
    Json,
}

/// As [`epitaph_story::color::is_dumb`].
pub fn is_dumb(env: &dyn crate::config::Env) -> bool {
    epitaph_story::color::is_dumb(|name| env.get(name))
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Probes")]
pub struct KernelArgs {
    /// File with the BTF (type information) of the running kernel, if /sys/kernel/btf/vmlinux does not exist
    #[arg(long, value_name = "FILE")]
    pub btf: Option<PathBuf>,
    /// Size of the ring buffer between the probes and epitaph, rounded up to a power of two [default: 8388608; more with more than 64 CPUs]
    #[arg(long, value_name = "BYTES")]
    pub ring_bytes: Option<u32>,
    /// Where the host's /proc is mounted [default: /proc]
    #[arg(long, value_name = "DIRECTORY")]
    pub proc: Option<PathBuf>,
    /// Where the host's /sys is mounted; only fs/cgroup in it is read [default: /sys]
    #[arg(long, value_name = "DIRECTORY")]
    pub sys: Option<PathBuf>,
}

/// The program that was built for pods takes the flag, and says that it cannot use it.
const NO_KUBECONFIG: bool = cfg!(not(feature = "kubeconfig"));

#[cfg(not(feature = "kubeconfig"))]
const IN_A_POD: &str = "Watch the pods of this node at the API server: auto (in a pod with a ServiceAccount), on or off \
                        [default: auto for the agent, off for watch and record]";

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Kubernetes")]
pub struct KubernetesArgs {
    /// Watch the pods of this node at the API server: auto (in a pod with a ServiceAccount, or with --kubeconfig), on or off
    /// [default: auto for the agent, off for watch and record]
    #[arg(long, value_name = "MODE")]
    #[cfg_attr(not(feature = "kubeconfig"), arg(help = IN_A_POD))]
    pub kubernetes: Option<String>,
    /// Access to the API server, instead of the pod's ServiceAccount
    #[arg(long, value_name = "FILE", hide = NO_KUBECONFIG)]
    pub kubeconfig: Option<PathBuf>,
    /// Name of this node, as `kubectl get nodes` shows it [default in a pod: NODE_NAME]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Export")]
pub struct OtlpArgs {
    /// Send traces and metrics to this collector, such as http://localhost:4317. Filters do not apply: traces and metrics of all
    /// terminations are sent (`epitaph replay` sends no metrics)
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Protocol of the collector: grpc or http/protobuf [default: grpc if the port is 4317, otherwise http/protobuf]
    #[arg(long, value_name = "PROTOCOL")]
    pub otlp_protocol: Option<String>,
    /// service.name of the traces of all terminations [default: a pod's application, `epitaph` for everything else]
    #[arg(long, value_name = "NAME")]
    pub service_name: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Messages")]
pub struct LogArgs {
    /// Which of epitaph's own messages go to standard error: a level (error, warn, info, debug, trace). A part of the program can have its
    /// own level, as in info,epitaph::source=debug (see docs/config.md) [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
    /// Format of epitaph's own messages: text or json
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
}

impl Cli {
    /// Parses; help and version go to standard output and errors to standard error. Err is the code to end with.
    pub fn parse_or_exit(args: impl IntoIterator<Item = OsString>) -> Result<Cli, SysExit> {
        Cli::try_parse_from(args).map_err(|error| {
            let printed = error.print();
            if error.use_stderr() {
                return SysExit::Usage;
            }
            match finished(printed.and_then(|()| std::io::stdout().flush())) {
                Ok(()) => SysExit::Ok,
                Err(error) => {
                    eprintln!("error: cannot write to standard output: {error}");
                    SysExit::Os
                }
            }
        })
    }
}

/// Prints to standard output. A closed pipe (`| head`) is not an error.
///
/// # Errors
/// Any other failure of the write.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    finished(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// What the command wanted to print was printed, or its reader is gone.
fn finished(printed: std::io::Result<()>) -> std::io::Result<()> {
    match printed {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

impl AgentArgs {
    /// The settings that the flags set, for [`crate::config::Config::load`].
    pub fn overrides(&self) -> Overrides {
        let mut all = overrides(Some((&self.kernel, &self.kubernetes)), &self.otlp, &self.log);
        add(&mut all, "--listen", "listen", self.listen.clone());
        add(
            &mut all,
            "--unclean-only",
            "export.unclean_only",
            self.unclean_only.then(|| "true".to_owned()),
        );
        for (key, value) in &self.set {
            add(&mut all, "--set", key, Some(value.clone()));
        }
        all
    }
}

impl ObserverArgs {
    /// For [`crate::config::Config::load`].
    pub fn overrides(&self) -> Overrides {
        let mut all = overrides(None, &self.otlp, &self.log);
        add(&mut all, "--listen", "listen", self.listen.clone());
        let kubeconfig = self.kubeconfig.as_ref().map(|file| file.to_string_lossy().into_owned());
        add(&mut all, "--kubeconfig", "kubernetes.kubeconfig", kubeconfig);
        for (key, value) in &self.set {
            add(&mut all, "--set", key, Some(value.clone()));
        }
        all
    }
}

impl LogindArgs {
    /// For [`crate::config::Config::for_person`]: nothing is exported.
    pub fn overrides(&self) -> Overrides {
        let mut all = overrides(None, &OtlpArgs::default(), &self.log);
        let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
        add(&mut all, "--socket", "logind.socket", text(&self.socket));
        add(&mut all, "--bus", "logind.bus", text(&self.bus));
        for (key, value) in &self.set {
            add(&mut all, "--set", key, Some(value.clone()));
        }
        all
    }
}

impl WatchArgs {
    /// For [`crate::config::Config::for_person`].
    pub fn overrides(&self) -> Overrides {
        overrides(Some((&self.kernel, &self.kubernetes)), &self.otlp, &self.log)
    }
}

impl RecordArgs {
    /// For [`crate::config::Config::for_person`].
    pub fn overrides(&self) -> Overrides {
        overrides(Some((&self.kernel, &self.kubernetes)), &self.otlp, &self.log)
    }
}

impl ReplayArgs {
    /// For [`crate::config::Config::for_person`].
    pub fn overrides(&self) -> Overrides {
        overrides(None, &self.otlp, &self.log)
    }
}

impl DoctorArgs {
    /// For [`crate::config::Config::for_person`].
    pub fn overrides(&self) -> Overrides {
        overrides(
            Some((&self.kernel, &self.kubernetes)),
            &OtlpArgs::default(),
            &LogArgs::default(),
        )
    }
}

fn overrides(live: Option<(&KernelArgs, &KubernetesArgs)>, otlp: &OtlpArgs, log: &LogArgs) -> Overrides {
    let mut all = Overrides::default();
    let text = |path: &Option<PathBuf>| path.as_ref().map(|p| p.to_string_lossy().into_owned());
    if let Some((kernel, kubernetes)) = live {
        add(&mut all, "--btf", "kernel.btf", text(&kernel.btf));
        add(
            &mut all,
            "--ring-bytes",
            "kernel.ring_bytes",
            kernel.ring_bytes.map(|n| n.to_string()),
        );
        add(&mut all, "--proc", "host.proc", text(&kernel.proc));
        add(&mut all, "--sys", "host.sys", text(&kernel.sys));
        add(&mut all, "--kubernetes", "kubernetes.mode", kubernetes.kubernetes.clone());
        add(
            &mut all,
            "--kubeconfig",
            "kubernetes.kubeconfig",
            text(&kubernetes.kubeconfig),
        );
        add(&mut all, "--node-name", "kubernetes.node_name", kubernetes.node_name.clone());
    }
    add(&mut all, "--otlp", "otlp.endpoint", otlp.otlp.clone());
    add(&mut all, "--otlp-protocol", "otlp.protocol", otlp.otlp_protocol.clone());
    add(&mut all, "--service-name", "export.service_name", otlp.service_name.clone());
    add(&mut all, "--log", "log.filter", log.log.clone());
    add(&mut all, "--log-format", "log.format", log.log_format.clone());
    all
}

fn add(to: &mut Overrides, flag: &str, key: &str, value: Option<String>) {
    if let Some(value) = value {
        to.0.push(Override {
            flag: flag.to_owned(),
            key: key.to_owned(),
            value,
        });
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("not KEY=VALUE, such as limits.timelines=2000")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::config::settings;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("epitaph").chain(line.split_whitespace()))
    }

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_of_a_setting_exists_and_reaches_it() {
        let line = "agent --listen [::1]:7 --otlp http://c:1 --otlp-protocol http/protobuf --unclean-only --service-name s \
                    --btf b --ring-bytes 65536 --proc p --sys s --kubernetes on --kubeconfig k --node-name n --log debug --log-format json --set limits.timelines=2";
        let Command::Agent(args) = parse(line).unwrap().command else {
            panic!("not agent")
        };
        let all = args.overrides();
        for setting in settings::ALL {
            if let Some(flag) = setting.flag {
                assert!(
                    all.0.iter().any(|o| o.flag == flag && o.key == setting.key),
                    "{flag} does not set {}",
                    setting.key
                );
            }
        }
        let set = all.0.last().unwrap();
        assert_eq!((set.key.as_str(), set.value.as_str()), ("limits.timelines", "2"));
    }

    #[test]
    fn a_typo_ends_with_64_and_help_with_0() {
        let run = |line: &str| Cli::parse_or_exit(line.split(' ').map(Into::into)).err();
        assert_eq!(run("epitaph wacth"), Some(SysExit::Usage));
        assert_eq!(run("epitaph watch --output xml"), Some(SysExit::Usage));
        assert_eq!(run("epitaph agent --set nothing"), Some(SysExit::Usage));
        assert_eq!(run("epitaph --version"), Some(SysExit::Ok));
        assert_eq!(run("epitaph record"), Some(SysExit::Usage));
    }

    #[test]
    fn commands_that_show_share_filters_and_output() {
        for line in ["watch", "record f", "replay f"] {
            let cli = parse(&format!(
                "{line} --output json --container ab --unit x* --cgroup /a --verdict crashed --unclean"
            ));
            let show = match cli.unwrap().command {
                Command::Watch(a) => a.show,
                Command::Record(a) => a.show,
                Command::Replay(a) => a.show,
                other => panic!("{other:?}"),
            };
            assert_eq!(show.output, OutputFormat::Json);
            assert!(show.filter.unclean);
        }
    }
}
