//! JSON lines → reports.

use std::io::{self, BufRead};

use serde::Deserialize;

use super::{At, Report, Text, lists};

/// Longest line that is parsed, bytes: a pod of a hundred containers fits.
pub const MAX_LINE: usize = 1 << 20;

/// What was not a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Not a JSON object, or a field of another type than docs/json.md describes.
    pub damaged: u64,
    /// Longer than [`MAX_LINE`].
    pub too_long: u64,
}

/// One object of the input.
pub enum Line {
    Report(Box<Report>),
    /// Of another type. The time at which an observation began, if the object has one.
    Other(Option<At>),
}

/// Reads objects one by one. A line in which no report can be read is counted and skipped.
pub struct Lines<R> {
    input: R,
    line: Vec<u8>,
    skipped: Skipped,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Lines<R> {
        Lines {
            input,
            line: Vec::new(),
            skipped: Skipped::default(),
        }
    }

    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.line.capacity()
    }

    /// The next object with the line as the file has it, without its end. None at the end of the input.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn next_line(&mut self) -> io::Result<Option<(Line, &str)>> {
        loop {
            match read_bounded(&mut self.input, &mut self.line)? {
                Read::End => return Ok(None),
                Read::TooLong => self.skipped.too_long += 1,
                Read::Line if self.line.iter().all(u8::is_ascii_whitespace) => {}
                Read::Line => match parse(&self.line) {
                    Some(line) => {
                        let text = str::from_utf8(&self.line).expect("JSON is UTF-8: it was parsed");
                        return Ok(Some((line, text)));
                    }
                    None => self.skipped.damaged += 1,
                },
            }
        }
    }
}

/// One object of docs/json.md. None if the line is damaged: not such an object, or a field has another type than the document names.
pub fn parse(line: &[u8]) -> Option<Line> {
    // The parser does not look at the bytes of texts in fields that it skips.
    let line = str::from_utf8(line).ok()?;
    let is_report = |kind: &str| Report::TYPES.contains(&kind);
    // Almost every line is a report: parsed once.
    match lists::bounded(|| serde_json::from_str::<Report>(line)) {
        Ok((mut report, left_out)) if is_report(&report.r#type) => {
            report.left_out = left_out;
            Some(Line::Report(Box::new(with_verdict(report))))
        }
        Ok((other, _)) if !other.r#type.is_empty() => Some(Line::Other(other.since)),
        Ok(_) => None,
        // An object of another type may have other values in fields of the same name.
        Err(_) => {
            let Head { r#type } = serde_json::from_str(line).ok()?;
            (!r#type.is_empty() && !is_report(&r#type)).then_some(Line::Other(None))
        }
    }
}

/// A `node-down` is a span of time, not a judgement: a list needs a word and a sentence for it all the same.
fn with_verdict(mut report: Report) -> Report {
    if report.is_down() {
        let seconds = report.down_ms / 1e3;
        let down = match seconds {
            ..600.0 => format!("{seconds:.1} s"),
            _ => format!("{:.0} min", seconds / 60.0),
        };
        report.verdict = "down".into();
        report.severity = "info".into();
        report.sentence = format!("the node was down for {down} until its next boot").as_str().into();
    }
    report
}

#[derive(Deserialize)]
struct Head {
    r#type: Text,
}

enum Read {
    Line,
    TooLong,
    End,
}

/// Into `line`, without the end of the line. A line that is too long is read to its end and not kept.
fn read_bounded(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Read> {
    line.clear();
    let (mut any, mut too_long) = (false, false);
    loop {
        let chunk = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if chunk.is_empty() && !any {
            return Ok(Read::End);
        }
        any = true;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        too_long |= line.len() + part.len() > MAX_LINE;
        if !too_long {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        let ended = end.is_some() || chunk.is_empty();
        input.consume(used);
        if ended {
            return Ok(if too_long { Read::TooLong } else { Read::Line });
        }
    }
}
