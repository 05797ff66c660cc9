//! The view for people: form, filter and terminal.

use std::io::IsTerminal as _;

use epitaph_core::render::text::Style;
use tokio::sync::mpsc;

use crate::cli;
use crate::config::Env;
use crate::sink::terminal::screen::{Act, Screen};
use crate::sink::terminal::{self, Background, Form};

use super::{FLUSH, RuntimeError, privileges};

pub struct Show {
    output: cli::OutputFormat,
    style: Style,
    filter: cli::Filter,
    /// The terminal has no cursor to move: the plain stream.
    is_dumb: bool,
}

/// An open terminal, or none.
pub struct View {
    /// Restores the terminal on drop.
    pub screen: Option<Screen>,
    /// Actions of the user in a live view.
    pub acts: mpsc::Receiver<Act>,
    pub sink: Option<terminal::Sink<Background>>,
}

impl Show {
    pub fn new(args: &cli::ShowArgs, env: &dyn Env) -> Show {
        Show {
            output: args.output,
            style: args.color.style(std::io::stdout().is_terminal(), |name| env.get(name)),
            filter: args.filter.clone(),
            is_dumb: cli::is_dumb(env),
        }
    }

    /// To a person, before the probes are loaded, which takes seconds on a slow machine: nothing else is shown until a program terminates.
    pub fn announce() {
        if std::io::stderr().is_terminal() {
            eprintln!("loading the probes; terminations from now on are shown here, Ctrl-C ends");
        }
    }

    /// For a live observation; without `show` nothing is opened.
    pub fn open(show: Option<Show>) -> Result<View, RuntimeError> {
        let Some(show) = show else {
            return Ok(View {
                screen: None,
                acts: mpsc::channel(1).1,
                sink: None,
            });
        };
        let (screen, acts, form) = if show.is_live(Screen::available()) {
            let (screen, acts) = privileges::without(Screen::enter)
                .map_err(|error| RuntimeError::os("take the terminal")(error).with_remedy("use --output text"))?;
            (Some(screen), acts, show.live_form())
        } else {
            (None, mpsc::channel(1).1, show.stream_form())
        };
        let output = privileges::without(|| Background::live(std::io::stdout(), FLUSH)).map_err(no_output)?;
        Ok(View {
            screen,
            acts,
            sink: Some(terminal::Sink::new(output, form, show.filter)),
        })
    }

    /// For a replay: every termination, as one stream.
    pub fn stream(self) -> Result<terminal::Sink<Background>, RuntimeError> {
        let output = privileges::without(|| Background::whole(std::io::stdout())).map_err(no_output)?;
        Ok(terminal::Sink::new(output, self.stream_form(), self.filter))
    }

    fn is_live(&self, has_screen: bool) -> bool {
        self.output == cli::OutputFormat::Auto && !self.is_dumb && has_screen
    }

    fn live_form(&self) -> Form {
        Form::Live {
            style: self.style,
            columns: Screen::columns(),
        }
    }

    fn stream_form(&self) -> Form {
        match self.output {
            cli::OutputFormat::Json => Form::Json,
            cli::OutputFormat::Auto | cli::OutputFormat::Text => Form::Text(self.style),
        }
    }
}

fn no_output(error: std::io::Error) -> RuntimeError {
    RuntimeError::os("start the thread of the output")(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Terminal(&'static str);

    impl Env for Terminal {
        fn get(&self, name: &str) -> Option<String> {
            (name == "TERM").then(|| self.0.to_owned())
        }

        fn names(&self) -> Vec<String> {
            vec!["TERM".to_owned()]
        }
    }

    /// The live view moves the cursor.
    #[test]
    fn a_terminal_without_control_codes_gets_the_plain_stream() {
        let show = |terminal| Show::new(&cli::ShowArgs::default(), &Terminal(terminal));
        assert!(show("xterm").is_live(true));
        assert!(!show("dumb").is_live(true));
        assert!(!show("xterm").is_live(false));
    }
}
