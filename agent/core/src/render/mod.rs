//! What of rendering is pure: ids, JSON, text.

pub mod id;
pub mod json;
pub mod resource;
pub mod text;
