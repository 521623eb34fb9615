//! The message: bytes, an index over them, and readers of values.

use super::{
    Method, Name, NameAddr, Refusal, Span, Via, scan,
    value::{number, param, seconds, split},
};

/// One header line, folds included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Which header.
    pub name: Name,
    /// The name as written.
    pub name_span: Span,
    /// The value, without white space at either end; inner folds are part of it.
    pub value: Span,
    /// Name, colon, value, folds and line end.
    pub full: Span,
    /// Whether the value runs over several lines.
    pub folded: bool,
}

/// A CSeq value, read in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CSeq {
    /// The sequence number.
    pub number: u32,
    /// Where it stands.
    pub number_span: Span,
    /// The method.
    pub method: Method,
    /// Where it stands.
    pub method_span: Span,
}

/// The first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Request {
        method: Span,
        uri: Span,
        version: Span,
    },
    Status {
        version: Span,
        code: u16,
        reason: Span,
    },
}

/// A SIP message as it arrived, and where everything in it stands.
///
/// Whoever holds one may rely on this: Via (of a request every one, of a response the
/// topmost), From, To, Call-ID and CSeq are there and readable;
/// From, To, Call-ID and CSeq stand once; CSeq names the request's method; the body is as long
/// as Content-Length says. [`bytes`](Self::bytes) is exactly the message, without line ends in
/// front and bytes behind.
#[derive(Clone)]
pub struct Message {
    bytes: Vec<u8>,
    start: Start,
    start_line: Span,
    lines: Vec<Line>,
    /// The line end that ends the header.
    blank: Span,
}

