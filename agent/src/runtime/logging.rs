//! The agent's log on standard error, and the agent's own spans under a separate service name.

use std::io::IsTerminal as _;
use std::time::Duration;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use crate::cli::SysExit;
use crate::config::{Config, Env, LogFormat, settings};
use crate::sink::otlp::Delivery;
use crate::sink::own_spans;

use super::RuntimeError;
use super::export::own_resource;

pub struct Logging {
    spans: Option<own_spans::Guard>,
}

/// May be called once per process.
pub fn start(config: &Config) -> Result<Logging, RuntimeError> {
    // These crates log each failed attempt without address and remedy; epitaph logs both, once.
    let filter = EnvFilter::try_new(format!("kube_client=off,aya::sys=error,{}", config.log.filter))
        .map_err(|error| RuntimeError::new(SysExit::Config, format!("log.filter `{}`: {error}", config.log.filter)))?;
    let stderr = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let messages = match config.log.format {
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
        .with(messages.with_filter(filter))
        .init();
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
