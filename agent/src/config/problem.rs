//! Problems of a configuration, with their remedies.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;

use crate::error::{HasRemedy, Remedy};

/// Problem of one value. Never contains the value, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    what: Cow<'static, str>,
    remedy: Option<Remedy>,
}

impl Problem {
    pub fn new(what: impl Into<Cow<'static, str>>) -> Problem {
        Problem {
            what: what.into(),
            remedy: None,
        }
    }

    pub fn with_remedy(self, remedy: impl Into<Remedy>) -> Problem {
        Problem {
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// For types that accept any text.
impl From<Infallible> for Problem {
    fn from(never: Infallible) -> Problem {
        match never {}
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {}: {error}", file.display())]
    Read { file: PathBuf, error: std::io::Error },
    // Not toml's complete error, which quotes the line: the line may contain a secret.
    #[error("cannot parse the configuration {}, line {line}{}: {problem}", file.display(), of_setting(*key))]
    Parse {
        file: PathBuf,
        line: usize,
        /// None if the file is not TOML, or no value of a setting is wrong.
        key: Option<&'static str>,
        problem: Problem,
    },
    #[error("unknown key `{key}` in {source_name}")]
    UnknownKey {
        source_name: String,
        key: String,
        nearest: Option<&'static str>,
    },
    #[error("bad value of {source_name} (setting `{key}`): {problem}")]
    Value {
        source_name: String,
        key: String,
        problem: Problem,
    },
    #[error("bad setting `{key}`: {problem}")]
    Invalid { key: &'static str, problem: Problem },
}

impl HasRemedy for ConfigError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            ConfigError::Read { .. } => Some("name another file with --config FILE".into()),
            ConfigError::UnknownKey {
                nearest: Some(nearest), ..
            } => Some(format!("did you mean `{nearest}`?").into()),
            ConfigError::UnknownKey { nearest: None, .. } => Some("`epitaph agent --print-config` lists the known keys".into()),
            ConfigError::Parse { problem, .. } | ConfigError::Value { problem, .. } | ConfigError::Invalid { problem, .. } => {
                problem.remedy.clone()
            }
        }
    }
}

fn of_setting(key: Option<&str>) -> String {
    key.map_or(String::new(), |key| format!(" (setting `{key}`)"))
}
