//! `--color`, and the conventions of terminals.

use clap::ValueEnum;
use epitaph_core::render::text::Style;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// `NO_COLOR` (any value that is not empty, see no-color.org), a terminal without control codes and a stream that is not a terminal
    /// turn `Auto` off. `variable`: of the environment.
    pub fn style(self, is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Style {
        let is_off = || variable("NO_COLOR").is_some_and(|of| !of.is_empty()) || is_dumb(&variable);
        match self {
            Color::Always => Style::Color,
            Color::Auto if is_terminal && !is_off() => Style::Color,
            Color::Auto | Color::Never => Style::Plain,
        }
    }
}

/// A terminal that shows control codes as text: of an editor, of some serial consoles.
pub fn is_dumb(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("TERM").is_some_and(|terminal| terminal == "dumb")
}
