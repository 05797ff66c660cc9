//! An answer's bytes, as they arrive → single objects. Memory is bounded by the largest object, not by the answer: the API server
//! sends a list from its watch cache in one piece, regardless of the requested limit. Pure.

use serde::Deserialize;

/// Longest JSON of one object or watch event. etcd takes at most 1.5 MiB.
pub(super) const MAX_OBJECT: usize = 8 << 20;

/// Longest JSON of a list without its items.
const MAX_ENVELOPE: usize = 1 << 20;

/// Longest name of a field that is compared.
const MAX_FIELD: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("an object is longer than {MAX_OBJECT} bytes")]
    TooLong,
    #[error("the list has more than {MAX_ENVELOPE} bytes outside its items")]
    Envelope,
    #[error("the list is incomplete or is not JSON: {0}")]
    Json(String),
}

/// The lines of a watch.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
}

impl Lines {
    /// Passes each complete line to `take`.
    pub fn feed(&mut self, mut chunk: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), DecodeError> {
        while let Some(end) = chunk.iter().position(|byte| *byte == b'\n') {
            append(&mut self.line, &chunk[..end])?;
            if !self.line.trim_ascii().is_empty() {
                take(&self.line);
            }
            self.line.clear();
            chunk = &chunk[end + 1..];
        }
        append(&mut self.line, chunk)
    }
}

fn append(to: &mut Vec<u8>, bytes: &[u8]) -> Result<(), DecodeError> {
    if to.len() + bytes.len() > MAX_OBJECT {
        return Err(DecodeError::TooLong);
    }
    to.extend_from_slice(bytes);
    Ok(())
}

/// A list without its items.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Envelope {
    #[serde(default)]
    pub metadata: ListMetadata,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMetadata {
    pub resource_version: Option<String>,
    #[serde(rename = "continue")]
    pub continue_token: Option<String>,
}

/// One list, split into its items during its arrival.
#[derive(Debug, Default)]
pub(super) struct ListSplitter {
    /// All bytes outside the array `items`.
    envelope: Vec<u8>,
    item: Vec<u8>,
    /// Open braces and brackets.
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The last string at depth 1: a field's name if a colon follows.
    text: Vec<u8>,
    /// The next value belongs to the list's field `items`.
    is_items: bool,
    /// Within the array `items`.
    in_items: bool,
}

impl ListSplitter {
    /// Passes each complete item to `take`.
    pub fn feed(&mut self, chunk: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), DecodeError> {
        for &byte in chunk {
            let is_item = self.in_items;
            if self.in_string {
                self.string(byte);
            } else {
                self.structure(byte, &mut take);
            }
            match (is_item, self.in_items) {
                (true, true) => self.keep(byte)?,
                _ if self.envelope.len() >= MAX_ENVELOPE => return Err(DecodeError::Envelope),
                _ => self.envelope.push(byte),
            }
        }
        Ok(())
    }

    /// At the answer's end.
    pub fn finish(self) -> Result<Envelope, DecodeError> {
        serde_json::from_slice(&self.envelope).map_err(|error| DecodeError::Json(error.to_string()))
    }

