//! The agent's own words: messages on standard error, and spans of its own under a service of its own.

use std::io::IsTerminal as _;
use std::time::Duration;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use crate::cli::SysExit;
use crate::config::{Config, Env, LogFormat, settings};
use crate::sink::own_spans;

use super::RuntimeError;
use super::export::{own_resource, wrong};

pub struct Logging {
    spans: Option<own_spans::Guard>,
}

/// Once per process.
pub fn start(config: &Config) -> Result<Logging, RuntimeError> {
    // They speak of each failed attempt by themselves, without the address or a remedy; we say both, once, where it matters.
    let filter = EnvFilter::try_new(format!("kube_client=off,aya::sys=error,{}", config.log.filter))
        .map_err(|error| RuntimeError::new(SysExit::Config, format!("log.filter `{}`: {error}", config.log.filter)))?;
    let stderr = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let messages = match config.log.format {
        LogFormat::Text => stderr.boxed(),
        LogFormat::Json => stderr.json().boxed(),
    };
    let (layer, spans) = match config.otlp.traces(config.limits.export_queue).map_err(wrong)? {
        Some(settings) => {
            let (layer, guard) = own_spans::start(settings, own_resource(config)).map_err(wrong)?;
            (Some(layer), Some(guard))
        }
        None => (None, None),
    };
    tracing_subscriber::registry()
        .with(layer)
        .with(messages.with_filter(filter))
        .init();
    Ok(Logging { spans })
}

/// No error: whoever names a variable so need not have meant us.
pub fn warn_of_unknown_variables(env: &dyn Env) {
    for (name, meant) in settings::unknown_variables(env) {
        match meant {
            Some(meant) => tracing::warn!("environment variable {name} is no setting and has no effect; did you mean {meant}?"),
            None => tracing::warn!(
                "environment variable {name} is no setting and has no effect; `epitaph agent --print-config` lists the settings"
            ),
        }
    }
}

impl Logging {
    /// Sends the spans that wait, for `limit` at most.
    pub async fn finish(self, limit: Duration) {
        if let Some(spans) = self.spans {
            spans.shutdown(limit).await;
        }
    }
}
