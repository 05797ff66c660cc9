//! The file of a recording that has not begun yet.

use std::fs::File;
use std::io;
use std::path::Path;

use super::RuntimeError;
use crate::cli::SysExit;
use crate::recording;

/// A recording that has not begun yet: removed if the start fails, so that the next attempt can use the name.
pub(super) struct NewRecording<'a> {
    path: &'a Path,
    file: Option<File>,
}

impl NewRecording<'_> {
    /// A recording is evidence: it is never overwritten.
    pub(super) fn create(path: &Path) -> Result<NewRecording<'_>, RuntimeError> {
        match recording::create(path) {
            Ok(file) => Ok(NewRecording { path, file: Some(file) }),
            Err(error) => {
                let remedy = match error.kind() {
                    io::ErrorKind::AlreadyExists => "give a name that does not exist yet",
                    _ => "give a name in a directory that exists and that you can write to",
                };
                let problem = format!("cannot create recording {}: {error}", path.display());
                Err(RuntimeError::new(SysExit::CantCreat, problem).with_remedy(remedy))
            }
        }
    }

    pub(super) fn as_file(&self) -> &File {
        self.file.as_ref().expect("only `keep` takes the file, and it ends `self`")
    }

    /// From now on the file stays.
    pub(super) fn keep(mut self) -> File {
        self.file.take().expect("only `keep` takes the file, and it ends `self`")
    }
}

impl Drop for NewRecording<'_> {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = std::fs::remove_file(self.path);
        }
    }
}
