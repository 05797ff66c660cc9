//! Arguments of the commands that look back: `why`, `list`, `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use epitaph_story::color::Color;
pub use epitaph_story::when::When;
use epitaph_story::when::parse as when;

use super::Filter;

/// Where finished terminations are read, and of which time.
#[derive(Debug, Default, Args)]
pub struct PastArgs {
    /// Directory of the agent's journal [default: journal.directory of the agent's configuration, otherwise /var/lib/epitaph/journal]
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "from")]
    pub journal: Option<PathBuf>,
    /// Configuration of the agent, which names the journal [default: the installed one]
    #[arg(long, value_name = "FILE", env = "EPITAPH_CONFIG")]
    pub config: Option<PathBuf>,
    /// Read this file, or standard input (-), instead of the journal: a recording of `epitaph record` or `epitaph export`, which is
    /// judged again, or JSON lines as `epitaph watch --output json` prints them
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Only terminations since this time: a duration before now such as 90s, 15m, 1h or 2d; or a date or time in UTC such as today,
    /// yesterday, 2026-01-02, "2026-01-02 03:04:05" or 2026-01-02T03:04:05Z; or a time of the last 24 hours such as 03:04 or 03:04:05.
    /// A time may have an offset from UTC: 03:04+02:00
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub since: Option<When>,
    /// Only terminations until this time, written in the same way as for --since
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub until: Option<When>,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// File to write, which must not exist yet; or - for standard output
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Directory of the agent's journal [default: journal.directory of the agent's configuration, otherwise /var/lib/epitaph/journal]
    #[arg(long, value_name = "DIRECTORY")]
    pub journal: Option<PathBuf>,
    /// Configuration of the agent, which names the journal [default: the installed one]
    #[arg(long, value_name = "FILE", env = "EPITAPH_CONFIG")]
    pub config: Option<PathBuf>,
    /// Only evidence since this time: a duration before now such as 90s, 15m, 1h or 2d; or a date or time in UTC such as today,
    /// yesterday, 2026-01-02, "2026-01-02 03:04:05" or 2026-01-02T03:04:05Z; or a time of the last 24 hours such as 03:04 or 03:04:05. A
    /// time may have an offset from UTC: 03:04+02:00
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub since: Option<When>,
    /// Only evidence until this time, written in the same way as for --since
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub until: Option<When>,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// Name of a pod ([NAMESPACE/]POD[/CONTAINER]), workload ([NAMESPACE/][KIND/]NAME), unit or node; name or image of a container
    /// outside of Kubernetes; name or pid of the first process of a container or unit; or beginning of the id of a container, pod or trace
    /// (4 digits or more)
    #[arg(value_name = "POD|CONTAINER|UNIT|PROCESS|PID|NODE|TRACE_ID")]
    pub what: String,
    #[command(flatten)]
    pub past: PastArgs,
    /// Format of the output; docs/json.md describes the object of "json"
    #[arg(long, value_enum, default_value_t)]
    pub output: WhyFormat,
    /// Colour in text; with NO_COLOR or TERM=dumb in the environment, "auto" means "never"
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
    /// Show each piece of evidence with its source
    #[arg(long, short)]
    pub verbose: bool,
    #[command(flatten)]
    pub filter: Filter,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub past: PastArgs,
    /// Count the terminations by workload and verdict, the worst first
    #[arg(long)]
    pub summary: bool,
    /// Format of the output; docs/json.md describes the objects of "json"
    #[arg(long, value_enum, default_value_t)]
    pub output: ListFormat,
    /// Colour in text; with NO_COLOR or TERM=dumb in the environment, "auto" means "never"
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
    #[command(flatten)]
    pub filter: Filter,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WhyFormat {
    /// Text, as wide as the terminal (at most 100 columns), or 80 columns wide if the output is not a terminal
    #[default]
    Text,
    /// One JSON object
    Json,
    /// Markdown for an incident report
    Markdown,
    /// The text as a picture, for a page or a slide
    Svg,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// One line for each termination, cut to the width of the terminal
    #[default]
    Text,
    /// The same lines as `text`, with one more column: what kubectl shows of the exit, if the kernel recorded another exit
    Wide,
    /// One JSON object per line
    Json,
}