impl Message {
    /// Reads a datagram (RFC 3261 section 18.3).
    ///
    /// Line ends in front are skipped, bare LF is accepted, bytes behind Content-Length are
    /// ignored.
    ///
    /// # Errors
    /// What is wrong, with the answer a request is due.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, Refusal> {
        scan::scan(bytes)
    }

    /// The whole message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives the bytes back.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes of a span of this message.
    #[must_use]
    pub fn slice(&self, span: Span) -> &[u8] {
        span.of(&self.bytes)
    }

    /// Request or response.
    #[must_use]
    pub fn is_request(&self) -> bool {
        matches!(self.start, Start::Request { .. })
    }

    /// The method of the request line; `None` for a response.
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        match self.start {
            Start::Request { method, .. } => Some(Method::of(self.slice(method))),
            Start::Status { .. } => None,
        }
    }

    /// The method of the request line as written; empty for a response.
    #[must_use]
    pub fn method_bytes(&self) -> &[u8] {
        match self.start {
            Start::Request { method, .. } => self.slice(method),
            Start::Status { .. } => &[],
        }
    }

    /// The Request-URI; `None` for a response.
    #[must_use]
    pub fn uri(&self) -> Option<Span> {
        match self.start {
            Start::Request { uri, .. } => Some(uri),
            Start::Status { .. } => None,
        }
    }

    /// The status code; `None` for a request.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self.start {
            Start::Request { .. } => None,
            Start::Status { code, .. } => Some(code),
        }
    }

    /// The reason phrase; `None` for a request.
    #[must_use]
    pub fn reason(&self) -> Option<Span> {
        match self.start {
            Start::Request { .. } => None,
            Start::Status { reason, .. } => Some(reason),
        }
    }

    /// The request line or status line, with its line end.
    #[must_use]
    pub fn start_line(&self) -> Span {
        self.start_line
    }

    /// The line end that separates header and body.
    #[must_use]
    pub fn blank_line(&self) -> Span {
        self.blank
    }

    /// Every header line, in order.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The value of the first line of that name.
    #[must_use]
    pub fn header(&self, name: Name) -> Option<Span> {
        self.lines
            .iter()
            .find(|line| line.name == name)
            .map(|line| line.value)
    }

    /// The value of the first line of any name, compared without case. Compact forms are not
    /// equated: use [`header`](Self::header) for the names it knows.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Span> {
        let same = |line: &&Line| {
            self.slice(line.name_span)
                .eq_ignore_ascii_case(name.as_bytes())
        };
        self.lines.iter().find(same).map(|line| line.value)
    }

    /// How many lines have that name.
    #[must_use]
    pub fn count(&self, name: Name) -> usize {
        self.lines.iter().filter(|line| line.name == name).count()
    }

    /// Every value of a header that is a list, over all its lines, commas split outside quotes
    /// and `<>`. Not for challenges, credentials and dates, whose commas are their own.
    pub fn values(&self, name: Name) -> impl Iterator<Item = Span> + '_ {
        self.lines
            .iter()
            .filter(move |line| line.name == name)
            .flat_map(|line| split(&self.bytes, line.value))
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.slice(self.body_span())
    }

    /// Where the body stands.
    #[must_use]
    pub fn body_span(&self) -> Span {
        Span::new(self.blank.end as usize..self.bytes.len())
    }

    /// Every readable Via, topmost first.
    pub fn vias(&self) -> impl Iterator<Item = Via> + '_ {
        self.values(Name::Via)
            .filter_map(|value| Via::read(&self.bytes, value))
    }

    /// The topmost Via; `None` when *it* cannot be read.
    #[must_use]
    pub fn top_via(&self) -> Option<Via> {
        self.read_via(self.values(Name::Via).next()?)
    }

    /// Reads one value that [`values`](Self::values) gave for [`Name::Via`].
    #[must_use]
    pub fn read_via(&self, value: Span) -> Option<Via> {
        Via::read(&self.bytes, value)
    }

    /// From.
    #[must_use]
    pub fn from(&self) -> Option<NameAddr> {
        self.read_addr(self.header(Name::From)?)
    }

    /// To.
    #[must_use]
    pub fn to(&self) -> Option<NameAddr> {
        self.read_addr(self.header(Name::To)?)
    }

    /// Reads an address from a span of this message.
    #[must_use]
    pub fn read_addr(&self, value: Span) -> Option<NameAddr> {
        NameAddr::read(&self.bytes, value)
    }

    /// Every readable Contact; `Contact: *` is one whose URI is `*`.
    pub fn contacts(&self) -> impl Iterator<Item = NameAddr> + '_ {
        self.addrs(Name::Contact)
    }

    /// Every readable address of a header: Route, Record-Route, Path, P-Asserted-Identity, ...
    pub fn addrs(&self, name: Name) -> impl Iterator<Item = NameAddr> + '_ {
        self.values(name)
            .filter_map(|value| NameAddr::read(&self.bytes, value))
    }

    /// The From tag.
    #[must_use]
    pub fn from_tag(&self) -> Option<&[u8]> {
        self.from()?.tag(&self.bytes)
    }

    /// The To tag.
    #[must_use]
    pub fn to_tag(&self) -> Option<&[u8]> {
        self.to()?.tag(&self.bytes)
    }

    /// The Call-ID.
    #[must_use]
    pub fn call_id(&self) -> Option<&[u8]> {
        let value = self.slice(self.header(Name::CallId)?);
        (!value.is_empty()).then_some(value)
    }

    /// CSeq; `None` when it is not a number of 32 bits and a method.
    #[must_use]
    pub fn cseq(&self) -> Option<CSeq> {
        let value = self.header(Name::CSeq)?;
        let text = self.slice(value);
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let start = value.start as usize;
        let number_span = Span::new(start..start + digits);
        let rest = Span::new(start + digits..value.end as usize);
        let method_span = rest.trim(&self.bytes);
        let separated = method_span.start > rest.start && !method_span.is_empty();
        let token = !self.slice(method_span).iter().any(u8::is_ascii_whitespace);
        (separated && token).then_some(())?;
        Some(CSeq {
            number: number(self.slice(number_span))?,
            number_span,
            method: Method::of(self.slice(method_span)),
            method_span,
        })
    }

    /// Max-Forwards; `None` when missing or above 255 (RFC 3261 section 20.22).
    #[must_use]
    pub fn max_forwards(&self) -> Option<u32> {
        number::<u8>(self.slice(self.header(Name::MaxForwards)?)).map(u32::from)
    }

    /// Expires in seconds; what exceeds 32 bits is the largest there is (RFC 3261 section
    /// 20.19).
    #[must_use]
    pub fn expires(&self) -> Option<u32> {
        seconds(self.slice(self.header(Name::Expires)?))
    }

    /// The top Via's branch.
    #[must_use]
    pub fn branch(&self) -> Option<&[u8]> {
        self.top_via()?.branch(&self.bytes)
    }

    /// The value of a parameter in a span that begins with `;`.
    #[must_use]
    pub fn param(&self, span: Span, name: &str) -> Option<&[u8]> {
        param(&self.bytes, span, name)?
            .value
            .map(|value| self.slice(value))
    }

    /// Puts the index together; the header ends at `blank`, the start of the blank line.
    pub(super) fn assemble(
        bytes: Vec<u8>,
        start: Start,
        start_line: Span,
        lines: Vec<Line>,
        blank: usize,
    ) -> Self {
        let rest = &bytes[blank..];
        let length = if rest.starts_with(b"\r\n") {
            2
        } else {
            rest.len().min(1)
        };
        Self {
            blank: Span::new(blank..blank + length),
            bytes,
            start,
            start_line,
            lines,
        }
    }

    /// Forgets what lies behind the first `length` bytes of the body.
    pub(super) fn truncate_body(&mut self, length: usize) {
        self.bytes.truncate(self.blank.end as usize + length);
    }

    /// Forgets the body: of a message that is kept only to refuse it.
    pub(super) fn drop_body(&mut self) {
        self.truncate_body(0);
        self.bytes.shrink_to_fit();
    }
}

/// The text of the header, for people; the body by its length.
impl std::fmt::Debug for Message {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let header = &self.bytes[..self.blank.start as usize];
        write!(
            out,
            "{}[{} bytes]",
            header.escape_ascii(),
            self.body().len()
        )
    }
}
