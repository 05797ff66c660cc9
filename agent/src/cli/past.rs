//! Arguments of the commands that look back: `why`, `list`, `export`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use epitaph_core::duration;
use epitaph_core::time::Wall;

use super::{Color, Filter};

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
    /// Only terminations since this time: a duration before now such as 90s, 15m, 1h or 2d, or a date or time in UTC such as
    /// 2026-01-02 or 2026-01-02T03:04:05Z
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub since: Option<When>,
    /// Only terminations until this time, in the same form
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
    /// Only evidence since this time: a duration before now such as 90s, 15m, 1h or 2d, or a date or time in UTC such as 2026-01-02
    /// or 2026-01-02T03:04:05Z
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub since: Option<When>,
    /// Only evidence until this time, in the same form
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub until: Option<When>,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// Name of a pod ([NAMESPACE/]POD[/CONTAINER]), workload ([NAMESPACE/][KIND/]NAME), unit or node; name or image of a container
    /// outside of Kubernetes; or beginning of the id of a container, pod or trace (4 digits or more)
    #[arg(value_name = "POD|CONTAINER|UNIT|NODE|TRACE_ID")]
    pub what: String,
    #[command(flatten)]
    pub past: PastArgs,
    /// Form of the output; docs/json.md describes the object of "json"
    #[arg(long, value_enum, default_value_t)]
    pub output: WhyFormat,
    /// Colour in text; with NO_COLOR in the environment, "auto" means "never"
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
    /// Count by workload and verdict, the worst first
    #[arg(long)]
    pub summary: bool,
    /// Form of the output; docs/json.md describes the objects of "json"
    #[arg(long, value_enum, default_value_t)]
    pub output: ListFormat,
    /// Colour in text; with NO_COLOR in the environment, "auto" means "never"
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
    #[command(flatten)]
    pub filter: Filter,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WhyFormat {
    /// For a terminal, 80 columns wide, at most 100
    #[default]
    Text,
    /// One JSON object
    Json,
    /// A page for an incident
    Markdown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// A line for each, cut to the width of the terminal
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// A moment, as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Ago(Duration),
    At(Wall),
}

impl When {
    pub fn before(self, now: Wall) -> Wall {
        match self {
            When::Ago(d) => Wall(now.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))),
            When::At(at) => at,
        }
    }
}

fn when(text: &str) -> Result<When, String> {
    // Elsewhere a number alone is milliseconds; nobody looks back so far.
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("a number without a unit; write 90s, 15m, 1h or 2d".to_owned());
    }
    let midnight = || Wall::parse_rfc3339(&format!("{text}T00:00:00Z"));
    if let Some(at) = Wall::parse_rfc3339(text).or_else(midnight) {
        return Ok(When::At(at));
    }
    duration::parse(text).map(When::Ago).map_err(|_| {
        "neither a duration such as 15m, 1h or 2d, nor a date or time in UTC such as 2026-01-02 or 2026-01-02T03:04:05Z"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_as_people_write_them() {
        let hours = |hours: u64| Ok(When::Ago(Duration::from_secs(hours * 3_600)));
        assert_eq!((when("1h"), when("2d"), when("1h 30m").is_ok()), (hours(1), hours(48), true));
        assert_eq!(when("1970-01-01T00:00:01Z"), Ok(When::At(Wall(1_000_000_000))));
        assert_eq!(when("1970-01-02"), Ok(When::At(Wall(86_400_000_000_000))));
        for wrong in ["", "90", "yesterday", "1970-13-01", "1970-01", "-1h"] {
            assert!(when(wrong).is_err(), "{wrong}");
        }
        assert_eq!(When::Ago(Duration::MAX).before(Wall(5)), Wall(0));
        assert_eq!(When::Ago(Duration::from_nanos(2)).before(Wall(5)), Wall(3));
    }
}
