//! Patches: what must change is replaced, everything else is copied.

use std::collections::BTreeMap;

use super::{Line, Message, Name, Span, value::split};

/// A set of changes to a message, applied at once by [`finish`](Self::finish). With no change
/// recorded the bytes come out as they went in.
///
/// Spans are those of the original message, whatever was recorded before. When two changes
/// overlap, the later one wins and the earlier one is dropped whole; a removal always wins over
/// a replacement inside what it removes. Insertions overlap nothing.
#[derive(Debug)]
pub struct Edit<'m> {
    message: &'m Message,
    patches: Vec<Patch>,
    /// Single values taken out of lists: resolved per line, when all of them are known.
    removed: Vec<(usize, Span)>,
    body: Option<Vec<u8>>,
}

/// Bytes that take the place of a span; a removal has none, an insertion has an empty span.
#[derive(Debug)]
struct Patch {
    span: Span,
    with: Vec<u8>,
}

impl<'m> Edit<'m> {
    /// No change yet.
    #[must_use]
    pub fn new(message: &'m Message) -> Self {
        Self {
            message,
            patches: Vec::new(),
            removed: Vec::new(),
            body: None,
        }
    }

    /// Puts other bytes in the place of a span; an empty span inserts.
    pub fn replace(&mut self, span: Span, with: impl AsRef<[u8]>) {
        self.patches.push(Patch {
            span,
            with: with.as_ref().to_vec(),
        });
    }

    /// Takes a whole line out, folds included.
    pub fn remove_line(&mut self, line: &Line) {
        self.replace(line.full, b"");
    }

    /// Takes every line of that name out.
    pub fn remove_all(&mut self, name: Name) {
        let message = self.message;
        for line in message.lines().iter().filter(|line| line.name == name) {
            self.remove_line(line);
        }
    }

    /// Takes one value of a list out, with its comma; the whole line when none is left. The
    /// span is one that [`Message::values`] gave for that name; any other changes nothing.
    pub fn remove_value(&mut self, name: Name, value: Span) {
        let holds = |line: &Line| {
            line.name == name && line.value.start <= value.start && value.end <= line.value.end
        };
        if let Some(at) = self.message.lines().iter().position(holds) {
            self.removed.push((at, value));
        }
    }

    /// Puts a line before the first of that name, else after the start line. Of several, the
    /// last one pushed stands first. [`Name::Other`] has no name to write and changes nothing.
    pub fn push_front(&mut self, name: Name, value: impl AsRef<[u8]>) {
        let Some(long) = name.long() else { return };
        let first = self.message.lines().iter().find(|line| line.name == name);
        let at = first.map_or(self.message.start_line().end, |line| line.full.start);
        self.patches.insert(
            0,
            Patch {
                span: at_span(at),
                with: line_bytes(long, value.as_ref()),
            },
        );
    }

    /// Puts a line at the end of the header. Of several, the last one pushed stands last.
    /// [`Name::Other`] has no name to write and changes nothing.
    pub fn push_back(&mut self, name: Name, value: impl AsRef<[u8]>) {
        if let Some(long) = name.long() {
            self.push_back_named(long, value);
        }
    }

    /// Puts a line of any name at the end of the header.
    pub fn push_back_named(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let at = self.message.blank_line().start;
        self.patches.push(Patch {
            span: at_span(at),
            with: line_bytes(name, value.as_ref()),
        });
    }

    /// Puts whole lines, line ends included, directly after the start line: Via lines of
    /// another message, for example.
    pub fn push_lines(&mut self, lines: impl AsRef<[u8]>) {
        self.replace(at_span(self.message.start_line().end), lines);
    }

    /// Replaces the body and puts its length into Content-Length, whose name stays as it was
    /// written; one is added where there was none. Of several bodies the last one stands.
    pub fn set_body(&mut self, body: impl AsRef<[u8]>) {
        self.body = Some(body.as_ref().to_vec());
    }

