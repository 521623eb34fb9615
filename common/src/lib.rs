//! What the XDP programs and the controller share: map keys and values, verdict reasons,
//! checksum and STUN arithmetic. No I/O and no allocation; tested on the host.
#![cfg_attr(not(test), no_std)]
