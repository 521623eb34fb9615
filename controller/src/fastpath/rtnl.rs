//! Questions to the kernel by netlink, as far as the fast path needs them before any task runs.

use std::{
    io,
    io::{Read as _, Write as _},
};

use socket2::{Domain, Protocol, Socket, Type};

const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
/// `nlmsghdr`.
pub(super) const HEADER: usize = 16;

/// A socket of a netlink family: `NETLINK_ROUTE` or `NETLINK_GENERIC`.
pub(super) fn socket(family: i32) -> io::Result<Socket> {
    Socket::new(
        Domain::from(libc::AF_NETLINK),
        Type::RAW,
        Some(Protocol::from(family)),
    )
}

/// Sends one request of this kind and returns what stands behind the header of its answer.
pub(super) fn ask(mut socket: &Socket, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut request = vec![0; HEADER];
    request[0..4].copy_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    request.extend_from_slice(body);
    socket.write_all(&request)?;
    let mut answer = vec![0; 32_768];
    let len = socket.read(&mut answer)?;
    answer.truncate(len);
    if answer.get(4..6) == Some(&NLMSG_ERROR.to_ne_bytes()) {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(answer.split_off(HEADER.min(len)))
}

/// One attribute of a request.
pub(super) fn put(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = ((payload.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A 32-bit number.
pub(super) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().copied().map(u32::from_ne_bytes)
}

/// The payload of the attribute `kind` in a list of them.
pub(super) fn attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let [l0, l1, k0, k1] = *bytes.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let payload = bytes.get(4..len)?;
        // The two high bits are flags.
        if u16::from_ne_bytes([k0, k1]) & 0x3fff == kind {
            return Some(payload);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_torn_ones_are_not() {
        let list = [5, 0, 1, 0, 9, 0, 0, 0, 8, 0, 43, 0, 1, 2, 3, 4];
        assert_eq!(attribute(&list, 43), Some(&[1, 2, 3, 4][..]));
        assert_eq!(attribute(&list, 1), Some(&[9][..]));
        assert_eq!(attribute(&list, 7), None);
        assert_eq!(attribute(&list[..14], 43), None);
        assert_eq!(
            attribute(&[0, 0, 1, 0], 43),
            None,
            "a length of zero does not loop"
        );
    }

    #[test]
    fn what_is_put_is_found() {
        let list = [put(3, b"netdev\0"), put(7, &9_u32.to_ne_bytes())].concat();
        assert_eq!(attribute(&list, 3), Some(&b"netdev\0"[..]));
        assert_eq!(attribute(&list, 7).and_then(number), Some(9));
    }
}
