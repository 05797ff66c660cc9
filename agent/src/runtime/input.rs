//! The file, or standard input, that a command reads.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::RuntimeError;
use crate::cli::SysExit;

/// What a command expects of a file, in its remedies.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    /// "give …".
    pub file: &'static str,
    /// Of a directory.
    pub journal: fn(&Path) -> String,
}

/// A file that a command was given.
pub(super) struct Given {
    /// For people.
    pub name: String,
    pub bytes: Box<dyn BufRead>,
}

/// `-` is standard input.
pub(super) fn open(path: &Path, expected: Expected) -> Result<Given, RuntimeError> {
    if path == Path::new("-") {
        return Ok(Given {
            name: "standard input".to_owned(),
            bytes: Box::new(BufReader::new(io::stdin())),
        });
    }
    let name = path.display().to_string();
    if path.is_dir() {
        let problem = format!("{name} is a directory");
        return Err(RuntimeError::new(SysExit::NoInput, problem).with_remedy((expected.journal)(path)));
    }
    let mut bytes = BufReader::new(File::open(path).map_err(|error| cannot_open(&name, &error, expected))?);
    // Of a pipe, as `<(…)` is one, the end is not known yet.
    let is_empty = path.is_file() && bytes.fill_buf().map_err(|error| unreadable(&name, &error))?.is_empty();
    if is_empty {
        return Err(RuntimeError::new(SysExit::Data, format!("{name} is empty")).with_remedy(format!("give {}", expected.file)));
    }
    Ok(Given {
        name,
        bytes: Box::new(bytes),
    })
}

fn cannot_open(name: &str, error: &io::Error, expected: Expected) -> RuntimeError {
    let (code, remedy) = match error.kind() {
        io::ErrorKind::PermissionDenied => (
            SysExit::NoPerm,
            "run this as a user who may read the file, such as with sudo, or have the file's owner change its mode".to_owned(),
        ),
        _ => (SysExit::NoInput, format!("give {}, or - for standard input", expected.file)),
    };
    RuntimeError::new(code, format!("cannot open {name}: {error}")).with_remedy(remedy)
}

pub(super) fn unreadable(name: &str, error: &io::Error) -> RuntimeError {
    RuntimeError::new(SysExit::NoInput, format!("cannot read {name}: {error}"))
}
