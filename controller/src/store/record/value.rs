//! Values of records.

use std::time::Duration;

use keepline_engine::time::Wall;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Bytes from the network, as a string of one character each: readable, and exact for any byte.
#[derive(Debug, Clone)]
pub(super) struct Text(Vec<u8>);

impl From<&Vec<u8>> for Text {
    fn from(bytes: &Vec<u8>) -> Self {
        Self(bytes.clone())
    }
}

impl From<Text> for Vec<u8> {
    fn from(text: Text) -> Self {
        text.0
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        // Nearly always: what is ASCII is the same string.
        if let Some(text) = std::str::from_utf8(&self.0)
            .ok()
            .filter(|text| text.is_ascii())
        {
            return out.serialize_str(text);
        }
        let text: String = self.0.iter().map(|byte| char::from(*byte)).collect();
        out.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let bytes: Option<Vec<u8>> = text.chars().map(|char| u8::try_from(char).ok()).collect();
        bytes
            .map(Self)
            .ok_or_else(|| D::Error::custom("a character that is no byte"))
    }
}

/// A list of byte strings.
pub(super) fn texts(list: &[Vec<u8>]) -> Vec<Text> {
    list.iter().map(Text::from).collect()
}

/// Back from [`texts`].
pub(super) fn bytes(list: Vec<Text>) -> Vec<Vec<u8>> {
    list.into_iter().map(Vec::from).collect()
}

/// Microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct At(u64);

impl From<Wall> for At {
    fn from(at: Wall) -> Self {
        Self(u64::try_from(at.0.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<At> for Wall {
    fn from(at: At) -> Self {
        Self(Duration::from_micros(at.0))
    }
}
