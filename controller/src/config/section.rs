//! A table of the file, read key by key.

use std::{
    fmt::Display,
    ops::{Range, RangeInclusive},
};

use toml::de::DeTable;

use super::{
    fault::{Fault, position},
    report::{Entry, Report},
    value::{At, Node, Value, wrong_type},
};

/// A table being read. Every key is asked for once; [`Section::finish`] then names those that
/// nobody asked for. A key with a fault reads as its default, so that reading goes on and
/// every fault is found: the faults, not the values, decide whether the file is used.
#[must_use = "finish() reports unknown keys"]
pub(super) struct Section<'d> {
    file: &'d File<'d>,
    /// `None` when the file does not have this table: all its keys are defaults.
    table: Option<&'d DeTable<'d>>,
    span: Range<usize>,
    /// Dotted, without brackets: `softswitch.backoff`.
    name: String,
    /// Where its values are noted; taken at the first one, so that tables come in file order.
    shown: Option<usize>,
    header: String,
    asked: Vec<&'static str>,
}

/// What all sections of one file share.
pub(super) struct File<'d> {
    pub(super) text: &'d str,
    pub(super) report: Report,
}

impl<'d> Section<'d> {
    /// The top level of the file.
    pub(super) fn root(file: &'d File<'d>, table: &'d DeTable<'d>) -> Self {
        Self {
            file,
            table: Some(table),
            span: 0..0,
            name: String::new(),
            shown: None,
            header: String::new(),
            asked: Vec::new(),
        }
    }

    /// A table below this one; absent, it reads as empty.
    pub(super) fn table(&mut self, key: &'static str) -> Self {
        let node = self.node(key);
        self.child(key, node, "[", "]")
    }

    /// A table that changes something by being there at all.
    pub(super) fn optional_table(&mut self, key: &'static str) -> Option<Self> {
        let node = self.node(key)?;
        Some(self.child(key, Some(node), "[", "]"))
    }

    /// The tables of an array of tables (`[[key]]`, or inline).
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<Self> {
        let Some(node) = self.node(key) else {
            return Vec::new();
        };
        let Some(array) = node.get_ref().as_array() else {
            self.fault(wrong_type(node, &format!("it as [[{}]]", self.full(key))));
            return Vec::new();
        };
        array
            .iter()
            .map(|item| self.child(key, Some(item), "[[", "]]"))
            .collect()
    }

    /// A key's value, or `default`.
    pub(super) fn get<T: Value>(&mut self, key: &'static str, default: T) -> T {
        self.read(key, Some(default))
            .unwrap_or_else(|| unreachable!("a default was given"))
    }

    /// A key's value with its place, or `default` at the place of the table.
    pub(super) fn get_at<T: Value>(&mut self, key: &'static str, default: T) -> At<T> {
        let default = At {
            span: self.span.clone(),
            value: default,
        };
        self.get(key, default)
    }

    /// A key's value within limits, or `default`.
    pub(super) fn ranged<T>(&mut self, key: &'static str, default: T, range: RangeInclusive<T>) -> T
    where
        T: Value + PartialOrd + Clone,
    {
        let found = self.get_at(key, default.clone());
        if range.contains(&found.value) {
            return found.value;
        }
        self.fault(Fault::error(
            found.span,
            format!("`{key}` = {} is out of range", found.value.show()),
            format!(
                "write a value from {} to {}",
                range.start().show(),
                range.end().show()
            ),
        ));
        default
    }

    /// A key that need not be there and has no default.
    pub(super) fn optional<T: Value>(&mut self, key: &'static str) -> Option<T> {
        self.read(key, None)
    }

    /// A key that must be there; `None` has been reported.
    pub(super) fn required<T: Value>(
        &mut self,
        key: &'static str,
        example: impl Display,
    ) -> Option<T> {
        let present = self.node(key).is_some();
        if !present {
            self.fault(Fault::error(
                self.span.clone(),
                format!("{} has no `{key}`", self.title()),
                format!("add `{key} = {example}`"),
            ));
        }
        self.read(key, None)
    }

    /// A key that this version knows of, but cannot serve.
    pub(super) fn not_yet(&mut self, key: &'static str, instead: &str) {
        if let Some(node) = self.node(key) {
            let message = format!("`{}` is not supported in this version", self.full(key));
            self.fault(Fault::error(node.span(), message, instead));
        }
    }

    /// A key that is read, but that nothing obeys yet.
    pub(super) fn not_enforced(&mut self, key: &'static str) {
        if let Some(node) = self.node(key) {
            let message = format!("`{}` is not enforced in this version", self.full(key));
            let hint = "it may stay: a later version will obey it";
            self.fault(Fault::warning(node.span(), message, hint));
        }
    }

    pub(super) fn fault(&self, fault: Fault) {
        self.file.report.fault(fault);
    }

    /// Where the table begins.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Names the keys that nobody asked for.
    pub(super) fn finish(self) {
        for key in self.table.into_iter().flat_map(|table| table.keys()) {
            if !self.asked.contains(&key.get_ref().as_ref()) {
                self.fault(self.unknown(key.get_ref(), key.span()));
            }
        }
    }

    /// The number its values are noted under.
    fn noted(&mut self) -> usize {
        *self
            .shown
            .get_or_insert_with(|| self.file.report.table(self.header.clone()))
    }

    fn child(
        &self,
        key: &'static str,
        node: Option<&'d Node<'d>>,
        open: &str,
        close: &str,
    ) -> Self {
        let table = node.and_then(|node| node.get_ref().as_table());
        if let (Some(node), None) = (node, table) {
            self.fault(wrong_type(node, "a table"));
        }
        let name = self.full(key);
        Self {
            file: self.file,
            table,
            span: node.map_or(0..0, |node| first_line(self.file.text, node.span())),
            shown: None,
            header: format!("{open}{name}{close}"),
            name,
            asked: Vec::new(),
        }
    }

    fn node(&mut self, key: &'static str) -> Option<&'d Node<'d>> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        self.table.and_then(|table| table.get(key))
    }

    fn read<T: Value>(&mut self, key: &'static str, default: Option<T>) -> Option<T> {
        let node = self.node(key);
        let mut faults = Vec::new();
        let found = node.and_then(|node| T::read(node, &mut faults));
        faults.into_iter().for_each(|fault| self.fault(fault));
        let line = node.map(|node| position(self.file.text, node.span().start).0);
        let value = found.or(default)?;
        let entry = Entry {
            key: key.to_owned(),
            value: value.show(),
            line,
        };
        let table = self.noted();
        self.file.report.entry(table, entry);
        Some(value)
    }

    fn full(&self, key: &str) -> String {
        if self.name.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.name)
        }
    }

    fn title(&self) -> String {
        if self.name.is_empty() {
            "the file".to_owned()
        } else {
            format!("[{}]", self.name)
        }
    }

    fn unknown(&self, key: &str, span: Range<usize>) -> Fault {
        let closest = self
            .asked
            .iter()
            .map(|known| (strsim::jaro_winkler(known, key), known))
            .filter(|(likeness, _)| *likeness > 0.8)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let hint = match closest {
            Some((_, known)) => format!("did you mean `{known}`?"),
            None => format!("known here: {}", self.asked.join(", ")),
        };
        Fault::error(
            span,
            format!("unknown key `{key}` in {}", self.title()),
            hint,
        )
    }
}

/// The first line of a place: a table's own span may run over many.
fn first_line(text: &str, span: Range<usize>) -> Range<usize> {
    let whole = text.get(span.clone()).unwrap_or_default();
    span.start..span.start + whole.find('\n').unwrap_or(whole.len())
}
