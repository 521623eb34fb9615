//! What is wrong with a configuration file, and where.

use std::{fmt, ops::Range, path::Path};

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource};

/// One thing wrong, at one place, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Whether the configuration can be used nevertheless.
    pub severity: Severity,
    /// Bytes of the file it is about.
    pub span: Range<usize>,
    /// One sentence.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// Whether a configuration with this fault can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// It can, but does not do all that it says.
    Warning,
    /// It cannot.
    Error,
}

impl Fault {
    /// A fault that makes the file unusable.
    #[must_use]
    pub fn error(span: Range<usize>, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            span,
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// Something the reader of the file should know.
    #[must_use]
    pub fn warning(
        span: Range<usize>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(span, message, hint)
        }
    }
}

impl Diagnostic for Fault {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.severity {
            Severity::Warning => miette::Severity::Warning,
            Severity::Error => miette::Severity::Error,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        (!self.hint.is_empty()).then(|| Box::new(&self.hint) as Box<dyn fmt::Display>)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = LabeledSpan::new_with_span(None, self.span.clone());
        Some(Box::new(std::iter::once(label)))
    }
}

/// The faults of one file, in file order.
#[derive(Debug, Clone)]
pub struct Faults {
    /// The file's name, as given.
    pub file: String,
    /// What it holds.
    pub text: String,
    /// What is wrong with it.
    pub faults: Vec<Fault>,
}

/// A fault's place, for machines. Serialised into JSON errors.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Place<'a> {
    /// The file's name, as given.
    pub file: &'a str,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// One sentence.
    pub message: &'a str,
    /// What to do.
    pub hint: &'a str,
    /// Whether the configuration cannot be used.
    pub fatal: bool,
}

impl Faults {
    /// Sorts `faults` into file order and tells each once.
    #[must_use]
    pub fn new(file: &Path, text: &str, mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(|f| (f.span.start, f.span.end));
        faults.dedup();
        Self {
            file: file.display().to_string(),
            text: text.to_owned(),
            faults,
        }
    }

    /// Whether any of them makes the file unusable.
    #[must_use]
    pub fn fatal(&self) -> bool {
        self.faults.iter().any(|f| f.severity == Severity::Error)
    }

    /// Each with its place.
    pub fn places(&self) -> impl Iterator<Item = Place<'_>> {
        self.faults.iter().map(|fault| {
            let (line, column) = position(&self.text, fault.span.start);
            Place {
                file: &self.file,
                line,
                column,
                message: &fault.message,
                hint: &fault.hint,
                fatal: fault.severity == Severity::Error,
            }
        })
    }

    /// For people: each with its snippet. `color` adds terminal colours.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let theme = if color {
            GraphicalTheme::unicode()
        } else {
            GraphicalTheme::unicode_nocolor()
        };
        let handler = GraphicalReportHandler::new_themed(theme).with_links(false);
        let mut out = String::new();
        for fault in &self.faults {
            let source = NamedSource::new(&self.file, self.text.clone());
            let report = miette::Report::new(fault.clone()).with_source_code(source);
            // Writing to a String cannot fail; a fault that cannot be drawn is still told.
            if handler.render_report(&mut out, report.as_ref()).is_err() {
                out.push_str(&fault.message);
            }
            out.push('\n');
        }
        out
    }
}

/// Line and column of a byte offset, from 1; the column counts characters.
#[must_use]
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_counts_lines_and_characters_from_one() {
        let text = "a\nbé = 1\n";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, 2), (2, 1));
        assert_eq!(
            position(text, text.find('=').expect("an equals sign")),
            (2, 4)
        );
        assert_eq!(position(text, 9_999), (3, 1));
    }

    #[test]
    fn rendering_shows_place_snippet_and_hint() {
        let fault = Fault::error(2..4, "`bé` is unknown", "remove it");
        let faults = Faults::new(Path::new("k.toml"), "a\nbé = 1\n", vec![fault]);
        let text = faults.render(false);
        for part in ["k.toml:2:1", "bé = 1", "`bé` is unknown", "remove it"] {
            assert!(text.contains(part), "{part} missing in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "no colour was asked for");
    }
}
