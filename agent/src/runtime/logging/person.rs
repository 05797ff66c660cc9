//! Messages of a command that a person started: `warning: what happened (details)`, and the remedy on a line of its own, as errors have it.

use std::fmt::{self, Write as _};

use epitaph_core::text::escape;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

pub struct ForPerson;

impl<S, N> FormatEvent<S, N> for ForPerson
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let level = *metadata.level();
        match level {
            Level::ERROR => out.write_str("error: ")?,
            Level::WARN => out.write_str("warning: ")?,
            Level::INFO => {}
            // Asked for by `--log`: the code's places are of use.
            level => write!(out, "{}: {}: ", level.as_str().to_ascii_lowercase(), metadata.target())?,
        }
        out.write_str(&text.message)?;
        if !text.details.is_empty() {
            write!(out, " ({})", text.details)?;
        }
        if let Some(remedy) = text.remedy {
            write!(out, "\nremedy: {remedy}")?;
        }
        writeln!(out)
    }
}

#[derive(Default)]
struct Text {
    message: String,
    details: String,
    remedy: Option<String>,
}

impl Text {
    fn add(&mut self, field: &Field, value: &str) {
        let value = escape(value);
        match field.name() {
            "message" => self.message = value,
            "remedy" => self.remedy = Some(value),
            // The place in another crate's code.
            name if name.starts_with("log.") => {}
            name => {
                let separator = if self.details.is_empty() { "" } else { ", " };
                let _ = write!(self.details, "{separator}{}: {value}", name.replace('_', " "));
            }
        }
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use expect_test::expect;
    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_warning_reads_like_an_error() {
        let paper = Paper::default();
        let writer = paper.clone();
        let layer = fmt::layer().event_format(ForPerson).with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let who = "pid 7 `a\u{1b}b`";
            tracing::warn!(%who, lost_records = 2, remedy = "stop the other one", "two of us");
            tracing::info!("observing");
            tracing::debug!(target: "epitaph::x", "step");
        });
        let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
        expect![[r#"
            warning: two of us (who: pid 7 `a\u{1b}b`, lost records: 2)
            remedy: stop the other one
            observing
            debug: epitaph::x: step
        "#]]
        .assert_eq(&text);
    }
}
