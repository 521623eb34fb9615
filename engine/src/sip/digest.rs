//! Digest authentication (RFC 7616, RFC 8760) on raw strings: nothing is re-serialised.