    fn string(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => {
                self.in_string = false;
                return;
            }
            _ => {}
        }
        if self.depth == 1 && self.text.len() <= MAX_FIELD {
            self.text.push(byte);
        }
    }

    fn structure(&mut self, byte: u8, take: &mut impl FnMut(&[u8])) {
        let between_items = self.in_items && self.depth == 2;
        match byte {
            b'"' => {
                self.in_string = true;
                self.text.clear();
            }
            b':' if self.depth == 1 => self.is_items = self.text == b"items",
            b',' if self.depth == 1 => self.is_items = false,
            b',' if between_items => self.flush(take),
            b'{' | b'[' => {
                self.in_items |= byte == b'[' && self.depth == 1 && self.is_items;
                self.depth += 1;
            }
            b']' if between_items => {
                self.flush(take);
                self.in_items = false;
                self.depth -= 1;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn keep(&mut self, byte: u8) -> Result<(), DecodeError> {
        let is_separator = self.item.is_empty() && (byte == b',' || byte.is_ascii_whitespace());
        if !is_separator {
            if self.item.len() >= MAX_OBJECT {
                return Err(DecodeError::TooLong);
            }
            self.item.push(byte);
        }
        Ok(())
    }

    fn flush(&mut self, take: &mut impl FnMut(&[u8])) {
        if !self.item.is_empty() {
            take(&self.item);
            self.item.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Items and envelope of a list that arrives in chunks of `size` bytes.
    fn split(text: &str, size: usize) -> Result<(Vec<Value>, Envelope), DecodeError> {
        let mut splitter = ListSplitter::default();
        let mut items = Vec::new();
        for chunk in text.as_bytes().chunks(size) {
            splitter.feed(chunk, |item| items.push(serde_json::from_slice(item).expect("an item")))?;
        }
        Ok((items, splitter.finish()?))
    }

    fn envelope(version: Option<&str>, token: Option<&str>) -> Envelope {
        Envelope {
            metadata: ListMetadata {
                resource_version: version.map(str::to_owned),
                continue_token: token.map(str::to_owned),
            },
        }
    }

    #[test]
    fn a_list_is_split_for_any_chunks() {
        let text = r#"{"kind":"PodList", "items" : [ {"a":"]},{\"","items":[1,2]} , {"b":[{}]} ],"metadata":{"resourceVersion":"7","continue":"t","items":["no"]}}"#;
        for size in 1..=text.len() {
            let (items, rest) = split(text, size).unwrap();
            assert_eq!(items, [json!({"a": "]},{\"", "items": [1, 2]}), json!({"b": [{}]})], "{size}");
            assert_eq!(rest, envelope(Some("7"), Some("t")), "{size}");
        }
    }

    #[test]
    fn a_list_without_items_or_version_is_read_and_an_incomplete_list_is_not() {
        for text in [r#"{"metadata":{},"items":[]}"#, r#"{"items":null}"#, "{}"] {
            assert_eq!(split(text, 3).unwrap(), (Vec::new(), envelope(None, None)), "{text}");
        }
        for text in [
            "",
            r#"{"items":[{}"#,
            r#"{"items":[{}],"metadata":{"resourceVersion":"#,
            "<html>",
        ] {
            assert!(matches!(split(text, 5), Err(DecodeError::Json(_))), "{text}");
        }
    }

    #[test]
    fn too_long_input_is_refused() {
        let long = "x".repeat(MAX_OBJECT);
        assert_eq!(split(&format!(r#"{{"items":["{long}"]}}"#), 4096), Err(DecodeError::TooLong));
        assert_eq!(split(&format!(r#"{{"other":"{long}"}}"#), 4096), Err(DecodeError::Envelope));
        let mut lines = Lines::default();
        assert_eq!(lines.feed(b"{}\n", |_| {}), Ok(()));
        assert_eq!(lines.feed(&[b'x'; MAX_OBJECT + 1], |_| {}), Err(DecodeError::TooLong));
    }

    #[test]
    fn lines_are_put_together() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for chunk in ["{\"a", "\":1}\n\n{}", "\n{\"half"] {
            lines
                .feed(chunk.as_bytes(), |line| seen.push(String::from_utf8_lossy(line).into_owned()))
                .unwrap();
        }
        assert_eq!(seen, ["{\"a\":1}", "{}"]);
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i32>().prop_map(Value::from),
            r#"[a-z"\\\[\]{},: é]{0,8}"#.prop_map(Value::from),
            Just(Value::Null)
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::hash_map("items|metadata|[a-z\"]{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_items_come_out_as_they_went_in(items in proptest::collection::vec(json_value(), 0..5), size in 1usize..40, indent: bool) {
            let list = json!({"kind": "List", "metadata": {"resourceVersion": "9"}, "items": items});
            let text = if indent { serde_json::to_string_pretty(&list) } else { serde_json::to_string(&list) }.unwrap();
            let (split, rest) = split(&text, size).unwrap();
            prop_assert_eq!(split, items);
            prop_assert_eq!(rest, envelope(Some("9"), None));
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, size in 1usize..9) {
            let mut splitter = ListSplitter::default();
            let mut lines = Lines::default();
            for chunk in bytes.chunks(size) {
                let _ = splitter.feed(chunk, |_| {});
                let _ = lines.feed(chunk, |_| {});
            }
            let _ = splitter.finish();
        }
    }
}
