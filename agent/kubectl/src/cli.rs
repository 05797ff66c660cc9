//! The command line: kubectl's own flags where kubectl has them.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use epitaph_core::duration::{self, DurationError};
use epitaph_story::color::Color;
use epitaph_story::when::{self, When};

use crate::failure;

/// Why pods terminated, and what a rollout cost, from the custom resources that Epitaph's agents write.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-epitaph",
    bin_name = "kubectl epitaph",
    version,
    after_help = failure::HELP,
    max_term_width = 100
)]
pub struct Cli {
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List terminations, the latest first
    List(ListArgs),
    /// Show why a pod terminated, also if the pod is gone: sentence, timeline, remedy
    Why(WhyArgs),
    /// Show a node's last shutdown and loss, its readiness, and terminations on the node
    Node(NodeArgs),
    /// Show what a rollout cost (pods, lost connections and times), compared with the revision before, and which setting to change
    Rollout(RolloutArgs),
    /// Show terminations as they are reported
    Watch(WatchArgs),
    /// Check whether terminations are reported in this cluster, or on one node
    Doctor(DoctorArgs),
    /// Print the words that can follow on the command line, for kubectl_complete-epitaph
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete(CompleteArgs),
}

/// A longest time; None: there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit(pub Option<Duration>);

/// As kubectl: `0` is no limit.
fn limit(text: &str) -> Result<Limit, DurationError> {
    seconds(text).map(|limit| Limit((!limit.is_zero()).then_some(limit)))
}

/// As kubectl: a bare number is seconds.
fn seconds(text: &str) -> Result<Duration, DurationError> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => duration::parse(text),
    }
}

/// Which cluster is asked, and as whom.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct AccessArgs {
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Kubeconfig file [default: $KUBECONFIG, otherwise ~/.kube/config, otherwise the ServiceAccount of the pod]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// Ask as this user; the API server must allow you to impersonate this user
    #[arg(long = "as", global = true, value_name = "USER")]
    pub impersonate: Option<String>,
    /// Namespace [default: the context's]
    #[arg(long, short, global = true, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Longest time of one request; a number without a unit means seconds, 0 means no limit
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s", value_parser = limit)]
    pub request_timeout: Limit,
}

#[derive(Clone, Debug, Default, Args)]
pub struct SelectArgs {
    /// In all namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// Label selector of Epitaphs, such as epitaph.dev/workload=web,epitaph.dev/verdict!=clean
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Unclean terminations only
    #[arg(long)]
    pub unclean: bool,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub select: SelectArgs,
    /// Only terminations since this time: a duration before now such as 90s, 15m, 1h or 2d; or a date or time in UTC such as today,
    /// yesterday, 2026-01-02 or 03:04
    #[arg(long, value_name = "WHEN", value_parser = when::parse)]
    pub since: Option<When>,
    /// Format of the output
    #[arg(long, short, value_enum, default_value_t)]
    pub output: ListOutput,
    /// Print no line with the column titles
    #[arg(long)]
    pub no_headers: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListOutput {
    /// One line for each termination
    #[default]
    Table,
    /// One line for each termination, with more columns: node, trace, sentence, and what kubectl shows of the exit if the kernel recorded
    /// another exit
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// Name of a pod or the beginning of the name; NAMESPACE/POD; name of a workload or KIND/NAME; name of an Epitaph; beginning of the id
    /// of a container, pod or trace. Without a name, the last termination that the label selector matches
    #[arg(value_name = "POD", required_unless_present = "selector", num_args = 1..=2)]
    pub what: Vec<String>,
    #[command(flatten)]
    pub select: SelectArgs,
    /// Format of the output
    #[arg(long, short, value_enum, default_value_t)]
    pub output: WhyOutput,
    /// Colour in text; with NO_COLOR or TERM=dumb in the environment, "auto" means "never"
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WhyOutput {
    /// Text for people; `wide` gives the same
    #[default]
    #[value(alias = "wide")]
    Text,
    Json,
    Yaml,
    Name,
    /// Markdown, for an incident report
    Markdown,
}

/// `node/worker-3` is what `kubectl get nodes -o name` prints. No name of a node has a slash.
fn node(text: &str) -> Result<String, Infallible> {
    Ok(text.rsplit('/').next().unwrap_or(text).to_owned())
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    /// Name of the node, which may be gone
    #[arg(value_parser = node)]
    pub node: String,
    /// Format of the output
    #[arg(long, short, value_enum, default_value_t)]
    pub output: NodeOutput,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum NodeOutput {
    /// Text for people; `wide` gives the same
    #[default]
    #[value(alias = "wide")]
    Text,
    Json,
    Yaml,
    Name,
}

#[derive(Debug, Args)]
pub struct RolloutArgs {
    /// Workload: deployment/NAME, statefulset/NAME or daemonset/NAME
    #[arg(value_name = "TYPE/NAME", required = true, num_args = 1..=2)]
    pub workload: Vec<String>,
    /// Show the rollout to this revision [default: the last rollout]
    #[arg(long, value_name = "NUMBER")]
    pub revision: Option<u64>,
    /// Wait until the rollout has settled: the new pods are available, and the time of --settle has passed since the last old pod was gone
    #[arg(long)]
    pub wait: bool,
    /// Longest time to wait; a number without a unit means seconds, 0 means no limit
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = limit, requires = "wait")]
    pub timeout: Limit,
    /// How long to wait after the last old pod is gone, so that the report on this pod arrives; a number without a unit means seconds
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = seconds, requires = "wait")]
    pub settle: Duration,
    /// Exit with code 2 if the rollout had this result; can be repeated
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CONDITION")]
    pub fail_on: Vec<FailOn>,
    /// Format of the output
    #[arg(long, short, value_enum, default_value_t)]
    pub output: RolloutOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Connections of clients were refused, reset or cut
    Lost,
    /// A termination was unclean
    Unclean,
    /// A pod has no report, or the verdict or the connections in its report are unknown
    Unknown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RolloutOutput {
    /// Text for people; `wide` gives the same
    #[default]
    #[value(alias = "wide")]
    Text,
    Json,
    Yaml,
    /// Name of the workload
    Name,
    /// Markdown, for the summary of a pipeline
    Markdown,
}

