//! The agent's log on standard error, messages to people, and the agent's own spans under a separate service name.

mod person;

use std::io::IsTerminal as _;
use std::time::Duration;

use epitaph_core::render::text::Style;
use epitaph_story::color::Color;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::cli::SysExit;
use crate::config::{Config, Env, LogFilter, LogFormat, ProcessEnv, settings};
use crate::sink::otlp::Delivery;
use crate::sink::own_spans;

use super::export::own_resource;
use super::{RuntimeError, unclean};

pub struct Logging {
    spans: Option<own_spans::Guard>,
}

/// Where the lines of unclean terminations go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminations {
    /// Nowhere: a person looks on. Messages are without the time and the place in the code.
    Person,
    /// With all other messages.
    Messages,
    /// As fields, to systemd's journal: standard error goes there too.
    Journald,
    /// As JSON on standard output, in a pod.
    Stdout,
}

impl Terminations {
    /// Of the agent. `stderr`: device and inode of standard error.
    pub fn of_agent(env: &dyn Env, stderr: Option<(u64, u64)>) -> Terminations {
        // systemd.exec(5): the variable may be inherited by a process whose standard error is another one.
        let journal = env.get("JOURNAL_STREAM").and_then(|stream| {
            let (device, inode) = stream.split_once(':')?;
            Some((device.parse().ok()?, inode.parse().ok()?))
        });
        match journal {
            Some(journal) if stderr == Some(journal) => Terminations::Journald,
            _ if env.get("KUBERNETES_SERVICE_HOST").is_some() => Terminations::Stdout,
            _ => Terminations::Messages,
        }
    }
}