    /// The message with all changes.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.resolve_removed();
        self.resolve_body();
        let patches = settle(self.patches);
        let bytes = self.message.bytes();
        let added: usize = patches.iter().map(|patch| patch.with.len()).sum();
        let mut out = Vec::with_capacity(bytes.len() + added);
        let mut at = 0;
        for patch in &patches {
            let span = patch.span.range();
            out.extend_from_slice(bytes.get(at..span.start).unwrap_or_default());
            out.extend_from_slice(&patch.with);
            at = span.end;
        }
        out.extend_from_slice(bytes.get(at..).unwrap_or_default());
        out
    }

    /// Turns the new body into changes, which come last and so win.
    fn resolve_body(&mut self) {
        let Some(body) = self.body.take() else { return };
        let length = body.len().to_string();
        match self.message.header(Name::ContentLength) {
            Some(value) => self.replace(value, length),
            None => self.push_back(Name::ContentLength, length),
        }
        self.replace(self.message.body_span(), body);
    }

    /// Turns values taken out of lists into removals of spans.
    fn resolve_removed(&mut self) {
        let mut removed = std::mem::take(&mut self.removed);
        removed.sort_unstable();
        for group in removed.chunk_by(|one, other| one.0 == other.0) {
            let Some(line) = group
                .first()
                .and_then(|(at, _)| self.message.lines().get(*at))
            else {
                continue;
            };
            for span in removals(self.message, line, group) {
                self.replace(span, b"");
            }
        }
    }
}

/// What must go from a line so that some of its values are gone, with one comma each. The
/// values gone are sorted.
fn removals(message: &Message, line: &Line, gone: &[(usize, Span)]) -> Vec<Span> {
    let is_gone = |value: &Span| gone.binary_search_by_key(value, |(_, span)| *span).is_ok();
    let values: Vec<Span> = split(message.bytes(), line.value).collect();
    let Some(first_kept) = values.iter().position(|value| !is_gone(value)) else {
        return vec![line.full];
    };
    // In front of the first that stays, the comma behind goes; later, the comma before.
    let pairs = values.windows(2).enumerate();
    pairs
        .filter_map(|(at, pair)| match pair {
            [value, next] if at < first_kept => Some(Span {
                start: value.start,
                end: next.start,
            }),
            [before, value] if at >= first_kept && is_gone(value) => Some(Span {
                start: before.end,
                end: value.end,
            }),
            _ => None,
        })
        .collect()
}

/// Sorted and free of overlaps. Removals add up; of other changes that overlap the one
/// recorded later stays.
fn settle(patches: Vec<Patch>) -> Vec<Patch> {
    let (removals, changes): (Vec<_>, Vec<_>) = patches.into_iter().partition(Patch::is_removal);
    // Keyed by place and by order of recording, so that insertions at one place keep theirs.
    let mut settled: BTreeMap<(Span, usize), Patch> = BTreeMap::new();
    for patch in union(removals) {
        settled.insert((patch.span, 0), patch);
    }
    for (order, patch) in changes.into_iter().enumerate().rev() {
        if !overlaps_any(&settled, patch.span) {
            settled.insert((patch.span, order), patch);
        }
    }
    settled.into_values().collect()
}

/// Merges removals that overlap.
fn union(mut removals: Vec<Patch>) -> Vec<Patch> {
    removals.sort_unstable_by_key(|patch| patch.span);
    let mut merged: Vec<Patch> = Vec::with_capacity(removals.len());
    for patch in removals {
        match merged.last_mut() {
            Some(last) if patch.span.start < last.span.end => {
                last.span.end = last.span.end.max(patch.span.end);
            }
            _ => merged.push(patch),
        }
    }
    merged
}

/// Whether a span shares a byte with one that is settled, or one would insert inside the other.
fn overlaps_any(settled: &BTreeMap<(Span, usize), Patch>, span: Span) -> bool {
    // Settled spans do not overlap, so the last that begins before our end reaches furthest.
    let before_end = (
        Span {
            start: span.end,
            end: 0,
        },
        0,
    );
    settled
        .range(..before_end)
        .next_back()
        .is_some_and(|((last, _), _)| span.start < last.end)
}

impl Patch {
    fn is_removal(&self) -> bool {
        self.with.is_empty() && !self.span.is_empty()
    }
}

fn at_span(at: u32) -> Span {
    Span { start: at, end: at }
}

fn line_bytes(name: &str, value: &[u8]) -> Vec<u8> {
    [name.as_bytes(), b": ", value, b"\r\n"].concat()
}
