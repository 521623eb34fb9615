//! Framing: a stream means the same however it is cut, and holds no more than it must.

use keepline_engine::sip::{
    MAX_BYTES, Message,
    stream::{Broken, Frame, Framer, MAX_HEAD},
};

/// The first byte says how the rest is cut.
pub(crate) fn sip_stream(data: &[u8]) {
    let [cut, stream @ ..] = data else { return };
    let whole = frames(stream, stream.len().max(1));
    let parts = frames(stream, usize::from(*cut).max(1));
    assert_eq!(whole, parts);
    let (frames, _) = whole;
    let mut length = 0;
    for frame in frames {
        length += match frame {
            Frame::Ping => 4,
            Frame::Pong => 1,
            Frame::Stun(bytes) => bytes.len(),
            Frame::Message(bytes) => {
                assert!(bytes.len() <= MAX_HEAD + MAX_BYTES);
                message(&bytes);
                bytes.len()
            }
        };
    }
    assert!(length <= stream.len(), "bytes were made up");
}

/// A frame holds one message: whatever the parser takes it for, nothing stands behind it.
fn message(bytes: &[u8]) {
    if let Ok(msg) = Message::parse(bytes.to_vec()) {
        assert_eq!(msg.bytes().len(), bytes.len());
    }
}

fn frames(stream: &[u8], cut: usize) -> (Vec<Frame>, Option<Broken>) {
    let mut framer = Framer::default();
    let mut frames = Vec::new();
    for part in stream.chunks(cut) {
        framer.push(part);
        loop {
            match framer.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(why) => {
                    assert_eq!(framer.next_frame(), Err(why), "it stays broken");
                    assert!(framer.begun().ends_with(b"\r\n"));
                    return (frames, Some(why));
                }
            }
        }
        assert!(framer.held() <= MAX_HEAD + MAX_BYTES + cut);
    }
    // Once: it reads whatever is held.
    assert!(framer.begun().len() <= framer.held() + 2);
    (frames, None)
}
