//! Requests the gateway makes itself. `rsip` gives the vocabulary and prints them; what it
//! prints holds only bytes of ours, or of a message that was read by this module's parsers.

use super::Method;

/// What a request of our own is made of. Values are written as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The method; [`Method::Other`] has no name and is printed as OPTIONS never should be.
    pub method: Method,
    /// The Request-URI.
    pub uri: String,
    /// `host:port` for our Via.
    pub sent_by: String,
    /// The Via branch, magic cookie included.
    pub branch: String,
    /// The From value, tag included.
    pub from: String,
    /// The To value, with its tag inside a dialog.
    pub to: String,
    /// The Call-ID.
    pub call_id: String,
    /// The CSeq number.
    pub cseq: u32,
    /// Route values, first hop first.
    pub routes: Vec<String>,
    /// Further headers, name and value, in order.
    pub headers: Vec<(String, String)>,
}
