//! TOML values into Rust ones; each kind of mistake with its own sentence.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
    path::PathBuf,
};

use ipnet::IpNet;
use toml::{
    Spanned,
    de::{DeArray, DeValue},
};

use super::fault::Fault;

/// A value as it stands in the file.
pub(super) type Node<'d> = Spanned<DeValue<'d>>;

/// A type that a key of the configuration may have.
pub(super) trait Value: Sized {
    /// Reads it. On `None` at least one fault has been added.
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self>;

    /// Writes it as TOML, the way [`Value::read`] accepts it.
    fn show(&self) -> String;
}

/// Reads a string through `parse`, which answers with a message and a hint.
pub(super) fn read_text<T>(
    node: &Node<'_>,
    faults: &mut Vec<Fault>,
    expected: &str,
    parse: impl FnOnce(&str) -> Result<T, (String, String)>,
) -> Option<T> {
    let Some(text) = node.get_ref().as_str() else {
        faults.push(wrong_type(node, expected));
        return None;
    };
    match parse(text) {
        Ok(value) => Some(value),
        Err((message, hint)) => {
            faults.push(Fault::error(node.span(), message, hint));
            None
        }
    }
}

/// "expected X, found Y".
pub(super) fn wrong_type(node: &Node<'_>, expected: &str) -> Fault {
    let found = match node.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    };
    Fault::error(
        node.span(),
        format!("found {found}"),
        format!("write {expected}"),
    )
}

/// A TOML basic string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

impl Value for bool {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        let value = node.get_ref().as_bool();
        if value.is_none() {
            faults.push(wrong_type(node, "true or false"));
        }
        value
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        read_text(node, faults, "a string in quotes", |text| {
            if text.is_empty() {
                return Err((
                    "empty string".to_owned(),
                    "remove the key, or fill it in".to_owned(),
                ));
            }
            Ok(text.to_owned())
        })
    }

    fn show(&self) -> String {
        quoted(self)
    }
}

impl Value for PathBuf {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        read_text(node, faults, "a path in quotes", |text| {
            if text.starts_with('/') {
                Ok(Self::from(text))
            } else {
                Err((
                    format!("`{text}` is not an absolute path"),
                    "begin it with `/`: the daemon's working directory is not yours".to_owned(),
                ))
            }
        })
    }

    fn show(&self) -> String {
        quoted(&self.display().to_string())
    }
}

impl Value for IpNet {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        read_text(
            node,
            faults,
            "a network in quotes: \"192.0.2.0/24\"",
            |text| {
                let single = || text.parse::<IpAddr>().ok().map(Self::from);
                text.parse().ok().or_else(single).ok_or_else(|| {
                    (
                        format!("`{text}` is not a network"),
                        "write ADDRESS/PREFIX, such as `192.0.2.0/24`, or one address".to_owned(),
                    )
                })
            },
        )
    }

    fn show(&self) -> String {
        quoted(&self.to_string())
    }
}

impl Value for Ipv4Addr {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        read_text(node, faults, "an IPv4 address in quotes", |text| {
            text.parse().map_err(|_| {
                (
                    format!("`{text}` is not an IPv4 address"),
                    "write four numbers, such as `203.0.113.1`".to_owned(),
                )
            })
        })
    }

    fn show(&self) -> String {
        quoted(&self.to_string())
    }
}

impl Value for SocketAddr {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        read_text(node, faults, "ADDRESS:PORT in quotes", |text| {
            text.parse().map_err(|_| {
                (
                    format!("`{text}` is not an address and a port"),
                    "write ADDRESS:PORT, such as `127.0.0.1:9060` or `[::1]:9060`".to_owned(),
                )
            })
        })
    }

    fn show(&self) -> String {
        quoted(&self.to_string())
    }
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
                let Some(integer) = node.get_ref().as_integer() else {
                    faults.push(wrong_type(node, "a whole number without quotes"));
                    return None;
                };
                let value = Self::from_str_radix(integer.as_str(), integer.radix()).ok();
                if value.is_none() {
                    faults.push(Fault::error(
                        node.span(),
                        format!("{integer} is out of range"),
                        format!("write a number from {} to {}", Self::MIN, Self::MAX),
                    ));
                }
                value
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
integer!(u8, u16, u32);

impl<T: Value> Value for Vec<T> {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        let Some(array) = node.get_ref().as_array() else {
            faults.push(wrong_type(node, "a list in square brackets"));
            return None;
        };
        read_all(array, faults)
    }

    fn show(&self) -> String {
        let items: Vec<String> = self.iter().map(Value::show).collect();
        format!("[{}]", items.join(", "))
    }
}

/// Reads every element, so that each wrong one is told.
fn read_all<T: Value>(array: &DeArray<'_>, faults: &mut Vec<Fault>) -> Option<Vec<T>> {
    let items: Vec<Option<T>> = array.iter().map(|item| T::read(item, faults)).collect();
    items.into_iter().collect()
}

/// A value that remembers its place, for checks across keys.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub(super) span: Range<usize>,
    pub(super) value: T,
}

impl<T: Value> Value for At<T> {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        T::read(node, faults).map(|value| Self {
            span: node.span(),
            value,
        })
    }

    fn show(&self) -> String {
        self.value.show()
    }
}