/// Device and inode of standard error.
pub fn stderr_file() -> Option<(u64, u64)> {
    let stat = nix::sys::stat::fstat(std::io::stderr()).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// `MESSAGE_ID` of an unclean termination in systemd's journal: `journalctl MESSAGE_ID=…` shows all of them (docs/install.md).
const MESSAGE_ID: &str = "8f1d5a7c2b9e4d06a3c4e7f0b1925d38";

/// The unit of the package allows no AF_UNIX: to uid 0, other sockets of that family are root on the machine (docs/privileges.md).
const NO_FIELDS: &str = "read the fields with `epitaph list --output json`; a unit has the journal's socket only with AF_UNIX in RestrictAddressFamilies=";

/// A line for each event, with its fields beside the message.
pub fn json_lines<S, W>(writer: W) -> fmt::Layer<S, fmt::format::JsonFields, fmt::format::Format<fmt::format::Json>, W>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> fmt::MakeWriter<'a> + 'static,
{
    fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_writer(writer)
}

/// May be called once per process.
pub fn start(config: &Config, terminations: Terminations) -> Result<Logging, RuntimeError> {
    // These crates log each failed attempt without address and remedy; epitaph logs both, once.
    let filter = config.log.read("kube_client=off,aya::sys=error");
    let LogFilter {
        targets: filter,
        without_effect,
    } = filter
        .map_err(|problem| RuntimeError::new(SysExit::Config, format!("log.filter `{}`: {problem}", config.log.filter)))?;
    let only_terminations = || filter_fn(|metadata| metadata.target() == unclean::TARGET);
    let mut terminations = terminations;
    let (journald, unreachable) = match (terminations == Terminations::Journald).then(tracing_journald::layer) {
        Some(Ok(layer)) => (Some(layer), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    if unreachable.is_some() {
        // A journal without its socket in this name space: the messages reach it by standard error.
        terminations = Terminations::Messages;
    }
    let journald = journald.map(|layer| {
        let fields = [("MESSAGE_ID", MESSAGE_ID)];
        let layer = layer.with_field_prefix(Some("EPITAPH".to_owned())).with_custom_fields(fields);
        layer.with_filter(only_terminations())
    });
    let stdout = (terminations == Terminations::Stdout).then(|| json_lines(std::io::stdout).with_filter(only_terminations()));
    let elsewhere = matches!(terminations, Terminations::Journald | Terminations::Stdout);
    let others = filter_fn(move |metadata| !elsewhere || metadata.target() != unclean::TARGET);
    // As all other output.
    let style = Color::Auto.style(std::io::stderr().is_terminal(), |name| ProcessEnv.get(name));
    let stderr = fmt::layer().with_writer(std::io::stderr).with_ansi(style == Style::Color);
    let messages = match config.log.format {
        LogFormat::Text if terminations == Terminations::Person => stderr.event_format(person::ForPerson).boxed(),
        LogFormat::Text => stderr.boxed(),
        LogFormat::Json => stderr.json().boxed(),
    };
    let (layer, spans) = match config.otlp.destinations()?.traces {
        Some(to) => {
            let delivery = Delivery::with_queue(config.limits.export_queue);
            let (layer, guard) = own_spans::start(to, delivery, own_resource(config))?;
            (Some(layer), Some(guard))
        }
        None => (None, None),
    };
    tracing_subscriber::registry()
        .with(layer)
        .with(messages.with_filter(others).with_filter(filter.clone()))
        .with(journald.with_filter(filter.clone()))
        .with(stdout.with_filter(filter))
        .init();
    for directive in without_effect {
        tracing::warn!(
            remedy = "select by level and target: info,epitaph::source=debug",
            "`{directive}` in log.filter (RUST_LOG) selects spans or fields, and has no effect"
        );
    }
    if let Some(error) = unreachable {
        // As in the package's unit: nothing is wrong.
        tracing::info!(
            remedy = NO_FIELDS,
            "the socket of systemd's journal is out of reach ({error}): unclean terminations are logged without fields"
        );
    }
    Ok(Logging { spans })
}

/// Not an error: a variable with such a name may be meant for another program.
pub fn warn_of_unknown_variables(env: &dyn Env) {
    for (name, meant) in settings::unknown_variables(env) {
        match meant {
            Some(meant) => {
                tracing::warn!(remedy = %format_args!("did you mean {meant}?"), "environment variable {name} is not a setting and has no effect")
            }
            None => tracing::warn!(
                remedy = "`epitaph agent --print-config` lists the settings",
                "environment variable {name} is not a setting and has no effect"
            ),
        }
    }
}

impl Logging {
    /// Sends the queued spans, for `limit` at most.
    pub async fn finish(self, limit: Duration) {
        if let Some(spans) = self.spans {
            spans.shutdown(limit).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Vars(&'static [(&'static str, &'static str)]);

    impl Env for Vars {
        fn get(&self, name: &str) -> Option<String> {
            self.0
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        }
        fn names(&self) -> Vec<String> {
            self.0.iter().map(|(name, _)| (*name).to_owned()).collect()
        }
    }

    #[test]
    fn terminations_go_where_the_agent_is_read() {
        use Terminations::{Journald, Messages, Stdout};
        let stderr = Some((9, 1234));
        for (vars, expected) in [
            (Vars(&[]), Messages),
            (Vars(&[("JOURNAL_STREAM", "9:1234")]), Journald),
            (Vars(&[("JOURNAL_STREAM", "9:1235")]), Messages),
            (Vars(&[("JOURNAL_STREAM", "nonsense")]), Messages),
            (Vars(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]), Stdout),
            // Of a kubelet's parent: standard error is a pod's.
            (
                Vars(&[("JOURNAL_STREAM", "9:1"), ("KUBERNETES_SERVICE_HOST", "10.0.0.1")]),
                Stdout,
            ),
        ] {
            assert_eq!(Terminations::of_agent(&vars, stderr), expected, "{:?}", vars.0);
        }
        assert_eq!(Terminations::of_agent(&Vars(&[("JOURNAL_STREAM", "9:1234")]), None), Messages);
        assert!(stderr_file().is_some());
    }
}