#[derive(Debug, Args)]
pub struct WatchArgs {
    #[command(flatten)]
    pub select: SelectArgs,
    /// Format of the output
    #[arg(long, short, value_enum, default_value_t)]
    pub output: WatchOutput,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WatchOutput {
    /// Text for people; `wide` gives the same
    #[default]
    #[value(alias = "wide")]
    Text,
    /// One object per line
    Json,
    /// One document per object
    Yaml,
    Name,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Check only this node
    #[arg(value_parser = node)]
    pub node: Option<String>,
    /// Format of the output
    #[arg(long, short, value_enum, default_value_t)]
    pub output: DoctorOutput,
}

/// Findings have no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DoctorOutput {
    /// Text for people; `wide` gives the same
    #[default]
    #[value(alias = "wide")]
    Text,
    Json,
    Yaml,
}

#[derive(Debug, Args)]
pub struct CompleteArgs {
    /// The words of the command line so far; the last word is to be completed
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    pub words: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `kubectl --request-timeout=30` is 30 seconds, and 0 waits for ever.
    #[test]
    fn bare_numbers_are_seconds_and_zero_is_no_limit() {
        let parsed = |flags: &[&str]| {
            let args = ["kubectl-epitaph", "rollout", "deployment/web", "--wait"];
            let cli = Cli::try_parse_from(args.iter().chain(flags)).expect("usage");
            let Command::Rollout(args) = cli.command else {
                panic!("{cli:?}")
            };
            (cli.access.request_timeout.0, args.timeout.0, args.settle)
        };
        let of = Duration::from_secs;
        assert_eq!(parsed(&[]), (Some(of(30)), Some(of(900)), of(30)));
        let numbers = ["--request-timeout=30", "--timeout", "60", "--settle", "5"];
        assert_eq!(parsed(&numbers), (Some(of(30)), Some(of(60)), of(5)));
        let zeros = ["--request-timeout=0", "--timeout", "0", "--settle", "0"];
        assert_eq!(parsed(&zeros), (None, None, Duration::ZERO));
        let units = ["--request-timeout=0s", "--timeout", "90s", "--settle", "500ms"];
        assert_eq!(parsed(&units), (None, Some(of(90)), Duration::from_millis(500)));
    }
}
